"""Cases of Kueue's tables as questions about one run: the cluster without it, the run, and what Kueue decides."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from gke_ai.forecast.rehearse.manifests import Manifest
from gke_ai.forecast.when.answer import Answer
from gke_ai.kube.objects import holds
from tests.support.rehearsal.tables.agreement import exceptions
from tests.support.rehearsal.tables.cases import TableCase, cases, is_refused_workload
from tests.support.rehearsal.tables.decisions import Decision

Object = dict[str, Any]


@dataclass(frozen=True)
class TableQuestion:
    """A case without the workload that waits in it, and that workload."""

    case: TableCase
    run: Object

    @property
    def manifest(self) -> Manifest:
        """The workload as somebody submits it."""
        metadata = {key: self.run["metadata"][key] for key in ("name", "namespace", "labels", "annotations")}
        stated = {key: self.run[key] for key in ("apiVersion", "kind", "spec")}
        return Manifest({**stated, "metadata": metadata}, self.case.title)

    @property
    def queue(self) -> str:
        """The cluster queue of its local queue. Empty: the case has no such local queue."""
        place = self.run["metadata"]["namespace"], self.run["spec"]["queueName"]
        queues = [item for item in self.case.queues if item["kind"] == "LocalQueue"]
        named = {(item["metadata"]["namespace"], item["metadata"]["name"]): item for item in queues}
        return str(named[place]["spec"]["clusterQueue"]) if place in named else ""

    @property
    def expected(self) -> frozenset[Decision]:
        return self.case.expected

    def decided(self, answer: Answer) -> frozenset[Decision]:
        """The answer in the words of the table."""
        workloads = [item["metadata"] for item in (*self.case.workloads, self.run)]
        keys = {f"{it['namespace']}/workload/{it['name']}": self.case.names[it["uid"]] for it in workloads}
        own = keys[answer.run]
        found = {
            Decision(keys[str(it.workload)], "preempted", reason=it.cause, preemptor=own) for it in answer.preempts
        }
        if answer.admitted:
            flavors = next((d.flavors for d in self.expected if (d.workload, d.outcome) == (own, "admitted")), "")
            named = {word.strip(",;") for word in flavors.split()}
            flavors = flavors if {*answer.flavors} <= named else " and ".join(answer.flavors)
            found.add(Decision(own, "admitted", flavors))
        return frozenset(found)


@cache
def questions() -> tuple[TableQuestion, ...]:
    """The cases in which one workload waits, and no other is newer: it could be submitted to the rest."""
    return tuple(question for case in cases() if not case.reason for question in _questions(case))


def _questions(case: TableCase) -> Iterator[TableQuestion]:
    if case.nodes:  # compared by the tables themselves
        return
    waiting = [item for item in case.workloads if not item.get("status", {}).get("admission")]
    others = [item for item in case.workloads if item.get("status", {}).get("admission")]
    if len(waiting) != 1 or case.title in exceptions() or any(holds(item, "Evicted") for item in others):
        return
    (run,) = waiting
    created = [item["metadata"]["creationTimestamp"] for item in others]
    if run.get("status", {}).get("conditions") or any(time > run["metadata"]["creationTimestamp"] for time in created):
        return
    question = TableQuestion(replace(case, workloads=tuple(others)), run)
    if question.queue and not is_refused_workload(run):
        yield question
