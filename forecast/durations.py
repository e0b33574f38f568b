"""How long runs take, and which ones arrive, learned from the runs of a cluster. Pure."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

from forecast.admission import Run, Usage

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


@dataclass(frozen=True, eq=False)
class Record:
    """What is known of a run: when it started and ended, and the quota that it holds or held.

    Attributes:
        run: The run.
        started: When Kueue admitted it, in seconds. None while it waits.
        ended: When it ended. None while it waits or runs.
        usage: What it uses, by flavor and resource.
        tested: Whether its first start is known. Of a run that was evicted, only the last one is.
    """

    run: Run
    started: float | None = None
    ended: float | None = None
    usage: Usage = ()
    tested: bool = True

    def at(self, now: float) -> Record | None:
        """Returns what was known of it at a time. None before its submission."""
        if self.run.created > now:
            return None
        if self.started is None or self.started > now:
            return replace(self, started=None, ended=None)
        return self if self.ended is None or self.ended <= now else replace(self, ended=None)


class Durations:
    """The distribution of the durations of a local queue's runs, by the estimator of Kaplan and Meier (1958).

    Runs that have not ended count for as long as they have run. Beyond the longest one, a run that has taken some time
    is as likely as not to take as long again: an assumption.
    """

    def __init__(self, source: str, records: Sequence[Record], now: float) -> None:
        weighted = [*_prior()]
        for own in (True, False):
            known = [each for each in records if each.started is not None and (each.run.source == source) == own]
            known = [each for each in known if not each.run.endless]
            known.sort(key=lambda each: -(now if each.ended is None else each.ended))
            weights = [0.5 ** (rank / HALF_LIFE) for rank in range(len(known))]
            scale = 1.0 if own else min(1.0, OTHER_RUNS / (sum(weights) or 1.0))
            for each, weight in zip(known, weights, strict=True):
                seconds = (now if each.ended is None else each.ended) - (each.started or 0.0)
                weighted.append((max(seconds, 1.0), weight * scale, each.ended is not None))
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

    def __init__(self, records: Iterable[Record], now: float) -> None:
        past = sorted(
            (each.run for each in records if not each.run.endless and now - each.run.created <= ARRIVALS_SECONDS),
            key=lambda run: run.created,
        )
        self._now = now
        self._runs = past
        self._first = min(past[0].created, now - SHORTEST_PAST) if past else now

    def draw(self, chance: random.Random) -> Iterator[tuple[float, Run]]:
        """Yields submissions without end, each with its time."""
        length = self._now - self._first
        if length < 1.0:
            return
        begin = self._first + chance.random() * length
        index, shift = bisect_right(self._runs, begin, key=lambda run: run.created), self._now - begin
        while True:
            for run in self._runs[index:]:
                yield run.created + shift, replace(run, created=run.created + shift)
            index, shift = 0, shift + length
