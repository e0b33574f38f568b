"""Mistakes with batch Jobs and Multislice runs on TPUs: each is found, alone, at its path, with a remedy."""

from __future__ import annotations

from typing import Any

import pytest

from gke_ai.settings import load
from tests.mistakes import PROJECT, Configuration, Mistake, good, problems_of, put

V6E, V5E = {"version": "v6e", "topology": "4x4"}, {"version": "v5e", "topology": "2x4"}
OF_4_CHIPS = {"machineType": "ct5lp-hightpu-4t"}
QUOTA = "queues.clusterQueues.0.flavors.0.quota"


def slices() -> Configuration:
    """Three slices for three runs that together need more, and a Job on a separate slice."""
    pool = {**V5E, **OF_4_CHIPS, "zones": ["us-west4-a"]}
    run = {"kind": "multislice", "namespace": "team", "queue": "lq", "pools": ["one", "two", "three"]}
    return {
        "cluster": {"mode": "standard", "location": "us-west4"},
        "tpuPools": [
            *({"name": name, **pool} for name in ("one", "two", "three")),
            {"name": "single", **V5E, "zones": ["us-west4-a"], "nodesPerZone": 1},
            {"name": "flex", **pool, "topology": "4x4", "capacity": {"mode": "flexStart"}},
        ],
        "queues": {
            "flavors": [{"name": "v5e", "pools": ["one", "two", "three"]}],
            "clusterQueues": [{"name": "tpus", "flavors": [{"flavor": "v5e", "quota": {"google.com/tpu": 24}}]}],
            "localQueues": [{"name": "lq", "namespace": "team", "clusterQueue": "tpus"}],
        },
        "training": [{**run, "name": f"train-{count}", "slices": count} for count in (3, 1, 2)],
        "batch": [
            {"name": "host", "namespace": "team", "pool": "single"},
            {"name": "hosts", "namespace": "team", "pool": "flex"},
        ],
    }


def queued() -> Configuration:
    """A slice that comes by queued provisioning, for a Job and a run that wait for it in a queue."""
    pool = {**V6E, "zones": ["us-east5-b"], "capacity": {"mode": "queuedFlexStart", "maxRunDurationSeconds": 7200}}
    return {
        "cluster": {"mode": "standard", "location": "us-east5"},
        "tpuPools": [{"name": "dws", **pool}, {"name": "there", **V6E, "zones": ["us-east5-b"]}],
        "queues": {
            "flavors": [{"name": "dws", "pools": ["dws"]}],
            "clusterQueues": [{"name": "tpus", "flavors": [{"flavor": "dws", "quota": {"google.com/tpu": 16}}]}],
            "localQueues": [{"name": "lq", "namespace": "team", "clusterQueue": "tpus"}],
        },
        "training": [
            {"kind": "multislice", "name": "train", "namespace": "team", "queue": "lq", "slices": 1, "pools": ["dws"]}
        ],
        "batch": [
            {"name": "batch", "namespace": "team", "queue": "lq", "pool": "dws", "maxRunDurationSeconds": 3600},
        ],
    }


def two_queued_slices(values: Configuration) -> None:
    """A run of two slices, each of which starts by queued provisioning."""
    values["tpuPools"].append({**values["tpuPools"][0], "name": "dws2"})
    values["queues"]["flavors"][0]["pools"].append("dws2")
    values["queues"]["clusterQueues"][0]["flavors"][0]["quota"] = {"google.com/tpu": 32}
    values["training"][0] |= {"slices": 2, "pools": ["dws", "dws2"]}
    del values["batch"]


def growing() -> Configuration:
    """Two runs that share two slices which grow from zero, each slice counted by itself."""
    values = slices()
    for pool in values["tpuPools"][:2]:
        pool["capacity"] = {"mode": "flexStart"}
    values["queues"]["flavors"] = [{"name": name, "pools": [name]} for name in ("one", "two")]
    quota = {"google.com/tpu": 8}
    values["queues"]["clusterQueues"][0]["flavors"] = [{"flavor": name, "quota": quota} for name in ("one", "two")]
    del values["training"][0]
    for run in values["training"]:
        run["pools"] = ["one", "two"]
    return values


def on_autopilot() -> Configuration:
    """The same on an Autopilot cluster, where GKE creates the nodes."""
    values = slices()
    values["cluster"] = {"mode": "autopilot", "location": "us-west4"}
    del values["tpuPools"]
    tpu = {**V5E, **OF_4_CHIPS}
    values["queues"]["flavors"] = [{"name": "v5e", "tpu": tpu}]
    for run in [*values["training"], *values["batch"]]:
        run.pop("pools", None)
        run.pop("pool", None)
        run["tpu"] = dict(tpu)
    return values


def with_bucket() -> Configuration:
    """Runs that mount a bucket, have a larger /dev/shm and read the Hugging Face token."""
    values = slices()
    values["hfTokenSecret"] = "hf-token"
    values["buckets"] = [{"name": "data", "grants": [{"namespace": "team"}]}]
    for run in (values["training"][0], values["batch"][0]):
        run |= {"volume": {"bucket": "data"}, "sharedMemory": "16Gi", "tokenSecret": {}}
    return values


def bad(id: str, change: Any, path: str, cause: str, remedy: str, base: Any = slices) -> Mistake:
    return Mistake(id, change, f"gke-ai:{path}", cause, remedy, base)


def _with_quota_of_memory(values: Configuration) -> Configuration:
    put(QUOTA, {"google.com/tpu": 24, "memory": "1Ti"})(values)
    return values


MISTAKES = [
    bad(
        "a bucket that the pods may not use",
        put("buckets.0.grants", [{"namespace": "other"}]),
        "training[0].volume.bucket",
        "service account team/default has no role on bucket data. Its pods could not mount the bucket",
        "Add to gke-ai:buckets[0].grants: {namespace: team, serviceAccount: default, role: roles/storage.objectUser}",
        lambda: with_bucket() | {"batch": []},
    ),
    bad(
        "more shared memory than memory",
        put("training.0.resources", {"memory": "8Gi"}),
        "training[0].sharedMemory",
        "/dev/shm of 16Gi counts toward the memory of the container, which has 8Gi",
        "Set it to less than 8Gi",
        lambda: _with_quota_of_memory(with_bucket()),
    ),
    bad(
        "two slices that start by queued provisioning",
        two_queued_slices,
        "training[0].slices",
        "each slice of train is a pool with queued provisioning, and Kueue requests the nodes of all slices at once. "
        "GKE provisions a request in one pool, so the run would wait forever",
        "Set slices: 1, or use capacity {mode: flexStart} in the pools",
        queued,
    ),
]


@pytest.mark.parametrize("base", [slices, queued, growing, on_autopilot, with_bucket], ids=lambda base: base.__name__)
def test_good_configuration_has_no_problem(base: Any) -> None:
    # The runs of `slices` together want twice the quota: they take turns.
    load(base(), PROJECT, token_given=False)


def test_fine_tune_on_a_queued_pool_waits_in_a_queue() -> None:
    values = good()
    capacity = {"mode": "queuedFlexStart"}
    pool = {"name": "dws", "machineType": "g2-standard-24", "autoscaling": {"maxNodes": 2}, "capacity": capacity}
    values["gpuPools"].append(pool)
    values["training"][0]["pool"] = "dws"
    del values["training"][0]["queue"]
    (problem,) = problems_of(values)
    assert problem.path == "gke-ai:training[0].pool"
    values["training"][0]["queue"] = "lq"
    values["queues"]["flavors"].append({"name": "dws", "pools": ["dws"]})
    values["queues"]["clusterQueues"][0]["flavors"].append({"flavor": "dws", "quota": "derive"})
    assert problems_of(values) == []


def test_token_is_needed_where_a_run_reads_it() -> None:
    values = with_bucket()
    del values["hfTokenSecret"]
    (problem,) = problems_of(values, token_given=False)
    assert problem.path == "gke-ai:hfToken"


def test_run_on_tpus_may_only_read_its_bucket() -> None:
    values = with_bucket()
    values["buckets"][0]["grants"][0]["role"] = "roles/storage.objectViewer"
    assert problems_of(values) == []
