"""Mistakes with TPU slices: each is found, alone, at its path, with its cause and a remedy."""

from __future__ import annotations

from typing import Any

import pytest

from gke_ai.settings import load
from tests.test_bad_configuration import (
    PROJECT,
    Configuration,
    Mistake,
    both,
    drop,
    good,
    is_reported_alone,
    problems_of,
    put,
)

SLICE = {"version": "v6e", "topology": "4x4"}
V5E = {"name": "v5e", "version": "v5e", "topology": "2x2", "nodesPerZone": 1, "zones": ["us-east5-a"]}


def tpus() -> Configuration:
    """A small stack with a pool of every kind, and nothing wrong."""
    return {
        "cluster": {"name": "llm-cluster", "mode": "standard", "location": "us-east5"},
        "tpuPools": [
            {"name": "hosts", "version": "v6e", "topology": "2x2", "zones": ["us-east5-a"], "nodesPerZone": 2},
            {"name": "slice", **SLICE, "zones": ["us-east5-b"]},
            {"name": "flex", **SLICE, "zones": ["us-east5-b"], "capacity": {"mode": "flexStart"}},
        ],
        "queues": {
            "flavors": [{"name": "v6e", "pools": ["slice"]}],
            "clusterQueues": [{"name": "tpus", "flavors": [{"flavor": "v6e", "quota": "derive"}]}],
            "localQueues": [{"name": "lq", "namespace": "team", "clusterQueue": "tpus"}],
        },
        "training": [
            {"name": "train", "kind": "multislice", "namespace": "team", "queue": "lq", "slices": 1, "pools": ["slice"]}
        ],
        "batch": [
            {"name": "one", "namespace": "team", "pool": "hosts"},
            {"name": "all", "namespace": "team", "pool": "flex"},
        ],
    }


def tpus_on_autopilot() -> Configuration:
    """The same where Google has the nodes."""
    return {
        "cluster": {"name": "llm-cluster", "mode": "autopilot", "location": "us-east5"},
        "queues": {
            "flavors": [{"name": "v6e", "tpu": dict(SLICE)}],
            "clusterQueues": [{"name": "tpus", "flavors": [{"flavor": "v6e", "quota": {"google.com/tpu": 16}}]}],
            "localQueues": [{"name": "lq", "namespace": "team", "clusterQueue": "tpus"}],
        },
        "training": [
            {
                "name": "train",
                "kind": "multislice",
                "namespace": "team",
                "queue": "lq",
                "slices": 1,
                "tpu": dict(SLICE),
            }
        ],
        "batch": [{"name": "one", "namespace": "team", "tpu": {"version": "v6e", "topology": "2x2"}}],
    }


def ironwood() -> Configuration:
    """A multi-host slice that a policy places."""
    pool = {
        "name": "cube",
        "version": "tpu7x",
        "topology": "2x2x2",
        "zones": ["us-central1-c"],
        "workloadPolicy": "cube",
    }
    return {"cluster": {"mode": "standard", "location": "us-central1"}, "tpuPools": [pool]}


def bad(id: str, change: Any, path: str, cause: str, remedy: str, base: Any = tpus) -> Mistake:
    return Mistake(id, change, f"gke-ai:{path}", cause, remedy, base)


MISTAKES = [
    # Slices
    bad(
        "a TPU version that was never",
        put("tpuPools.0.version", "v6"),
        "tpuPools[0].version",
        "v6 is not a TPU version of the catalog",
        "Write one of v5e, v5p, v6e, tpu7x",
    ),
    bad(
        "flex-start of v4",
        put("tpuPools.2", {"name": "flex", "version": "v4", "topology": "2x2x1", "capacity": {"mode": "flexStart"}}),
        "tpuPools[2].version",
        "v4 is not a TPU version",
        "flex-start has no v3 and no v4",
    ),
    bad(
        "the node label of v4 for a version",
        put("tpuPools.2.version", "tpu-v4-podslice"),
        "tpuPools[2].version",
        "tpu-v4-podslice is not a TPU version",
        "flex-start has no v3 and no v4",
    ),
    bad(
        "a node label for a version",
        put("tpuPools.1.version", "tpu-v5-lite-podslice"),
        "tpuPools[1].version",
        "tpu-v5-lite-podslice is not a TPU version",
        "Did you mean v5e?",
    ),
    bad(
        "sides of a topology the wrong way round",
        put("tpuPools.1.topology", "8x4"),
        "tpuPools[1].topology",
        "8x4 is not a topology of TPU v6e",
        "Did you mean 4x8?",
    ),
    bad(
        "a topology of three sides for a version of two",
        put("tpuPools.1.topology", "2x2x2"),
        "tpuPools[1].topology",
        "2x2x2 is not a topology of TPU v6e",
        "Write one of 1x1, 2x2, 2x4, 4x4, 4x8, 8x8, 8x16, 16x16",
    ),
    bad(
        "a topology larger than any",
        put("tpuPools.0", {"name": "hosts", "version": "v5p", "topology": "16x24x24", "zones": ["us-east5-a"]}),
        "tpuPools[0].topology",
        "16x24x24 is not a topology of TPU v5p",
        "Write 2x2x1, 2x2x2, 2x2x4, 2x4x4, 4x4x4, 4x4x8, 4x4x12, 4x4x16, 4x8x8, 4x4x20, 4x4x24, 4x8x12, "
        "or larger: multiples of 4 in ascending order, at most 6144 chips",
    ),
    bad(
        "a machine that cannot be part of the slice",
        put("tpuPools.1.machineType", "ct6e-standard-8t"),
        "tpuPools[1].machineType",
        "TPU v6e has no 4x4 slice of ct6e-standard-8t",
        "Write one of ct6e-standard-4t",
    ),
    bad(
        "a machine of another version",
        put("tpuPools.0.machineType", "ct5lp-hightpu-4t"),
        "tpuPools[0].machineType",
        "no 2x2 slice of ct5lp-hightpu-4t",
        "ct6e-standard-4t",
    ),
    bad(
        "a job on a slice that is not there",
        put("batch.0.tpu.topology", "3x3"),
        "batch[0].tpu.topology",
        "3x3 is not a topology of TPU v6e",
        "Write one of 1x1, 2x2",
        tpus_on_autopilot,
    ),
    bad(
        "a run on slices of a version that is not there",
        put("training.0.tpu.version", "v7"),
        "training[0].tpu.version",
        "v7 is not a TPU version",
        "tpu7x",
        tpus_on_autopilot,
    ),
    bad(
        "a flavor of a slice that is not there",
        put("queues.flavors.0.tpu.machineType", "ct6e-standard-1t"),
        "queues.flavors[0].tpu.machineType",
        "no 4x4 slice of ct6e-standard-1t",
        "ct6e-standard-4t",
        tpus_on_autopilot,
    ),
    # Who runs where
    bad(
        "a job on a pool that is not there",
        put("batch.0.pool", "host"),
        "batch[0].pool",
        "TPU pool host does not exist",
        "Did you mean hosts?",
    ),
    bad(
        "a run of which one pool is not there",
        put("training.0.pools.+", "slices"),
        "training[0].pools[1]",
        "TPU pool slices does not exist",
        "Did you mean slice?",
    ),
    bad(
        "a job that says nothing of where it runs",
        drop("batch.0.pool"),
        "batch[0].pool",
        "one requests TPUs and names no slice. Kubernetes could not schedule its pods",
        "Set pool (of hosts, slice, flex)",
    ),
    bad(
        "a job on a pool of an Autopilot cluster",
        both(drop("batch.0.tpu"), put("batch.0.pool", "hosts")),
        "batch[0].pool",
        "the cluster is Autopilot and has no pools, so hosts does not exist",
        "Set a slice instead, for example tpu: {version: v6e, topology: 2x2}",
        tpus_on_autopilot,
    ),
    bad(
        "a pool of an Autopilot cluster",
        put("tpuPools", [{"name": "slice", **SLICE, "zones": ["us-east5-b"]}]),
        "tpuPools",
        "the cluster is Autopilot",
        "Set gke-ai:cluster mode: standard, or remove tpuPools and set tpu in each workload",
        tpus_on_autopilot,
    ),
    bad(
        "a pool and a slice",
        put("batch.0.tpu", {"version": "v6e", "topology": "2x2"}),
        "batch[0].tpu",
        "names a pool and a slice",
        "Remove one of them",
    ),
    bad(
        "a slice that no pool of the cluster has",
        both(drop("batch.0.pool"), put("batch.0.tpu", {"version": "v6e", "topology": "1x1"})),
        "batch[0].tpu",
        "no pool of the cluster has v6e 1x1 slices: its pools have v6e 2x2, v6e 4x4",
        "Add a pool with v6e 1x1 to gke-ai:tpuPools",
    ),
    bad(
        "flex-start slices in a region where there are none",
        put("batch.0.tpu", {"version": "v5e", "topology": "2x2", "capacity": "flexStart"}),
        "batch[0].tpu.capacity",
        "flex-start has no v5e in us-east5",
        "Choose another capacity, or move the cluster to a zone with it: us-west4-a",
        tpus_on_autopilot,
    ),
    bad(
        "a flavor of a pool that is not there",
        put("queues.flavors.0.pools.+", "slices"),
        "queues.flavors[0].pools[1]",
        "pool slices does not exist",
        "Did you mean slice?",
    ),
    # Zones
    bad(
        "a slice in two zones",
        put("tpuPools.1.zones", ["us-east5-a", "us-east5-b"]),
        "tpuPools[1].zones",
        "the pool has us-east5-a, us-east5-b, and the 4 nodes of a 4x4 slice must be in one zone",
        "zones: [us-east5-a]",
    ),
    bad(
        "a slice in the zones of the cluster",
        drop("tpuPools.1.zones"),
        "tpuPools[1].zones",
        "the pool uses the zones of the cluster, us-east5-a, us-east5-b, us-east5-c, and the 4 nodes of a "
        "4x4 slice must be in one zone",
        "Write one of them",
    ),
    bad(
        "a zone of another region",
        put("tpuPools.1.zones", ["us-west4-a"]),
        "tpuPools[1].zones[0]",
        "us-west4-a is not in us-east5",
        "Choose from us-east5-a",
    ),
    # Sizes
    bad(
        "a single-host pool without a size",
        drop("tpuPools.0.nodesPerZone"),
        "tpuPools[0].nodesPerZone",
        "the pool has no size",
        "Set nodesPerZone, or autoscaling",
    ),
    bad(
        "as many nodes as chips",
        put("tpuPools.1.nodesPerZone", 16),
        "tpuPools[1].nodesPerZone",
        "a 4x4 slice of ct6e-standard-4t has 4 nodes, not 16. GKE would refuse it: gang mode of size 4",
        "Remove nodesPerZone, or set it to 4",
    ),
    bad(
        "a maximum of half a slice",
        put("tpuPools.2.autoscaling", {"maxNodes": 2}),
        "tpuPools[2].autoscaling.maxNodes",
        "a 4x4 slice of ct6e-standard-4t has 4 nodes, not 2",
        "Set it to 4",
    ),
    bad(
        "a maximum of two slices in one pool",
        put("tpuPools.1.autoscaling", {"maxNodes": 8}),
        "tpuPools[1].autoscaling.maxNodes",
        "gang mode of size 4",
        "a pool for each further slice",
    ),
    bad(
        "a minimum of a part of a slice",
        put("tpuPools.1.autoscaling", {"minNodes": 1, "maxNodes": 4}),
        "tpuPools[1].autoscaling.minNodes",
        "a 4x4 slice of ct6e-standard-4t has 4 nodes, which start and stop together, and minNodes is 1",
        "Set it to 0, or to 4 to keep the slice",
    ),
    bad(
        "a fixed size and bounds",
        put("tpuPools.0.autoscaling", {"maxNodes": 4}),
        "tpuPools[0].nodesPerZone",
        "a fixed size and autoscaling",
        "Remove nodesPerZone or autoscaling",
    ),
    bad(
        "a minimum above the maximum",
        both(drop("tpuPools.0.nodesPerZone"), put("tpuPools.0.autoscaling", {"minNodes": 3, "maxNodes": 2})),
        "tpuPools[0].autoscaling.minNodes",
        "minNodes is 3, and maxNodes is only 2. GKE would refuse the pool",
        "Set it to 2 or less",
    ),
    # Flex-start
    bad(
        "flex-start of a fixed size",
        put("tpuPools.2.nodesPerZone", 4),
        "tpuPools[2].nodesPerZone",
        "a flexStart pool cannot have a fixed size",
        "Remove nodesPerZone. The slice sets the number of nodes",
    ),
    bad(
        "flex-start with nodes at all times",
        put("tpuPools.2.autoscaling", {"minNodes": 4, "maxNodes": 4}),
        "tpuPools[2].autoscaling.minNodes",
        "a flexStart pool has nodes only while pods need them, and cannot keep 4 nodes",
        "set it to 0",
    ),
    bad(
        "flex-start where there is none",
        put("tpuPools.2.zones", ["us-east5-c"]),
        "tpuPools[2].zones[0]",
        "flex-start has no v6e in us-east5-c",
        "Choose from us-east5-a, us-east5-b",
    ),
    bad(
        "flex-start in a region where there is none",
        put("tpuPools.2", {"name": "flex", "version": "v5e", "topology": "2x2", "capacity": {"mode": "flexStart"}}),
        "tpuPools[2].zones",
        "flex-start has no v5e in us-east5-a, us-east5-b, us-east5-c",
        "Move the cluster to a zone with it: us-west4-a",
    ),
    # What else a pool says
    bad(
        "a slice of tpu7x without its policy",
        drop("tpuPools.0.workloadPolicy"),
        "tpuPools[0].workloadPolicy",
        "a multi-host slice of tpu7x needs a workload policy, and the pool names none",
        "--accelerator-topology=2x2x2",
        ironwood,
    ),
    bad(
        "a policy for a slice that GKE places",
        put("tpuPools.+", {**V5E, "topology": "4x4", "nodesPerZone": 4, "workloadPolicy": "cube"}),
        "tpuPools[3].workloadPolicy",
        "a workload policy places no 4x4 slice of v5e. GKE would refuse it",
        "Remove it. It is for multi-host slices of v6e, tpu7x",
    ),
    bad(
        "a policy for a single host",
        both(put("tpuPools.0.topology", "2x2x1"), put("tpuPools.0.nodesPerZone", 1)),
        "tpuPools[0].workloadPolicy",
        "a workload policy places no 2x2x1 slice of tpu7x. GKE would refuse it",
        "Remove it. It is for multi-host slices of v6e, tpu7x",
        ironwood,
    ),
    bad(
        "a disk that the machine does not boot from",
        put("tpuPools.0.diskType", "pd-balanced"),
        "tpuPools[0].diskType",
        "ct6e-standard-4t does not boot from pd-balanced",
        "write hyperdisk-balanced",
    ),
    bad(
        "a boot disk that v5e machines do not have",
        put("tpuPools.+", {**V5E, "diskType": "pd-standard"}),
        "tpuPools[3].diskType",
        "ct5lp-hightpu-4t does not boot from pd-standard",
        "write pd-balanced or pd-ssd",
    ),
    bad(
        "repair of flex-start nodes",
        put("tpuPools.2.autoRepair", True),
        "tpuPools[2].autoRepair",
        "a repair deletes a flex-start node and ends its run, and Google's Cluster Toolkit refuses such pools",
        "Remove autoRepair",
    ),
    bad(
        "more chips than a slice of tpu7x has",
        put("tpuPools.0.topology", "16x24x28"),
        "tpuPools[0].topology",
        "16x24x28 is not a topology of TPU tpu7x",
        "at most 9216 chips",
        ironwood,
    ),
    bad(
        "a disk that is none",
        put("tpuPools.0.diskType", "ssd"),
        "tpuPools[0].diskType",
        "ssd is not a boot disk type. GKE would refuse the pool",
        "pd-ssd",
    ),
    bad(
        "a label of GKE's own",
        put("tpuPools.0.labels", {"cloud.google.com/gke-tpu-topology": "4x4"}),
        "tpuPools[0].labels",
        "the prefix of cloud.google.com/gke-tpu-topology is reserved for Kubernetes and GKE",
        "a prefix of your own",
    ),
    bad(
        "a reservation with no name of one",
        put("tpuPools.1.capacity", {"mode": "reservation", "reservation": "my tpus"}),
        "tpuPools[1].capacity.reservation",
        '"my tpus" is not a valid reservation name. GKE would refuse the pool',
        "projects/PROJECT/reservations/NAME",
    ),
    bad(
        "two pools of one name",
        put("tpuPools.+", {"name": "slice", **SLICE, "zones": ["us-east5-b"]}),
        "tpuPools[3].name",
        "pool slice is defined twice. GKE would refuse the second",
        "Rename one of them",
    ),
    bad(
        "a TPU pool with the name of a GPU pool",
        put("gpuPools", [{"name": "hosts", "machineType": "g2-standard-8", "nodesPerZone": 1}]),
        "tpuPools[0].name",
        "pool hosts is defined twice. GKE would refuse the second",
        "Rename one of them",
    ),
    bad(
        "a TPU pool with the name of the system pool",
        put("cluster.systemPool", {"name": "slice"}),
        "tpuPools[1].name",
        "slice is also the name of the system pool. GKE would refuse the second",
        "Rename the pool, or set gke-ai:cluster systemPool.name",
    ),
    bad(
        "a system pool of TPUs",
        put("cluster.systemPool", {"machineType": "ct6e-standard-1t"}),
        "cluster.systemPool.machineType",
        "ct6e-standard-1t has a tpu-v6e-slice",
        "Use e2-standard-4, and define pools with TPUs in gke-ai:tpuPools",
    ),
    bad(
        "quota of slices that no pool has",
        put("queues.clusterQueues.0.flavors.0.quota", "derive"),
        "queues.clusterQueues[0].flavors[0].quota",
        "quota cannot be derived",
        "Write the amounts",
        tpus_on_autopilot,
    ),
]


@pytest.mark.parametrize("base", [tpus, tpus_on_autopilot, ironwood], ids=lambda base: base.__name__)
def test_base_configuration_has_no_mistake(base: Any) -> None:
    load(base(), PROJECT)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.id)
def test_mistake_is_found_alone_with_its_remedy(mistake: Mistake) -> None:
    is_reported_alone(mistake, mistake.base())


def test_reference_to_a_pool_with_an_unknown_slice_is_not_reported() -> None:
    values = tpus()
    values["tpuPools"][0]["topology"] = "3x3"
    values["tpuPools"][1]["zones"] = ["us-west4-a"]
    values["tpuPools"][2]["version"] = 6
    assert [problem.path for problem in problems_of(values)] == [
        "gke-ai:tpuPools[2].version",
        "gke-ai:tpuPools[0].topology",
        "gke-ai:tpuPools[1].zones[0]",
    ]


def test_reference_to_a_pool_without_a_name_is_not_reported() -> None:
    values = tpus()
    del values["tpuPools"][1]["name"]
    assert [problem.path for problem in problems_of(values)] == ["gke-ai:tpuPools[1].name"]


def test_reference_to_a_flavor_with_an_unknown_slice_is_not_reported() -> None:
    values = tpus_on_autopilot()
    values["queues"]["flavors"][0]["tpu"]["version"] = "v2"
    values["training"][0]["tpu"]["topology"] = "4x"
    values["batch"][0]["tpu"]["topology"] = ""
    assert {problem.path for problem in problems_of(values)} == {
        "gke-ai:queues.flavors[0].tpu.version",
        "gke-ai:training[0].tpu.topology",
        "gke-ai:batch[0].tpu.topology",
    }


def test_pools_of_gpus_and_of_tpus_go_together() -> None:
    values = good()
    values["tpuPools"] = [{"name": "slice", "version": "v5p", "topology": "2x2x2", "zones": ["us-central1-a"]}]
    assert problems_of(values) == []


@pytest.mark.parametrize("mode", ["flexStart", "queuedFlexStart"])
def test_flex_start_of_tpu7x_is_left_to_google(mode: str) -> None:
    """Google documents no zones for it: https://github.com/GoogleCloudPlatform/cluster-toolkit/pull/5111"""
    values = ironwood()
    values["tpuPools"][0]["capacity"] = {"mode": mode}
    assert problems_of(values) == []
