"""What Kueue's configuration says, and what a stack asks of a Kueue that it does not install."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

# The kinds that this program lets Kueue queue, by their names in its configuration. It ignores a kind until its CRD is
# installed.
FRAMEWORKS: Mapping[str, str] = MappingProxyType(
    {
        "Job": "batch/job",
        "JobSet": "jobset.x-k8s.io/jobset",
        "Pod": "pod",
        "Deployment": "deployment",
        "StatefulSet": "statefulset",
    }
)
# From this version on, Kueue limits by default how long pods take to be ready, and only the gate turns that off:
# https://github.com/kubernetes-sigs/kueue/blob/v0.19.1/pkg/features/kube_features.go
LIMIT_BY_DEFAULT, DEFAULT_LIMIT_SECONDS, NO_LIMIT = (0, 19), 1800.0, "DisableWaitForPodsReady"


def limits_by_default(version: str) -> bool:
    """Whether a version of Kueue has a limit for pods to be ready that nobody states."""
    return tuple(map(int, version.split(".")[:2])) >= LIMIT_BY_DEFAULT


@dataclass(frozen=True)
class Demand:
    """What a stack needs of a Kueue that it does not install."""

    frameworks: Mapping[str, str]
    """Kinds that it must queue, by their names in Kueue's configuration, each with a workload of the kind."""
    namespaces: Sequence[str]
    """Namespaces of queued workloads."""
    unqueued: Sequence[str] = ()
    """Namespaces of Jobs without a queue."""
    unqueued_servers: Sequence[str] = ()
    """Namespaces of Deployments without a queue."""
    start_seconds: int | None = 0
    """Longest time until the pods of an admitted workload are ready; None if they may wait for days."""
    has_tenants: bool = False
    cluster_queues: Sequence[tuple[str, str]] = ()
    """Cluster queues that the stack uses and does not create, each with the namespace of a local queue to it."""
