"""A run of a simulated day: what became of a submission, and how its work adds up. Pure.

All times are seconds of the simulated clock. A span is a start and an end; the last one of a list can still be open.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from gke_ai.forecast.simulate.trace import Submission

Span = tuple[float, float | None]


@dataclass
class Run:
    """A submission, and what became of it.

    Attributes:
        number: Its position in the trace.
        row: The submission.
        cluster_queue: Name of its cluster queue.
        kept: Seconds of work that need not be done again.
        lost: Seconds of work that evictions by Kueue lost.
        lost_with_nodes: Seconds of work that were lost with nodes: to Spot reclaims and at the end of flex-start.
        admitted: When it held quota.
        placed: For each of these times, its pods by node. Empty: Kueue does not place them.
        flavors: For each of these times, its flavor.
        spans: When it worked: it held quota, and all its pods ran.
        evictions: How often Kueue evicted it.
        reclaims: How often a Spot reclaim stopped it, or delayed its start.
        expiries: How often the end of a flex-start node's life stopped it, or delayed its start.
        fruitless: How often in a row it lost nodes without reaching a checkpoint.
        failed: Whether it was given up after that had happened too often.
        unplaced: Why no nodes can ever hold its pods. Empty: some can.
        ended: Whether it has done all its work.
    """

    number: int
    row: Submission
    cluster_queue: str
    kept: float = 0.0
    lost: float = 0.0
    lost_with_nodes: float = 0.0
    admitted: list[Span] = field(default_factory=list)
    placed: list[Mapping[str, int]] = field(default_factory=list)
    flavors: list[str] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    evictions: int = 0
    reclaims: int = 0
    expiries: int = 0
    fruitless: int = 0
    failed: bool = False
    unplaced: str = ""
    ended: bool = False

    @property
    def holds_quota(self) -> bool:
        """Whether Kueue has admitted it."""
        return is_open(self.admitted)

    @property
    def runs(self) -> bool:
        """Whether it works now."""
        return is_open(self.spans)

    @property
    def accelerators(self) -> int:
        """The accelerators of all its pods."""
        return self.row.pods * self.row.accelerators

    @property
    def waited(self) -> float | None:
        """Seconds from the submission to the first start. None before that."""
        return self.spans[0][0] - self.row.time if self.spans else None

    @property
    def waited_for_quota(self) -> float:
        """Seconds without quota: from the submission to the admission, and after each eviction."""
        begins = [self.row.time, *(end for _, end in self.admitted if end is not None)]
        return sum(start - begin for begin, (start, _) in zip(begins, self.admitted, strict=False))

    @property
    def waited_for_nodes(self) -> float:
        """Seconds with quota, but without all nodes, until it last stopped. Includes their start."""
        stopped = max((end for _, end in self.spans if end is not None), default=0.0)
        held = [(start, max(start, stopped) if end is None else end) for start, end in self.admitted]
        return total(held) - total(self.spans)

    @property
    def ended_at(self) -> float | None:
        """When it had done all its work, or None."""
        return self.spans[-1][1] if self.ended else None

    @property
    def evicted_at(self) -> list[float]:
        """When Kueue evicted it."""
        stops = [stop for _, stop in self.admitted if stop is not None]
        return stops[:-1] if self.ended or self.failed else stops

    def waits(self, end: float) -> list[tuple[float, float]]:
        """Returns the times without quota from the submission on, until its end or that of the day."""
        later = [] if self.ended or self.failed else [(max(end, self.row.time), 0.0)]
        held = [(start, end if stop is None else stop) for start, stop in self.admitted]
        gaps = ((before[1], after[0]) for before, after in pairwise([(0.0, self.row.time), *held, *later]))
        return [(start, stop) for start, stop in gaps if stop > start]

    def flavor_before(self, at: float) -> str:
        """The flavor whose quota it held just before a time, or empty."""
        spans = zip(self.admitted, self.flavors, strict=True)
        return next((flavor for (start, stop), flavor in spans if start < at and (stop is None or at <= stop)), "")

    def admit(self, now: float, placed: Mapping[str, int], flavor: str) -> None:
        """Takes note of its admission."""
        self.admitted.append((now, None))
        self.placed.append(placed)
        self.flavors.append(flavor)

    def start(self, now: float) -> float:
        """Starts it, or lets it go on from its last checkpoint. Returns when it ends."""
        self.spans.append((now, None))
        return now + self.row.duration - self.kept

    def end(self, now: float) -> None:
        """Ends it: all its work is done."""
        close(self.spans, now)
        close(self.admitted, now)
        self.ended = True

    def evict(self, now: float) -> None:
        """Stops it and takes its quota. What it did since its last checkpoint is lost."""
        self.lost += self._stop(now)
        self.evictions += 1
        close(self.admitted, now)

    def lose_nodes(self, now: float, *, reclaimed: bool) -> None:
        """Stops it, or delays its start. It keeps its quota. What it did since its last checkpoint is lost."""
        before = self.kept
        self.reclaims += reclaimed
        self.expiries += not reclaimed
        self.lost_with_nodes += self._stop(now)
        self.fruitless = 0 if self.kept > before else self.fruitless + 1

    def give_up(self, now: float) -> None:
        """Takes its quota for good."""
        close(self.admitted, now)
        self.failed = True

    def _stop(self, now: float) -> float:
        """Ends the current span, if it works. Returns the seconds of work that are lost."""
        if not self.runs:
            return 0.0
        reached = self.kept + now - self.spans[-1][0]
        self.kept = self.saved(self.kept, reached)
        close(self.spans, now)
        return reached - self.kept

    def saved(self, kept: float, reached: float) -> float:
        """Seconds of work that its newest checkpoint has: of those that it reached, or those that it kept before."""
        every = self.row.checkpoint
        return max(kept, reached // every * every) if every else 0.0


def is_open(spans: Sequence[Span]) -> bool:
    """Whether the last span has no end."""
    return bool(spans) and spans[-1][1] is None


def close(spans: list[Span], now: float) -> None:
    """Ends the last span, if it has no end."""
    if is_open(spans):
        spans[-1] = (spans[-1][0], now)


def total(spans: Sequence[Span]) -> float:
    """The seconds of all spans that have ended."""
    return sum(end - start for start, end in spans if end is not None)


def closed(spans: Sequence[Span], end: float) -> list[tuple[float, float]]:
    """Returns the spans until the end of the day, at which an open one ends."""
    return [(start, min(end, end if stop is None else stop)) for start, stop in spans if start < end]


def add_means(bins: list[float], spans: Sequence[tuple[float, float]], length: float, amount: float) -> None:
    """Adds an amount over spans of time to the means of bins of a length in seconds."""
    for start, stop in spans:
        for number in range(int(start // length), min(len(bins), math.ceil(stop / length))):
            within = min(stop, (number + 1) * length) - max(start, number * length)
            bins[number] += within / length * amount
