"""Decisions of Kueue's scheduler: admissions with their flavors, and preemptions with preemptor and reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tests.rehearsal.fates import PREEMPTOR, conditions, holds

Object = Mapping[str, Any]


class Decision(NamedTuple):
    """What Kueue decided about a workload.

    Attributes:
        workload: Name of the workload in its case.
        outcome: `admitted` or `preempted`.
        flavors: Of an admission: the flavor of each pod set and resource, and the number of pods.
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
        return f"{self.workload} preempted for {self.preemptor} ({self.reason})"


def is_preempted(workload: Object) -> bool:
    """Whether Kueue has preempted the workload."""
    return holds(workload, "Preempted")


def admission(name: str, admitted: Object) -> Decision:
    """The decision that `status.admission` of a workload states."""
    sets = [
        f"{item['name']}×{item.get('count', 1)}: "
        + ", ".join(f"{resource} {flavor}" for resource, flavor in sorted((item.get("flavors") or {}).items()))
        for item in admitted["podSetAssignments"]
    ]
    return Decision(name, "admitted", "; ".join(sorted(sets)))


def preemption(name: str, workload: Object, names: Mapping[str, str]) -> Decision:
    """The preemption that the conditions of a workload state. `names`: workloads by uid."""
    condition = conditions(workload)["Preempted"]
    found = PREEMPTOR.search(condition.get("message", ""))
    preemptor = names.get(found["uid"]) if found else None
    return Decision(name, "preempted", reason=condition["reason"], preemptor=preemptor)


def decisions(before: Iterable[Object], after: Iterable[Object], names: Mapping[str, str]) -> frozenset[Decision]:
    """What Kueue decided between two states of the same Workloads. `names`: workloads by uid."""
    old = {item["metadata"]["uid"]: item for item in before}
    found = set()
    for workload in after:
        uid = workload["metadata"]["uid"]
        name, earlier = names[uid], old.get(uid, {})
        admitted = workload.get("status", {}).get("admission")
        if admitted and not earlier.get("status", {}).get("admission"):
            found.add(admission(name, admitted))
        if is_preempted(workload) and not is_preempted(earlier):
            found.add(preemption(name, workload, names))
    return frozenset(found)
