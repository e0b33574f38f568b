"""Generates a trace from stated distributions and a seed. Pure.

Each figure is stated with its reason. Where a cluster has a history, an import of it is better.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gke_ai.forecast.simulate.trace import Submission, Trace

# Length of the trace: a day. Submissions are a Poisson process within it.
HOURS = 24.0
# Assumption: half as many submissions at 4:00 as at 16:00. The rate follows a cosine between them.
NIGHT = 0.5
# Assumption: durations in seconds are log-normal. Half an hour is their median, the mean is three times as long, and a
# day is the longest.
MEDIAN, SIGMA, LONGEST = 1800.0, 1.5, 86_400.0
# Assumption: pods of a run, each with its weight. Most runs have one.
SIZES = ((1, 0.7), (2, 0.15), (4, 0.1), (8, 0.05))
# Assumption: half of the runs have checkpoints, 15 minutes apart.
CHECKPOINT, CHECKPOINTED = 900.0, 0.5
# Assumption: three of ten runs tolerate Spot.
SPOT = 0.3


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


def generate(sources: Sequence[Source], jobs: int, seed: int) -> Trace:
    """Returns a trace of about `jobs` runs, divided evenly between the sources. The same seed gives the same trace."""
    chance = random.Random(seed)
    return tuple(_submission(chance, chance.choice(sources), time) for time in _times(chance, jobs))


def _times(chance: random.Random, jobs: int) -> Iterator[float]:
    """A Poisson process whose rate follows the hour, by thinning one of the highest rate."""
    seconds = HOURS * 3600
    highest = jobs / seconds * 2 / (1 + NIGHT)
    time = chance.expovariate(highest)
    while time < seconds:
        by_hour = (1 - math.cos((time / 3600 - 4) / 24 * 2 * math.pi)) / 2
        if chance.random() < NIGHT + (1 - NIGHT) * by_hour:
            yield round(time, 3)
        time += chance.expovariate(highest)


def _submission(chance: random.Random, source: Source, time: float) -> Submission:
    sizes = [(pods, weight) for pods, weight in SIZES if pods <= source.most_pods] or [(1, 1.0)]
    (pods,) = chance.choices([pods for pods, _ in sizes], [weight for _, weight in sizes])
    duration = min(chance.lognormvariate(math.log(MEDIAN), SIGMA), LONGEST)
    checkpoint = CHECKPOINT if chance.random() < CHECKPOINTED else 0.0
    spot = chance.random() < SPOT or source.spot
    of_pod, seconds = (source.accelerators, source.cpu, source.memory), max(1.0, round(duration, 3))
    return Submission(time, source.queue, source.priority, pods, *of_pod, seconds, checkpoint, spot)
