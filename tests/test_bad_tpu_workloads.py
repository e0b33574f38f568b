"""Mistakes with batch Jobs and Multislice runs on TPUs: each is found, alone, at its path, with a remedy."""

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


MIXED = {"name": "gpus", "machineType": "g2-standard-24", "nodesPerZone": 1, "zones": ["us-west4-a"]}


def _with_quota_of_memory(values: Configuration) -> Configuration:
    put(QUOTA, {"google.com/tpu": 24, "memory": "1Ti"})(values)
    return values


MISTAKES = [
    bad(
        "a variable by which slices find each other",
        put("training.0.env", {"MEGASCALE_SLICE_ID": "0"}),
        "training[0].env.MEGASCALE_SLICE_ID",
        "slices sets MEGASCALE_SLICE_ID. The container would have it twice",
        "Remove it and set gke-ai:training[0].slices",
    ),
    bad(
        "a negative grace period",
        put("batch.0.terminationGracePeriodSeconds", -1),
        "batch[0].terminationGracePeriodSeconds",
        "-1 is below the minimum, 0",
        "Set it to 0",
    ),
    bad(
        "disruptions that are neither counted nor not",
        put("training.0.ignoreDisruptions", "sometimes"),
        "training[0].ignoreDisruptions",
        '"sometimes" is not true or false',
        "Write true or false",
    ),
    # Which slices
    bad(
        "pools and a slice of a flavor",
        put("queues.flavors.0.tpu", V5E | OF_4_CHIPS),
        "queues.flavors[0].tpu",
        "flavor v5e names pools and a slice. The slice could contradict those of the pools",
        "Remove tpu or pools",
    ),
    bad(
        "a pool that is named twice",
        put("training.1.pools", ["one", "two", "one"]),
        "training[1].pools[2]",
        "one is listed twice. It has one slice, which two child Jobs cannot share",
        "List it once",
    ),
    bad(
        "more slices than pools",
        both(put("training.0.slices", 4), put(QUOTA, {"google.com/tpu": 32})),
        "training[0].slices",
        "4 slices need 4 multi-host pools, and train-3 has 3. It would wait forever",
        "Set it to 3 or less",
    ),
    bad(
        "slices of two topologies",
        put("training.2.pools", ["one", "flex"]),
        "training[2].pools",
        "the pools of train-2 differ (one: v5e 2x4 of ct5lp-hightpu-4t, flex: v5e 4x4 of ct5lp-hightpu-4t)",
        "Name pools of one version, topology and machine type",
    ),
    bad(
        "slices of two machines",
        put("training.1.pools", ["one", "single"]),
        "training[1].pools",
        "single: v5e 2x4 of ct5lp-hightpu-8t",
        "one version, topology and machine type",
    ),
    bad(
        "a run over single-host slices",
        both(put("training.1.pools", ["single"]), put("queues.flavors.0.pools.+", "single")),
        "training[1].pools",
        "a 2x4 slice of ct5lp-hightpu-8t is one machine",
        "Use a larger topology or a machine with 4 chips, or define a Job in gke-ai:batch for each slice",
    ),
    bad(
        "a run over slices of one machine where Google has the nodes",
        put("training.1.tpu", dict(V5E)),
        "training[1].tpu",
        "a 2x4 slice of ct5lp-hightpu-8t is one machine",
        "a machine with 4 chips",
        on_autopilot,
    ),
    bad(
        "a Job on a GPU pool",
        both(put("gpuPools", [MIXED]), put("batch.0.pool", "gpus")),
        "batch[0].pool",
        "TPU pool gpus does not exist",
        "Write one of: flex, one, single, three, two",
    ),
    # What a pod may
    bad(
        "a privileged container on Autopilot",
        put("batch.0.privileged", True),
        "batch[0].privileged",
        "the cluster is Autopilot, which refuses privileged containers. The run could not start",
        "Remove it. TPUs have not needed it since GKE 1.28",
        on_autopilot,
    ),
    bad(
        "the node's network on Autopilot",
        put("training.0.hostNetwork", True),
        "training[0].hostNetwork",
        "the cluster is Autopilot, which refuses pods on the host network. The run could not start",
        "Remove it",
        on_autopilot,
    ),
    bad(
        "a service account on the node's network",
        both(put("training.0.hostNetwork", True), put("training.0.serviceAccount", "trainer")),
        "training[0].serviceAccount",
        "service account trainer has no workload identity",
        "Remove hostNetwork or serviceAccount",
    ),
    bad(
        "a port above all ports",
        put("batch.0.ports", [8471, 84310]),
        "batch[0].ports[1]",
        "84310 is not a port number. Kubernetes would refuse the pods",
        "Write a number from 1 to 65535",
    ),
    bad(
        "a port twice",
        put("training.0.ports", [8471, 8471]),
        "training[0].ports[1]",
        "port 8471 is listed twice",
        "List it once",
    ),
    # Bucket, shared memory, token
    bad(
        "a bucket that is not there",
        put("training.0.volume.bucket", "dataa"),
        "training[0].volume.bucket",
        "bucket dataa does not exist. The pods of the JobSet could not mount it",
        "Did you mean data?",
        with_bucket,
    ),
    bad(
        "a bucket that the pods may not use",
        put("buckets.0.grants", [{"namespace": "other"}]),
        "training[0].volume.bucket",
        "service account team/default has no role on bucket data. Its pods could not mount the bucket",
        "Add to gke-ai:buckets[0].grants: {namespace: team, serviceAccount: default, role: roles/storage.objectUser}",
        lambda: with_bucket() | {"batch": []},
    ),
    bad(
        "a bucket at the folder of shared memory",
        put("batch.0.volume.mountPath", "/dev/shm"),
        "batch[0].volume.mountPath",
        "/dev/shm is not a valid mount path. It must be absolute, and not / or /dev/shm",
        "Write for example /model-data",
        with_bucket,
    ),
    bad(
        "a bucket on the node's network",
        put("training.0.hostNetwork", True),
        "training[0].volume",
        "they have no workload identity. They could not mount the bucket",
        "Remove hostNetwork or volume",
        with_bucket,
    ),
    bad(
        "a sidecar that leaves no room on the node",
        put("batch.0.volume.sidecarMemoryLimit", "1Ti"),
        "batch[0].resources.memory",
        "a pod of the Job with its FUSE sidecar requests 1024Gi of memory, and a node of pool single "
        "(ct5lp-hightpu-8t) has 362.3Gi of memory for pods",
        "Request less",
        with_bucket,
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
        "shared memory without an amount",
        put("batch.0.sharedMemory", "0"),
        "batch[0].sharedMemory",
        "0 is not above zero",
        'Write for example "4"',
        with_bucket,
    ),
    bad(
        "two keys of one Secret",
        put("training.0.tokenSecret", {"key": "token"}),
        "batch[0].tokenSecret.key",
        "another workload uses key token of Secret team/hf-secret, not hf_api_token",
        "Write token",
        with_bucket,
    ),
    # Names
    bad(
        "a Service for a single pod",
        put("batch.0.service", "meet"),
        "batch[0].service",
        "the Job runs one pod on a single-host slice. Service meet would not be created",
        "Remove it, or choose a multi-host slice",
    ),
    bad(
        "two batch Jobs of one name",
        put("batch.0.name", "hosts"),
        "batch[1].name",
        "batch Job team/hosts is defined twice. The second could not be created",
        "Rename one of them",
    ),
    bad(
        "two runs of one name",
        put("training.1.name", "train-3"),
        "training[1].name",
        "training team/train-3 is defined twice. The second could not be created",
        "Rename one of them",
    ),
    bad(
        "a JobSet with the name of a Job's Service",
        both(put("training.0.fixedName", True), put("batch.1.service", "train-3")),
        "training[0].name",
        "the headless Service of the run would be called train-3, like that of hosts",
        "Set another name",
    ),
    bad(
        "a run whose pods have too long names",
        put("training.0.name", "a-name-that-says-all-of-what-the-run-is-about"),
        "training[0].name",
        "names of the training's pods would have 68 characters, and the maximum is 63",
        "Shorten the name by 5 characters",
    ),
    bad(
        "a run whose name begins with a digit",
        put("training.0.name", "3-slices"),
        "training[0].name",
        "3-slices begins with a digit. JobSet would refuse it",
        "Begin with a letter",
    ),
    bad(
        "a run without a fixed name in the default namespace",
        put("batch.0.namespace", "default"),
        "batch[0].namespace",
        "an old version of a run stays until its namespace is deleted, and namespace default is never deleted",
        "Set fixedName: true",
    ),
    # Quota
    bad(
        "a run that is larger than its queue",
        put(QUOTA, {"google.com/tpu": 16}),
        "training[0].slices",
        "the 6 pods of training train-3 together request 24 TPU chips, and cluster queue tpus has at most 16 TPU chips",
        "raise the quota",
    ),
    bad(
        "a run whose slices no flavor of its queue is",
        put("training.1.tpu", {"version": "v5e", "topology": "4x4"}),
        "training[1].queue",
        "cluster queue tpus has no quota for a flavor of the nodes, where training train-1 runs",
        "Add the pool to a flavor",
        on_autopilot,
    ),
    bad(
        "growing pools that are counted as one",
        both(
            put("queues.flavors", [{"name": "both", "pools": ["one", "two"]}]),
            put("queues.clusterQueues.0.flavors", [{"flavor": "both", "quota": {"google.com/tpu": 16}}]),
        ),
        "training[1].pools",
        "train-1 and train-2 share pools that grow from zero",
        "Define a flavor for each pool, or use different pools for the runs",
        growing,
    ),
    # Queued provisioning
    bad(
        "a Job on a queued pool under no queue",
        drop("batch.0.queue"),
        "batch[0].pool",
        "the nodes of pool dws start only for a ProvisioningRequest for a whole Job, which Kueue creates, "
        "and the run has no queue",
        "pools: [dws]",
        queued,
    ),
    bad(
        "a run on a queued pool in a queue that knows no such nodes",
        both(put("queues.flavors.0.pools", []), put("batch", [])),
        "training[0].pools",
        "the nodes of pool dws start only for a ProvisioningRequest for a whole Job, which Kueue creates, "
        "and its queue has no flavor with that pool",
        "pools: [dws]",
        queued,
    ),
    bad(
        "a flavor of which some nodes are queued",
        put("queues.flavors.0.pools", ["dws", "there"]),
        "queues.flavors[0].pools",
        "in flavor dws only dws use queued provisioning",
        "Define a flavor for each capacity mode",
        queued,
    ),
    bad(
        "a run over slices of which some are queued",
        both(put("training.0.pools", ["dws", "there"]), put("training.0.slices", 1)),
        "training[0].pools",
        "some pools of train use queued provisioning and some do not",
        "Name pools of one capacity mode",
        queued,
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
    bad(
        "a run that takes longer than its nodes live",
        put("batch.0.maxRunDurationSeconds", 10000),
        "batch[0].maxRunDurationSeconds",
        "the run may take 10000 s, and the nodes of its pool live for 7200 s",
        "Set it to 7200 or less",
        queued,
    ),
    bad(
        "a bound of the run where nothing reads it",
        put("batch.1.maxRunDurationSeconds", 3600),
        "batch[1].maxRunDurationSeconds",
        "only queued provisioning uses the maximum duration. On these nodes it would have no effect",
        "Remove it, or use a pool with capacity: {mode: queuedFlexStart}",
    ),
]


@pytest.mark.parametrize("base", [slices, queued, growing, on_autopilot, with_bucket], ids=lambda base: base.__name__)
def test_good_configuration_has_no_problem(base: Any) -> None:
    # The runs of `slices` together want twice the quota: they take turns.
    load(base(), PROJECT, token_given=False)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.id)
def test_mistake_is_found_alone_with_its_remedy(mistake: Mistake) -> None:
    is_reported_alone(mistake, mistake.base())


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
