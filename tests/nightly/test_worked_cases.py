"""Only here: the real Kueue decides as worked out by hand from its documentation, and so does a restored copy.

It is the outcome in the original, in a copy that was restored from the original's snapshot, and in a forecast.
All cases run at the same time. Each has its own queues, flavors and cohorts, so none affects another.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest

from gke_ai.forecast.compare.comparison import Fact, facts
from gke_ai.kube.names import NO_WORKLOAD, WorkloadName
from tests.support.emulator import fresh
from tests.support.rehearsal import places
from tests.support.rehearsal.fates import Fate
from tests.support.rehearsal.scenario import Scenario
from tests.support.rehearsal.verdicts import Outcome
from tests.support.rehearsal.worked_cases import Case, cases

# A node of 8 GPUs for each case. No case uses more at a time, so that quota decides, not capacity.
POOL = {"name": "l4", "machine_type": "g2-standard-96", "nodes_per_zone": len(cases())}
Outcomes = Sequence[Mapping[str, Outcome]]


@pytest.fixture(scope="module")
def outcomes() -> Outcomes:
    """What happens in the original and in the copy, by namespace."""
    with fresh() as first, fresh() as second:
        original, copy = places.create([first, second], [POOL])
        return places.compare(original, [copy], cases(), print)


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


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_real_kueue_its_copy_and_a_forecast_decide_as_worked_out(case: Case, outcomes: Outcomes) -> None:
    for cluster, name in zip(outcomes, ("original", "copy restored from a snapshot"), strict=True):
        outcome = cluster[case.namespace]
        assert outcome.before == case.before, f"the state of the {name} before the change"
        assert outcome.fates == case.expected, f"{name}: {case.reasoning} See {case.source}"
        assert facts(outcome.forecast) == as_facts(case.expected, case.changed), name
