"""Accelerators that the pods of tenants have, beside those that Kueue counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gke_ai.catalog.nodes.shape import ACCELERATORS
from gke_ai.kube.objects import Object, holds
from gke_ai.kube.pods import accelerators, ended
from gke_ai.kube.queues import held
from gke_ai.kube.values import value

QUOTAS = "/api/v1/resourcequotas"


@dataclass(frozen=True)
class Uncounted:
    """What the pods of a tenant have on nodes of an accelerator, beyond what Kueue counts."""

    namespace: str
    resource: str
    on_nodes: int
    ending: int
    """Those of pods that end. Kueue no longer counts them, until they are gone."""
    counted: int
    bound: str
    """What the namespace's quota allows in all; empty without one."""

    @property
    def cause(self) -> str:
        """Why Kueue does not count them."""
        if self.on_nodes - self.ending <= self.counted:
            return "pods that end, as after a preemption or a deletion"
        return "pods that no queue admitted"


def uncounted(quotas: Iterable[Object], pods: Iterable[Object], workloads: Iterable[Object]) -> Iterator[Uncounted]:
    """Yields each tenant and accelerator of which more is on nodes than Kueue counts. A tenant has a ResourceQuota."""
    on_nodes, ending, counted = Counter[tuple[str, str]](), Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for pod in pods:
        if pod["spec"].get("nodeName") and not ended(pod):
            for resource, count in accelerators(pod["spec"]).items():
                place = (pod["metadata"]["namespace"], resource)
                on_nodes[place] += count
                ending[place] += count if pod["metadata"].get("deletionTimestamp") else 0
    for workload in workloads:
        if not holds(workload, "Finished"):
            for (_, resource), amount in held(workload).items():
                counted[workload["metadata"]["namespace"], resource] += int(amount)
    for quota in quotas:
        namespace = quota["metadata"]["namespace"]
        for resource in ACCELERATORS:
            place = (namespace, resource)
            if on_nodes[place] > counted[place]:
                bound = str(value(quota, "spec", "hard", f"requests.{resource}") or "")
                yield Uncounted(namespace, resource, on_nodes[place], ending[place], counted[place], bound)
