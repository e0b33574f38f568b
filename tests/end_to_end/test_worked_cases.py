"""Changes of queues have the outcome in the real Kueue that was worked out by hand from its documentation.

All cases run at the same time in one cluster. Each has its own queues, flavors and cohorts, so none affects another.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pytest

from forecast.comparison import Fact, facts
from forecast.outcome import outcome
from tests.end_to_end.conftest import fresh
from tests.rehearsal import cluster as queue_cluster
from tests.rehearsal.cluster import QueueCluster
from tests.rehearsal.facts import as_facts
from tests.rehearsal.fates import Fate, Object, fates
from tests.rehearsal.worked_cases import Case, cases
from tests.rehearsal.world import queue_objects, run_object

pytestmark = pytest.mark.cluster

# A node of 8 GPUs for each case. No case uses more at a time, so that quota decides, not capacity.
POOL = {"name": "l4", "machine_type": "g2-standard-96", "nodes_per_zone": len(cases())}


@pytest.fixture(scope="module")
def cluster() -> Iterator[QueueCluster]:
    """A cluster with more GPUs than all quotas together."""
    with fresh() as emulator:
        queue_cluster.create(emulator)
        queue_cluster.set_pools(emulator, [POOL])
        with queue_cluster.connect(emulator) as connected:
            yield connected


def set_up(cluster: QueueCluster) -> None:
    """Bring every case to its state before the change: one workload of each case at a time.

    Kueue orders workloads by times in whole seconds.
    """
    for case in cases():
        cluster.apply(queue_objects(case.world_before_stop, case.namespace))
    for number in range(max(len(case.world.runs) for case in cases())):
        for case in cases():
            cluster.apply(run_object(run, case.namespace) for run in case.world.runs[number : number + 1])
        cluster.settle(2)
        time.sleep(1)
    for case in cases():
        cluster.apply(queue_objects(case.world, case.namespace))
    cluster.settle(2)


def apply_changes(cluster: QueueCluster) -> None:
    """Apply the change of every case, the queues first."""
    for case in cases():
        cluster.apply(queue_objects(case.changed, case.namespace))
        cluster.apply(run_object(run, case.namespace) for run in case.changed.runs[len(case.world.runs) :])
    cluster.settle()


@dataclass(frozen=True)
class Result:
    """What happened in a case: before its change, after it, and after it as a rehearsal reads the same observations."""

    before: Counter[Fate]
    after: Counter[Fate]
    forecast: Counter[Fact]


@pytest.fixture(scope="module")
def results(cluster: QueueCluster) -> dict[str, Result]:
    """The results by the name of the case."""
    set_up(cluster)
    before = {case.name: cluster.workloads(case.namespace) for case in cases()}
    cluster.recorder.begin()
    apply_changes(cluster)
    return {case.name: result(cluster, case, before[case.name]) for case in cases()}


def result(cluster: QueueCluster, case: Case, earlier: Sequence[Object]) -> Result:
    """The result of a case, with its Workloads before the change."""
    timeline = cluster.timeline(case.namespace)
    versions = [item.object for item in timeline.observations if item.kind == "Workload" and item.at > 0]
    after = fates(earlier, versions, cluster.workloads(case.namespace))
    return Result(fates([], [], earlier), after, facts(outcome(timeline)))


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_real_kueue_decides_as_its_documentation_says(case: Case, results: Mapping[str, Result]) -> None:
    assert results[case.name].before == case.before, "the state before the change"
    assert results[case.name].after == case.expected, f"{case.reasoning} See {case.source}"


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_a_forecast_reads_the_outcome_that_was_worked_out(case: Case, results: Mapping[str, Result]) -> None:
    assert results[case.name].forecast == as_facts(case.expected, case.changed)
