"""Holds forecasts to the truth: the same change in a world, and in forks of it that were restored from its snapshot.

Many worlds share each cluster. They share no queue, cohort, flavor, pool or namespace, so none affects another.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from emulator.tests.harness import Emulator
from forecast.comparison import differences as compare
from forecast.model import Forecast
from forecast.outcome import outcome
from ops.snapshot.command import take
from ops.snapshot.format import Snapshot, read
from ops.stack import client_of
from rehearse.differences import differences as differences_of_state
from rehearse.restore import restore
from tests.rehearsal import cluster as queue_cluster
from tests.rehearsal.cluster import NAME, QueueCluster
from tests.rehearsal.fates import Fate, fates
from tests.rehearsal.seeds import SeededCase
from tests.rehearsal.world import Object, World, queue_objects, run_object

# Longer than the emulator keeps an idle node.
NODES_SETTLE = 18.0


@dataclass(frozen=True)
class Outcome:
    """What happened to a world in one cluster: as read for this test, and as a forecast says it."""

    fates: Counter[Fate]
    forecast: Forecast


@dataclass(frozen=True)
class Verdict:
    """A forecast beside what happened. `chance`: two forks of the same snapshot differ too."""

    case: SeededCase
    kind: Literal["agrees", "chance", "differs"]
    differences: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = "".join(f"\n    {line}" for line in self.differences)
        return f"seed {self.case.seed} {self.kind} ({self.case.change}){lines}"


def differences(forecast: Outcome, happened: Outcome) -> Iterator[str]:
    """What differs between a forecast and what happened: fates of workloads, and nodes. Each difference in words."""
    for label, facts in (
        ("forecast", forecast.fates - happened.fates),
        ("happened", happened.fates - forecast.fates),
    ):
        yield from (f"only {label}: {fate_text(fate)} × {count}" for fate, count in sorted(facts.items(), key=str))
    for line in compare(forecast.forecast, happened.forecast):
        texts = (", ".join(side) or "nothing" for side in (line.forecast, line.happened))
        yield "{}: forecast: {}; happened: {}".format(line.name, *texts)


def fate_text(fate: Fate) -> str:
    """A fate in words."""
    by = f" by {fate.preemptor}" if fate.preemptor else ""
    return f"{fate.workload} {fate.outcome}{by}{f' in {fate.flavor}' if fate.flavor else ''}"


def judge(case: SeededCase, happened: Outcome, forecast: Outcome, again: Outcome | None) -> Verdict:
    """Compare a forecast, and if there is one a second forecast from the same snapshot, with what happened."""
    if not (found := tuple(differences(forecast, happened))):
        return Verdict(case, "agrees")
    by_chance = again is not None and any(differences(forecast, again))
    return Verdict(case, "chance" if by_chance else "differs", found)


def report(verdicts: Sequence[Verdict]) -> str:
    """The share of forecasts that agree, and every other one with its differences."""
    counts = Counter(verdict.kind for verdict in verdicts)
    head = (
        f"{counts['agrees']} of {len(verdicts)} forecasts agree with what happened, {counts['chance']} were left to "
        f"chance by Kueue, {counts['differs']} differ."
    )
    return "\n".join([head, *(str(verdict) for verdict in verdicts if verdict.kind != "agrees")])


# ------------------------------------------------------------------------------------------------------------ clusters
@dataclass(frozen=True)
class Place:
    """An emulator with a cluster of queues."""

    emulator: Emulator

    def create(self) -> None:
        """Create the cluster."""
        queue_cluster.create(self.emulator)

    def kubeconfig(self) -> str:
        """The kubeconfig of the cluster, as text."""
        return Path(queue_cluster.kubeconfig(self.emulator)).read_text()

    def prepare(self, cases: Iterable[SeededCase]) -> None:
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
        return [str(difference) for difference in differences_of_state(restored, self.snapshot())]

    def change(self, cases: Sequence[SeededCase]) -> dict[int, Outcome]:
        """Apply the changes, and return what happens to each world, by seed."""
        with queue_cluster.connect(self.emulator) as cluster:
            cluster.settle()
            before = {case.seed: cluster.workloads(case.namespace) for case in cases}
            cluster.recorder.begin()
            changed = [case for case in cases if case.changed.pools != case.world.pools]
            pools = [pool for case in changed for pool in queue_cluster.pools_of(case.changed, case.namespace)]
            if pools:
                queue_cluster.set_pools(self.emulator, pools)
            for case in cases:
                apply_change(cluster, case)
            cluster.settle(NODES_SETTLE, 240)
            return {case.seed: _outcome(cluster, case, before[case.seed]) for case in cases}

    def clear(self, cases: Sequence[SeededCase]) -> None:
        """Delete worlds with their pools."""
        with queue_cluster.connect(self.emulator) as cluster:
            cluster.clear([case.namespace for case in cases])
        pools = [pool for case in cases for pool in queue_cluster.pools_of(case.world, case.namespace)]
        queue_cluster.remove_pools(self.emulator, pools)


def populate(place: Place, cases: Sequence[SeededCase]) -> None:
    """Create worlds: one workload of each at a time, because Kueue orders workloads by times in whole seconds."""
    place.prepare(cases)
    with queue_cluster.connect(place.emulator) as cluster:
        for case in cases:
            cluster.apply(queue_objects(case.world, case.namespace))
        for number in range(max(len(case.world.runs) for case in cases)):
            for case in cases:
                cluster.apply(run_object(run, case.namespace) for run in case.world.runs[number : number + 1])
            cluster.settle(2)
        cluster.settle(NODES_SETTLE, 240)


def deploy_base(place: Place, cases: Sequence[SeededCase]) -> None:
    """Create what a rehearsal deploys to a scratch emulator before it is restored: pools, queues and servers."""
    place.prepare(cases)
    with queue_cluster.connect(place.emulator) as cluster:
        for case in cases:
            cluster.apply(queue_objects(case.world, case.namespace))
            cluster.apply(run_object(run, case.namespace) for run in case.world.runs if run.kind == "Deployment")


def apply_change(cluster: QueueCluster, case: SeededCase) -> None:
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


def _outcome(cluster: QueueCluster, case: SeededCase, before: Sequence[Object]) -> Outcome:
    timeline = cluster.timeline(case.namespace)
    versions = [item.object for item in timeline.observations if item.kind == "Workload" and item.at > 0]
    return Outcome(fates(before, versions, cluster.workloads(case.namespace)), outcome(timeline))


def hold(
    world: Place, forks: Sequence[Place], cases: Sequence[SeededCase], log: Callable[[str], None]
) -> list[Verdict]:
    """Populate the world, restore each fork from its snapshot, apply the changes everywhere, and compare."""
    begun = time.monotonic()

    def step(text: str) -> None:
        log(f"{time.monotonic() - begun:4.0f} s: {text}")

    with ThreadPoolExecutor() as threads:
        prepared = [threads.submit(deploy_base, fork, cases) for fork in forks]
        populate(world, cases)
        for done in prepared:
            done.result()
        step("the worlds have settled")
        snapshot = world.snapshot()
        for found in threads.map(lambda fork: fork.restore(snapshot), forks):
            step(f"a fork is restored, with {len(found)} differences: {'; '.join(found[:5])}")
        happened, *forecasts = threads.map(lambda place: place.change(cases), [world, *forks])
        step("the changes have settled")
        list(threads.map(lambda place: place.clear(cases), [world, *forks]))
        step("the worlds are deleted")
    again = forecasts[1] if len(forecasts) > 1 else {}
    return [judge(case, happened[case.seed], forecasts[0][case.seed], again.get(case.seed)) for case in cases]


def create(emulators: Sequence[Emulator]) -> list[Place]:
    """Clusters for a world and its forks."""
    made = [Place(emulator) for emulator in emulators]
    with ThreadPoolExecutor() as threads:
        list(threads.map(Place.create, made))
    return made
