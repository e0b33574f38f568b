"""What servers and runs share: resources, environment, queue label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gke_ai.catalog.engines import fuse
from gke_ai.catalog.machines.types import MACHINES
from gke_ai.catalog.nodes.quota import QUEUE_LABEL
from gke_ai.catalog.nodes.shape import ARM_TAINT, GKE_ACCELERATOR, NVIDIA_GPU
from gke_ai.settings.model import Workload

# With the API's field names, because a JobSet accepts no others.
SHARED_MEMORY_MOUNT: Any = {"name": "dshm", "mountPath": "/dev/shm"}

# GPUs of machines with Arm processors.
_ON_ARM = frozenset(machine.gpu for machine in MACHINES.values() if machine.gpu and machine.arch == "arm64")


def arm_tolerations(node_selector: Mapping[str, str]) -> list[Any]:
    """The toleration of GKE's taint of Arm nodes, for pods that select the GPU of such nodes."""
    taint = {"key": ARM_TAINT.key, "operator": "Equal", "value": ARM_TAINT.value, "effect": ARM_TAINT.effect}
    return [taint] if node_selector.get(GKE_ACCELERATOR) in _ON_ARM else []


def shared_memory(size: str | None = None) -> Any:
    """The volume of /dev/shm, with the API's field names. Without a size, the container's memory limits it."""
    return {"name": "dshm", "emptyDir": {"medium": "Memory", **({"sizeLimit": size} if size else {})}}


def bucket_volume(name: str, bucket: str, mount_options: str, read_only: bool) -> Any:
    """A bucket as a volume, with the API's field names."""
    attributes = {"bucketName": bucket, "mountOptions": mount_options}
    return {"name": name, "csi": {"driver": fuse.DRIVER, "readOnly": read_only, "volumeAttributes": attributes}}


def environment(workload: Workload, values: dict[str, str], token_variables: Sequence[str]) -> list[Any]:
    """Environment of the container: `values`, the token in each of `token_variables`, and the configured variables.

    A workload without a token Secret gets no token.
    """
    secret = workload.token
    tokens = [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": secret.name, "key": secret.key}}}
        for name in token_variables
        if secret is not None
    ]
    return [*variables(values), *tokens, *variables(workload.env)]


def variables(values: dict[str, str]) -> list[Any]:
    """Environment variables with plain values."""
    return [{"name": name, "value": value} for name, value in values.items()]


def resources(workload: Workload, count: int, accelerator: str = NVIDIA_GPU) -> Any:
    """Equal requests and limits of the container: accelerators can't be shared, and Autopilot bills requests."""
    requests = {**workload.resources.stated, accelerator: str(count)}
    return {"requests": requests, "limits": requests}


def queue_label(workload: Workload) -> dict[str, str]:
    """The label that puts a workload under Kueue. Empty without a queue."""
    return {QUEUE_LABEL: workload.queue} if workload.queue else {}
