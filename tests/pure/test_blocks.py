"""Where the pods of runs are, by block, and workloads that Kueue can't count after a restart."""

from __future__ import annotations

from typing import Any

import pytest

from gke_ai.catalog.topology import LEVELS
from gke_ai.forecast.forecast import Block, Forecast
from gke_ai.forecast.rehearse import blocks as rehearsed
from gke_ai.forecast.render.rehearsal import tables
from gke_ai.forecast.timeline import Observation, Timeline, histories
from gke_ai.kube.pods import limited_only
from gke_ai.kube.workloads import uncounted_by_topology
from gke_ai.ops.blocks import block_rows, blocks_by_run

GPU = "nvidia.com/gpu"


def node(name: str, block: str) -> dict[str, Any]:
    labels = {LEVELS["block"]: block, LEVELS["host"]: f"{block}-{name}"} if block else {}
    return {"metadata": {"name": name, "uid": name, "labels": labels}, "status": {"allocatable": {GPU: "8"}}}


def pod(name: str, node_name: str, gpus: int = 8, phase: str = "Running", jobset: str = "") -> dict[str, Any]:
    labels = {"jobset.sigs.k8s.io/jobset-name": jobset} if jobset else {}
    container = {"name": "c", "resources": {"limits": {GPU: str(gpus)}} if gpus else {}}
    return {
        "metadata": {"name": name, "uid": f"{name}-{node_name}", "namespace": "llm", "labels": labels},
        "spec": {"containers": [container], "nodeName": node_name},
        "status": {"phase": phase},
    }


NODES = [node("n3", "b"), node("n1", "a"), node("n2", "a"), node("n4", "")]
PODS = [
    pod("first-0", "n1", jobset="first"),
    pod("first-1", "n3", jobset="first"),
    pod("small", "n2", gpus=1),
    pod("done", "n2", phase="Succeeded"),
    pod("agent", "n2", gpus=0),
    pod("other", "n4"),
]


def test_each_block_has_a_picture_of_its_nodes_and_the_pods_of_each_run() -> None:
    assert [*block_rows(NODES, PODS)] == [
        ("a", "■◧", "9 of 16", "llm/jobset/first: 1, llm/pod/small: 1"),
        ("b", "■", "8 of 8", "llm/jobset/first: 1"),
    ]
    assert [*block_rows(NODES[:1], [])] == [("b", "□", "0 of 8", "–")]
    assert [*block_rows(NODES[3:], PODS)] == []


def test_a_rehearsal_names_the_runs_that_are_in_other_blocks_at_the_end() -> None:
    assert blocks_by_run(NODES, PODS) == {"llm/jobset/first": ["a", "b"], "llm/pod/small": ["a"]}
    moved = pod("first-1", "n2", jobset="first")
    observations = [
        *(Observation(-1, "Node", item, False) for item in NODES),
        *(Observation(-1, "Pod", item, False) for item in PODS),
        Observation(2, "Pod", PODS[1], True),
        Observation(3, "Pod", moved, False),
    ]
    timeline = Timeline(tuple(observations), 1, 4, True)
    assert [*rehearsed.moves(histories(timeline))] == ["llm/jobset/first moves from block a and b to a."]


def test_a_rehearsal_shows_each_block_before_and_after_with_the_pods_of_each_run() -> None:
    there = [*(Observation(-1, "Node", item, False) for item in NODES), Observation(-1, "Pod", PODS[0], False)]
    gone = [Observation(-1, "Pod", PODS[1], False), Observation(2, "Pod", PODS[1], True)]
    moved = Observation(3, "Pod", pod("first-1", "n2", jobset="first"), False)
    changed = histories(Timeline((*there, *gone, moved), 1, 4, True))
    forecast = Forecast("prod", "two nodes less", True, 60, 1800, blocks=rehearsed.pictures(changed))
    assert {title: rows for title, _, rows in tables(forecast)}["Blocks"] == [
        ("a", "■□", "llm/jobset/first: 1", "■■", "llm/jobset/first: 2"),
        ("b", "■", "llm/jobset/first: 1", "□", "–"),
    ]
    assert rehearsed.pictures(histories(Timeline(tuple(there), 1, 4, True))) == ()


def test_a_block_that_a_change_adds_or_removes_has_no_nodes_before_or_after() -> None:
    lost = [Observation(-1, "Node", NODES[0], False), Observation(1, "Node", NODES[0], True)]
    added = Observation(2, "Node", NODES[1], False)
    assert rehearsed.pictures(histories(Timeline((*lost, added), 1, 4, True))) == (
        Block("a", "", "–", "□", "–"),
        Block("b", "□", "–", "", "–"),
    )


def workload(resources: dict[str, Any], **assignment: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "c", "resources": resources}]}}
    return {
        "metadata": {"name": "w", "namespace": "llm"},
        "spec": {"podSets": [{"name": "main", "count": 1, "template": template}]},
        "status": {"admission": {"podSetAssignments": [{"name": "main", **assignment}]}},
    }


PLACED = {"topologyAssignment": {"levels": ["kubernetes.io/hostname"]}}


@pytest.mark.parametrize(
    ("resources", "assignment", "found"),
    [
        ({"limits": {GPU: "8"}}, PLACED, ["c"]),
        ({"limits": {GPU: "8"}, "requests": {GPU: "8"}}, PLACED, []),
        ({"requests": {"cpu": "1"}}, PLACED, []),
        ({"limits": {GPU: "8"}}, {}, []),
    ],
)
def test_workloads_placed_by_topology_with_limits_and_no_requests_are_named(
    resources: dict[str, Any], assignment: dict[str, Any], found: list[str]
) -> None:
    assert [container for _, container in uncounted_by_topology([workload(resources, **assignment)])] == found


def test_containers_are_named_with_what_they_limit_and_do_not_request() -> None:
    first = {"name": "first", "resources": {"limits": {"cpu": "1", GPU: "1"}, "requests": {"cpu": None}}}
    spec = {"initContainers": [first], "containers": [{"name": "second"}]}
    assert [*limited_only(spec)] == [("first", ["cpu", GPU])]
