"""Nodes and pods are held back for the seconds that are set, and a scratch emulator can be discarded."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from emulator.cloud import delay
from emulator.cluster import ClusterRecord, PoolRecord
from emulator.commands import discard
from emulator.machine import paths
from emulator.nodes.objects import new_nodes
from gke_ai.workspace.emulation import READY_AFTER

CLUSTER = ClusterRecord("c", "p", "us-central1", "standard", ["us-central1-a"], "1.36.1-gke.1")
POOL = PoolRecord("l4", "g2-standard-24", ["us-central1-a"], gpu="nvidia-l4", gpus=2, nodes_per_zone=1)


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "STATE", tmp_path / "state")
    monkeypatch.setattr(paths, "CLUSTERS", tmp_path / "state" / "clusters")


def held(capacity: str = "onDemand") -> str | None:
    """The delay of a new node."""
    (node,) = new_nodes(CLUSTER, PoolRecord(**{**vars(POOL), "capacity": capacity}), [], 1)
    annotations: dict[str, str] = delay.hold_back(node)["metadata"]["annotations"]
    return annotations.get(READY_AFTER)


def test_nothing_is_held_back_by_default() -> None:
    assert held() is None
    assert delay.idle_seconds() == delay.IDLE_SECONDS


def test_most_specific_delay_of_a_node_counts() -> None:
    assert delay.main(["node=1", "node/spot=2", "idle=10"]) == 0
    assert (held(), held("spot"), held("flexStart")) == ("1.0s", "2.0s", "1.0s")
    assert delay.idle_seconds() == 10
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


def test_a_scratch_emulator_is_discarded(capsys: pytest.CaptureFixture[str]) -> None:
    (paths.STATE / "backend").mkdir(parents=True)
    assert discard.main([]) == 0
    assert not paths.STATE.exists()
    assert discard.main([]) == 0, "discarding nothing is no failure"
    assert capsys.readouterr().err == ""


def test_a_folder_that_is_no_emulator_and_the_default_state_are_not_deleted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (paths.STATE / "thesis").mkdir(parents=True)
    assert discard.main([]) == 2
    assert (paths.STATE / "thesis").exists()
    assert "is not the state of an emulator" in capsys.readouterr().err
    monkeypatch.setattr(paths, "STATE", (paths.ROOT / ".local").absolute())
    assert discard.main([]) == 2
    assert "GKE_AI_STATE=FOLDER" in capsys.readouterr().err
