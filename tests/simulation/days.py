"""Days of two queues that lend each other quota, with durations and arrivals of several distributions, and what a
snapshot at any time would show of them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from catalog.nodes import NVIDIA_GPU
from forecast.admission import ClusterQueue, Cohort, Line, Run, Share, Usage
from forecast.durations import Record

DAY = 86_400.0
GPUS = 8
SIZES = (1, 1, 1, 2, 4, 8)
PRIORITIES = (0, 0, 0, 0, 0, 0, 0, 10)


def queue(name: str, cohort: str = "cohort", strict: bool = False) -> ClusterQueue:
    """A queue of 8 GPUs that borrows, and takes back what it lent."""
    shares = {("l4", NVIDIA_GPU): Share(GPUS)}
    groups = ((frozenset({NVIDIA_GPU}), ("l4",)),)
    return ClusterQueue(name, shares, groups, cohort, strict, within="LowerPriority", reclaim="LowerPriority")


QUEUES = {name: queue(name) for name in ("a", "b")}

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

    def submissions(self, chance: random.Random, begin: float) -> Iterator[tuple[Run, float]]:
        """Yields the runs of a day, each with its duration."""
        rate = self.load * len(QUEUES) * GPUS / (sum(SIZES) / len(SIZES) * self.mean)
        for time in sorted(self._times(chance, rate, begin)):
            name, size = chance.choice("ab"), float(chance.choice(SIZES))
            run = Run(
                f"team/{name}/{time:.3f}",
                name,
                time,
                {NVIDIA_GPU: size},
                chance.choice(PRIORITIES),
                source=f"team/{name}",
            )
            yield run, max(1.0, DURATIONS[self.durations](chance, self.mean))

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


def submitted(seed: int, kinds: Sequence[Kind]) -> dict[Run, float]:
    """The runs of some days, one after the other, each with its duration."""
    chance = random.Random(seed)
    return dict(pair for number, kind in enumerate(kinds) for pair in kind.submissions(chance, number * DAY))


@dataclass(frozen=True)
class Days:
    """What happens in some days.

    Attributes:
        spans: When each run started, and what it used.
        evicted: When each run was evicted.
        ended: When runs ended.
    """

    spans: Mapping[Run, Sequence[tuple[float, Usage]]]
    evicted: Mapping[Run, Sequence[float]]
    ended: Mapping[Run, float]

    @property
    def first(self) -> dict[Run, float]:
        """When each run started first."""
        return {run: spans[0][0] for run, spans in self.spans.items() if spans}

    def snapshot(self, now: float) -> tuple[Record, ...]:
        """Returns what a snapshot shows: of a run that was evicted, only its last start."""
        return tuple(self._record(run, now) for run in self.spans if run.created <= now)

    def _record(self, run: Run, now: float) -> Record:
        starts = [span for span in self.spans[run] if span[0] <= now]
        evictions = sum(at <= now for at in self.evicted[run])
        if len(starts) == evictions:
            return Record(run, tested=not evictions)
        at, usage = starts[-1]
        end = self.ended.get(run, math.inf)
        return Record(run, at, end if end <= now else None, usage, not evictions)


def decided(seed: int, kinds: Sequence[Kind]) -> Days:
    """Some days, one after the other, on which the model of Kueue decides."""
    seconds = submitted(seed, kinds)
    line = Line(Cohort(QUEUES.values()), seconds.__getitem__)
    line.go((run.created, run) for run in sorted(seconds, key=lambda run: run.created))
    spans: dict[Run, list[tuple[float, Usage]]] = {run: [] for run in seconds}
    evicted: dict[Run, list[float]] = {run: [] for run in seconds}
    for run, at, usage, victims in line.started:
        spans[run].append((at, usage))
        for victim in victims:
            evicted[victim].append(at)
    return Days(spans, evicted, line.ended)
