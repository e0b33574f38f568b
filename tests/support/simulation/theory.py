"""Queues whose waiting times are known, and the configurations that have them."""

import heapq
import math
import random
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gke_ai import settings
from gke_ai.forecast.simulate.objects import Queues
from gke_ai.forecast.simulate.trace import Submission

Object = dict[str, Any]
SEEDS = 20
# Student's t for 19 degrees of freedom, both sides of 99 %: https://www.itl.nist.gov/div898/handbook/eda/section3/eda3672.htm
T_19 = 2.861


def configuration(queues: Mapping[str, Object], classes: Mapping[str, int] | None = None) -> Queues:
    """The queues of a configuration: cluster queues by name with their `gpus` and more keys, each with a local one."""
    cluster_queues = []
    for name, queue in queues.items():
        quota = {"cpu": "1000", "memory": "1000Gi", "nvidia.com/gpu": str(queue["gpus"])}
        more = {key: value for key, value in queue.items() if key != "gpus"}
        cluster_queues.append({"name": name, "flavors": [{"flavor": "l4", "quota": quota}], **more})
    section = {
        "flavors": [{"name": "l4", "accelerator": "nvidia-l4"}],
        "clusterQueues": cluster_queues,
        "localQueues": [{"name": name, "namespace": "team", "clusterQueue": name} for name in queues],
        "priorityClasses": [{"name": name, "value": value} for name, value in (classes or {}).items()],
    }
    return Queues(settings.ResolvedStack(settings.Settings.model_validate({"queues": section})))


def run(time: float, duration: float, queue: str = "one", **more: Any) -> Submission:
    """A run of one pod with one GPU."""
    fields = {"priority": "", "pods": 1, "accelerators": 1, "cpu": 0.1, "memory": 0.1, **more}
    return Submission(time=time, queue=f"team/{queue}", duration=duration, **fields)


def poisson(
    seed: int,
    jobs: int,
    rate: float,
    mean: float,
    queues: str | Iterable[str] = "one",
    priorities: Iterable[str] = ("",),
) -> list[Submission]:
    """Arrivals of a Poisson process, with exponential durations, evenly at random over queues and priorities.

    Without priorities: M/M/c in a queue with c GPUs. With priorities, no preemption loses more than a millisecond.
    """
    chance = random.Random(seed)
    names, classes = [queues] if isinstance(queues, str) else [*queues], [*priorities]
    time, runs = 0.0, []
    for _ in range(jobs):
        time += chance.expovariate(rate)
        duration = max(0.001, chance.expovariate(1 / mean))
        more = {"priority": chance.choice(classes), "checkpoint": 0.001} if len(classes) > 1 else {}
        runs.append(run(time, duration, chance.choice(names) if len(names) > 1 else names[0], **more))
    return runs


def starts(trace: Sequence[Submission], servers: int) -> list[float]:
    """When each run of a trace with runs of equal size starts, first come, first served: Kiefer and Wolfowitz, 1955."""
    free = [0.0] * servers
    found = []
    for row in trace:
        start = max(row.time, heapq.heappop(free))
        heapq.heappush(free, start + row.duration)
        found.append(start)
    return found


def mean_wait(servers: int, rate: float, mean: float) -> float:
    """The mean waiting time of M/M/c: Erlang's C formula divided by the free rate."""
    load = rate * mean
    last = load**servers / math.factorial(servers) * servers / (servers - load)
    waits = last / (sum(load**n / math.factorial(n) for n in range(servers)) + last)
    return waits / (servers / mean - rate)


def mean_response(servers: int, rate: float, mean: float) -> float:
    """The mean time in M/M/c from the submission to the end."""
    return mean_wait(servers, rate, mean) + mean


def mean_response_below(servers: int, high: float, low: float, mean: float) -> float:
    """The mean time in M/M/c of the lower of two priorities, which the higher one preempts without loss of work.

    With equal service rates the number of all runs is that of M/M/c, and the higher priority sees only itself. Little's
    law gives the rest: L. Kleinrock, Queueing Systems, volume 2 (1976), chapter 3.
    """
    every = (high + low) * mean_response(servers, high + low, mean)
    return (every - high * mean_response(servers, high, mean)) / low


def interval(means: Sequence[float]) -> tuple[float, float]:
    """The mean over 20 seeds, and half of its 99 % confidence interval."""
    assert len(means) == SEEDS
    return statistics.fmean(means), T_19 * statistics.stdev(means) / math.sqrt(SEEDS)
