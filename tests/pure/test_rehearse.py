"""The parts of a rehearsal that need no cluster: configurations, delays, the engine's output, the copy of a base."""

import datetime
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import click
import pytest
import yaml

from emulator.cloud import delay
from gke_ai.catalog.machines.capacity import MODES
from gke_ai.catalog.nodes.durations import CONTAINER_START, MODEL_LOAD, NODE_READY
from gke_ai.forecast.outcome.timeline import Timeline
from gke_ai.forecast.rehearse import command, delays, prepared, sources
from gke_ai.forecast.rehearse.differences import Difference
from gke_ai.forecast.rehearse.engine import Update
from gke_ai.forecast.rehearse.scratch import Scratch
from gke_ai.forecast.rehearse.watching import Recorder
from gke_ai.forecast.render.rehearsal import remarks
from gke_ai.forecast.render.rehearsal_headline import sentence
from gke_ai.forecast.result.forecast import Forecast
from gke_ai.forecast.snapshot.command import read_file
from gke_ai.settings.calibration import Calibration, Duration, Step
from gke_ai.terminal import Stop
from gke_ai.workspace.stack import ROOT
from tests.support.commands import gke_ai


def written(path: Path, **config: object) -> Path:
    path.write_text(yaml.safe_dump({"config": {f"gke-ai:{key}": value for key, value in config.items()}}))
    return path


# ---------------------------------------------------------------------------------------------------- configurations
def test_a_missing_configuration_or_base_says_what_to_name_and_invalid_yaml_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = written(tmp_path / "changed.yaml", serving=[])
    assert sources.base("prod", None, changed, tmp_path) == ROOT / "Pulumi.prod.yaml"
    with pytest.raises(Stop, match="Name one with --config"):
        sources.changed("none", None)
    with pytest.raises(Stop, match=r"--base Pulumi\.prod\.yaml"):
        sources.base("prod", tmp_path / "none.yaml", ROOT / "Pulumi.prod.yaml", tmp_path)
    monkeypatch.setattr(sources, "ROOT", tmp_path)
    with pytest.raises(Stop, match="--base FILE"):
        sources.base("prod", None, written(tmp_path / "Pulumi.prod.yaml"), tmp_path)
    changed.write_text("config: [")
    with pytest.raises(Stop, match="is not valid YAML"):
        sources.changed("prod", changed)


def test_base_of_the_stack_file_is_where_the_branch_left_main(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*words: str) -> None:
        identity = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.com")
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True)

    monkeypatch.setattr(sources, "ROOT", tmp_path)
    file = written(tmp_path / "Pulumi.prod.yaml", size=1)
    git("init", "--initial-branch=main")
    git("add", ".")
    git("commit", "--message=base")
    git("switch", "--create=change")
    written(file, size=2)
    git("commit", "--all", "--message=change")
    written(file, size=3)  # not committed
    base = sources.base("prod", None, sources.changed("prod", None), tmp_path / "folder")
    assert yaml.safe_load(base.read_text()) == {"config": {"gke-ai:size": 1}}
    assert sources.differing_keys(base, file) == ["size"]


def test_a_scratch_copy_has_no_encrypted_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "Pulumi.prod.yaml"
    config = {"gke-ai:hfToken": {"secure": "v1:abc"}, "gke-ai:a": 1}
    source.write_text(yaml.safe_dump({"secretsprovider": "gcpkms://x", "config": config}))
    monkeypatch.setattr(Scratch, "run", lambda *_: '{"missing": null}')
    copy = Scratch(tmp_path / "scratch").prepare("base", source)
    assert yaml.safe_load(copy.read_text()) == {"config": {"gke-ai:a": 1}}


def test_the_scratch_emulator_has_what_a_configuration_expects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[tuple[str, ...]] = []
    missing = ['{"missing": {"what": "no cluster", "command": "emulator/run existing create ai"}}', '{"missing": null}']

    def run(_: Scratch, *words: str) -> str:
        commands.append(words)
        return missing.pop(0) if words[0] == "ready" else ""

    monkeypatch.setattr(Scratch, "run", run)
    Scratch(tmp_path / "scratch").prepare("base", written(tmp_path / "c.yaml"))
    assert commands[1] == ("existing", "create", "ai")


# ----------------------------------------------------------------------------------------------------------- delays
def test_every_capacity_mode_has_a_duration_that_becomes_a_delay_of_the_emulator() -> None:
    assert NODE_READY.keys() == MODES.keys()
    for duration in (*NODE_READY.values(), CONTAINER_START, MODEL_LOAD):
        assert duration.source.startswith(("https://", "assumption: "))
    stated = delays.arguments(delays.durations(Calibration()), 60)
    assert "node/spot=3" in stated
    assert f"server={round((CONTAINER_START.seconds + MODEL_LOAD.seconds) / 60, 2):g}" in stated
    assert delays.longest(stated) == 10  # an idle node stays for ten minutes
    assert all(delay._is_key(key.partition("=")[0]) for key in stated)


def test_measured_durations_replace_those_of_the_catalog_and_say_so() -> None:
    def measured(step: Step, of: str, seconds: int) -> Duration:
        times: Any = {"seconds": seconds, "max_seconds": seconds, "count": 3}
        return Duration(step=step, of=of, **times, measured_on=datetime.date(2026, 11, 20), gke_version="1.36")

    found = measured("modelLoad", "llm/gemma", 360), measured("nodeReady", "g2-standard-24", 90)
    stated = delays.durations(Calibration(durations=[*found, measured("clusterReady", "c", 600)]))
    assert [entry.source for entry in stated if entry.of == "llm/gemma"] == ["measured on 2026-11-20, 3 observations"]
    assert not [entry for entry in stated if entry.step == "clusterReady"]
    arguments = delays.arguments(stated, 60)
    assert "server/llm/gemma=9.83" in arguments  # 230 s of the catalog, 360 s measured
    assert "node/g2-standard-24=1.5" in arguments


# ----------------------------------------------------------------------------------------------------------- engine
OUTPUT = """\
Updating (prod):
@ updating....
 ~  kubernetes:apps/v1:Deployment serving/gemma updating (0s) [diff: ~spec]
 +  gcp:container:NodePool l4 creating (0s)
 +  gcp:container:NodePool l4 created (3s)
"""
FAILURE = """\
Diagnostics:
  pulumi:pulumi:Stack (gke-ai-prod):
    error: gke-ai:serving[0].gpus: 3 GPUs do not fit.

Resources:
    3 unchanged
"""


Updated = Callable[[str], Update]


@pytest.fixture
def update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Updated:
    monkeypatch.setattr(Scratch, "start", lambda *_: None)

    def printed(output: str) -> Update:
        (tmp_path / "change.yaml").touch()
        running = Update(Scratch(tmp_path), "prod", tmp_path / "change.yaml")
        (tmp_path / "change.log").write_text(output)
        return running

    return printed


def test_what_an_update_waits_for_and_had_done_is_named(update: Updated) -> None:
    assert update(OUTPUT).waits_for() == "Deployment serving/gemma"
    component = " +  gke-ai:index:GpuNodePool l4 created (0s)\n"
    assert update(OUTPUT + component).done() == ["created NodePool l4"]
    deleted = " -- gcp:container:NodePool l4 deleted original (2s)\n +- gcp:container:NodePool l4 replaced (0s)\n"
    failed = " ++ gcp:container:NodePool l4 **creating failed** error: no capacity\n"
    assert update(deleted + failed).done() == ["deleted NodePool l4"]
    created = " ++ gcp:container:NodePool l4 created replacement (3s)\n"
    assert update(deleted + created).done() == ["replaced NodePool l4"]
    secret = "kubernetes:core/v1:Secret a"
    first = f" ++ {secret} created replacement (0s)\n -- {secret} deleted original\n"
    assert update(first).done() == ["replaced Secret a"]


def test_reason_of_a_failure_is_shown_without_pulumis_display_and_warnings_are_notes(update: Updated) -> None:
    errors = update(OUTPUT + FAILURE).errors()
    assert "3 GPUs do not fit" in errors
    assert "unchanged" not in errors
    assert "updating" not in errors
    # It names resources as the configuration does, and has no estimates beside its reason.
    urn = "urn:pulumi:prod::gke-ai::gke-ai:index:KueueStack$kubernetes:kueue.x-k8s.io/v1beta2:LocalQueue::llm/lq"
    policies = f"Policies:\n    ✅ gke-ai@v1.0.0 (local: policy)\n    ❌ {urn}: no\nResources:\n    1 updated\n"
    assert update(policies).errors().split() == ["❌", "LocalQueue", "llm/lq:", "no"]
    text = "Diagnostics:\n  pulumi:pulumi:Stack (gke-ai-dev):\n    Cold start: llm/gemma reads 5 GB.\n    error: no\n"
    assert update(text).errors().splitlines()[1:] == ["    error: no"]
    assert update("gcp:project is missing\n").errors() == "gcp:project is missing", "without diagnostics"
    # Such as that Google deletes the machines of a reservation soon.
    text = "  warning: while it ran\nDiagnostics:\n  pulumi:pulumi:Stack (gke-ai-dev):\n    warning: pool l4: soon\n"
    assert update(text + text.splitlines()[-1]).notes() == ["The program warns: pool l4: soon"]


def test_a_run_that_leaves_the_stack_is_named_because_it_stays(update: Updated) -> None:
    """Also the run of before a change, beside which the changed one is created."""
    kept = " -  kubernetes:batch/v1:Job llm/train-0a1b2c deleted[retain] (0s)\n"
    service = " -  kubernetes:core/v1:Service llm/train-0a1b2c deleted[retain] (0s)\n"
    running = update(kept + service)
    stays = "leaves the stack and stays in the cluster. Only kubectl ends a run that is active."
    assert (running.notes(), running.done()) == ([f"Run llm/train-0a1b2c {stays}"], [])
    assert update(kept.replace("[retain]", "")).notes() == []
    owner = " -  kubernetes:core/v1:ConfigMap llm/runs-of-gke-ai-dev deleted (1s)\n"
    assert update(kept + owner).notes() == [], "it ends with its owner"
    record = " -  kubernetes:core/v1:ConfigMap llm/train-0a1b2c deleted (1s)\n"
    assert update(kept + record).notes() == running.notes()


# -------------------------------------------------------------------------------------------------------- kept bases
def test_a_kept_base_belongs_to_its_stack_configuration_measurements_and_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = written(tmp_path / "one.yaml", size=1), written(tmp_path / "other.yaml", size=2)
    stated = ("prod", one), ("prod", one), ("dev", one), ("prod", other)
    same, again, *others = (prepared.key(stack, file, None) for stack, file in stated)
    assert (same, len({same, *others})) == (again, 3)
    measured = tmp_path / "calibration.yaml"
    config = written(tmp_path / "config.yaml", calibration=str(measured))
    measured.write_text("nodes: []")
    before = prepared.key("prod", config, None)
    duration = {"step": "modelLoad", "of": "llm/gemma", "seconds": 360, "maxSeconds": 400, "count": 3}
    duration |= {"measuredOn": datetime.date(2026, 11, 20), "gkeVersion": "1.36"}
    measured.write_text(yaml.safe_dump({"durations": [duration]}))
    assert prepared.key("prod", config, None) != before
    monkeypatch.setattr(prepared, "ROOT", tmp_path)
    of_manifests = prepared.key("prod", one, None)
    (tmp_path / "__main__.py").write_text("mine\n")
    assert prepared.key("prod", one, None) != of_manifests


# ---------------------------------------------------------------------------------------------------------- command
class QuietCluster:
    """A recorder of a cluster in which nothing happens."""

    quiet = 60.0

    def settle(self, *_: object) -> bool:
        FailsLater.runs = False
        return True

    def begin(self) -> None: ...

    applied = begin

    def timeline(self, settled: bool) -> Timeline:
        return Timeline((), 0, 1, settled)


class FailsLater:
    """An update that waits for a resource, and fails while the cluster is watched."""

    runs = True
    quiet = 60.0

    def __init__(self, *_: object) -> None:
        FailsLater.runs = True

    def waits_for(self) -> str:
        return "Deployment serving/gemma"

    def succeeded(self) -> bool:
        return False

    def errors(self) -> str:
        return "serving/gemma: progress deadline exceeded"

    def notes(self) -> list[str]:
        return []

    def stop(self) -> None: ...


class Refused(FailsLater):
    """An update that the cluster refuses when a part of it is applied."""

    def __init__(self, *_: object) -> None:
        FailsLater.runs = False

    def done(self) -> list[str]:
        return ["created Job llm/train"]


def rehearsed(update: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Forecast:
    monkeypatch.setattr(Scratch, "run", lambda *_: "")
    stated, quiet = delays.durations(Calibration()), cast("Recorder", QuietCluster())
    return command._change(Scratch(tmp_path), command.Options(), update, "serving", stated, quiet)


def test_a_failed_update_of_a_watched_cluster_is_noted_and_one_refused_half_way_has_the_result_of_its_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forecast = rehearsed(FailsLater, tmp_path, monkeypatch)
    assert forecast.notes == ("pulumi up failed in the end: serving/gemma: progress deadline exceeded",)
    forecast = rehearsed(Refused, tmp_path, monkeypatch)
    assert forecast.refused == "serving/gemma: progress deadline exceeded"
    assert forecast.notes == ("Before it was refused, the change had created Job llm/train.",)
    assert sentence(forecast).startswith("The change is refused when a part of it is applied already: that part ")
    assert remarks(forecast)[0] == "The change is refused: serving/gemma: progress deadline exceeded"


TWO_SIGNALS = """
import os, signal, subprocess, sys
from gke_ai.forecast.rehearse.command import stop_at_signals
stop_at_signals()
try:
    os.kill(os.getpid(), int(sys.argv[1]))
finally:
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGTERM)
    subprocess.run(["bash", "-c", "kill -INT $$; kill -TERM $$; echo cleaned up"], check=True)
"""


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_second_ctrl_c_does_not_stop_the_cleaning_up(first: signal.Signals) -> None:
    # A terminal's program. Under nohup, these tests inherit that the signal is ignored.
    program = f"import signal\nsignal.signal(signal.SIGHUP, signal.SIG_DFL)\n{TWO_SIGNALS}"
    command = [sys.executable, "-c", program, str(int(first))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "cleaned up\n"
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "The rehearsal was stopped.")


def test_a_rehearsal_under_nohup_outlives_its_terminal() -> None:
    program = TWO_SIGNALS.partition("try:")[0] + "os.kill(os.getpid(), signal.SIGHUP); print('goes on')"
    command = ["nohup", sys.executable, "-c", program]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout == "goes on\n"


def test_the_same_configuration_is_no_change_and_a_snapshot_that_cannot_be_read_stops_first(tmp_path: Path) -> None:
    file = written(tmp_path / "same.yaml", size=1)
    assert command.rehearse(command.Options("prod", file, file)) is None
    with pytest.raises(Stop, match="cannot be read"):
        read_file(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(Stop, match=r"bad\.json"):
        read_file(tmp_path / "bad.json")


def test_empty_options_are_not_stated_and_modes_without_capacity_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The action for manifests passes empty ones."""
    seen: list[command.Options] = []
    monkeypatch.setattr(command, "show", seen.append)
    words = ("--config", "--base", "--snapshot", "--json", "--unavailable")
    gke_ai("rehearse", *(word for name in words for word in (name, "")))
    gke_ai("rehearse", "--unavailable", "spot, flexStart")
    assert seen == [command.Options(), command.Options(unavailable=("spot", "flexStart"))]
    with pytest.raises(click.BadParameter, match="spots is not a capacity mode"):
        gke_ai("rehearse", "--unavailable", "spots")


def test_differences_from_a_snapshot_are_noted_by_kind() -> None:
    found = [Difference("Pod", f"llm/{name}", "", "present", "(absent)") for name in "cab"]
    notes = list(command.summarized([*found, Difference("Node", "n", "", "(absent)", "present")]))
    assert notes == [
        "Unlike the snapshot: Node n is additional.",
        "Unlike the snapshot: Pod llm/a is missing, and 2 more of this kind.",
    ]
