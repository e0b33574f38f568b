"""Whether a difference exceeds the spread of the seeds, by Student's t interval of paired differences. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

# Student's t for 1 to 19 degrees of freedom, both sides of 95 %:
# https://www.itl.nist.gov/div898/handbook/eda/section3/eda3672.htm
STUDENT_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093),
)
MAX_SEEDS = len(STUDENT_T) + 1
# Values of a result are rounded to thousandths.
EQUAL = 5e-4


@dataclass(frozen=True)
class Difference:
    """The mean of paired differences, and half of its 95 % interval. None if one pair or none exists."""

    mean: float
    half: float | None

    @property
    def is_zero(self) -> bool:
        """Whether nothing differs on average."""
        return abs(self.mean) < EQUAL

    @property
    def exceeds(self) -> bool | None:
        """Whether the interval excludes 0. One pair can't show it, so it is None then."""
        return None if self.half is None else abs(self.mean) > max(self.half, EQUAL)


def paired(before: Sequence[float | None], after: Sequence[float | None]) -> list[tuple[float, float]]:
    """Returns the two values of each seed that has both."""
    return [(a, b) for a, b in zip(before, after, strict=True) if a is not None and b is not None]


def difference(before: Sequence[float | None], after: Sequence[float | None]) -> Difference | None:
    """Returns how much `after` is larger, paired by seed. None if no seed has both values."""
    differences = [b - a for a, b in paired(before, after)]
    if not differences:
        return None
    mean, count = statistics.fmean(differences), len(differences)
    if count == 1:
        return Difference(mean, None)
    return Difference(mean, STUDENT_T[count - 2] * statistics.stdev(differences) / math.sqrt(count))


def mean(values: Sequence[float | None]) -> float | None:
    """Returns the mean of the values that exist, or None."""
    present = [value for value in values if value is not None]
    return statistics.fmean(present) if present else None
