"""Flavors with topology in a simulation: Kueue gets nodes with blocks, and runs with what they ask of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from emulator.cluster.blocks import first_free
from emulator.cluster.records import PoolRecord
from gke_ai.catalog.topology import LEVELS, TOPOLOGY
from gke_ai.forecast.simulate.blocks import request, requested
from gke_ai.forecast.simulate.objects import Queues, workload
from gke_ai.forecast.simulate.trace import Submission
from gke_ai.settings import load
from gke_ai.terminal import Stop
from tests.mistakes import PROJECT, base
from tests.simulation.pools import configured, gpu_pool

QUEUE = "llm/lq"


def queues(**capacity: Any) -> Queues:
    """Those of the good configuration of topology, with its pool in another capacity."""
    values = base("topology")
    values["gpuPools"][0] |= capacity
    return Queues(load(values, PROJECT))


def submission(topology: str, queue: str = QUEUE) -> Submission:
    return Submission(0, queue, "", 4, 8, 8.0, 32.0, 60.0, topology=topology)


def test_kueue_gets_the_nodes_of_pools_with_labels() -> None:
    (record,) = json.loads(json.dumps(queues().pools))
    pool = PoolRecord(**record)
    assert (pool.name, pool.machine_type, pool.gpu, pool.gpus) == ("b200", "a4-highgpu-8g", "nvidia-b200", 8)
    assert (pool.floor, pool.capacity, pool.zones) == (8, "reservation", ["us-central1-b"])
    assert first_free(pool, "us-central1-b", ())[LEVELS["block"]] == "b200-b1"


def test_the_nodes_are_in_the_block_of_the_reservation_or_of_the_compact_pool() -> None:
    name = "projects/p/reservations/mine/reservationBlocks/blk/reservationSubBlocks/sub"
    (record,) = queues(capacity={"mode": "reservation", "reservation": name}).pools
    assert (record["block"], record["compact"]) == ("blk", False)
    (record,) = queues(capacity={"mode": "spot"}, compactPlacement=True).pools
    assert (record["block"], record["compact"]) == ("", True)


def test_the_flavor_names_its_topology_as_in_the_cluster() -> None:
    objects = {item["kind"]: item for _, item in queues().objects()}
    assert [level["nodeLabel"] for level in objects["Topology"]["spec"]["levels"]][:3] == [*LEVELS.values()]
    assert objects["ResourceFlavor"]["spec"]["topologyName"] == objects["Topology"]["metadata"]["name"] == TOPOLOGY


def test_other_queues_have_no_topology_and_no_nodes() -> None:
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


def test_a_run_that_asks_for_nothing_or_for_other_levels_has_no_request() -> None:
    assert request("") == {}
    assert [requested(pod_set) for pod_set in ({}, {"topologyRequest": {"required": "rack"}})] == ["", ""]
