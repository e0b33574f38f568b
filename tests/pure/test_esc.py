"""Values of Pulumi ESC: every verb decides by the values that `pulumi up` sees, and no secret leaves the CLI."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gke_ai.cli.verbs import gke_ai as every_verb
from gke_ai.terminal import Stop
from gke_ai.workspace import configuration_file, environments
from tests.support import esc
from tests.support.repository import ROOT

TOKEN = "hf_thisIsTheSecretToken"
QUEUES = {
    "flavors": [{"name": "l4", "accelerator": "nvidia-l4"}],
    "clusterQueues": [{"name": "gpus", "flavors": [{"flavor": "l4", "quota": {"nvidia.com/gpu": "4"}}]}],
    "localQueues": [{"name": "team", "namespace": "llm", "clusterQueue": "gpus"}],
}
CLUSTER = {"name": "ml", "mode": "autopilot", "location": "us-central1"}
WHOLE = {
    "gcp:project": "project-of-esc",
    "gke-ai:policies": "mandatory",
    "gke-ai:cluster": CLUSTER,
    "gke-ai:queues": QUEUES,
    "gke-ai:hfToken": {"secure": "v1:abcdefghijkl:mnopqrstuvwxyz"},
}
# The same, split: the file has a part of the cluster, and the environments the rest.
FILE = {"gke-ai:cluster": {"location": "us-central1", "mode": "autopilot"}}
ENVIRONMENTS = {
    "base": {"gcp:project": "other-project", "gke-ai:policies": "mandatory"},
    "prod": {
        "gcp:project": "project-of-esc",
        "gke-ai:cluster": {"name": "ml", "location": "europe-west4"},
        "gke-ai:queues": QUEUES,
        "gke-ai:hfToken": {esc.SECRET: TOKEN},
    },
}
OF_THE_EMULATOR = ("GKE_AI_STATE", "GKE_AI_ROOT")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in the project, which Git ignores."""
    (ROOT / ".local").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / ".local") as path:
        yield Path(path)


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A shell outside the emulator, with a CLI that is logged in."""
    for name in OF_THE_EMULATOR:
        monkeypatch.delenv(name, raising=False)
    for name, value in esc.install(tmp_path, ENVIRONMENTS).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GKE_AI_STACK_OF_ENVIRONMENTS", "acme/prod")
    yield
    for name in [*os.environ]:
        if name.startswith("GKE_AI_OPENED_"):
            del os.environ[name]


def written(folder: Path, environment: Any = ("base", "prod"), keys: dict[str, Any] = FILE) -> Path:
    """A configuration that names environments."""
    file = folder / "Pulumi.prod.yaml"
    stated = list(environment) if isinstance(environment, tuple) else environment
    file.write_text(yaml.safe_dump({"environment": stated, "config": keys}))
    return file


def refusal(file: Path) -> str:
    """The message for a configuration."""
    with pytest.raises(Stop) as stopped:
        configuration_file.read_keys(file)
    return str(stopped.value)


# ---------------------------------------------------------------------------------------------------------- the values
def test_the_file_is_merged_over_its_environments_as_pulumi_does(folder: Path) -> None:
    keys = configuration_file.read_keys(written(folder))
    assert keys == {**WHOLE, "gke-ai:hfToken": environments.MASKED}
    assert configuration_file.resolve(keys, folder) == configuration_file.resolve(WHOLE, folder)


def test_an_environment_that_is_a_mapping_has_imports_and_values(folder: Path) -> None:
    inline = {"gke-ai:policies": "advisory", "gke-ai:number": 5, "gke-ai:flag": True}
    environment = {"imports": ["prod"], "values": {"pulumiConfig": inline, "environmentVariables": {"A": "b"}}}
    keys = configuration_file.read_keys(written(folder, environment))
    assert {key: keys[key] for key in inline} == inline
    assert keys["gke-ai:queues"] == QUEUES
    assert "environmentVariables" not in json.dumps(keys)


def test_a_secret_of_the_file_is_used_before_that_of_the_environment(folder: Path) -> None:
    own = {"secure": "v1:own"}
    assert configuration_file.read_keys(written(folder, keys={"gke-ai:hfToken": own}))["gke-ai:hfToken"] == own


def test_one_call_opens_the_same_environment_for_all_files_and_writes_into_none(folder: Path, tmp_path: Path) -> None:
    file = written(folder)
    text = file.read_text()
    for keys in (FILE, {"gcp:project": "mine"}, FILE):
        configuration_file.read_keys(written(folder, keys=keys))
    assert file.read_text() == text
    ((*command, path),) = esc.calls(tmp_path)
    assert command == [*environments._COMMAND[1:], "--stack", "acme/prod", "--config-file"]
    assert not Path(path).exists()


def test_no_secret_is_in_arguments_variables_or_written_files(folder: Path, tmp_path: Path) -> None:
    keys = configuration_file.read_keys(written(folder))
    copy = configuration_file.write_keys(tmp_path / "copy" / "Pulumi.prod.yaml", keys, folder / "Pulumi.prod.yaml")
    assert "hfToken" not in copy.read_text()
    assert TOKEN not in json.dumps([dict(os.environ), keys, esc.calls(tmp_path), copy.read_text()])


# ----------------------------------------------------------------------------------------------------- what is refused
def test_a_strangers_file_opens_nothing(tmp_path: Path) -> None:
    message = refusal(written(tmp_path))
    assert message.startswith("Pulumi.prod.yaml: environment: the file is not in ")
    assert "copy it there" in message
    link = ROOT / ".local" / "Pulumi.link-of-a-test.yaml"
    link.symlink_to(tmp_path / "Pulumi.prod.yaml")
    try:
        assert "the file is not in" in refusal(link)
    finally:
        link.unlink()
    assert esc.calls(tmp_path) == []


@pytest.mark.parametrize(
    "reason",
    [
        "PULUMI_ACCESS_TOKEN must be set for login during non-interactive CLI sessions",
        "backend file://~ does not support environments",
        "no stack named 'prod' found",
    ],
)
def test_a_cli_that_refuses_is_reported_with_its_reason(
    reason: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{esc.FOLDER}_REFUSAL", reason)
    message = refusal(written(folder))
    assert f"environment: Pulumi does not open it: error: {reason}. Log in to Pulumi Cloud" in message
    assert "pulumi stack init acme/prod" in message


def test_an_environment_with_errors_stops_as_up_does(folder: Path) -> None:
    assert "has errors, and `pulumi up` would stop" in refusal(written(folder, ["base", "unknown"]))


def test_a_missing_cli_and_a_wrong_answer_are_reported(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pulumi").write_text("#!/bin/sh\necho no JSON\n")
    assert "pulumi gives no valid answer" in refusal(written(folder))
    monkeypatch.setenv("PATH", str(folder))
    assert "pulumi is not on PATH" in refusal(written(folder))


@pytest.mark.parametrize("key", ["gke-ai:serving", "gcp:project"])
def test_a_secret_that_verbs_must_read_is_refused(key: str, folder: Path) -> None:
    environment = {"values": {"pulumiConfig": {key: [{esc.SECRET: TOKEN}]}}}
    message = refusal(written(folder, environment))
    assert f"{key} is secret there" in message
    assert TOKEN not in message


def test_values_that_pulumi_cannot_pass_to_the_program_are_refused(folder: Path) -> None:
    environment = {"values": {"pulumiConfig": {"gke-ai:serving": ["x" * 140_000]}}}
    assert "its values exceed 131,072 bytes" in refusal(written(folder, environment))


def test_the_emulator_opens_nothing_itself(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GKE_AI_STATE", str(tmp_path))
    assert "the emulator has no login to Pulumi Cloud" in refusal(written(folder))


# ---------------------------------------------------------------------------------------------------------- every verb
# `compare` takes the name of the stack alone.
CONFIGURED = sorted(
    name
    for name, verb in every_verb.commands.items()
    if name != "compare" and any(option.name == "config" for option in verb.params)
)
WORDS = {
    "logs": ["run"],
    "remove-run": ["run"],
    "render": ["rendered", "--for", "argocd"],
    "trial": ["training-job", "--budget", "1", "--prices", "prices.yaml"],
    "when": [str(ROOT / "tests/data/empty.yaml")],
}
# Verbs that run on this machine alone, or read the configuration outside the emulator. The others hand it to Pulumi.
HERE = ("capacity", "doctor", "prices", "trace-generate")


def ran(file: Path, *words: str) -> str:
    """What `gke-ai WORDS` prints and its exit code; in place of a command on the emulator, its words."""
    code = (
        "import os, sys, gke_ai.__main__ as program\n"
        "def execute(run, words):\n"
        "    opened = sorted(value for name, value in os.environ.items() if name.startswith('GKE_AI_OPENED_'))\n"
        "    print(words, opened)\n    sys.exit(0)\n"
        "os.execv = execute\nprogram.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=ROOT, text=True, capture_output=True, check=False, timeout=60
    )
    return f"{done.stdout}{done.stderr}{done.returncode}".replace(str(file), "CONFIG")


@pytest.mark.parametrize("verb", HERE)
def test_a_verb_outside_the_emulator_says_the_same_as_with_the_values_in_the_file(
    verb: str, folder: Path, tmp_path: Path
) -> None:
    inline = tmp_path / "Pulumi.prod.yaml"
    inline.write_text(yaml.safe_dump({"config": WHOLE}))
    file = written(folder)
    printed = ran(file, verb, "--stack", "prod", "--config", str(file))
    assert printed == ran(inline, verb, "--stack", "prod", "--config", str(inline))
    assert "Traceback" not in printed
    assert "environment:" not in printed
    assert TOKEN not in printed


@pytest.mark.parametrize("verb", [name for name in CONFIGURED if name not in HERE])
def test_a_verb_on_the_emulator_gets_the_values_that_were_opened_before(verb: str, folder: Path) -> None:
    file = written(folder)
    place = ["--emulator"] if any("--emulator" in option.opts for option in every_verb.commands[verb].params) else []
    named = [] if verb == "trial" else ["--stack", "prod", "--config", str(file)]
    printed = ran(file, verb, *WORDS.get(verb, []), *named, *place)
    assert ("project-of-esc" in printed) == (verb != "trial"), printed
    assert TOKEN not in printed


def test_the_base_and_the_compared_configurations_are_opened_too(folder: Path) -> None:
    inline, other = ROOT / "tests/data/empty.yaml", written(folder)
    for verb, option in (("rehearse", "--base"), ("simulate", "--compare")):
        printed = ran(other, verb, "--stack", "prod", "--config", str(inline), option, str(other))
        assert "project-of-esc" in printed, printed
