"""Clusters for the same change: an original, and copies that are restored from its snapshot.

Many scenarios share each cluster. They share no queue, cohort, flavor, pool or namespace, so none affects another.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from emulator.tests.harness import Emulator, eventually
from gke_ai.catalog.versions import KUEUE_VERSION
from gke_ai.forecast.outcome.outcome import outcome
from gke_ai.forecast.rehearse.restore import lasting_differences, restore
from gke_ai.forecast.snapshot.command import take
from gke_ai.forecast.snapshot.format import Snapshot, read
from gke_ai.kube.client import client_of
from tests.support.rehearsal import cluster as queue_cluster
from tests.support.rehearsal.cluster import NAME, SETTLED_SECONDS, QueueCluster
from tests.support.rehearsal.fates import fates, name_of
from tests.support.rehearsal.scenario import Change, Object, Scenario, queue_objects, run_object
from tests.support.rehearsal.verdicts import Outcome

# Longer than the emulator keeps an idle node.
NODES_SETTLE = 18.0
# How long Kueue may count the workloads of restored queues.
QUEUES_SETTLE = 60.0


@dataclass(frozen=True)
class Place:
    """An emulator with a cluster of queues under a release of Kueue."""

    emulator: Emulator
    release: str = KUEUE_VERSION

    def kubeconfig(self) -> str:
        return queue_cluster.kubeconfig(self.emulator).read_text()

    def prepare(self, cases: Iterable[Change]) -> None:
        pools = [pool for case in cases for pool in queue_cluster.pools_of(case.scenario, case.namespace)]
        queue_cluster.set_pools(self.emulator, pools)

    def snapshot(self) -> Snapshot:
        return read(take("test", client_of(self.kubeconfig(), 4)).to_json())

    def restore(self, snapshot: Snapshot) -> list[str]:
        """Bring the cluster to the state of a snapshot. Returns what differs then, in words."""
        restored = restore(snapshot, client_of(self.kubeconfig(), 4), self.emulator.state, NAME)
        with queue_cluster.connect(self.emulator) as cluster:
            cluster.settle()
        return [str(difference) for difference in lasting_differences(restored, self.snapshot, QUEUES_SETTLE)]

    def change(self, cases: Sequence[Change]) -> dict[str, Outcome]:
        """Apply the changes, and return what happens to each scenario, by namespace."""
        with queue_cluster.connect(self.emulator) as cluster:
            cluster.settle()
            before = {case.namespace: cluster.workloads(case.namespace) for case in cases}
            cluster.recorder.begin()
            changed = [case for case in cases if case.changed.pools != case.scenario.pools]
            pools = [pool for case in changed for pool in queue_cluster.pools_of(case.changed, case.namespace)]
            if pools:
                queue_cluster.set_pools(self.emulator, pools)
            for case in cases:
                apply_change(cluster, case)
            # A scenario that never settles must not hide the others: its fates say what goes on.
            has_pools = any(case.scenario.pools for case in cases)
            cluster.recorder.settle(NODES_SETTLE if has_pools else SETTLED_SECONDS, 150)
            return {case.namespace: _outcome(cluster, case, before[case.namespace]) for case in cases}

    def clear(self, cases: Sequence[Change]) -> None:
        """Delete scenarios with their pools, once the emulator has removed their idle nodes."""
        with queue_cluster.connect(self.emulator) as cluster:
            cluster.clear([case.namespace for case in cases])
            cluster.settle(NODES_SETTLE, 300)
        pools = [pool for case in cases for pool in queue_cluster.pools_of(case.scenario, case.namespace)]
        queue_cluster.remove_pools(self.emulator, pools)


def populate(place: Place, cases: Sequence[Change]) -> None:
    """Create scenarios: one workload of each at a time, because Kueue orders workloads by times in whole seconds."""
    place.prepare(cases)
    with queue_cluster.connect(place.emulator) as cluster:
        for case in cases:
            running = replace(case.scenario, stopped={})  # in a stopped queue nothing would start
            cluster.apply(queue_objects(running, case.namespace))
        for number in range(max(len(case.scenario.runs) for case in cases)):
            runs = [(case.namespace, run) for case in cases for run in case.scenario.runs[number : number + 1]]
            cluster.apply(run_object(run, namespace) for namespace, run in runs)
            names = {f"{namespace}/{run.name}" for namespace, run in runs if run.replicas}
            eventually(partial(_has_workloads, cluster, names), "Kueue has the workloads")
            cluster.settle(2)
        for case in cases:
            if case.scenario.stopped:
                cluster.apply(queue_objects(case.scenario, case.namespace))
        cluster.settle(NODES_SETTLE if any(case.scenario.pools for case in cases) else 2, 300)


def _has_workloads(cluster: QueueCluster, names: set[str]) -> bool:
    return names <= {name_of(workload) for workload in cluster.workloads()}


def deploy_base(place: Place, cases: Sequence[Change]) -> None:
    """Create what a rehearsal deploys to a scratch emulator before it is restored: pools, queues and servers."""
    place.prepare(cases)
    with queue_cluster.connect(place.emulator) as cluster:
        for case in cases:
            cluster.apply(queue_objects(case.scenario, case.namespace))
            cluster.apply(run_object(run, case.namespace) for run in case.scenario.runs if run.kind == "Deployment")


def apply_change(cluster: QueueCluster, case: Change) -> None:
    """Apply a change: new and changed objects in the program's order, then deletes."""
    sides = [objects(scenario, case.namespace) for scenario in (case.scenario, case.changed)]
    old, new = ({(obj["kind"], obj["metadata"]["name"]): obj for obj in side} for side in sides)
    cluster.apply(obj for key, obj in new.items() if obj != old.get(key))
    cluster.delete(obj for key, obj in reversed(old.items()) if key not in new)


def objects(scenario: Scenario, namespace: str) -> Iterator[Object]:
    yield from queue_objects(scenario, namespace)
    yield from (run_object(run, namespace) for run in scenario.runs)


def _outcome(cluster: QueueCluster, case: Change, before: Sequence[Object]) -> Outcome:
    timeline = cluster.timeline(case.namespace)
    versions = [item.object for item in timeline.observations if item.kind == "Workload" and item.at > 0]
    after = fates(before, versions, cluster.workloads(case.namespace))
    return Outcome(fates([], [], before), after, outcome(timeline))


def compare(
    original: Place, copies: Sequence[Place], cases: Sequence[Change], log: Callable[[str], None]
) -> list[dict[str, Outcome]]:
    """Populate the original, restore the copies from its snapshot, and apply the changes everywhere.

    Returns what happens in the original and in each copy, by namespace.
    """
    begun = time.monotonic()

    def step(text: str) -> None:
        log(f"{time.monotonic() - begun:4.0f} s: {text}")

    with ThreadPoolExecutor() as threads:
        bases = [threads.submit(deploy_base, copy, cases) for copy in copies]
        populate(original, cases)
        for base in bases:
            base.result()
        step("the scenarios have settled")
        snapshot = original.snapshot()
        for found in threads.map(lambda copy: copy.restore(snapshot), copies):
            step(f"a copy is restored, with {len(found)} differences: {'; '.join(found[:3])}")
        outcomes = list(threads.map(lambda place: place.change(cases), [original, *copies]))
        step("the changes have settled")
        return outcomes


def clear(places: Sequence[Place], cases: Sequence[Change]) -> None:
    """Delete scenarios with their pools everywhere."""
    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda place: place.clear(cases), places))


def create(emulators: Sequence[Emulator], pools: Sequence[Object] = (), release: str = KUEUE_VERSION) -> list[Place]:
    """An original and its copies under a release of Kueue, with pools for all scenarios."""

    def make(emulator: Emulator) -> Place:
        queue_cluster.create(emulator, release)
        queue_cluster.set_pools(emulator, pools)
        return Place(emulator, release)

    with ThreadPoolExecutor() as threads:
        return list(threads.map(make, emulators))
