"""An existing Kueue: what a stack asks of it, and whether its configuration allows that.

Defaults: https://github.com/kubernetes-sigs/kueue/blob/v0.18.4/apis/config/v1beta2/defaults.go
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gke_ai.catalog.namespaces import KUEUE, NAMESPACE_NAME
from gke_ai.catalog.versions import KUEUE_API

DEFAULT_FRAMEWORKS = ("batch/job",)
# The default is a limit from 0.19 on: https://github.com/kubernetes-sigs/kueue/blob/v0.19.1/pkg/features/kube_features.go
LIMIT_BY_DEFAULT, DEFAULT_LIMIT_SECONDS, NO_LIMIT = (0, 19), 1800.0, "DisableWaitForPodsReady"
# Of a v1beta1 configuration, which has a limit only with `enable`: apis/config/v1beta1/defaults.go there
OLD_API, OLD_LIMIT_SECONDS = "config.kueue.x-k8s.io/v1beta1", 300.0
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s)")
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


@dataclass(frozen=True)
class Demand:
    """What a stack needs of a Kueue that it does not install."""

    frameworks: Mapping[str, str]
    """Kinds that it must queue, by their names in Kueue's configuration, each with a workload of the kind."""
    namespaces: Sequence[str]
    """Namespaces of queued workloads."""
    unqueued: Sequence[str] = ()
    """Namespaces of Jobs without a queue."""
    start_seconds: int | None = 0
    """Longest time until the pods of an admitted workload are ready; None if they may wait for days."""
    has_tenants: bool = False
    cluster_queues: Sequence[str] = ()
    """Cluster queues that the stack uses and does not create."""


@dataclass(frozen=True)
class Refusal:
    """Why an existing Kueue can't do what a stack needs, and what its owner changes."""

    cause: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.cause}. {self.remedy}."


@dataclass(frozen=True)
class ExistingKueue:
    """A Kueue in a cluster."""

    version: str
    namespace: str
    deployment: str
    configuration: Mapping[str, Any] = field(default_factory=dict)
    """Its manager's configuration; empty for all defaults."""
    gates: Mapping[str, bool] = field(default_factory=dict)
    cluster_queues: Sequence[str] | None = ()
    """Names of its cluster queues; None if it does not serve the API version that this program writes."""

    @property
    def frameworks(self) -> Sequence[str]:
        """The kinds that it queues."""
        stated = (self.configuration.get("integrations") or {}).get("frameworks")
        return stated or DEFAULT_FRAMEWORKS

    @property
    def limit_seconds(self) -> float | None:
        """Time after admission in which all pods must be ready; None without a limit."""
        stated: Mapping[str, Any] | None = self.configuration.get("waitForPodsReady")
        gates = {**(self.configuration.get("featureGates") or {}), **self.gates}
        if gates.get(NO_LIMIT):
            return None
        if stated is None:
            newer = tuple(map(int, self.version.split(".")[:2])) >= LIMIT_BY_DEFAULT
            return DEFAULT_LIMIT_SECONDS if newer else None
        old = self.configuration.get("apiVersion") == OLD_API
        if old and not stated.get("enable"):
            return None
        parts = _DURATION.findall(str(stated.get("timeout", "")))
        seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
        return seconds if parts else OLD_LIMIT_SECONDS if old else DEFAULT_LIMIT_SECONDS

    def manages(self, namespace: str) -> bool:
        """Whether it looks at workloads in a namespace that has no label but its name."""
        stated = self.configuration.get("managedJobsNamespaceSelector")
        if stated is None:
            return namespace not in ("kube-system", self.namespace)
        labels = {NAMESPACE_NAME: namespace}
        if any(labels.get(key) != value for key, value in (stated.get("matchLabels") or {}).items()):
            return False
        return all(_holds(labels, term) for term in stated.get("matchExpressions") or [])

    def refusals(self, needed: Demand) -> Iterator[Refusal]:
        """Yields what it can't do."""
        place = f"Kueue {self.version} in namespace {self.namespace}"
        if self.cluster_queues is None:
            yield Refusal(f"{place} does not serve {KUEUE_API}, which this stack writes", "Upgrade it to 0.16 or newer")
            return
        for name in needed.cluster_queues:
            if name not in self.cluster_queues:
                yield Refusal(
                    f"{place} has no cluster queue {name}: workloads of its local queue would wait forever",
                    f"Name one of {', '.join(self.cluster_queues) or 'none'}, or define it in gke-ai:queues",
                )
        for framework, workload in needed.frameworks.items():
            if framework not in self.frameworks:
                yield Refusal(
                    f"{place} does not queue {framework}: {workload} would run without quota, or never",
                    f"Add it to integrations.frameworks of its configuration: {', '.join(self.frameworks)}",
                )
        for namespace in needed.namespaces:
            if not self.manages(namespace):
                yield Refusal(
                    f"{place} leaves out namespace {namespace}: workloads there would pass their queue",
                    "Let managedJobsNamespaceSelector of its configuration select it by kubernetes.io/metadata.name",
                )
        if self.configuration.get("manageJobsWithoutQueueName"):
            for namespace in needed.unqueued:
                if self.manages(namespace):
                    yield Refusal(
                        f"{place} holds Jobs without a queue, and those of this stack in {namespace} have none: they "
                        "would never start",
                        f"Give them a queue, or leave {namespace} out of managedJobsNamespaceSelector",
                    )
        limit = self.limit_seconds
        if limit is not None and (needed.start_seconds is None or needed.start_seconds > limit):
            slow = "may wait days for their nodes" if needed.start_seconds is None else f"take {needed.start_seconds} s"
            yield Refusal(
                f"{place} evicts workloads whose pods are not ready {limit:.0f} s after admission, and pods of this "
                f"stack {slow}: they would be evicted again and again",
                "Raise waitForPodsReady.timeout of its configuration",
            )
        if needed.has_tenants and self.namespace != KUEUE:
            yield Refusal(
                f"{place} can't serve tenants: their policy lets only controllers of {KUEUE} change their objects",
                f"Remove gke-ai:tenants, or install Kueue in {KUEUE}",
            )


def _holds(labels: Mapping[str, str], term: Mapping[str, Any]) -> bool:
    """Whether labels satisfy a term of a selector."""
    value, values = labels.get(str(term.get("key"))), term.get("values") or []
    match term.get("operator"):
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    return False
