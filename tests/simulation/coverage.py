"""How many starts lie within the intervals that are forecast for them, in days that change their kind."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from forecast.admission import Run
from forecast.start import CASE_DRAWS, HIGH, LOW, Case, calibrated, draws, is_case, past_case, quantile
from tests.simulation.days import DAY, MADE_FROM, QUEUES, Days, Kind, decided


@dataclass(frozen=True)
class Coverage:
    """Forecasts of a kind of day: those of runs that had to wait, how many held, and the width of the intervals.

    Attributes:
        title: The kind of day.
        at_once: Runs that were said to start at once, and how many of them did.
        waited: Other runs.
        below: Of them, those that started before their interval.
        above: Those that started after it.
        widths: Widths of the intervals, in seconds.
    """

    title: str
    at_once: tuple[int, int]
    waited: int
    below: int
    above: int
    widths: tuple[float, ...]

    @property
    def share(self) -> float:
        """Share of the runs that had to wait within their intervals."""
        return 1 - (self.below + self.above) / self.waited

    def __str__(self) -> str:
        said, right = self.at_once
        return (
            f"{self.title}: {self.share:.0%} of {self.waited} held ({self.below} before, {self.above} after), "
            f"median width {median(self.widths) / 60:.0f} min; {right} of {said} started at once as forecast"
        )

    @classmethod
    def of(cls, parts: Sequence[Coverage]) -> Coverage:
        """Adds up kinds of days."""
        said, right = (sum(part.at_once[index] for part in parts) for index in (0, 1))
        widths = tuple(width for part in parts for width in part.widths)
        waited, below, above = (sum(getattr(part, name) for part in parts) for name in ("waited", "below", "above"))
        return cls("all", (said, right), waited, below, above, widths)


def coverage(kind: Kind, seeds: Iterable[int], every: int, cases: int) -> Coverage:
    """Forecasts a run of `every` of a day of this kind, after a day of another kind, with a past run of `cases`."""
    return Coverage.of([of_days(str(kind), decided(seed, [MADE_FROM, kind]), seed, every, cases) for seed in seeds])


def of_days(title: str, days: Days, seed: int, every: int, of_past: int) -> Coverage:
    """Forecasts a run of `every` of the second of two days, with a past run of `of_past`."""
    first = days.first
    runs = [run for run in first if run.created >= DAY][::every]
    # Past runs are forecast once, from what the last snapshot shows of them.
    records = [record for record in days.snapshot(3 * DAY) if is_case(record, 2 * DAY)]
    past = (past_case(QUEUES, days.snapshot(3 * DAY), record, random.Random(seed)) for record in records[::of_past])
    cases = [case for case in past if case]
    said = right = waited = below = above = 0
    widths = []
    for run in runs:
        waits = [
            future.wait for future in draws(QUEUES, days.snapshot(run.created), run, random.Random(seed), CASE_DRAWS)
        ]
        wait = first[run] - run.created
        if waits[-1] == 0:
            said, right = said + 1, right + (wait == 0)
            continue
        low, high = calibrated(Case(run.created, quantile(waits, LOW), quantile(waits, HIGH)), known(cases, run))
        waited, below, above = waited + 1, below + (wait < low), above + (wait > high)
        widths.append(high - low)
    return Coverage(title, (said, right), waited, below, above, tuple(widths))


def known(cases: Iterable[Case], run: Run) -> list[Case]:
    """The past runs that have started when a run is submitted, the newest first."""
    return sorted((case for case in cases if case.created + case.waited <= run.created), key=lambda case: -case.created)
