"""The times of a run with and without quota. Pure."""

from __future__ import annotations

from itertools import pairwise

from gke_ai.forecast.simulate.run import Run

Times = tuple[float, float]


def held(run: Run, end: float) -> list[Times]:
    """Returns the times with quota, until the end of the day at most."""
    return [(start, end if stop is None else stop) for start, stop in run.admitted]


def waits(run: Run, end: float) -> list[Times]:
    """Returns the times without quota from the submission on, until the run's end or that of the day."""
    later = [] if run.ended or run.failed else [(max(end, run.row.time), 0.0)]
    gaps = ((before[1], after[0]) for before, after in pairwise([(0.0, run.row.time), *held(run, end), *later]))
    return [(start, stop) for start, stop in gaps if stop > start]


def ended_at(run: Run) -> float | None:
    """Returns when a run had done all its work, or None."""
    return run.spans[-1][1] if run.ended else None


def evicted_at(run: Run) -> list[float]:
    """Returns when Kueue evicted a run."""
    stops = [stop for _, stop in run.admitted if stop is not None]
    return stops[:-1] if run.ended or run.failed else stops
