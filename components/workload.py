"""What servers and Jobs have in common."""

from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict

import pulumi_kubernetes as k8s

from catalog.nodes import NVIDIA_GPU
from catalog.quota import QUEUE_LABEL
from components.base import ResourcesArgs, TokenSecretArgs
from settings.model import Workload
from settings.plan import token_secret_of

# The kubernetes plugin would wait for a Job to finish and for every replica to be available; a queue decides both.
SKIP_AWAIT = {"pulumi.com/skipAwait": "true"}
# In the API's own words, as a JobSet takes no others.
SHARED_MEMORY_MOUNT: Any = {"name": "dshm", "mountPath": "/dev/shm"}


class TpuSliceArgs(TypedDict):
    """A TPU slice that no pool of the stack provides."""

    version: str
    """`v5e`, `v5p`, `v6e` or `tpu7x`."""
    topology: str
    """Chips of the slice along each side, such as `2x4`."""
    machine_type: NotRequired[str]
    capacity: NotRequired[str]
    """`onDemand`, `spot` or `flexStart`."""


class WorkloadArgs(TypedDict):
    """Arguments that every workload has."""

    name: str
    namespace: NotRequired[str]
    queue: NotRequired[str]
    """Local queue of the namespace; none: not under Kueue."""
    priority_class: NotRequired[str]
    node_selector: NotRequired[dict[str, str]]
    """Labels of the nodes to run on."""
    service_account: NotRequired[str]
    resources: NotRequired[ResourcesArgs]
    labels: NotRequired[dict[str, str]]
    """Further labels of the pods."""
    env: NotRequired[dict[str, str]]
    """Further environment variables of the container."""


class GpuWorkloadArgs(WorkloadArgs):
    """Arguments that every workload on GPUs has."""

    pool: NotRequired[str]
    """What the configuration says of it; `node_selector` is what counts."""
    accelerator: NotRequired[str]
    """What the configuration says of it; `node_selector` is what counts."""
    compute_class: NotRequired[str]
    """What the configuration says of it; `node_selector` is what counts."""
    token_secret: NotRequired[TokenSecretArgs]


def shared_memory(size: str | None = None) -> Any:
    """The volume of /dev/shm, in the API's own words; without a size it takes up to the memory of the container."""
    return {"name": "dshm", "emptyDir": {"medium": "Memory", **({"sizeLimit": size} if size else {})}}


def environment(workload: Workload, values: dict[str, str], token_variables: Sequence[str]) -> list[Any]:
    """Environment of the container: its own variables, the token by each name, and what the configuration adds.

    Without a token Secret there is no token.
    """
    secret = token_secret_of(workload)
    tokens = [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": secret.name, "key": secret.key}}}
        for name in token_variables
        if secret is not None
    ]
    return [*variables(values), *tokens, *variables(workload.env)]


def variables(values: dict[str, str]) -> "list[k8s.core.v1.EnvVarArgsDict]":
    """Environment variables with plain values."""
    return [{"name": name, "value": value} for name, value in values.items()]


def resources(
    workload: Workload, count: int, accelerator: str = NVIDIA_GPU
) -> "k8s.core.v1.ResourceRequirementsArgsDict":
    """Requests and limits of the container, equal: accelerators can't be shared, and Autopilot bills requests."""
    requests = {
        "cpu": workload.resources.cpu,
        "memory": workload.resources.memory,
        "ephemeral-storage": workload.resources.ephemeral_storage,
        accelerator: str(count),
    }
    known = {resource: amount for resource, amount in requests.items() if amount is not None}
    return {"requests": known, "limits": known}


def queue_label(workload: Workload) -> dict[str, str]:
    """The label by which Kueue takes a workload; none where it isn't under Kueue."""
    return {QUEUE_LABEL: workload.queue} if workload.queue else {}
