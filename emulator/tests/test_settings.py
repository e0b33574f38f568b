"""What `emulator/run capacity`, `delay` and `program` set, and that a scratch emulator can be discarded."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from emulator.cloud import capacity, delay, program
from emulator.cloud.program import LocalProgram, program_for
from emulator.cloud.records import Damaged
from emulator.cluster import ClusterRecord, PoolRecord
from emulator.commands import discard, ready
from emulator.machine import paths
from emulator.nodes.objects import new_nodes
from gke_ai.catalog.machines.capacity import MODES
from gke_ai.workspace.emulation import READY_AFTER

CLUSTER = ClusterRecord("c", "p", "us-central1", "standard", ["us-central1-a"], "1.36.1-gke.1")
POOL = PoolRecord("l4", "g2-standard-24", ["us-central1-a"], gpu="nvidia-l4", gpus=2, nodes_per_zone=1)


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "STATE", tmp_path / "state")
    monkeypatch.setattr(paths, "CLUSTERS", tmp_path / "state" / "clusters")


def table(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    return dict(line.split() for line in capsys.readouterr().out.splitlines())


def test_a_mode_is_available_unless_it_is_set_unavailable(capsys: pytest.CaptureFixture[str]) -> None:
    assert capacity.unavailable() == frozenset()
    assert capacity.main([]) == 0
    assert table(capsys) == dict.fromkeys(MODES, "in")
    assert capacity.main(["spot=0", "flexStart=0"]) == 0
    assert capacity.main(["onDemand=1", "flexStart=1"]) == 0
    assert capacity.unavailable() == {"spot"}
    capsys.readouterr()
    capacity.main([])
    assert table(capsys) == dict.fromkeys(MODES, "in") | {"spot": "out"}


@pytest.mark.parametrize("argument", ["sport=0", "spot", "spot=2", "=1"])
def test_an_unknown_capacity_mode_is_refused_and_changes_nothing(
    argument: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert capacity.main(["flexStart=0", argument]) == 2
    assert capacity.unavailable() == frozenset()
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith(f"{argument} is not a capacity mode. Write MODE=0 or MODE=1; modes: onDemand, spot")


@pytest.mark.parametrize("content", ["", '{"out": ["sp', "[]", '{"other": 1}', "\x00"])
@pytest.mark.parametrize(
    ("name", "read"), [("capacity", capacity.unavailable), ("delays", delay.delays), ("programs", program.named)]
)
def test_a_damaged_file_of_settings_is_named_before_a_cluster_waits_for_it(
    name: str, read: Callable[[], object], content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read()
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / f"{name}.json").write_text(content)
    with pytest.raises(Damaged, match=rf"{name}\.json is damaged.*Delete the file"):
        read()
    configuration = tmp_path / "mine.yaml"
    configuration.write_text("config: {}")
    monkeypatch.setattr("sys.argv", ["ready", str(configuration)])
    with pytest.raises(SystemExit, match=rf"{name}\.json is damaged"):
        ready.main()


def held(capacity: str = "onDemand") -> str | None:
    """The delay of a new node."""
    (node,) = new_nodes(CLUSTER, PoolRecord(**{**vars(POOL), "capacity": capacity}), [], 1)
    annotations: dict[str, str] = delay.hold_back(node)["metadata"]["annotations"]
    return annotations.get(READY_AFTER)


def test_the_most_specific_delay_of_a_node_counts_and_by_default_there_is_none() -> None:
    assert (held(), delay.idle_seconds()) == (None, delay.IDLE_SECONDS)
    assert delay.main(["node=1", "node/spot=2", "idle=10"]) == 0
    assert (held(), held("spot"), held("flexStart"), delay.idle_seconds()) == ("1.0s", "2.0s", "1.0s", 10)
    assert delay.main(["node=1", "node/spot=2", "node/g2-standard-24=3.5"]) == 0
    assert (held(), held("spot")) == ("3.5s", "3.5s")


def test_delays_are_shown_replaced_and_removed(capsys: pytest.CaptureFixture[str]) -> None:
    delay.main(["node=1", "server/llm/gemma=2"])
    delay.main(["pod=3.5"])
    capsys.readouterr()
    assert delay.main([]) == 0
    assert capsys.readouterr().out == "pod=3.5\n"
    assert delay.main(["none"]) == 0
    assert delay.delays() == {}


@pytest.mark.parametrize(
    "argument", ["nodes=1", "node/sport=1", "node", "node=x", "node=-1", "server/llm=1", "server/a/b'=1"]
)
def test_an_unknown_delay_is_refused_and_changes_nothing(argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert delay.main(["node=1", argument]) == 2
    assert delay.delays() == {}
    assert capsys.readouterr().err.startswith(f"{argument} is not a delay. Write KEY=SECONDS")


def test_each_server_has_its_delay_and_other_pods_theirs() -> None:
    expression = delay.annotation_of_pods({"server": 4.0, "server/llm/gemma": 6.0, "pod": 2.0})
    assert "request.namespace == 'llm'" in expression
    assert "matches('^gemma-[a-z0-9]+-$') ? '6.0s' : '4.0s'" in expression
    assert expression.endswith(": '2.0s'")
    assert delay.annotation_of_pods({"node": 3.0, "idle": 1.0}) == ""


def test_stages_wait_for_the_annotation() -> None:
    stages = yaml.safe_load_all((Path(delay.__file__).parents[1] / "cluster" / "stages.yaml").read_text())
    delayed = {stage["metadata"]["name"]: stage["spec"]["delay"] for stage in stages if "delay" in stage["spec"]}
    assert delayed.keys() == {"node-ready", "pod-run"}
    for waits in delayed.values():
        assert READY_AFTER in waits["durationFrom"]["jq"]["expression"]
        assert waits["durationMilliseconds"] == 0


def test_only_a_scratch_emulator_is_discarded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (paths.STATE / "backend").mkdir(parents=True)
    assert discard.main([]) == 0
    assert not paths.STATE.exists()
    assert discard.main([]) == 0, "discarding nothing is no failure"
    assert capsys.readouterr().err == ""
    (paths.STATE / "thesis").mkdir(parents=True)
    assert discard.main([]) == 2
    assert (paths.STATE / "thesis").exists()
    assert "is not the state of an emulator" in capsys.readouterr().err
    monkeypatch.setattr(paths, "STATE", (paths.ROOT / ".local").absolute())
    assert discard.main([]) == 2
    assert "GKE_AI_STATE=FOLDER" in capsys.readouterr().err


def add(folder: Path, image: str, *more: str) -> None:
    command = [] if "--" in more else ["--", "python", "train.py"]
    assert program.main(["add", image, str(folder), *more, *command]) == 0


def test_an_image_runs_while_it_is_named(tmp_path: Path) -> None:
    assert (program.named(), program_for("trainer")) == ([], None)
    add(tmp_path, "trainer")
    assert program_for("trainer")
    assert program.main(["forget", "trainer"]) == 0
    assert program_for("trainer") is None


def test_a_name_without_a_tag_has_any_tag_and_the_most_specific_name_wins(tmp_path: Path) -> None:
    add(tmp_path, "example.com/trainer")
    assert all(map(program_for, ("example.com/trainer", "example.com/trainer:1", "example.com/trainer@sha256:01")))
    others = ("example.com/trainer-gpu", "example.com/trainer/other", "other.example.com/trainer")
    assert not any(map(program_for, others))
    add(tmp_path, "example.com/*", "--", "python", "any.py")
    add(tmp_path, "example.com/trainer:1", "--", "python", "one.py")
    commands = {name: getattr(program_for(f"example.com/{name}"), "command", None) for name in ("trainer:1", "other")}
    assert commands == {"trainer:1": ["python", "one.py"], "other": ["python", "any.py"]}


def test_a_command_may_have_options_and_the_environment_more_variables(tmp_path: Path) -> None:
    command = ["python", "train.py", "--steps", "3"]
    add(tmp_path, "trainer", *["--at", "/src", "--env", "A=b=c", "--env", "E=", "--env", "OUT", "--"], *command)
    expected = LocalProgram("trainer", str(tmp_path), "/src", sys.prefix, command, {"A": "b=c", "E": ""}, ["OUT"])
    assert program.named() == [expected]


def test_naming_an_image_again_replaces_its_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add(tmp_path, "trainer", "--", "python", "old.py")
    add(tmp_path, "trainer", "--", "python", "new.py")
    assert capsys.readouterr().out.splitlines()[-1] == f"trainer {tmp_path} python new.py"
    assert len(program.named()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["add", "*", "."], "`*` alone would run the containers of every pod"),
        (["add", "trainer", "missing"], "missing is not a folder"),
        (["add", "trainer", ".", "--python", "missing"], "missing has no folder `bin`"),
        (["add", "trainer", ".", "--at", "app"], "Begin it with `/`"),
        (["add", "trainer", "."], "Add the command that may run"),
        (["add", "trainer", ".", "--", "..."], "Add the command that may run"),
        (["add", "trainer", ".", "--", "python", "..."], "would let a pod choose what runs"),
        (["add", "trainer", ".", "--", "sh", "-c", "..."], "would let a pod choose what runs"),
        (["add", "trainer", ".", "--env", "=x"], "--env =x is not of the form NAME=VALUE"),
        (["forget", "trainer"], "trainer is not named. Named images: none."),
    ],
)
def test_a_wrong_command_names_no_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=message.replace("*", r"\*")):
        program.main(arguments)
    assert program.named() == []
