"""Decisions of Kueue's scheduler: admissions with their flavors, and preemptions with preemptor and reason."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from gke_ai.kube.blocks import assigned
from tests.support.rehearsal.fates import PREEMPTOR, conditions, holds

Object = Mapping[str, Any]
NODE_FAILURES = "NodeFailures"


class Decision(NamedTuple):
    """What Kueue decided about a workload.

    Attributes:
        workload: Name of the workload in its case.
        outcome: `admitted`, also if another node replaces a lost one, `preempted`, or `evicted` with a lost node.
        flavors: Of an admission: the flavor of each pod set and resource, the number of pods, and where they are.
        reason: Of a preemption, in Kueue's word.
        preemptor: Of a preemption: name of the workload that needs the quota. None if it is not named.
    """

    workload: str
    outcome: str
    flavors: str = ""
    reason: str = ""
    preemptor: str | None = None

    def __str__(self) -> str:
        if self.outcome == "admitted":
            return f"{self.workload} admitted to {self.flavors}"
        if self.outcome == "evicted":
            return f"{self.workload} evicted"
        return f"{self.workload} preempted for {self.preemptor} ({self.reason})"


def is_preempted(workload: Object) -> bool:
    return holds(workload, "Preempted")


def admission(name: str, admitted: Object) -> Decision:
    """The decision that `status.admission` of a workload states."""
    sets = [
        f"{item['name']}×{item.get('count', 1)}: "
        + ", ".join(f"{resource} {flavor}" for resource, flavor in sorted((item.get("flavors") or {}).items()))
        + "".join(sorted(f" {'/'.join(on)}×{count}" for on, count in assigned(item.get("topologyAssignment") or {})))
        for item in admitted["podSetAssignments"]
    ]
    return Decision(name, "admitted", "; ".join(sorted(sets)))


def preemption(name: str, workload: Object, names: Mapping[str, str]) -> Decision:
    """The preemption that the conditions of a workload state. `names`: workloads by uid."""
    condition = conditions(workload)["Preempted"]
    found = PREEMPTOR.search(condition.get("message", ""))
    preemptor = names.get(found["uid"]) if found else None
    return Decision(name, "preempted", reason=condition["reason"], preemptor=preemptor)


def eviction(name: str) -> Decision:
    """The decision to evict a workload that lost a node and has no spare one."""
    return Decision(name, "evicted", reason=NODE_FAILURES)


def decisions(before: Iterable[Object], after: Iterable[Object], names: Mapping[str, str]) -> frozenset[Decision]:
    """What Kueue decided between two states of the same Workloads. `names`: workloads by uid."""
    old = {item["metadata"]["uid"]: item for item in before}
    found = set()
    for workload in after:
        uid = workload["metadata"]["uid"]
        name, earlier = names[uid], old.get(uid, {})
        admitted, had = (item.get("status", {}).get("admission") for item in (workload, earlier))
        if admitted and (not had or admission(name, admitted) != admission(name, had)):
            found.add(admission(name, admitted))
        if _lost(workload) and not _lost(earlier):
            found.add(eviction(name))
        if is_preempted(workload) and not is_preempted(earlier):
            found.add(preemption(name, workload, names))
    return frozenset(found)


def _lost(workload: Object) -> bool:
    return holds(workload, "Evicted") and conditions(workload)["Evicted"]["reason"] == NODE_FAILURES
