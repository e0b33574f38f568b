"""Compares a forecast with what happened: fates of workloads, and nodes. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from forecast.comparison import differences as compare
from forecast.model import Forecast
from tests.rehearsal.fates import Fate
from tests.rehearsal.seeds import SeededCase


@dataclass(frozen=True)
class Outcome:
    """What happened to a world in one cluster: before the change, after it, and as a forecast says it."""

    before: Counter[Fate]
    fates: Counter[Fate]
    forecast: Forecast


@dataclass(frozen=True)
class Verdict:
    """A forecast beside what happened. `chance`: two forks of the same snapshot differ too."""

    case: SeededCase
    kind: Literal["agrees", "chance", "differs"]
    differences: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = "".join(f"\n    {line}" for line in self.differences)
        return f"seed {self.case.seed} {self.kind} ({self.case.text}){lines}"


def differences(forecast: Outcome, happened: Outcome) -> Iterator[str]:
    """What differs between a forecast and what happened: fates of workloads, and nodes. Each difference in words."""
    for label, facts in (
        ("forecast", forecast.fates - happened.fates),
        ("happened", happened.fates - forecast.fates),
    ):
        yield from (f"only {label}: {fate_text(fate)} × {count}" for fate, count in sorted(facts.items(), key=str))
    for line in compare(forecast.forecast, happened.forecast):
        texts = (", ".join(side) or "nothing" for side in (line.forecast, line.happened))
        yield "{}: forecast: {}; happened: {}".format(line.name, *texts)


def fate_text(fate: Fate) -> str:
    """A fate in words."""
    by = f" by {fate.preemptor}" if fate.preemptor else ""
    return f"{fate.workload} {fate.outcome}{by}{f' in {fate.flavor}' if fate.flavor else ''}"


def judge(case: SeededCase, happened: Outcome, forecast: Outcome, again: Outcome | None) -> Verdict:
    """Compare a forecast, and if there is one a second forecast from the same snapshot, with what happened."""
    if not (found := tuple(differences(forecast, happened))):
        return Verdict(case, "agrees")
    by_chance = again is not None and any(differences(forecast, again))
    return Verdict(case, "chance" if by_chance else "differs", found)


def report(verdicts: Sequence[Verdict]) -> str:
    """The share of forecasts that agree, and every other one with its differences."""
    counts = Counter(verdict.kind for verdict in verdicts)
    head = (
        f"{counts['agrees']} of {len(verdicts)} forecasts agree with what happened, {counts['chance']} were left to "
        f"chance by Kueue, {counts['differs']} differ."
    )
    return "\n".join([head, *(str(verdict) for verdict in verdicts if verdict.kind != "agrees")])
