"""Mistakes that people make in a configuration: each is found, alone, at its path, with its cause and a remedy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from gke_ai.settings import BadConfiguration, Problem, load
from tests import repository

PROJECT = "my-project"
# Shaped like a token, so that a test can look for it; put together so that it looks like one nowhere else.
TOKEN = "hf_" + "NotARealTokenButShapedLikeOne"

Configuration = dict[str, Any]


def good() -> Configuration:
    """A small stack in which every section is used and nothing is wrong."""
    return {
        "cluster": {"name": "llm-cluster", "mode": "standard", "location": "us-central1"},
        "buckets": [{"name": "models-{project}", "grants": [{"namespace": "llm"}]}],
        "gpuPools": [{"name": "l4", "machineType": "g2-standard-24", "zones": ["us-central1-a"], "nodesPerZone": 3}],
        "queues": {
            "flavors": [{"name": "l4", "pools": ["l4"]}],
            "clusterQueues": [{"name": "gpus", "flavors": [{"flavor": "l4", "quota": "derive"}]}],
            "localQueues": [{"name": "lq", "namespace": "llm", "clusterQueue": "gpus"}],
            "priorityClasses": [{"name": "low", "value": 10}, {"name": "high", "value": 20}],
        },
        "serving": [
            {
                "name": "gemma",
                "model": "google/gemma-2-9b-it",
                "queue": "lq",
                "priorityClass": "high",
                "pool": "l4",
                "gpus": 2,
                "resources": {"cpu": 4, "memory": "30Gi", "ephemeralStorage": "30Gi"},
            }
        ],
        "training": [
            {
                "name": "finetune",
                "queue": "lq",
                "priorityClass": "low",
                "pool": "l4",
                "volume": {"bucket": "models-{project}"},
            }
        ],
    }


def on_autopilot() -> Configuration:
    """The same on Autopilot: no pool, amounts for a quota."""
    values = good()
    values["cluster"] = {"name": "llm-cluster", "mode": "autopilot", "location": "us-central1"}
    del values["gpuPools"]
    del values["queues"]["flavors"][0]["pools"]
    values["queues"]["clusterQueues"][0]["flavors"][0]["quota"] = {
        "cpu": "72",
        "memory": "288Gi",
        "nvidia.com/gpu": 6,
        "ephemeral-storage": "200Gi",
    }
    for workload in (values["serving"][0], values["training"][0]):
        del workload["pool"]
        workload["accelerator"] = "nvidia-l4"
    return values


def problems_of(values: Configuration, project: str = PROJECT, token_given: bool = True) -> list[Problem]:
    try:
        load(values, project, token_given)
    except BadConfiguration as error:
        return error.problems
    return []


def put(path: str, value: Any) -> Callable[[Configuration], None]:
    """A change that sets `a.0.b` to a value; a last step of `+` appends."""

    def change(values: Configuration) -> None:
        *way, last = path.split(".")
        at: Any = values
        for step in way:
            at = at[int(step)] if step.isdigit() else at.setdefault(step, {})
        if last == "+":
            at.append(value)
        else:
            at[int(last) if last.isdigit() else last] = value

    return change


def drop(path: str) -> Callable[[Configuration], None]:
    def change(values: Configuration) -> None:
        *way, last = path.split(".")
        at: Any = values
        for step in way:
            at = at[int(step)] if step.isdigit() else at[step]
        del at[last]

    return change


def both(*changes: Callable[[Configuration], None]) -> Callable[[Configuration], None]:
    def apply(values: Configuration) -> None:
        for change in changes:
            change(values)

    return apply


class Mistake(NamedTuple):
    """A change to a good configuration, and the one problem that must follow."""

    id: str
    change: Callable[[Configuration], None]
    path: str
    cause: str
    remedy: str
    base: Callable[[], Configuration] = good

    def values(self) -> Configuration:
        """The good configuration with the mistake in it."""
        values = self.base()
        self.change(values)
        return values


QUOTA = "queues.clusterQueues.0.flavors.0.quota"
SECOND_POOL = {"name": "l4-big", "machineType": "g2-standard-48", "nodesPerZone": 1}
SECOND_SERVER = {"name": "other", "model": "google/gemma-2-2b", "pool": "l4"}
SECOND_JOB = {"name": "second", "pool": "l4", "volume": {"bucket": "models-{project}"}}

MISTAKES = [
    # Form
    Mistake(
        "a section with a name nobody knows",
        put("gpuPool", []),
        "gke-ai:gpuPool",
        "gpuPool is not a key of a stack. It would have no effect",
        "Did you mean gpuPools?",
    ),
    Mistake(
        "a key with a letter too few",
        put("gpuPools.0.machinType", "x"),
        "gke-ai:gpuPools[0].machinType",
        "machinType is not a key of a GPU pool. It would have no effect",
        "Did you mean machineType?",
    ),
    Mistake(
        "a key that has a new name",
        put("gpuPools.0.createFirst", True),
        "gke-ai:gpuPools[0].createFirst",
        "createFirst was renamed",
        "Write createBeforeDelete instead",
    ),
    Mistake(
        "a key in snake_case",
        put("serving.0.service_account", "default"),
        "gke-ai:serving[0].service_account",
        "service_account is not a key of a vLLM server. It would have no effect",
        "Did you mean serviceAccount?",
    ),
    Mistake(
        "an unknown key deep inside",
        put("training.0.volume.mountpath", "/x"),
        "gke-ai:training[0].volume.mountpath",
        "mountpath is not a key of a volume. It would have no effect",
        "Did you mean mountPath?",
    ),
    Mistake(
        "an unknown key among the queues",
        put("queues.clusterQueue", []),
        "gke-ai:queues.clusterQueue",
        "clusterQueue is not a key of the queues. It would have no effect",
        "Did you mean clusterQueues?",
    ),
    Mistake(
        "a required key left out",
        drop("serving.0.model"),
        "gke-ai:serving[0].model",
        "model is missing, and a vLLM server needs it",
        "Add it. Model id on Hugging Face.",
    ),
    Mistake(
        "text where a number belongs",
        put("serving.0.replicas", "two"),
        "gke-ai:serving[0].replicas",
        '"two" is not a whole number',
        "Write a whole number",
    ),
    Mistake(
        "a number where text belongs",
        put("serving.0.env", {"EPOCHS": 3}),
        "gke-ai:serving[0].env.EPOCHS",
        "the value is a number, and must be text",
        "Put the value in quotes",
    ),
    Mistake(
        "a list written as a mapping",
        put("buckets", {"name": "models"}),
        "gke-ai:buckets",
        "the value is a mapping, and must be a list",
        "Begin each entry with '- '",
    ),
    Mistake(
        "a mapping written as text",
        put("cluster", "llm-cluster"),
        "gke-ai:cluster",
        "the value is text, and must be a mapping",
        "Write one 'key: value' per line",
    ),
    Mistake(
        "an empty entry",
        put("serving.+", None),
        "gke-ai:serving[1]",
        "the value is empty, and must be a mapping",
        "Write one 'key: value' per line",
    ),
    Mistake(
        "a mode that does not exist",
        put("cluster.mode", "auto"),
        "gke-ai:cluster.mode",
        '"auto" is not a value of mode',
        "Write 'standard', 'autopilot' or 'existing'",
    ),
    Mistake(
        "a driver that does not exist",
        put("gpuPools.0.driver", "newest"),
        "gke-ai:gpuPools[0].driver",
        '"newest" is not a value of driver',
        "'default', 'latest' or 'disabled'",
    ),
    Mistake(
        "capital letters in a name",
        put("serving.0.name", "Gemma_Server"),
        "gke-ai:serving[0].name",
        '"Gemma_Server" is not a valid name. Kubernetes or Google Cloud would refuse it',
        "Use lowercase letters, digits and '-'",
    ),
    Mistake(
        "a cluster name that begins with a digit",
        put("cluster.name", "1-cluster"),
        "gke-ai:cluster.name",
        '"1-cluster" is not a valid name. Kubernetes or Google Cloud would refuse it',
        "Use lowercase letters, digits and '-'. Begin with a letter, and do not end with '-'",
    ),
    Mistake(
        "a pool name that is too long",
        put("gpuPools.0.name", "l" * 41),
        "gke-ai:gpuPools[0].name",
        "name has 41 characters, and the maximum is 40",
        "Shorten it to 40",
    ),
    Mistake(
        "a Service name that is too long",
        put("serving.0.service", "s" * 64),
        "gke-ai:serving[0].service",
        "service has 64 characters, and the maximum is 63",
        "Shorten it to 63",
    ),
    Mistake(
        "a port that does not exist",
        put("serving.0.port", 70000),
        "gke-ai:serving[0].port",
        "70000 is above the maximum, 65535",
        "Set it to 65535 or less",
    ),
    Mistake(
        "a server without GPUs",
        put("serving.0.gpus", 0),
        "gke-ai:serving[0].gpus",
        "0 is below the minimum, 1",
        "Set it to 1 or more",
    ),
    Mistake(
        "a flex-start run that is too short",
        both(
            drop("gpuPools.0.nodesPerZone"),
            put("gpuPools.0.autoscaling", {"maxNodes": 3}),
            put("gpuPools.0.capacity", {"mode": "flexStart", "maxRunDurationSeconds": 60}),
        ),
        "gke-ai:gpuPools[0].capacity.maxRunDurationSeconds",
        "60 is below the minimum, 600 seconds",
        "Set it to 600 seconds or more",
    ),
    Mistake(
        "a flex-start run that is too long",
        put("gpuPools.0.capacity", {"mode": "flexStart", "maxRunDurationSeconds": 700000}),
        "gke-ai:gpuPools[0].capacity.maxRunDurationSeconds",
        "above the maximum, 604800 seconds",
        "Set it to 604800 seconds or less",
    ),
    Mistake(
        "a capacity mode that does not exist",
        put("gpuPools.0.capacity", {"mode": "preemptible"}),
        "gke-ai:gpuPools[0].capacity.mode",
        "preemptible is not a capacity mode of GKE",
        "Write mode: onDemand | spot | reservation | flexStart | queuedFlexStart",
    ),
    Mistake(
        "capacity without a mode",
        put("gpuPools.0.capacity", {"reservation": "mine"}),
        "gke-ai:gpuPools[0].capacity.mode",
        "mode is missing",
        "Write mode: onDemand",
    ),
    Mistake(
        "spot with a reservation",
        put("gpuPools.0.capacity", {"mode": "spot", "reservation": "mine"}),
        "gke-ai:gpuPools[0].capacity.reservation",
        "reservation is not a key of spot capacity. It would have no effect",
        "Write one of: mode",
    ),
    Mistake(
        "a quota that is not a quantity",
        put(QUOTA, {"cpu": "72", "memory": "288GB", "nvidia.com/gpu": 6, "ephemeral-storage": "200Gi"}),
        "gke-ai:queues.clusterQueues[0].flavors[0].quota.memory",
        "'288GB' is not a Kubernetes quantity",
        'Write for example "4", "500m" or "30Gi"',
    ),
    Mistake(
        "a quota below zero",
        put(QUOTA, {"cpu": "72", "memory": "288Gi", "nvidia.com/gpu": -6, "ephemeral-storage": "200Gi"}),
        'gke-ai:queues.clusterQueues[0].flavors[0].quota["nvidia.com/gpu"]',
        "-6 is below zero",
        'Write for example "4"',
    ),
    Mistake(
        "a quota in one word that is not derive",
        put(QUOTA, "derived"),
        "gke-ai:queues.clusterQueues[0].flavors[0].quota",
        '"derived" is not a value of quota',
        "Write 'derive'",
    ),
    Mistake(
        "no memory at all",
        put("serving.0.resources.memory", "0"),
        "gke-ai:serving[0].resources.memory",
        "0 is not above zero",
        'Write for example "4"',
    ),
    Mistake(
        "a cluster queue without flavors",
        put("queues.clusterQueues.0.flavors", []),
        "gke-ai:queues.clusterQueues[0].flavors",
        "flavors is empty",
        "Add an entry",
    ),
    # Cluster
    Mistake(
        "a region that does not exist",
        put("cluster.location", "us-centrall1"),
        "gke-ai:cluster.location",
        "us-centrall1 is not a region of Google Cloud. GKE would refuse the cluster",
        "Did you mean us-central1?",
    ),
    Mistake(
        "a zone that the region does not have",
        put("cluster.location", "us-central1-d"),
        "gke-ai:cluster.location",
        "us-central1-d is not a zone of us-central1. GKE would refuse the cluster",
        "Write us-central1, or one of us-central1-a",
    ),
    Mistake(
        "a zonal Autopilot cluster",
        put("cluster.location", "us-central1-a"),
        "gke-ai:cluster.location",
        "us-central1-a is a zone, and Autopilot clusters are regional",
        "Write us-central1, or set mode: standard",
        on_autopilot,
    ),
    Mistake(
        "a system pool on Autopilot",
        put("cluster.systemPool", {"machineType": "e2-standard-4"}),
        "gke-ai:cluster.systemPool",
        "an Autopilot cluster has no system pool",
        "Remove systemPool, or set mode: standard",
        on_autopilot,
    ),
    Mistake(
        "GPU pools on Autopilot",
        put("gpuPools", [SECOND_POOL]),
        "gke-ai:gpuPools",
        "the cluster is Autopilot, and GKE creates its nodes. GKE would refuse the pools",
        "Set gke-ai:cluster mode: standard, or remove gpuPools and set accelerator in each workload",
        on_autopilot,
    ),
    Mistake(
        "GPU pools on an existing Autopilot cluster",
        both(
            put("gpuPools", [SECOND_POOL]),
            put("cluster", {"name": "old", "mode": "existing", "existingMode": "autopilot"}),
        ),
        "gke-ai:gpuPools",
        "the cluster is Autopilot",
        "Set gke-ai:cluster mode: standard, or remove gpuPools and set accelerator in each workload",
        on_autopilot,
    ),
    Mistake(
        "a GPU machine for the system pool",
        put("cluster.systemPool", {"machineType": "g2-standard-4"}),
        "gke-ai:cluster.systemPool.machineType",
        "g2-standard-4 has 1 nvidia-l4, and the system pool runs only controllers",
        "Use e2-standard-4",
    ),
    Mistake(
        "a machine for the system pool that does not exist",
        put("cluster.systemPool", {"machineType": "e2-standart-4"}),
        "gke-ai:cluster.systemPool.machineType",
        "e2-standart-4 is not a machine type of the catalog. GKE would refuse the pool",
        "Did you mean e2-standard-4?",
    ),
    Mistake(
        "a system pool in another region",
        put("cluster.systemPool", {"zones": ["us-east1-b"]}),
        "gke-ai:cluster.systemPool.zones[0]",
        "us-east1-b is not a zone of us-central1, the cluster's region. GKE would refuse the pool",
        "Choose from us-central1-a",
    ),
    Mistake(
        "a release channel for an existing cluster",
        put("cluster", {"name": "old", "mode": "existing", "releaseChannel": "rapid"}),
        "gke-ai:cluster.releaseChannel",
        "releaseChannel cannot be set on an existing cluster. The stack does not change such a cluster",
        "Remove releaseChannel, or let the stack create the cluster with mode: standard or autopilot",
    ),
    Mistake(
        "protection of an existing cluster",
        put("cluster", {"name": "old", "mode": "existing", "protect": True}),
        "gke-ai:cluster.protect",
        "protect cannot be set on an existing cluster",
        "Remove protect, or let the stack create the cluster with mode: standard or autopilot",
    ),
    Mistake(
        "the mode of an existing cluster for a new one",
        put("cluster.existingMode", "autopilot"),
        "gke-ai:cluster.existingMode",
        "existingMode has an effect only with mode: existing, and the mode is standard",
        "Remove existingMode, or set mode: existing",
    ),
    Mistake(
        "a cluster label that Google Cloud does not take",
        put("cluster.labels", {"Team": "ml"}),
        "gke-ai:cluster.labels",
        "Team is not a valid Google Cloud label key. GKE would refuse the cluster",
        "Use up to 63 lowercase letters, digits, '-' and '_'",
    ),
    Mistake(
        "a cluster label value that Google Cloud does not take",
        put("cluster.labels", {"team": "ML Platform"}),
        "gke-ai:cluster.labels",
        "the value of team is not a valid Google Cloud label value. GKE would refuse the cluster",
        "Use up to 63 lowercase letters, digits, '-' and '_'",
    ),
    # Pools
    Mistake(
        "a machine type that does not exist",
        put("gpuPools.0.machineType", "g2-standart-24"),
        "gke-ai:gpuPools[0].machineType",
        "g2-standart-24 is not a machine type of the catalog. GKE would refuse the pool",
        "Did you mean g2-standard-24?",
    ),
    Mistake(
        "a machine without that GPU",
        put("gpuPools.0.accelerator", "nvidia-tesla-a100"),
        "gke-ai:gpuPools[0].accelerator",
        "g2-standard-24 has nvidia-l4, not nvidia-tesla-a100",
        "a2-highgpu-1g",
    ),
    Mistake(
        "a GPU type that does not exist",
        put("gpuPools.0.accelerator", "NVIDIA_L4"),
        "gke-ai:gpuPools[0].accelerator",
        "NVIDIA_L4 is not a GPU type of the catalog. GKE would refuse the pool",
        "Did you mean nvidia-l4?",
    ),
    Mistake(
        "a GPU count that the machine does not have",
        put("gpuPools.0.gpusPerNode", 4),
        "gke-ai:gpuPools[0].gpusPerNode",
        "g2-standard-24 has 2 GPUs, not 4. GKE would refuse the pool",
        "Set it to 2, or choose g2-standard-48 (4)",
    ),
    Mistake(
        "a GPU pool of machines without GPUs",
        put("gpuPools.0.machineType", "e2-standard-4"),
        "gke-ai:gpuPools[0].machineType",
        "e2-standard-4 has no GPUs and supports none. GKE would refuse the pool",
        "Choose a machine with GPUs; with nvidia-l4: g2-standard-12",
    ),
    Mistake(
        "N1 without saying which GPUs to attach",
        put("gpuPools.0.machineType", "n1-standard-8"),
        "gke-ai:gpuPools[0].accelerator",
        "n1-standard-8 has no built-in GPUs, and the pool does not set which GPUs to attach, and how many",
        "Set accelerator (nvidia-tesla-t4) and gpusPerNode",
    ),
    Mistake(
        "three T4 on N1",
        both(
            put("gpuPools.0.machineType", "n1-standard-8"),
            put("gpuPools.0.accelerator", "nvidia-tesla-t4"),
            put("gpuPools.0.gpusPerNode", 3),
        ),
        "gke-ai:gpuPools[0].gpusPerNode",
        "3 nvidia-tesla-t4 cannot be attached to n1-standard-8",
        "Write one of: 1, 2, 4",
    ),
    Mistake(
        "L4 on N1",
        both(
            put("gpuPools.0.machineType", "n1-standard-8"),
            put("gpuPools.0.accelerator", "nvidia-l4"),
            put("gpuPools.0.gpusPerNode", 1),
        ),
        "gke-ai:gpuPools[0].accelerator",
        "nvidia-l4 cannot be attached to n1-standard-8",
        "choose a machine with nvidia-l4: g2-standard-12",
    ),
    Mistake(
        "a zone of another region",
        put("gpuPools.0.zones", ["europe-west4-a"]),
        "gke-ai:gpuPools[0].zones[0]",
        "europe-west4-a is not in us-central1, the cluster's region. GKE would refuse the pool",
        "Choose from us-central1-a, us-central1-b, us-central1-c, us-central1-f",
    ),
    Mistake(
        "a region where a zone belongs",
        put("gpuPools.0.zones", ["us-central1"]),
        "gke-ai:gpuPools[0].zones[0]",
        "us-central1 is a region, not a zone. GKE would refuse the pool",
        "Choose from us-central1-a",
    ),
    Mistake(
        "a zone with a letter that there is not",
        put("gpuPools.0.zones", ["us-central1-e"]),
        "gke-ai:gpuPools[0].zones[0]",
        "us-central1-e is not a zone of us-central1. GKE would refuse the pool",
        "Choose from us-central1-a",
    ),
    Mistake(
        "one zone twice",
        put("gpuPools.0.zones", ["us-central1-a", "us-central1-a"]),
        "gke-ai:gpuPools[0].zones[1]",
        "us-central1-a is listed twice",
        "Write it once",
    ),
    Mistake(
        "two pools of one name",
        put("gpuPools.+", SECOND_POOL | {"name": "l4"}),
        "gke-ai:gpuPools[1].name",
        "pool l4 is defined twice. GKE would refuse the second",
        "Rename one of them",
    ),
    Mistake(
        "a pool called like the system pool",
        put("gpuPools.+", SECOND_POOL | {"name": "default-pool"}),
        "gke-ai:gpuPools[1].name",
        "default-pool is also the name of the system pool. GKE would refuse the second",
        "Rename the pool, or set gke-ai:cluster systemPool.name",
    ),
    Mistake(
        "a fixed size and autoscaling",
        put("gpuPools.0.autoscaling", {"maxNodes": 3}),
        "gke-ai:gpuPools[0].nodesPerZone",
        "the pool has a fixed size and autoscaling",
        "Remove nodesPerZone or autoscaling",
    ),
    Mistake(
        "a pool without a size",
        put("gpuPools.+", {"name": "more", "machineType": "g2-standard-4"}),
        "gke-ai:gpuPools[1].nodesPerZone",
        "the pool has no size",
        "Set nodesPerZone, or autoscaling",
    ),
    Mistake(
        "bounds in the wrong order",
        both(drop("gpuPools.0.nodesPerZone"), put("gpuPools.0.autoscaling", {"minNodes": 5, "maxNodes": 3})),
        "gke-ai:gpuPools[0].autoscaling.minNodes",
        "minNodes is 5, and maxNodes is only 3. GKE would refuse the pool",
        "Set it to 3 or less",
    ),
    Mistake(
        "flex-start with a fixed size",
        put("gpuPools.0.capacity", {"mode": "flexStart"}),
        "gke-ai:gpuPools[0].nodesPerZone",
        "a flexStart pool cannot have a fixed size",
        "Write autoscaling: {maxNodes: N} instead of nodesPerZone",
    ),
    Mistake(
        "flex-start without autoscaling",
        both(drop("gpuPools.0.nodesPerZone"), put("gpuPools.0.capacity", {"mode": "flexStart"})),
        "gke-ai:gpuPools[0].autoscaling",
        "a flexStart pool needs autoscaling",
        "Write autoscaling: {maxNodes: N}",
    ),
    Mistake(
        "a server on a pool for provisioning requests",
        both(
            put(
                "gpuPools.+",
                {
                    "name": "queued",
                    "machineType": "g2-standard-24",
                    "autoscaling": {"maxNodes": 2},
                    "capacity": {"mode": "queuedFlexStart"},
                },
            ),
            put("serving.+", SECOND_SERVER | {"pool": "queued"}),
        ),
        "gke-ai:serving[1].pool",
        "the nodes of pool queued start only for a ProvisioningRequest for a whole Job, and this is a server",
        "{mode: flexStart}",
    ),
    Mistake(
        "a reservation that is a URL",
        put("gpuPools.0.capacity", {"mode": "reservation", "reservation": "https://example.com/r"}),
        "gke-ai:gpuPools[0].capacity.reservation",
        '"https://example.com/r" is not a valid reservation name. GKE would refuse the pool',
        "projects/PROJECT/reservations/NAME",
    ),
    Mistake(
        "a boot disk type that does not exist",
        put("gpuPools.0.diskType", "pd-balance"),
        "gke-ai:gpuPools[0].diskType",
        "pd-balance is not a boot disk type. GKE would refuse the pool",
        "Did you mean pd-balanced?",
    ),
    Mistake(
        "a boot disk that the machine cannot boot from",
        put(
            "gpuPools.+",
            {"name": "g4", "machineType": "g4-standard-48", "nodesPerZone": 1, "diskType": "pd-balanced"},
        ),
        "gke-ai:gpuPools[1].diskType",
        "g4-standard-48 does not boot from pd-balanced",
        "Remove diskType, or write hyperdisk-balanced",
    ),
    Mistake(
        "a node label that is not one",
        put("gpuPools.0.labels", {"team!": "ml"}),
        "gke-ai:gpuPools[0].labels",
        "team! is not a valid label key. Kubernetes would refuse the objects",
        "Use up to 63 letters",
    ),
    Mistake(
        "a node label of GKE's own",
        put("gpuPools.0.labels", {"cloud.google.com/gke-spot": "true"}),
        "gke-ai:gpuPools[0].labels",
        "the prefix of cloud.google.com/gke-spot is reserved for Kubernetes and GKE",
        "Use a prefix of your own",
    ),
    Mistake(
        "a node label of Kubernetes' own",
        put("gpuPools.0.labels", {"node-role.kubernetes.io/gpu": "true"}),
        "gke-ai:gpuPools[0].labels",
        "the prefix of node-role.kubernetes.io/gpu is reserved for Kubernetes and GKE",
        "Use a prefix of your own",
    ),
    Mistake(
        "a node label without a value",
        put("gpuPools.0.labels", {"team": ""}),
        "gke-ai:gpuPools[0].labels",
        "label team has no value. Google's provider drops such labels",
        "Write a value, such as true",
    ),
    Mistake(
        "a cluster label without a value",
        put("cluster.labels", {"team": ""}),
        "gke-ai:cluster.labels",
        "label team has no value. Google's provider drops such labels",
        "Write a value, such as true",
    ),
    # Buckets
    Mistake(
        "capital letters in a bucket name",
        put("buckets.+", {"name": "My-Models"}),
        "gke-ai:buckets[1].name",
        '"My-Models" is not a valid bucket name. Cloud Storage would refuse it',
        "Use 3 to 63 lowercase letters",
    ),
    Mistake(
        "a bucket name that ends in an underscore",
        put("buckets.+", {"name": "models_"}),
        "gke-ai:buckets[1].name",
        '"models_" is not a valid bucket name. Cloud Storage would refuse it',
        "Begin and end with a letter or digit",
    ),
    Mistake(
        "a bucket name that is too long once the project is in it",
        put("buckets.+", {"name": "m" * 55 + "-{project}"}),
        "gke-ai:buckets[1].name",
        '"mmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmm-my-project" is not a valid bucket name',
        "Use 3 to 63",
    ),
    Mistake(
        "a bucket name that Google keeps",
        put("buckets.+", {"name": "goog-models"}),
        "gke-ai:buckets[1].name",
        "goog-models begins with goog or contains google",
        "Choose another name",
    ),
    Mistake(
        "a placeholder that does not exist",
        put("buckets.+", {"name": "models-{projectId}"}),
        "gke-ai:buckets[1].name",
        "models-{projectId} contains braces, and only {project} is replaced",
        "Write {project}",
    ),
    Mistake(
        "two buckets of one name",
        put("buckets.+", {"name": "models-my-project"}),
        "gke-ai:buckets[1].name",
        "bucket models-my-project is defined twice. Cloud Storage would refuse the second",
        "Rename one of them",
    ),
    Mistake(
        "a bucket in a zone",
        put("buckets.0.location", "us-central1-a"),
        "gke-ai:buckets[0].location",
        "us-central1-a is a zone, and a bucket needs a region. Cloud Storage would refuse it",
        "Write us-central1",
    ),
    Mistake(
        "a bucket in a place that does not exist",
        put("buckets.0.location", "us-centra1"),
        "gke-ai:buckets[0].location",
        "us-centra1 is not a location of Cloud Storage. It would refuse the bucket",
        "Did you mean us-central1?",
    ),
    Mistake(
        "an adopted bucket whose data goes with the stack",
        both(put("buckets.0.adopt", True), put("buckets.0.onDestroy", "delete")),
        "gke-ai:buckets[0].onDestroy",
        "an adopted bucket cannot have onDestroy: delete. Pulumi would refuse to take it over",
        "Set it to keep",
    ),
    Mistake(
        "soft delete for three days",
        put("buckets.0.softDeleteDays", 3),
        "gke-ai:buckets[0].softDeleteDays",
        "soft delete keeps objects for 7 to 90 days, not 3. Cloud Storage would refuse the bucket",
        "Set it to 7, or to 0",
    ),
    Mistake(
        "a role without its prefix",
        put("buckets.0.grants.+", {"namespace": "llm", "role": "storage.objectViewer"}),
        "gke-ai:buckets[0].grants[1].role",
        '"storage.objectViewer" is not a valid role name. IAM would refuse the grant',
        "Write for example roles/storage.objectUser",
    ),
    Mistake(
        "one grant twice",
        put("buckets.0.grants.+", {"namespace": "llm"}),
        "gke-ai:buckets[0].grants[1].role",
        "roles/storage.objectUser is granted twice to llm/default",
        "Remove one of the grants",
    ),
    Mistake(
        "training into a bucket that does not exist",
        put("training.0.volume.bucket", "model-{project}"),
        "gke-ai:training[0].volume.bucket",
        "bucket model-my-project does not exist. The pods of the Job could not mount it",
        "Did you mean models-my-project?",
    ),
    Mistake(
        "training into a bucket that nobody may use",
        drop("buckets.0.grants"),
        "gke-ai:training[0].volume.bucket",
        "service account llm/default has no role on bucket models-my-project. The Job could not write its checkpoints",
        "Add to gke-ai:buckets[0].grants: {namespace: llm, serviceAccount: default, role: roles/storage.objectUser}",
    ),
    Mistake(
        "training into a bucket that it may only read",
        put("buckets.0.grants.0.role", "roles/storage.objectViewer"),
        "gke-ai:training[0].volume.bucket",
        "llm/default has only roles/storage.objectViewer",
        "role: roles/storage.objectUser",
    ),
    # Queues
    Mistake(
        "two flavors of one name",
        put("queues.flavors.+", {"name": "l4", "pools": ["l4"]}),
        "gke-ai:queues.flavors[1].name",
        "flavor l4 is defined twice. The second could not be created",
        "Rename one of them",
    ),
    Mistake(
        "two cluster queues of one name",
        put("queues.clusterQueues.+", {"name": "gpus", "flavors": [{"flavor": "l4", "quota": "derive"}]}),
        "gke-ai:queues.clusterQueues[1].name",
        "cluster queue gpus is defined twice. The second could not be created",
        "Rename one of them",
    ),
    Mistake(
        "two local queues of one name in a namespace",
        put("queues.localQueues.+", {"name": "lq", "namespace": "llm", "clusterQueue": "gpus"}),
        "gke-ai:queues.localQueues[1].name",
        "local queue llm/lq is defined twice. The second could not be created",
        "Rename one of them",
    ),
    Mistake(
        "two priority classes of one name",
        put("queues.priorityClasses.+", {"name": "low", "value": 10}),
        "gke-ai:queues.priorityClasses[2].name",
        "priority class low is defined twice. The second could not be created",
        "Rename one of them",
    ),
    Mistake(
        "a flavor of a pool that does not exist",
        put("queues.flavors.0.pools", ["l4", "l40"]),
        "gke-ai:queues.flavors[0].pools[1]",
        "pool l40 does not exist. No node would belong to this flavor",
        "Did you mean l4?",
    ),
    Mistake(
        "a flavor of two kinds of GPU",
        both(
            put("gpuPools.+", {"name": "a100", "machineType": "a2-highgpu-1g", "nodesPerZone": 1}),
            put("queues.flavors.0.pools", ["l4", "a100"]),
        ),
        "gke-ai:queues.flavors[0].pools",
        "the pools of flavor l4 have different accelerators (nvidia-l4, nvidia-tesla-a100)",
        "Define a flavor for each accelerator",
    ),
    Mistake(
        "a flavor that nothing uses",
        put("queues.flavors.+", {"name": "spare"}),
        "gke-ai:queues.flavors[1].name",
        "no cluster queue has quota for flavor spare. Nothing could run on it",
        "Add quota for it to a cluster queue, or remove it",
    ),
    Mistake(
        "quota of a flavor that does not exist",
        put("queues.clusterQueues.0.flavors.+", {"flavor": "l44", "quota": "derive"}),
        "gke-ai:queues.clusterQueues[0].flavors[1].flavor",
        "flavor l44 does not exist",
        "Did you mean l4?",
    ),
    Mistake(
        "one flavor twice in a cluster queue",
        put("queues.clusterQueues.0.flavors.+", {"flavor": "l4", "quota": "derive"}),
        "gke-ai:queues.clusterQueues[0].flavors[1].flavor",
        "flavor l4 is in cluster queue gpus twice",
        "Remove one of them",
    ),
    Mistake(
        "flavors with quota for different resources",
        both(
            put("gpuPools.+", SECOND_POOL),
            put("queues.flavors.+", {"name": "big", "pools": ["l4-big"]}),
            put("queues.clusterQueues.0.flavors.+", {"flavor": "big", "quota": {"cpu": "4", "nvidia.com/gpu": 4}}),
        ),
        "gke-ai:queues.clusterQueues[0].flavors",
        "the flavors of cluster queue gpus have quota for different resources. Kueue would refuse it",
        "Set quota for cpu, ephemeral-storage, memory, nvidia.com/gpu in each of them",
    ),
    Mistake(
        "an empty quota",
        both(put(QUOTA, {}), drop("serving.0.queue"), drop("training.0.queue")),
        "gke-ai:queues.clusterQueues[0].flavors[0].quota",
        "the quota of flavor l4 is empty",
        "Write quota: derive",
    ),
    Mistake(
        "quota of gpu instead of nvidia.com/gpu",
        put(QUOTA, {"cpu": "72", "memory": "288Gi", "nvidia.com/gpu": 6, "gpu": 6, "ephemeral-storage": "200Gi"}),
        'gke-ai:queues.clusterQueues[0].flavors[0].quota["gpu"]',
        "gpu is not a Kubernetes resource. No pod would request it",
        "Did you mean nvidia.com/gpu?",
    ),
    Mistake(
        "half a GPU",
        put(QUOTA, {"cpu": "72", "memory": "288Gi", "nvidia.com/gpu": "6500m", "ephemeral-storage": "200Gi"}),
        'gke-ai:queues.clusterQueues[0].flavors[0].quota["nvidia.com/gpu"]',
        "6500m of nvidia.com/gpu is not a whole number",
        "Write a whole number",
    ),
    Mistake(
        "a derived quota without pools",
        drop("queues.flavors.0.pools"),
        "gke-ai:queues.clusterQueues[0].flavors[0].quota",
        "quota cannot be derived, as flavor l4 names no pools",
        "Name them in gke-ai:queues.flavors[0].pools",
    ),
    Mistake(
        "a derived quota on Autopilot",
        put(QUOTA, "derive"),
        "gke-ai:queues.clusterQueues[0].flavors[0].quota",
        "quota cannot be derived, as the cluster is Autopilot and has no pools to add up",
        "Write the amounts",
        on_autopilot,
    ),
    Mistake(
        "a local queue to a cluster queue that does not exist",
        put("queues.localQueues.+", {"name": "other", "namespace": "llm", "clusterQueue": "gpu"}),
        "gke-ai:queues.localQueues[1].clusterQueue",
        "cluster queue gpu does not exist. Workloads in other would wait forever",
        "Did you mean gpus?",
    ),
    Mistake(
        "two global default priorities",
        both(put("queues.priorityClasses.0.globalDefault", True), put("queues.priorityClasses.1.globalDefault", True)),
        "gke-ai:queues.priorityClasses[1].globalDefault",
        "low and high are both the global default. Kubernetes would refuse the second",
        "Set it in one of them only",
    ),
    Mistake(
        "a priority class with a name that Kubernetes keeps",
        put("queues.priorityClasses.+", {"name": "system-training", "value": 5}),
        "gke-ai:queues.priorityClasses[2].name",
        "system-training begins with system-",
        "Choose another name",
    ),
    Mistake(
        "a server with the priority of the cluster's own controllers",
        put("serving.0.priorityClass", "system-cluster-critical"),
        "gke-ai:serving[0].priorityClass",
        "system-cluster-critical is for the cluster's own controllers, and GKE allows it in kube-system only. It would "
        "refuse the pods: insufficient quota to match these scopes",
        "Define a class in gke-ai:queues.priorityClasses",
    ),
    Mistake(
        "training that goes before serving",
        put("queues.priorityClasses.0.value", 20),
        "gke-ai:training[0].priorityClass",
        "training finetune has priority 20, server gemma has 20, and both are in cluster queue gpus",
        "Set a priorityClass of a higher value for the server, or set preemption: {withinClusterQueue: "
        "Never} if this is intended",
    ),
    # Workloads
    Mistake(
        "a queue that does not exist",
        put("serving.0.queue", "lqq"),
        "gke-ai:serving[0].queue",
        "in namespace llm, local queue lqq does not exist. Kueue would never admit the pods",
        "Did you mean lq?",
    ),
    Mistake(
        "a queue of another namespace",
        both(put("training.0.namespace", "team-a"), put("buckets.0.grants.0.namespace", "team-a")),
        "gke-ai:training[0].queue",
        "local queue lq is in namespace llm, and the training is in team-a",
        "Add {name: lq, namespace: team-a, clusterQueue: …} to gke-ai:queues.localQueues",
    ),
    Mistake(
        "a priority class that does not exist",
        put("serving.0.priorityClass", "hihg"),
        "gke-ai:serving[0].priorityClass",
        "priority class hihg does not exist",
        "Did you mean high?",
    ),
    Mistake(
        "a pool that does not exist",
        put("serving.0.pool", "l4s"),
        "gke-ai:serving[0].pool",
        "pool l4s does not exist. The pods would stay pending",
        "Did you mean l4?",
    ),
    Mistake(
        "a pool on Autopilot",
        both(drop("serving.0.accelerator"), put("serving.0.pool", "l4")),
        "gke-ai:serving[0].pool",
        "the cluster is Autopilot and has no pools. The pods would stay pending",
        "Set accelerator instead of pool, for example accelerator: nvidia-l4",
        on_autopilot,
    ),
    Mistake(
        "a pool and an accelerator",
        put("serving.0.accelerator", "nvidia-l4"),
        "gke-ai:serving[0].accelerator",
        "names a pool and an accelerator",
        "Remove one of them",
    ),
    Mistake(
        "neither pool nor accelerator on Standard",
        put("serving.+", {"name": "other", "model": "google/gemma-2-2b"}),
        "gke-ai:serving[1].pool",
        "the server requests GPUs and names no pool or GPU type. It would run on any node",
        "Set pool (l4)",
    ),
    Mistake(
        "neither pool nor accelerator on Autopilot",
        put("serving.+", {"name": "other", "model": "google/gemma-2-2b"}),
        "gke-ai:serving[1].accelerator",
        "the server requests GPUs and names no pool or GPU type. It would run on any node",
        "Set accelerator, for example nvidia-l4",
        on_autopilot,
    ),
    Mistake(
        "an accelerator that does not exist",
        put("serving.0.accelerator", "l4"),
        "gke-ai:serving[0].accelerator",
        "l4 is not a GPU type of the catalog. The pods would stay pending",
        "Write one of: nvidia-a100-80gb",
        on_autopilot,
    ),
    Mistake(
        "an accelerator that no pool has",
        put("serving.+", {"name": "other", "model": "google/gemma-2-2b", "accelerator": "nvidia-tesla-a100"}),
        "gke-ai:serving[1].accelerator",
        "no pool of the cluster has nvidia-tesla-a100: its pools have nvidia-l4",
        "Add a pool with nvidia-tesla-a100",
    ),
    Mistake(
        "two servers of one name",
        put("serving.+", SECOND_SERVER | {"name": "gemma", "service": "gemma-2"}),
        "gke-ai:serving[1].name",
        "server llm/gemma is defined twice. The second could not be created",
        "Rename one of them",
    ),
    Mistake(
        "two runs of one name",
        put("training.+", SECOND_JOB | {"name": "finetune", "service": "second"}),
        "gke-ai:training[1].name",
        "training llm/finetune is defined twice. The second could not be created",
        "Rename one of them",
    ),
    Mistake(
        "a server and a run with one Service",
        put("training.0.service", "gemma"),
        "gke-ai:training[0].service",
        "Service llm/gemma is defined twice",
        "Rename one of them",
    ),
    Mistake(
        "a Service that begins with a digit",
        put("serving.0.name", "7b-server"),
        "gke-ai:serving[0].name",
        "7b-server begins with a digit. Kubernetes would refuse the Service",
        "Begin with a letter, or set service",
    ),
    Mistake(
        "a run whose pods have names that are too long",
        put("training.0.name", "f" * 60),
        "gke-ai:training[0].name",
        "the pod name ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff-2ea7c0-1 would have 69 "
        "characters, and the maximum is 63",
        "Shorten the name by 6 characters",
    ),
    Mistake(
        "a namespace that the cluster has already",
        both(drop("serving.0.queue"), put("serving.0.namespace", "kube-system")),
        "gke-ai:serving[0].namespace",
        "namespace kube-system belongs to the cluster",
        "Choose another namespace",
    ),
    Mistake(
        "a variable that a key already sets",
        both(put("serving.0.engine", "tgi"), put("serving.0.env", {"NUM_SHARD": "4"})),
        "gke-ai:serving[0].env.NUM_SHARD",
        "gpus sets NUM_SHARD. The container would have it twice",
        "set gke-ai:serving[0].gpus",
    ),
    Mistake(
        "a variable of a run that a key already sets",
        put("training.0.env", {"EPOCHS": "4"}),
        "gke-ai:training[0].env.EPOCHS",
        "epochs sets EPOCHS. The container would have it twice",
        "set gke-ai:training[0].epochs",
    ),
    Mistake(
        "a variable with a name that is none",
        put("serving.0.env", {"MY VAR": "4"}),
        "gke-ai:serving[0].env",
        '"MY VAR" is not a valid name of an environment variable. No shell could read it',
        "Use letters, digits and '_'",
    ),
    Mistake(
        "a token in plain text, by its variable",
        put("serving.0.env", {"HF_TOKEN": "anything at all"}),
        "gke-ai:serving[0].env.HF_TOKEN",
        "the variable contains a token in plain text",
        "Remove it, revoke the token, and set a new one with pulumi config set --secret gke-ai:hfToken",
    ),
    Mistake(
        "a token in plain text, by its looks",
        put("training.0.env", {"MY_SETTING": f"token={TOKEN}"}),
        "gke-ai:training[0].env.MY_SETTING",
        "the variable contains a token in plain text",
        "Remove it, revoke the token, and set a new one with pulumi config set --secret gke-ai:hfToken",
    ),
    Mistake(
        "a pod label that is not one",
        put("serving.0.labels", {"ai.gke.io/model": "google/gemma"}),
        "gke-ai:serving[0].labels",
        "the value of ai.gke.io/model is not a valid label value",
        "Use up to 63 letters",
    ),
    Mistake(
        "a pod label that a key already sets",
        put("training.0.labels", {"kueue.x-k8s.io/queue-name": "lq"}),
        "gke-ai:training[0].labels",
        "queue sets the label kueue.x-k8s.io/queue-name. The pods would have it twice",
        "set gke-ai:training[0].queue",
    ),
    Mistake(
        "an app that is no label value",
        put("serving.0.app", "gemma server"),
        "gke-ai:serving[0].app",
        "the value of app is not a valid label value. Kubernetes would refuse the objects",
        "Use up to 63 letters",
    ),
    Mistake(
        "a model by its URL",
        put("serving.0.model", "https://huggingface.co/google/gemma-2-9b-it"),
        "gke-ai:serving[0].model",
        '"https://huggingface.co/google/gemma-2-9b-it" is not an id on Hugging Face. The download would fail',
        "Write OWNER/NAME",
    ),
    Mistake(
        "a data set without a name",
        put("training.0.dataset", {"name": ""}),
        "gke-ai:training[0].dataset.name",
        '"" is not an id on Hugging Face. The download would fail',
        "Write OWNER/NAME",
    ),
    Mistake(
        "a port variable that is none",
        both(put("serving.0.engine", "tgi"), put("serving.0.portVariable", "HTTP-PORT")),
        "gke-ai:serving[0].portVariable",
        '"HTTP-PORT" is not a valid name of an environment variable',
        "Use letters, digits and '_'",
    ),
    Mistake(
        "a Secret's key that is none",
        both(
            put("serving.0.tokenSecret", {"name": "s", "key": "my key"}),
        ),
        "gke-ai:serving[0].tokenSecret.key",
        '"my key" is not a valid key of a Secret. Kubernetes would refuse it',
        "Use letters, digits",
    ),
    Mistake(
        "one Secret with two keys",
        put("training.0.tokenSecret", {"key": "token"}),
        "gke-ai:training[0].tokenSecret.key",
        "another workload uses key hf_api_token of Secret llm/hf-secret, not token",
        "Write hf_api_token",
    ),
    Mistake(
        "a relative mount path",
        put("training.0.volume.mountPath", "model-data"),
        "gke-ai:training[0].volume.mountPath",
        "model-data is not a valid mount path. It must be absolute, and not / or /dev/shm",
        "Write for example /model-data",
    ),
    Mistake(
        "checkpoints beside the bucket",
        put("training.0.modelPath", "/data/model"),
        "gke-ai:training[0].modelPath",
        "/data/model is not below /model-data, the mount path of the bucket. The checkpoints would be "
        "lost with the pod",
        "Write a path below /model-data",
    ),
    Mistake(
        "two runs with one folder for checkpoints",
        both(
            put("training.0.modelPath", "/model-data/shared"),
            put("training.+", {**good()["training"][0], "name": "second", "modelPath": "/model-data/shared/"}),
        ),
        "gke-ai:training[1].modelPath",
        "finetune writes its checkpoints to the same folder of bucket models-my-project",
        "Write another folder below /model-data, or remove it",
    ),
    Mistake(
        "two runs with fixed names and no folder of their own",
        both(
            put("training.0.fixedName", True),
            put("training.+", {**good()["training"][0], "name": "second", "fixedName": True}),
        ),
        "gke-ai:training[1].modelPath",
        "finetune writes its checkpoints to the same folder",
        "Write another folder below /model-data",
    ),
    # Kueue
    Mistake(
        "a limit that a server cannot keep while it loads",
        put("queues.podsReadyTimeoutSeconds", 600),
        "gke-ai:queues.podsReadyTimeoutSeconds",
        "server gemma may take 3600 s to load its model, and Kueue would evict it after 600 s",
        "Set it to 3600 or more, or lower gke-ai:serving[0].readyTimeoutSeconds",
    ),
    Mistake(
        "a limit on pods that wait for flex-start nodes",
        both(
            put("queues.podsReadyTimeoutSeconds", 7200),
            drop("gpuPools.0.nodesPerZone"),
            put("gpuPools.0.autoscaling", {"maxNodes": 3}),
            put("gpuPools.0.capacity", {"mode": "flexStart"}),
        ),
        "gke-ai:queues.podsReadyTimeoutSeconds",
        "flex-start nodes of pool l4 may start days after Kueue admits their pods",
        "Remove it, or use capacity {mode: queuedFlexStart}",
    ),
    Mistake(
        "no manager of Kueue",
        put("queues.managerReplicas", 0),
        "gke-ai:queues.managerReplicas",
        "0 is below the minimum, 1",
        "Set it to 1",
    ),
    # Sizes
    Mistake(
        "a server with more GPUs than any node of its pool",
        both(put("serving.0.gpus", 4), drop("serving.0.queue")),
        "gke-ai:serving[0].gpus",
        "a replica of the server requests 4 GPUs, and a node of pool l4 (g2-standard-24) has 2 GPUs for pods",
        "use a pool of g2-standard-48",
    ),
    Mistake(
        "a server with all the CPU of the machine, which no node gives",
        put("serving.0.resources.cpu", "24"),
        "gke-ai:serving[0].resources.cpu",
        "a replica of the server requests 24 CPU, and a node of pool l4 (g2-standard-24) has 23.144 CPU for pods",
        "use a pool of g2-standard-48",
    ),
    Mistake(
        "a server with all the memory of the machine, which no node gives",
        put("serving.0.resources.memory", "96Gi"),
        "gke-ai:serving[0].resources.memory",
        "a replica of the server requests 96Gi of memory, and a node of pool l4 (g2-standard-24) has "
        "85.3Gi of memory for pods",
        "use a pool of g2-standard-48",
    ),
    Mistake(
        "a server with more scratch space than the disk",
        put("serving.0.resources.ephemeralStorage", "150Gi"),
        "gke-ai:serving[0].resources.ephemeralStorage",
        "a replica of the server requests 150Gi of ephemeral-storage, and a node of pool l4 "
        "(g2-standard-24) has 97.4Gi of ephemeral-storage for pods",
        "a larger disk",
    ),
    Mistake(
        "a run whose sidecar does not fit beside it",
        put("training.0.resources", {"memory": "60Gi"}),
        "gke-ai:training[0].resources.memory",
        "a pod of the Job with its FUSE sidecar requests 95Gi of memory, and a node of pool l4 "
        "(g2-standard-24) has 85.3Gi of memory for pods",
        "use a pool of g2-standard-48",
    ),
    Mistake(
        "a run whose pods have more GPUs than a node",
        both(put("training.0.gpusPerPod", 4), drop("training.0.queue")),
        "gke-ai:training[0].gpusPerPod",
        "a pod of the Job requests 4 GPUs, and a node of pool l4 (g2-standard-24) has 2 GPUs for pods",
        "use a pool of g2-standard-48",
    ),
    Mistake(
        "a server larger than any machine with its GPU",
        both(put("serving.0.gpus", 16), drop("serving.0.queue")),
        "gke-ai:serving[0].gpus",
        "no machine has 16 nvidia-l4",
        "Request less, or another accelerator",
        on_autopilot,
    ),
    Mistake(
        "a run whose pods never find room at once",
        both(put("training.0.pods", 4), drop("training.0.queue")),
        "gke-ai:training[0].pods",
        "the Job runs 4 pods at once, and the pool has room for 3 (l4: at most 3 nodes)",
        "Make the pool larger, or request fewer pods",
    ),
    Mistake(
        "a server on a pool of no nodes",
        both(
            put("gpuPools.+", SECOND_POOL | {"nodesPerZone": 0}),
            put("serving.+", SECOND_SERVER | {"pool": "l4-big"}),
        ),
        "gke-ai:serving[1].pool",
        "the server needs 1 pod at once, and the pool has room for 0 (l4-big: at most 0 nodes)",
        "Add a node to the pool",
    ),
    Mistake(
        "a run whose pods together exceed the queue",
        put("training.0.pods", 4),
        "gke-ai:training[0].pods",
        "the 4 pods of training finetune together request 8 GPUs, and cluster queue gpus has at most 6 GPUs",
        "Request less, or raise the quota at gke-ai:queues.clusterQueues[0].flavors",
        on_autopilot,
    ),
    Mistake(
        "a server whose one replica exceeds the queue",
        put("serving.0.gpus", 8),
        "gke-ai:serving[0].gpus",
        "one pod of server gemma requests 8 GPUs, and cluster queue gpus has at most 6 GPUs",
        "raise the quota",
        on_autopilot,
    ),
    Mistake(
        "a quota without GPUs for a server that asks for them",
        both(put(QUOTA, {"cpu": "72", "memory": "288Gi", "ephemeral-storage": "200Gi"}), drop("training.0.queue")),
        "gke-ai:queues.clusterQueues[0].flavors[0].quota",
        "cluster queue gpus has no quota for nvidia.com/gpu, which server gemma requests",
        "Add nvidia.com/gpu to the quota",
    ),
    Mistake(
        "a quota on another pool than the server's",
        both(put("gpuPools.+", SECOND_POOL), put("serving.0.pool", "l4-big")),
        "gke-ai:serving[0].queue",
        "cluster queue gpus has no quota for a flavor of pool l4-big, where server gemma runs",
        "Add the pool to a flavor of cluster queue gpus",
    ),
]


def is_reported_alone(mistake: Mistake, values: Configuration) -> None:
    """Asserts that the mistake is the only problem, and has its path, cause and remedy."""
    mistake.change(values)
    problems = problems_of(values)
    assert [problem.path for problem in problems] == [mistake.path], "\n".join(map(str, problems))
    # Cells of a table are padded.
    assert mistake.cause in " ".join(f"{problems[0].cause} {problems[0].table}".split())
    assert mistake.remedy in problems[0].remedy


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.id)
def test_mistake_is_reported_once_with_path_cause_and_remedy(mistake: Mistake) -> None:
    is_reported_alone(mistake, mistake.base())


def test_names_of_the_mistakes_are_unique() -> None:
    assert len({mistake.id for mistake in MISTAKES}) == len(MISTAKES) >= 40


@pytest.mark.parametrize("base", [good, on_autopilot])
def test_good_configuration_has_no_problem(base: Callable[[], Configuration]) -> None:
    assert problems_of(base()) == []


@pytest.mark.parametrize("path", repository.examples(), ids=lambda path: path.stem)
def test_example_loads(path: Path) -> None:
    config = yaml.safe_load(path.read_text())["config"]
    values = {key.removeprefix("gke-ai:"): value for key, value in config.items() if key.startswith("gke-ai:")}
    assert load(values, PROJECT).cluster.name


def test_missing_token_names_both_ways_to_set_it() -> None:
    (problem,) = problems_of(good(), token_given=False)
    assert problem.path == "gke-ai:hfToken"
    assert "pulumi config set --secret gke-ai:hfToken" in problem.remedy
    assert "HF_TOKEN" in problem.remedy


def test_stack_without_workloads_needs_no_token() -> None:
    values = good()
    values["serving"] = values["training"] = []
    assert problems_of(values, token_given=False) == []


def test_missing_project_is_no_bad_bucket_name() -> None:
    (problem,) = problems_of(good(), project="")
    assert problem.path == "gcp:project"
    assert "pulumi config set gcp:project" in problem.remedy


def test_every_mistake_of_a_file_is_reported_at_once() -> None:
    values = good()
    values["gpuPool"] = []
    values["cluster"]["location"] = "us-centrall1"
    values["buckets"][0]["softDeleteDays"] = 3
    values["gpuPools"][0]["gpusPerNode"] = 3
    values["queues"]["localQueues"][0]["clusterQueue"] = "gpu"
    values["serving"][0]["engine"] = "triton"
    values["serving"].append(SECOND_SERVER | {"pool": "nowhere"})
    values["training"][0]["modelPath"] = "/tmp/model"
    assert [problem.path for problem in problems_of(values, token_given=False)] == [
        "gke-ai:gpuPool",
        "gke-ai:hfToken",
        "gke-ai:cluster.location",
        "gke-ai:buckets[0].softDeleteDays",
        "gke-ai:gpuPools[0].gpusPerNode",
        "gke-ai:queues.localQueues[0].clusterQueue",
        "gke-ai:serving[0].engine",
        "gke-ai:serving[1].pool",
        "gke-ai:training[0].modelPath",
    ]


def test_reference_to_a_mistyped_item_is_no_second_mistake() -> None:
    values = good()
    values["gpuPools"][0]["driver"] = "newest"
    values["queues"]["clusterQueues"][0]["cohort"] = "Not A Name"
    values["buckets"][0]["softDeleteDays"] = -1
    assert [problem.path for problem in problems_of(values)] == [
        "gke-ai:buckets[0].softDeleteDays",
        "gke-ai:gpuPools[0].driver",
        "gke-ai:queues.clusterQueues[0].cohort",
    ]


@pytest.mark.parametrize("item", [None, "l4", {"nmae": "l4", "machineType": "g2-standard-24", "nodesPerZone": 3}])
def test_reference_to_an_item_without_a_name_is_no_second_mistake(item: object) -> None:
    values = good()
    values["gpuPools"][0] = item
    assert {problem.path.split(".")[0] for problem in problems_of(values)} == {"gke-ai:gpuPools[0]"}


def test_several_mistakes_of_one_item_are_all_reported() -> None:
    values = good()
    values["serving"][0] |= {"replicas": -1, "engine": "triton", "sevice": "x"}
    assert {problem.path for problem in problems_of(values)} == {
        "gke-ai:serving[0].replicas",
        "gke-ai:serving[0].engine",
        "gke-ai:serving[0].sevice",
    }


@pytest.mark.parametrize(
    "change",
    [
        put("serving.0.env", {"HF_TOKEN": TOKEN}),
        put("serving.0.env", {"HF_TOKEN": "canary value"}),
        put("serving.0.env", {"HF_TOKEN": ["canary value"]}),
        put("serving.0.engine", TOKEN),
        put("serving.0.gpus", TOKEN),
        put("serving.0.model", f"https://user:{TOKEN}@huggingface.co/x"),
        put("serving.0.name", TOKEN),
        put("serving.0.pool", TOKEN),
        put("serving.0.resources", {"cpu": TOKEN}),
        put("gpuPools.0.capacity", {"mode": TOKEN}),
        put("gpuPools.0.capacity", {"mode": "spot", TOKEN: TOKEN}),
        put(TOKEN, TOKEN),
        put("hf_Token", "canary value"),
    ],
)
def test_no_message_ever_holds_a_token(change: Callable[[Configuration], None]) -> None:
    values = good()
    change(values)
    with pytest.raises(BadConfiguration) as caught:
        load(values, PROJECT)
    for text in (str(caught.value), repr(caught.value), repr(caught.value.problems)):
        assert TOKEN not in text
        assert "canary value" not in text


def test_message_has_the_number_of_mistakes_and_the_next_step() -> None:
    values = good()
    values["gpuPools"][0]["gpusPerNode"] = 3
    with pytest.raises(BadConfiguration) as caught:
        load(values, PROJECT)
    lines = str(caught.value).splitlines()
    assert lines[0] == "The configuration of this stack has 1 problem; nothing was changed."
    assert lines[2] == (
        "  - gke-ai:gpuPools[0].gpusPerNode: g2-standard-24 has 2 GPUs, not 3. "
        "GKE would refuse the pool. Set it to 2, or choose g2-standard-48 (4)."
    )
    assert "run the command again" in lines[-1]
