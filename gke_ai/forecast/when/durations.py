"""How long runs take, and which ones arrive, learned from the Workloads of a cluster. Pure."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import inf
from statistics import NormalDist

from gke_ai.kube.names import WorkloadName, owner_of
from gke_ai.kube.objects import Object, condition, holds
from gke_ai.kube.values import mapping
from gke_ai.kube.workloads import time_limit

# Assumptions, for a queue with few ended runs: half of the runs take at most half an hour, and two of three between
# 4 minutes and 4 hours. They count as two runs, and all runs of other queues as five.
MEDIAN, SPREAD = 1800.0, 2.0
PRIOR_RUNS, OTHER_RUNS = 2.0, 5.0
_PRIOR_POINTS = 19
# A run counts half as much as one that ended 100 runs later, so that the forecast follows a change.
HALF_LIFE = 100.0
# Arrivals are those of the last week.
ARRIVALS_SECONDS = 7 * 86_400.0
# Assumption: a shorter past than this shows too few arrivals for a rate.
SHORTEST_PAST = 6 * 3600.0
_SERVING = "kueue.x-k8s.io/pod-group-serving"


@dataclass(frozen=True, eq=False)
class Record:
    """What a Workload says of its run, in seconds since 1970.

    Attributes:
        workload: The Workload.
        created: When it was created.
        started: When Kueue admitted it. None while it waits.
        ended: When it ended. None while it waits or runs.
        limit: After how many seconds Kueue or Kubernetes ends it. Infinite: never.
    """

    workload: Object
    created: float
    started: float | None = None
    ended: float | None = None
    limit: float = inf

    @property
    def source(self) -> str:
        """Its local queue, NAMESPACE/NAME."""
        return f"{self.workload['metadata']['namespace']}/{self.workload['spec'].get('queueName', '')}"

    @property
    def is_endless(self) -> bool:
        """Whether it is a server, which does not end by itself."""
        annotations = self.workload["metadata"].get("annotations") or {}
        return WorkloadName.of_workload(self.workload, {}).has_replicas or bool(annotations.get(_SERVING))

    def seconds(self, now: float) -> float:
        """Returns for how long it ran, or has run."""
        return (now if self.ended is None else self.ended) - (now if self.started is None else self.started)


def records(workloads: Iterable[Object], owners: Iterable[Object] = ()) -> Iterator[Record]:
    """Yields the runs of a cluster, but for those that ended while they waited, or are deactivated.

    `owners` are Jobs and JobSets, whose limits count too. A JobSet that restarts its Jobs goes on after theirs.
    """
    limits = {
        owner["metadata"].get("uid"): time_limit(owner)
        for owner in owners
        if not any(mapping(owner, "spec", "failurePolicy").values())
    }
    for item in workloads:
        finished = holds(item, "Finished")
        reserved = condition(item, "QuotaReserved")
        started = _seconds(reserved["lastTransitionTime"]) if reserved.get("status") == "True" else None
        if (finished and started is None) or not (finished or item["spec"].get("active", True)):
            continue
        ended = _seconds(condition(item, "Finished")["lastTransitionTime"]) if finished else None
        own = (time_limit(item), limits.get(owner_of(item).get("uid")))
        limit = min((seconds for seconds in own if seconds is not None), default=inf)
        yield Record(item, _seconds(item["metadata"]["creationTimestamp"]), started, ended, limit)


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


class Durations:
    """The distribution of the durations of a local queue's runs, by the estimator of Kaplan and Meier (1958).

    Runs that have not ended count for as long as they have run. Beyond the longest one, a run that has taken some time
    is as likely as not to take as long again: an assumption.
    """

    def __init__(self, source: str, known: Iterable[Record], now: float) -> None:
        weighted = [*_prior()]
        started = [record for record in known if record.started is not None and not record.is_endless]
        for own in (True, False):
            some = [record for record in started if (record.source == source) == own]
            some.sort(key=lambda record: -(now if record.ended is None else record.ended))
            weights = [0.5 ** (rank / HALF_LIFE) for rank in range(len(some))]
            scale = 1.0 if own else min(1.0, OTHER_RUNS / (sum(weights) or 1.0))
            for record, weight in zip(some, weights, strict=True):
                weighted.append((max(record.seconds(now), 1.0), weight * scale, record.ended is not None))
        weighted.sort(key=lambda entry: (entry[0], not entry[2]))
        at_risk, survives = sum(weight for _, weight, _ in weighted), 1.0
        self._seconds, self._passed = [0.0], [0.0]
        for seconds, weight, ended in weighted:
            if ended:
                survives *= max(0.0, 1 - weight / at_risk)
                self._seconds.append(seconds)
                self._passed.append(1 - survives)
            at_risk -= weight

    def draw(self, chance: random.Random, elapsed: float = 0.0) -> float:
        """Returns the whole duration of a run that has run for some time."""
        low = self._passed_at(elapsed)
        drawn = low + (1 - low) * chance.random()
        index = bisect_right(self._passed, drawn)
        if index == len(self._passed):
            return max(elapsed, self._seconds[-1]) / max(1 - chance.random(), 1e-6)
        return max(elapsed, self._between(self._passed, self._seconds, index, drawn))

    def _passed_at(self, seconds: float) -> float:
        index = bisect_right(self._seconds, seconds)
        if index == len(self._seconds):
            return self._passed[-1]
        return self._between(self._seconds, self._passed, index, seconds)

    @staticmethod
    def _between(xs: Sequence[float], ys: Sequence[float], index: int, x: float) -> float:
        width = xs[index] - xs[index - 1]
        share = (x - xs[index - 1]) / width if width else 1.0
        return ys[index - 1] + share * (ys[index] - ys[index - 1])


def _prior() -> Iterator[tuple[float, float, bool]]:
    log = NormalDist(0.0, SPREAD)
    for point in range(_PRIOR_POINTS):
        seconds = MEDIAN * 2.718281828459045 ** log.inv_cdf((point + 0.5) / _PRIOR_POINTS)
        yield seconds, PRIOR_RUNS / _PRIOR_POINTS, True


class Arrivals:
    """Submissions to come: those of a random stretch of the past again, with its bursts, sizes and priorities."""

    def __init__(self, known: Iterable[Record], now: float) -> None:
        past = [record for record in known if not record.is_endless and now - record.created <= ARRIVALS_SECONDS]
        self._past = sorted(past, key=lambda record: record.created)
        self._length = max(now - self._past[0].created, SHORTEST_PAST) if self._past else 0.0
        self._first = now - self._length

    def draw(self, chance: random.Random) -> Iterator[tuple[float, Record]]:
        """Yields submissions without end, each with the seconds until then."""
        if not self._past:
            return
        begin = chance.random() * self._length
        index = bisect_right(self._past, self._first + begin, key=lambda record: record.created)
        while begin > -inf:
            for record in self._past[index:]:
                yield record.created - self._first - begin, record
            index, begin = 0, begin - self._length
