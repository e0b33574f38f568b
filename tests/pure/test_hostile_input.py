"""Fuzz of what strangers send: a snapshot or configuration is accepted or refused with a reason, and nothing else.

`make test` runs a few hundred cases of each, and `make test-nightly` ten thousand together. A case is named by its
number, which is the seed of its mutations.
"""

import copy
import json
import os
import random
import re
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import yaml
from rich.table import Table

from gke_ai.forecast.rehearse.manifests import parse
from gke_ai.forecast.rehearse.progress import phase
from gke_ai.forecast.rehearse.restore import plan
from gke_ai.forecast.snapshot import fields
from gke_ai.forecast.snapshot.command import read_file
from gke_ai.forecast.snapshot.format import InvalidSnapshot, read
from gke_ai.forecast.snapshot.names import hash_names
from gke_ai.formats.console import PlainConsole, new_console
from gke_ai.formats.markdown import code, table, text
from gke_ai.settings import BadConfiguration, load
from gke_ai.terminal import Stop
from gke_ai.workspace.configuration_file import read_configuration
from tests.support import repository
from tests.support.mistakes import places
from tests.support.snapshots import synthetic

QUICK, LONG = range(150), range(150, 5_000)
NOW = datetime(2026, 11, 23, tzinfo=UTC)
PROJECT = "my-project"

HOSTILE: list[Any] = [
    *("", "/", "..", "../../etc/passwd", "/etc/passwd", "~/.ssh/id_rsa", "a/../../b", "\x00", "\u202e", "a" * 70_000),
    *("$(id)", "`id`", "; rm -rf /", "${HOME}", "{{ .Values }}", "{project}"),
    *("%s%n", "<script>", "](javascript:x)", "=1+1"),
    *("9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "2026-99-99T99:99:99Z", "2026-11-23T10:00:00Z", "1e999", "NaN"),
    *(0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**300, 1e308, -0.0, float("nan"), float("inf"), True, False, None),
    *([], {}, [[]], [{}], [None], {"": ""}, {"name": None}, {"*": 1}, ["x"] * 2000, {str(n): n for n in range(2000)}),
    {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x", "namespace": "kube-system"}},
]


def mutated(document: Any, seed: int) -> Any:
    """Returns a document with one to three hostile changes."""
    chance = random.Random(seed)
    changed = copy.deepcopy(document)
    for _ in range(chance.randint(1, 3)):
        *around, last = chance.choice(list(places(changed)))
        parent = changed
        for step in around:
            parent = parent[step]
        kind = chance.random()
        if kind < 0.6:
            parent[last] = copy.deepcopy(chance.choice(HOSTILE))
        elif kind < 0.75:
            del parent[last]
        elif kind < 0.85 and isinstance(parent, list):
            parent.extend(copy.deepcopy(parent[last]) for _ in range(chance.choice([1, 3])))
        elif kind < 0.95:
            *other, end = chance.choice(list(places(changed)))
            source = changed
            for step in other:
                source = source[step]
            parent[last] = copy.deepcopy(source[end])
        elif isinstance(parent, dict):
            parent[chance.choice(["", "../y", "__class__", "apiVersion", "status", "*", "a" * 1000])] = parent.pop(last)
    return changed


WATCHED: list[list[str]] = []
CHANGES = (
    *("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.chmod", "os.truncate", "shutil."),
    *("subprocess.", "socket.connect", "os.exec", "os.system", "os.posix"),
)


@contextmanager
def touches_nothing() -> Iterator[None]:
    """Fails if the block writes, deletes or renames a file, starts a program, or opens a connection."""
    WATCHED[:] = [[]]
    try:
        yield
        assert WATCHED[0] == []
    finally:
        WATCHED.clear()


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if not WATCHED:
        return
    writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    if writes or event.startswith(CHANGES):
        WATCHED[0].append(f"{event} {arguments[:2]}")


sys.addaudithook(_watch)


# ------------------------------------------------------------------------------------------------------------ snapshots
@pytest.fixture(scope="module")
def snapshot() -> Any:
    """A snapshot of every kind that a busy cluster has, with a JobSet and a ProvisioningRequest."""
    whole = json.loads(synthetic(4, teams=2).to_json())
    (job, *_), (workload, *_) = whole["objects"]["Job"], whole["objects"]["Workload"]
    metadata = {"name": "s", "namespace": "team-0", "uid": "6f0c3b1e-58f0-4f0e-9a53-0d5b6f7a8c9d"}
    jobs = [{"name": "workers", "replicas": 1, "template": {"spec": copy.deepcopy(job["spec"])}}]
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "s", "uid": metadata["uid"]}
    owned = {**copy.deepcopy(job), "metadata": {**metadata, "name": "s-workers-0", "ownerReferences": [owner]}}
    del owned["metadata"]["uid"]
    waiting = {**copy.deepcopy(workload), "metadata": {**metadata, "name": "jobset-s", "ownerReferences": [owner]}}
    del waiting["metadata"]["uid"]
    whole["objects"]["JobSet"] = [{"metadata": metadata, "spec": {"replicatedJobs": jobs}, "status": {"restarts": 0}}]
    whole["objects"]["Job"].append(owned)
    whole["objects"]["Workload"].append(waiting)
    asked = {"podSets": [{"count": 2, "podTemplateRef": {"name": "t"}}], "parameters": {"a": "1"}}
    whole["objects"]["ProvisioningRequest"] = [{"metadata": {"name": "r", "namespace": "team-0"}, "spec": asked}]
    pods = {"template": copy.deepcopy(job["spec"]["template"])}
    server = {**metadata, "name": "server", "uid": "7f0c3b1e-58f0-4f0e-9a53-0d5b6f7a8c9d"}
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "server", "uid": server["uid"]}
    owned = {"name": "server-1", "namespace": "team-0", "ownerReferences": [owner]}
    whole["objects"] |= {
        "Deployment": [{"metadata": server, "spec": {"replicas": 2, **pods}}],
        "ReplicaSet": [{"metadata": owned, "spec": {"replicas": 2, **pods}}],
        "DaemonSet": [{"metadata": {"name": "agent", "namespace": "kube-system"}, "spec": pods}],
        "HorizontalPodAutoscaler": [{"metadata": {"name": "h", "namespace": "team-0"}, "spec": {"maxReplicas": 3}}],
    }
    read(json.dumps(whole))
    return whole


def restored(text: str) -> str:
    """What a rehearsal does with a text before it writes it into a scratch cluster; the reason if it is refused."""
    try:
        taken = read(text)
    except InvalidSnapshot as refused:
        return str(refused)
    whole = plan(taken.at(NOW), {})
    hash_names(taken, [], b"k" * 32)
    assert len(whole.to_json()) < 200 * 2**20
    return ""


def cases(seeds: range, refused: int, accepted: int) -> Any:
    """Cases, of which more than these are refused and accepted."""
    nightly = [pytest.mark.nightly] if seeds == LONG else []
    return pytest.param(seeds, refused, accepted, id=f"{len(seeds)} cases", marks=nightly)


@pytest.mark.parametrize(("seeds", "refused", "accepted"), [cases(QUICK, 50, 5), cases(LONG, 1500, 100)])
def test_a_hostile_snapshot_is_refused_or_restored(seeds: range, refused: int, accepted: int, snapshot: Any) -> None:
    reasons = []
    for seed in seeds:
        text = json.dumps(mutated(snapshot, seed))
        with touches_nothing():
            reason = restored(text)
        reasons.append(reason)
        assert len(reason) < 1500, f"case {seed}: the reason is not one to read"
        assert not reason or "gke-ai snapshot" in reason or "Update the checkout" in reason, f"case {seed}"
    assert sum(map(bool, reasons)) > refused
    assert reasons.count("") > accepted


def of(**objects: list[Any]) -> str:
    """A snapshot with these objects."""
    document = {"version": fields.version(), "takenAt": "2026-11-22T10:00:00Z", "stack": "prod"}
    return json.dumps({**document, "objects": objects})


def test_100_000_objects_are_refused_in_little_memory() -> None:
    many = of(Pod=[{"metadata": {"name": f"p-{n}"}} for n in range(100_000)])
    tracemalloc.start()
    try:
        assert "The snapshot has 100000 objects. A scratch cluster holds 30000" in restored(many)
        assert tracemalloc.get_traced_memory()[1] < 200 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        *(("Deployment", {"replicas": count}) for count in (10**9, True, 1.5)),
        ("Job", {"parallelism": 20_001}),
        ("JobSet", {"replicatedJobs": [{"name": "w", "replicas": 2_000, "template": {"spec": {"parallelism": 11}}}]}),
        ("HorizontalPodAutoscaler", {"maxReplicas": -1}),
    ],
)
def test_counts_that_would_fill_the_machine_with_pods_are_refused(kind: str, spec: Any) -> None:
    assert "20000" in restored(of(**{kind: [{"metadata": {"name": "a", "namespace": "n"}, "spec": spec}]}))


def test_an_owner_that_the_snapshot_lacks_hides_no_pods() -> None:
    """The restore drops such an owner, so the pods would come."""
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": str(UUID(int=1)), "controller": True}
    metadata, spec = {"namespace": "n", "ownerReferences": [owner]}, {"parallelism": 15_000}
    jobs = [{"metadata": {"name": name, **metadata}, "spec": spec} for name in "ab"]
    assert "want 30000 pods" in restored(of(Job=jobs))


def test_a_file_that_is_too_large_or_has_no_end_is_refused(tmp_path: Path) -> None:
    large = tmp_path / "snapshot.json"
    with large.open("wb") as file:
        file.truncate(65 * 2**20)  # sparse: takes no disk
    with pytest.raises(Stop, match="more than 64 MiB"):
        read_file(large)
    with pytest.raises(Stop, match="is not a file"):
        read_file(Path("/dev/zero"))
    large.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(Stop, match="is not text"):
        read_file(large)
    with pytest.raises(BadConfiguration, match="is not a file of at most 1 MiB"):
        load({"calibration": "/dev/zero"}, PROJECT)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, "[" * 500 + "]" * 500, '"' + "x" * 10_000_000, "9" * 5000]
)
def test_a_text_that_would_exhaust_a_parser_is_refused(text: str) -> None:
    assert "gke-ai snapshot" in restored(text)


# ---------------------------------------------------------------------------------------------- terminals and Markdown
ESCAPES = "a\x1b]52;c;aWQ=\x07\x1b[2Jb\rc\x9bd\u202ee\u2028f"
SHOWN = "a\ufffd]52;c;aWQ=\ufffd\ufffd[2Jb c\ufffdd\ufffde\ufffdf"


def test_no_text_of_a_stranger_controls_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    grid = Table("kind")
    grid.add_row(ESCAPES)
    console = new_console()
    console.print(grid)
    console.print(ESCAPES, markup=False)
    with pytest.raises(Stop) as stopped:
        raise Stop(ESCAPES)
    with phase(ESCAPES) as answer:
        answer(ESCAPES)
    printed = capsys.readouterr().out + str(stopped.value)
    assert printed.count("\ufffd]52;c;aWQ=") == 5
    assert str(stopped.value) == SHOWN
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e]", printed)


def test_styles_of_the_commands_reach_a_terminal() -> None:
    console = PlainConsole(force_terminal=True, width=40)
    with console.capture() as captured:
        console.print("[bold]a[/bold]" + "\x1b[31mb")
    assert captured.get().startswith("\x1b[1ma\x1b[0m\ufffd")
    assert "\x1b[31m" not in captured.get()


CELLS = (ESCAPES, "a|b", "a\\|b", "a\\\\|b", "a\\", "|", "`|`", "\\`|", "a\r|b", "<!--|", "a\n|b")


@pytest.mark.parametrize("value", CELLS)
@pytest.mark.parametrize("form", [text, code])
def test_no_text_ends_a_cell_of_a_table(form: Callable[[str], str], value: str) -> None:
    row = table(["a", "b"], [[form(value), "next"]]).split("\n", 2)[2]
    assert not {"\n", "\r", "\x1b"} & {*row}
    # As GitHub divides a row: a backslash and the punctuation after it are one, and a bar is not.
    assert len(re.sub(r"\\[!-/:-@\[-`{-~]", "", row).split("|")) == 4, row


@pytest.mark.parametrize("key", ["kind", "apiVersion"])
def test_a_manifest_whose_kind_is_no_name_is_refused(key: str) -> None:
    item = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, key: ESCAPES}
    with pytest.raises(Stop, match=rf"a\.yaml, document 1: {key}: .* is none that Kubernetes has"):
        parse(json.dumps(item), "a.yaml")


def test_a_snapshot_of_a_stack_whose_name_is_none_is_refused(snapshot: Any) -> None:
    for stack in (ESCAPES, "a\nb", "a|b", "", "a" * 300, "<!--"):
        assert "stack" in restored(json.dumps({**snapshot, "stack": stack}))
    assert restored(json.dumps({**snapshot, "stack": "gke_my-project_us-central1-a_prod/x.y@z:1"})) == ""


# ------------------------------------------------------------------------------------------------------- configurations
def configurations() -> list[Any]:
    """The sections of every configuration of the project."""
    files = [yaml.safe_load(file.read_text())["config"] for file in repository.configurations()]
    sections = [{key[7:]: part for key, part in file.items() if key[:7] == "gke-ai:"} for file in files]
    return [{key: part for key, part in own.items() if key != "calibration"} for own in sections]


@pytest.mark.parametrize(("seeds", "refused", "accepted"), [cases(QUICK, 80, 5), cases(LONG, 2500, 100)])
def test_a_hostile_configuration_is_refused_or_accepted(seeds: range, refused: int, accepted: int) -> None:
    bases, bad_ones = configurations(), 0
    for seed in seeds:
        values = mutated(bases[seed % len(bases)], seed)
        with touches_nothing():
            try:
                load(values, PROJECT)
            except BadConfiguration as bad:
                bad_ones += 1
                for problem in bad.problems:
                    assert all((problem.path, problem.cause, problem.remedy)), f"case {seed}: {problem}"
    assert bad_ones > refused
    assert len(seeds) - bad_ones > accepted


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("config: &a [*a]", "an alias contains itself"),
        ("[" * 20_000, "nested too deeply"),
        ("- a", "it has no keys"),
        ("a: [", "is not valid YAML"),
        ("a: 1" + " " * 2**20, "is not a file of at most 1 MiB"),
    ],
    ids=["itself", "deep", "a list", "broken", "large"],
)
def test_a_configuration_that_would_exhaust_memory_is_refused(text: str, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.dev.yaml"
    file.write_text(text)
    with pytest.raises(Stop, match=reason) as refused:
        read_configuration(file)
    assert len(str(refused.value)) < 1000
    file.write_text("config: {a: &a {x: 1}, b: *a}")
    assert read_configuration(file)["config"]["b"] == {"x": 1}
