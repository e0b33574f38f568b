"""What servers and Jobs have in common."""

from typing import NotRequired, TypedDict

import pulumi_kubernetes as k8s

from catalog.nodes import NVIDIA_GPU
from catalog.quota import QUEUE_LABEL
from components.base import ResourcesArgs, TokenSecretArgs
from settings.model import FineTune, GpuServer

# The kubernetes plugin would wait for a Job to finish and for every replica to be available; a queue decides both.
SKIP_AWAIT = {"pulumi.com/skipAwait": "true"}
SHARED_MEMORY: "k8s.core.v1.VolumeArgsDict" = {"name": "dshm", "empty_dir": {"medium": "Memory"}}
SHARED_MEMORY_MOUNT: "k8s.core.v1.VolumeMountArgsDict" = {"name": "dshm", "mount_path": "/dev/shm"}


class WorkloadArgs(TypedDict):
    """Arguments that every workload has."""

    name: str
    namespace: NotRequired[str]
    queue: NotRequired[str]
    """Local queue of the namespace; none: not under Kueue."""
    priority_class: NotRequired[str]
    pool: NotRequired[str]
    """What the configuration says of it; `node_selector` is what counts."""
    accelerator: NotRequired[str]
    """What the configuration says of it; `node_selector` is what counts."""
    node_selector: NotRequired[dict[str, str]]
    """Labels of the nodes to run on."""
    service_account: NotRequired[str]
    token_secret: NotRequired[TokenSecretArgs]
    resources: NotRequired[ResourcesArgs]
    labels: NotRequired[dict[str, str]]
    """Further labels of the pods."""
    env: NotRequired[dict[str, str]]
    """Further environment variables of the container."""


def environment(
    workload: GpuServer | FineTune, values: dict[str, str], token_variable: str
) -> "list[k8s.core.v1.EnvVarArgsDict]":
    """Environment of the container: its own variables, the token, and what the configuration adds."""
    secret = workload.token_secret
    return [
        *variables(values),
        {"name": token_variable, "value_from": {"secret_key_ref": {"name": secret.name, "key": secret.key}}},
        *variables(workload.env),
    ]


def variables(values: dict[str, str]) -> "list[k8s.core.v1.EnvVarArgsDict]":
    """Environment variables with plain values."""
    return [{"name": name, "value": value} for name, value in values.items()]


def resources(workload: GpuServer | FineTune, gpus: int) -> "k8s.core.v1.ResourceRequirementsArgsDict":
    """Requests and limits of the container, equal: GPUs can't be shared, and Autopilot bills requests."""
    asked = {
        "cpu": workload.resources.cpu,
        "memory": workload.resources.memory,
        "ephemeral-storage": workload.resources.ephemeral_storage,
        NVIDIA_GPU: str(gpus),
    }
    known = {resource: amount for resource, amount in asked.items() if amount is not None}
    return {"requests": known, "limits": known}


def queue_label(workload: GpuServer | FineTune) -> dict[str, str]:
    """The label by which Kueue takes a workload; none where it isn't under Kueue."""
    return {QUEUE_LABEL: workload.queue} if workload.queue else {}
