"""What Kueue's configuration says, its releases, and what a stack asks of a Kueue that it does not install."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gke_ai.catalog.versions import EARLIER_KUEUE_VERSIONS, KUEUE_VERSION

# The kinds that this program lets Kueue queue, by their names in its configuration. It ignores a kind until its CRD is
# installed.
FRAMEWORKS: Mapping[str, str] = {
    "Job": "batch/job",
    "JobSet": "jobset.x-k8s.io/jobset",
    "Pod": "pod",
    "Deployment": "deployment",
    "StatefulSet": "statefulset",
}
# https://kueue.sigs.k8s.io/docs/concepts/workload_priority_class/
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
# The scheduling gate of a pod that Kueue holds: https://kueue.sigs.k8s.io/docs/tasks/run/plain_pods/
POD_GATE = "kueue.x-k8s.io/admission"
# From this version on, Kueue limits by default how long pods take to be ready, and only the gate turns that off:
# https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/features/kube_features.go
LIMIT_BY_DEFAULT, DEFAULT_LIMIT_SECONDS, NO_LIMIT = (0, 19), 1800.0, "DisableWaitForPodsReady"


# Releases that the emulator has, oldest first. The last one is the pinned one.
RELEASES = (*EARLIER_KUEUE_VERSIONS, KUEUE_VERSION)
# The emulator turns the visibility API of this version off: it needs a pod's environment.
WITHOUT_VISIBILITY = (0, 16)


def numbers(version: str) -> tuple[int, ...]:
    """Returns the numbers of a version, by which versions are in order."""
    return tuple(map(int, version.split(".")))


def minor(version: str) -> tuple[int, int]:
    """Returns the minor version of a version: 0.19 of 0.19.2."""
    major, number = version.split(".")[:2]
    return int(major), int(number)


def nearest(version: str) -> str | None:
    """Returns the release that the emulator runs for a version: one of its minor version, else the nearest lower one.

    None if the version is older than all of them, or no version.
    """
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        return None
    return next((release for release in reversed(RELEASES) if minor(release) <= minor(version)), None)


def tool(release: str) -> str:
    """Returns the emulator's tool that has a release."""
    return "kueue" if release == KUEUE_VERSION else f"kueue-{release}"


def limits_by_default(version: str) -> bool:
    """Whether a version of Kueue has a limit for pods to be ready that nobody states."""
    return minor(version) >= LIMIT_BY_DEFAULT


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
    topology: str = ""
    """A flavor that Kueue places by topology; empty if there is none."""
    cluster_queues: Sequence[tuple[str, str]] = ()
    """Cluster queues that the stack uses and does not create, each with the namespace of a local queue to it."""
    parents: Mapping[str, str] = field(default_factory=dict)
    """Parent of each cohort that the stack creates; empty for a root."""
    weights: str = ""
    """A queue or cohort with a weight; empty if there is none."""
    by_usage: str = ""
    """A cluster queue that orders by past usage; empty if there is none."""
