"""Fates in the words of a forecast."""

from __future__ import annotations

from collections import Counter

from gke_ai.forecast.compare.comparison import Fact
from gke_ai.kube.names import NO_WORKLOAD, WorkloadName
from tests.support.rehearsal.fates import Fate
from tests.support.rehearsal.scenario import Scenario


def as_facts(fates: Counter[Fate], scenario: Scenario) -> Counter[Fact]:
    """The facts of a forecast with these fates. A forecast does not list workloads that keep running.

    A forecast names the kind of a workload, and the flavor that an evicted workload had. In the scenarios of this test
    every evicted workload had the first flavor of its queue.
    """
    kinds = {run.name: run.kind.lower() for run in scenario.runs}
    queues = {queue["name"]: queue["flavors"][0]["flavor"] for queue in scenario.queues["clusterQueues"]}
    flavors = {run.name: queues[run.queue] for run in scenario.runs}

    def named(workload: str | None) -> WorkloadName:
        namespace, _, name = (workload or "").partition("/")
        return WorkloadName(namespace, kinds[name], name) if workload else NO_WORKLOAD

    result: Counter[Fact] = Counter()
    for fate, count in fates.items():
        namespace, _, name = fate.workload.partition("/")
        flavor = f"{namespace}-{flavors[name]}" if fate.outcome == "evicted" else fate.flavor or ""
        if fate.outcome != "runs":
            result[Fact(named(fate.workload), fate.outcome, named(fate.preemptor), flavor)] += count
    return result
