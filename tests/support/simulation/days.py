"""Days of two queues that lend each other quota, with durations and arrivals of several distributions, and what a
snapshot at any time would show of them."""

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from gke_ai.catalog.nodes.shape import NVIDIA_GPU
from gke_ai.catalog.versions import KUEUE_API
from gke_ai.forecast.simulate.run import Run
from gke_ai.forecast.simulate.trace import Submission
from gke_ai.forecast.snapshot.format import Snapshot, build
from tests.support.simulation.theory import run as submission
from tests.support.simulation.training import pod_set, status

Object = dict[str, Any]
DAY = 86_400.0
GPUS = 8
SIZES = (1, 1, 1, 2, 4, 8)
PRIORITIES = (0, 0, 0, 0, 0, 0, 0, 10)
QUEUES = ("a", "b")
# A queue borrows, and takes back what it lent.
PREEMPTION = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "LowerPriority"}
NOW = datetime(2026, 1, 10, tzinfo=UTC)


# Durations by name, each with this mean in seconds.
DURATIONS: Mapping[str, Callable[[random.Random, float], float]] = {
    "log-normal": lambda chance, mean: chance.lognormvariate(math.log(mean) - 1.5**2 / 2, 1.5),
    "exponential": lambda chance, mean: chance.expovariate(1 / mean),
    "Weibull": lambda chance, mean: chance.weibullvariate(mean / math.gamma(1 + 1 / 0.6), 0.6),
    "Pareto": lambda chance, mean: mean / 3 * chance.paretovariate(1.5),
    "bimodal": lambda chance, mean: mean * (0.1 if chance.random() < 0.75 else 3.7) * chance.uniform(0.8, 1.2),
    "constant": lambda chance, mean: mean * chance.uniform(0.95, 1.05),
}


@dataclass(frozen=True)
class Kind:
    """A kind of day: its durations, whether submissions come in bursts, its load, and the mean duration in seconds."""

    durations: str
    bursts: bool
    load: float
    mean: float = 2400.0

    def __str__(self) -> str:
        return f"{self.durations} durations, {'bursts' if self.bursts else 'Poisson'}, load {self.load:.0%}"

    def submissions(self, chance: random.Random, begin: float, pair: int) -> Iterator[Submission]:
        """Yields the runs of a day. The queues of each pair of days have its number."""
        rate = self.load * len(QUEUES) * GPUS / (sum(SIZES) / len(SIZES) * self.mean)
        for time in sorted(self._times(chance, rate, begin)):
            name, size = chance.choice(QUEUES), chance.choice(SIZES)
            priority = "high" if chance.choice(PRIORITIES) else ""
            seconds = max(1.0, DURATIONS[self.durations](chance, self.mean))
            yield submission(time, seconds, f"{name}{pair}", pods=size, priority=priority)

    def _times(self, chance: random.Random, rate: float, begin: float) -> Iterator[float]:
        """A Poisson process of single submissions, or of bursts of 6 on average."""
        time = begin
        while (time := time + chance.expovariate(rate / 6 if self.bursts else rate)) < begin + DAY:
            for number in range(chance.randint(1, 11) if self.bursts else 1):
                yield time + number * chance.expovariate(1 / 20)


MADE_FROM = Kind("log-normal", bursts=False, load=0.8)
# Other durations, arrivals and loads than those that intervals are made from.
KINDS = (
    Kind("Pareto", bursts=False, load=0.8),
    Kind("Weibull", bursts=True, load=0.75),
    Kind("bimodal", bursts=True, load=0.6, mean=3600.0),
    Kind("constant", bursts=False, load=0.9, mean=1800.0),
    Kind("exponential", bursts=True, load=0.6, mean=4800.0),
)


def submitted(pair: int, kinds: Sequence[Kind]) -> Iterator[Submission]:
    chance = random.Random(pair)
    for number, kind in enumerate(kinds):
        yield from kind.submissions(chance, number * DAY, pair)


def workload(run: Run, second: float) -> Object:
    """The Workload of a run as a snapshot shows it at a second of the days, which is NOW; of its starts, the last."""

    def at(time: float) -> str:
        return (NOW + timedelta(seconds=time - second)).strftime("%Y-%m-%dT%H:%M:%SZ")

    spans = [span for span in run.admitted if span[0] <= second]
    began = ended = None
    if spans and (spans[-1][1] is None or spans[-1][1] > second or (run.ended and spans[-1] == run.admitted[-1])):
        began, end = spans[-1]
        ended = end if end is not None and end <= second else None
    pods = run.row.pods
    namespace, _, queue = run.row.queue.partition("/")
    metadata = {"name": f"run-{run.number}", "namespace": namespace, "creationTimestamp": at(run.row.time)}
    spec = {"queueName": queue, "priority": 10 if run.row.priority else 0, "podSets": [pod_set(pods)]}
    times = {"QuotaReserved": began, "Admitted": began, "Finished": ended}
    stated = {kind: at(time) for kind, time in times.items() if time is not None}
    return {"metadata": metadata, "spec": spec, "status": status(stated, run.cluster_queue, pods)}


def snapshot(asked: Mapping[int, tuple[Run, Iterable[Run]]]) -> tuple[Snapshot, list[tuple[str, Object]]]:
    """A snapshot with queues of its own for each question: a run, and the others of its queues, when it is submitted.

    Returns the Workloads of the runs too, each with its cluster queue.
    """
    objects: dict[str, list[Object]] = {"ResourceFlavor": [{"metadata": {"name": "l4"}, "spec": {}}]}
    own = []

    def named(number: int, item: Object) -> Object:
        item["spec"]["queueName"] = f"{item['spec']['queueName']}-{number}"
        item["metadata"]["name"] += f"-{number}"
        if admission := item["status"].get("admission"):
            admission["clusterQueue"] += f"-{number}"
        return item

    for number, (run, others) in asked.items():
        pair = run.cluster_queue[1:]
        for name in QUEUES:
            title = f"{name}{pair}-{number}"
            resources = [{"name": NVIDIA_GPU, "nominalQuota": str(GPUS)}]
            groups = [{"coveredResources": [NVIDIA_GPU], "flavors": [{"name": "l4", "resources": resources}]}]
            spec = {"resourceGroups": groups, "cohortName": f"cohort-{number}", "preemption": PREEMPTION}
            objects.setdefault("ClusterQueue", []).append({"metadata": {"name": title}, "spec": spec})
            local = {"metadata": {"name": title, "namespace": "team"}, "spec": {"clusterQueue": title}}
            objects.setdefault("LocalQueue", []).append(local)
        now = run.row.time
        known = [other for other in others if other is not run and other.row.time <= now]
        objects.setdefault("Workload", []).extend(named(number, workload(other, now)) for other in known)
        mine = {"apiVersion": KUEUE_API, "kind": "Workload", **named(number, workload(run, now))}
        own.append((f"{run.cluster_queue}-{number}", {**mine, "status": {}}))
    return build("days", objects, NOW), own
