"""Flavors with topology in a simulation: Kueue gets nodes with blocks, and runs with what they ask of them."""

import json
from typing import Any

import pytest

from emulator.cloud.records import PoolRecord
from emulator.nodes.objects import first_free
from gke_ai.catalog.fabric.topology import LEVELS, TOPOLOGY
from gke_ai.forecast.simulate.blocks import fullest, picture, request, requested
from gke_ai.forecast.simulate.objects import Queues, pods_by_node, workload
from gke_ai.forecast.simulate.run import Run
from gke_ai.forecast.simulate.trace import Submission
from gke_ai.kube.blocks import BlockNode, Use
from gke_ai.settings import load
from gke_ai.terminal import Stop
from tests.support.mistakes import PROJECT, base
from tests.support.pictures import texts_of
from tests.support.simulation.pools import configured, gpu_pool

QUEUE = "llm/lq"


def queues(**capacity: Any) -> Queues:
    values = base("topology")
    values["gpuPools"][0] |= capacity
    return Queues(load(values, PROJECT))


def submission(topology: str, queue: str = QUEUE) -> Submission:
    return Submission(0, queue, "", 4, 8, 8.0, 32.0, 60.0, topology=topology)


def test_kueue_gets_the_nodes_of_pools_with_labels_and_blocks() -> None:
    (record,) = json.loads(json.dumps(queues().pools))
    pool = PoolRecord(**record)
    assert (pool.name, pool.machine_type, pool.gpu, pool.gpus) == ("b200", "a4-highgpu-8g", "nvidia-b200", 8)
    assert (pool.floor, pool.capacity, pool.zones) == (8, "reservation", ["us-central1-b"])
    assert first_free(pool, "us-central1-b", ())[LEVELS["block"]] == "b200-b1"
    name = "projects/p/reservations/mine/reservationBlocks/blk/reservationSubBlocks/sub"
    (reserved,) = queues(capacity={"mode": "reservation", "reservation": name}).pools
    (compact,) = queues(capacity={"mode": "spot"}, compactPlacement=True).pools
    assert [(pool["block"], pool["compact"]) for pool in (reserved, compact)] == [("blk", False), ("", True)]


def test_the_flavor_names_its_topology_and_others_have_none_and_no_nodes() -> None:
    objects = {item["kind"]: item for _, item in queues().objects()}
    assert [level["nodeLabel"] for level in objects["Topology"]["spec"]["levels"]][:3] == [*LEVELS.values()]
    assert objects["ResourceFlavor"]["spec"]["topologyName"] == objects["Topology"]["metadata"]["name"] == TOPOLOGY
    plain = configured(4, gpuPools=[gpu_pool()])
    assert plain.pools == []
    assert [item["metadata"]["name"] for _, item in plain.objects() if "topologyName" in item.get("spec", {})] == []
    with pytest.raises(Stop, match="has topology required=block in team/one, whose flavors have no topology"):
        plain.check((submission("required=block", "team/one"),))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", ["required", "preferred"])
def test_a_run_asks_in_the_words_of_kueue(kind: str, level: str) -> None:
    row = submission(f"{kind}={level}")
    queues().check((row,))
    (pod_set,) = workload(1, row, 0, "nvidia.com/gpu")["spec"]["podSets"]
    assert pod_set["topologyRequest"] == {kind: LEVELS[level]}
    assert requested(pod_set) == row.topology
    assert request("") == {}
    assert [requested(pod_set) for pod_set in ({}, {"topologyRequest": {"required": "rack"}})] == ["", ""]


NODES = [BlockNode("a", "a-1", "h1", "n1", 8), BlockNode("b", "b-1", "h2", "n2", 8)]


def a_run(number: int, *placed: tuple[float, float | None, dict[str, int]], pods: int = 1) -> Run:
    row = Submission(0, QUEUE, "", pods, 8, 8.0, 32.0, 60.0)
    spans = [(start, end) for start, end, _ in placed]
    return Run(number, row, "llm", admitted=spans, placed=[nodes for *_, nodes in placed])


def test_pods_are_on_the_nodes_of_all_domains_that_kueue_assigned() -> None:
    two = [{"individual": {"prefix": "n", "roots": ["1", "2"]}}]
    parts = [
        {"domainCount": 2, "valuesPerLevel": two, "podCounts": {"universal": 1}},
        {"domainCount": 1, "valuesPerLevel": [{"universal": "n3"}], "podCounts": {"individual": [2]}},
    ]
    assignments = [{"topologyAssignment": {"levels": ["kubernetes.io/hostname"], "slices": parts}}, {"name": "other"}]
    item = {"status": {"admission": {"podSetAssignments": assignments}}}
    assert pods_by_node(item) == {"n1": 1, "n2": 1, "n3": 2}


def test_the_picture_is_of_the_time_when_runs_have_most_gpus() -> None:
    runs = [
        a_run(0, (0, 3600, {"n1": 1}), (9000, None, {"n2": 1})),  # evicted, and admitted again
        a_run(1, (7200, None, {"n1": 1})),
        a_run(2, (0, None, {}), pods=4),  # not placed by Kueue
    ]
    busiest = fullest("a.yaml", NODES, runs)
    assert busiest.hour == 2.5
    assert [node.uses for node in busiest.nodes] == [(Use("row 2, llm/lq", 1, 8),), (Use("row 1, llm/lq", 1, 8),)]
    texts = texts_of(picture("prod", [busiest]))
    headline = "Hour 2.5 of a simulated day of prod, when runs have most GPUs of the blocks: 16 of 16"
    assert " ".join(texts[:2]) == headline
    assert "1 pod in b" in texts
    # A run that ends when another one starts is not counted with it.
    busiest = fullest("a.yaml", NODES, [a_run(0, (0, 3600, {"n1": 1})), a_run(1, (3600, None, {"n1": 1}))])
    assert (busiest.hour, busiest.used) == (0, "8 of 16")


def test_several_configurations_are_beside_each_other() -> None:
    sides = [
        fullest("a.yaml", NODES, [a_run(0, (0, None, {"n1": 1}))]),
        fullest("b.yaml", NODES, [a_run(0, (1800, None, {"n1": 1, "n2": 1}), pods=2)]),
    ]
    texts = texts_of(picture("prod", sides))
    assert "8 of 16 with a.yaml and 16 of 16 with b.yaml" in " ".join(texts)
    assert {"a.yaml, hour 0.0", "b.yaml, hour 0.5"} <= {*texts}
