"""Generates a trace from stated distributions and a seed. Pure.

Each figure has its source, or is an assumption. Where a cluster has a history, an import of it is better.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gke_ai.catalog.durations import ASSUMPTION
from gke_ai.forecast.simulate.trace import Submission


@dataclass(frozen=True)
class Figures:
    """Figures of the distributions, each with its source in `SOURCES`.

    Attributes:
        hours: Length of the trace. Submissions are a Poisson process within it.
        night: Rate of submissions at 4:00 as a share of the rate at 16:00; it follows a cosine between them.
        median: Median of the duration, in seconds. Durations are log-normal.
        sigma: Standard deviation of the logarithm of the duration.
        longest: Longest duration, in seconds.
        sizes: Pods of a run, each with its weight.
        checkpoint: Seconds between checkpoints.
        checkpointed: Share of runs with checkpoints.
        spot: Share of runs that tolerate Spot.
    """

    hours: float = 24.0
    night: float = 0.5
    median: float = 1800.0
    sigma: float = 1.5
    longest: float = 86_400.0
    sizes: tuple[tuple[int, float], ...] = ((1, 0.7), (2, 0.15), (4, 0.1), (8, 0.05))
    checkpoint: float = 900.0
    checkpointed: float = 0.5
    spot: float = 0.3


SOURCES = {
    "hours": "a day",
    "night": f"{ASSUMPTION}: half as many submissions at night",
    "median": f"{ASSUMPTION}: half an hour",
    "sigma": f"{ASSUMPTION}: the mean is three times the median",
    "longest": f"{ASSUMPTION}: a day",
    "sizes": f"{ASSUMPTION}: most runs have one pod",
    "checkpoint": f"{ASSUMPTION}: 15 minutes",
    "checkpointed": f"{ASSUMPTION}: half of the runs",
    "spot": f"{ASSUMPTION}: three of ten runs",
}


@dataclass(frozen=True)
class Source:
    """Where runs of the trace go: a local queue, a priority class, and the resources of each pod.

    `spot` is whether every run tolerates Spot, as the queue has no other nodes.
    """

    queue: str
    priority: str = ""
    accelerators: int = 1
    cpu: float = 1.0
    memory: float = 1.0
    most_pods: int = 8
    spot: bool = False


def generate(sources: Sequence[Source], jobs: int, seed: int, figures: Figures = Figures()) -> tuple[Submission, ...]:
    """Returns a trace of about `jobs` runs, divided evenly between the sources. The same seed gives the same trace."""
    chance = random.Random(seed)
    return tuple(_submission(chance, chance.choice(sources), time, figures) for time in _times(chance, jobs, figures))


def _times(chance: random.Random, jobs: int, figures: Figures) -> Iterator[float]:
    """A Poisson process whose rate follows the hour, by thinning one of the highest rate."""
    seconds = figures.hours * 3600
    highest = jobs / seconds * 2 / (1 + figures.night)
    time = chance.expovariate(highest)
    while time < seconds:
        by_hour = (1 - math.cos((time / 3600 - 4) / 24 * 2 * math.pi)) / 2
        if chance.random() < figures.night + (1 - figures.night) * by_hour:
            yield round(time, 3)
        time += chance.expovariate(highest)


def _submission(chance: random.Random, source: Source, time: float, figures: Figures) -> Submission:
    sizes = [(pods, weight) for pods, weight in figures.sizes if pods <= source.most_pods] or [(1, 1.0)]
    (pods,) = chance.choices([pods for pods, _ in sizes], [weight for _, weight in sizes])
    duration = min(chance.lognormvariate(math.log(figures.median), figures.sigma), figures.longest)
    checkpoint = figures.checkpoint if chance.random() < figures.checkpointed else 0.0
    spot = chance.random() < figures.spot or source.spot
    return Submission(
        time,
        source.queue,
        source.priority,
        pods,
        source.accelerators,
        source.cpu,
        source.memory,
        max(1.0, round(duration, 3)),
        checkpoint,
        spot,
    )
