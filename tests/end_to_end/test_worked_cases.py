"""Changes of queues have the outcome in the real Kueue that was worked out by hand from its documentation.

All cases run at the same time in one cluster. Each has its own queues, flavors and cohorts, so none affects another.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.end_to_end.conftest import fresh
from tests.rehearsal import cluster as queue_cluster
from tests.rehearsal.cluster import QueueCluster
from tests.rehearsal.fates import Fate, fates
from tests.rehearsal.worked_cases import Case, cases
from tests.rehearsal.world import queue_objects, run_object

pytestmark = pytest.mark.cluster

# Nodes of 8 GPUs. No case uses more than 8 at a time.
NODES = len(cases())


@pytest.fixture(scope="module")
def cluster() -> Iterator[QueueCluster]:
    """A cluster with more GPUs than all quotas together."""
    with fresh() as emulator:
        queue_cluster.create(emulator, NODES)
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


Results = dict[str, tuple[Counter[Fate], Counter[Fate]]]


@pytest.fixture(scope="module")
def results(cluster: QueueCluster) -> Results:
    """The fates in every case, before its change and after, by the name of the case."""
    set_up(cluster)
    before = {case.name: cluster.workloads(case.namespace) for case in cases()}
    known = len(cluster.versions)
    apply_changes(cluster)
    result = {}
    for case in cases():
        earlier, later = before[case.name], cluster.workloads(case.namespace)
        versions = [item for item in cluster.versions[known:] if item["metadata"]["namespace"] == case.namespace]
        result[case.name] = fates([], [], earlier), fates(earlier, versions, later)
    return result


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_real_kueue_decides_as_its_documentation_says(case: Case, results: Results) -> None:
    before, outcome = results[case.name]
    assert before == case.before, "the state before the change"
    assert outcome == case.expected, f"{case.reasoning} See {case.source}"
