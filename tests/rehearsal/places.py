"""Clusters for a world and its forks: the same change in a world, and in forks restored from its snapshot.

Many worlds share each cluster. They share no queue, cohort, flavor, pool or namespace, so none affects another.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from emulator.tests.harness import Emulator, eventually
from forecast.outcome import outcome
from ops.snapshot.command import take
from ops.snapshot.format import Snapshot, read
from ops.stack import client_of
from rehearse.restore import lasting_differences, restore
from tests.rehearsal import cluster as queue_cluster
from tests.rehearsal.cluster import NAME, SETTLED_SECONDS, QueueCluster
from tests.rehearsal.fates import fates, name_of
from tests.rehearsal.verdicts import Outcome
from tests.rehearsal.world import Change, Object, World, queue_objects, run_object

# Longer than the emulator keeps an idle node.
NODES_SETTLE = 18.0
# How long Kueue may count the workloads of restored queues.
QUEUES_SETTLE = 60.0


@dataclass(frozen=True)
class Place:
    """An emulator with a cluster of queues."""

    emulator: Emulator

    def kubeconfig(self) -> str:
        """The kubeconfig of the cluster, as text."""
        return queue_cluster.kubeconfig(self.emulator).read_text()

    def prepare(self, cases: Iterable[Change]) -> None:
        """Create the pools and queues of worlds."""
        pools = [pool for case in cases for pool in queue_cluster.pools_of(case.world, case.namespace)]
        queue_cluster.set_pools(self.emulator, pools)

    def snapshot(self) -> Snapshot:
        """A snapshot of the cluster, as its file says it."""
        return read(take("test", client_of(self.kubeconfig(), 4)).to_json())

    def restore(self, snapshot: Snapshot) -> list[str]:
        """Bring the cluster to the state of a snapshot. Returns what differs then, in words."""
        restored = restore(snapshot, client_of(self.kubeconfig(), 4), self.emulator.state, NAME)
        with queue_cluster.connect(self.emulator) as cluster:
            cluster.settle()
        return [str(difference) for difference in lasting_differences(restored, self.snapshot, QUEUES_SETTLE)]

    def change(self, cases: Sequence[Change]) -> dict[str, Outcome]:
        """Apply the changes, and return what happens to each world, by namespace."""
        with queue_cluster.connect(self.emulator) as cluster:
            cluster.settle()
            before = {case.namespace: cluster.workloads(case.namespace) for case in cases}
            cluster.recorder.begin()
            changed = [case for case in cases if case.changed.pools != case.world.pools]
            pools = [pool for case in changed for pool in queue_cluster.pools_of(case.changed, case.namespace)]
            if pools:
                queue_cluster.set_pools(self.emulator, pools)
            for case in cases:
                apply_change(cluster, case)
            # A world that never settles must not hide the others: its fates say what goes on.
            cluster.recorder.settle(NODES_SETTLE if any(case.world.pools for case in cases) else SETTLED_SECONDS, 150)
            return {case.namespace: _outcome(cluster, case, before[case.namespace]) for case in cases}

    def clear(self, cases: Sequence[Change]) -> None:
        """Delete worlds with their pools, once the emulator has removed their idle nodes."""
        with queue_cluster.connect(self.emulator) as cluster:
            cluster.clear([case.namespace for case in cases])
            cluster.settle(NODES_SETTLE, 300)
        pools = [pool for case in cases for pool in queue_cluster.pools_of(case.world, case.namespace)]
        queue_cluster.remove_pools(self.emulator, pools)


def populate(place: Place, cases: Sequence[Change]) -> None:
    """Create worlds: one workload of each at a time, because Kueue orders workloads by times in whole seconds."""
    place.prepare(cases)
    with queue_cluster.connect(place.emulator) as cluster:
        for case in cases:
            running = replace(case.world, stopped={})  # in a stopped queue nothing would start
            cluster.apply(queue_objects(running, case.namespace))
        for number in range(max(len(case.world.runs) for case in cases)):
            runs = [(case.namespace, run) for case in cases for run in case.world.runs[number : number + 1]]
            cluster.apply(run_object(run, namespace) for namespace, run in runs)
            names = {f"{namespace}/{run.name}" for namespace, run in runs if run.replicas}
            eventually(partial(_has_workloads, cluster, names), "Kueue has the workloads")
            cluster.settle(2)
        for case in cases:
            if case.world.stopped:
                cluster.apply(queue_objects(case.world, case.namespace))
        cluster.settle(NODES_SETTLE if any(case.world.pools for case in cases) else 2, 300)


def _has_workloads(cluster: QueueCluster, names: set[str]) -> bool:
    return names <= {name_of(workload) for workload in cluster.workloads()}


def deploy_base(place: Place, cases: Sequence[Change]) -> None:
    """Create what a rehearsal deploys to a scratch emulator before it is restored: pools, queues and servers."""
    place.prepare(cases)
    with queue_cluster.connect(place.emulator) as cluster:
        for case in cases:
            cluster.apply(queue_objects(case.world, case.namespace))
            cluster.apply(run_object(run, case.namespace) for run in case.world.runs if run.kind == "Deployment")


def apply_change(cluster: QueueCluster, case: Change) -> None:
    """Apply a change: new and changed objects in the program's order, then deletes."""
    old, new = ({_key(obj): obj for obj in objects(world, case.namespace)} for world in (case.world, case.changed))
    cluster.apply(obj for key, obj in new.items() if obj != old.get(key))
    cluster.delete(obj for key, obj in reversed(old.items()) if key not in new)


def objects(world: World, namespace: str) -> Iterator[Object]:
    """All objects of a world."""
    yield from queue_objects(world, namespace)
    yield from (run_object(run, namespace) for run in world.runs)


def _key(obj: Object) -> tuple[str, str]:
    return obj["kind"], obj["metadata"]["name"]


def _outcome(cluster: QueueCluster, case: Change, before: Sequence[Object]) -> Outcome:
    timeline = cluster.timeline(case.namespace)
    versions = [item.object for item in timeline.observations if item.kind == "Workload" and item.at > 0]
    after = fates(before, versions, cluster.workloads(case.namespace))
    return Outcome(fates([], [], before), after, outcome(timeline))


def hold(
    world: Place, forks: Sequence[Place], cases: Sequence[Change], log: Callable[[str], None]
) -> list[dict[str, Outcome]]:
    """Populate the world, restore the forks from its snapshot, and apply the changes everywhere.

    Returns what happens in the world and in each fork, by namespace.
    """
    begun = time.monotonic()

    def step(text: str) -> None:
        log(f"{time.monotonic() - begun:4.0f} s: {text}")

    with ThreadPoolExecutor() as threads:
        bases = [threads.submit(deploy_base, fork, cases) for fork in forks]
        populate(world, cases)
        for base in bases:
            base.result()
        step("the worlds have settled")
        snapshot = world.snapshot()
        for found in threads.map(lambda fork: fork.restore(snapshot), forks):
            step(f"a fork is restored, with {len(found)} differences: {'; '.join(found[:3])}")
        outcomes = list(threads.map(lambda place: place.change(cases), [world, *forks]))
        step("the changes have settled")
        return outcomes


def clear(places: Sequence[Place], cases: Sequence[Change]) -> None:
    """Delete worlds with their pools everywhere."""
    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda place: place.clear(cases), places))


def create(emulators: Sequence[Emulator], pools: Sequence[Object] = ()) -> list[Place]:
    """Clusters for a world and its forks, with pools for all worlds."""

    def make(emulator: Emulator) -> Place:
        queue_cluster.create(emulator)
        queue_cluster.set_pools(emulator, pools)
        return Place(emulator)

    with ThreadPoolExecutor() as threads:
        return list(threads.map(make, emulators))
