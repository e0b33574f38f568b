"""Compares a forecast with what happened: fates of workloads, and nodes. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from gke_ai.forecast.compare.comparison import Fact, facts
from gke_ai.forecast.result.forecast import Forecast
from tests.support.rehearsal.fates import Fate
from tests.support.rehearsal.outcomes import differences as compare
from tests.support.rehearsal.outcomes import pool_facts
from tests.support.rehearsal.seeds import SeededCase


@dataclass(frozen=True)
class Outcome:
    """What happened to a scenario in one cluster: before the change, after it, and as a forecast says it."""

    before: Counter[Fate]
    fates: Counter[Fate]
    forecast: Forecast


@dataclass(frozen=True)
class Verdict:
    """A forecast beside what happened.

    `chance`: two copies of the same snapshot differ too. `recreated`: all workloads and the nodes of each pool agree in
    the end, but in one of them an idle node was deleted and created again. The emulator deletes nodes after 15 seconds
    without pods, Google Cloud after 10 minutes.
    """

    case: SeededCase
    kind: Literal["agrees", "recreated", "chance", "differs"]
    differences: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = "".join(f"\n    {line}" for line in self.differences)
        return f"seed {self.case.seed} {self.kind} ({self.case.text}){lines}"


def differences(forecast: Outcome, happened: Outcome) -> Iterator[str]:
    """What differs between a forecast and what happened: fates of workloads, and nodes. Each difference in words."""
    for label, fates in (("forecast", forecast.fates - happened.fates), ("happened", happened.fates - forecast.fates)):
        yield from (f"only {label}: {fate_text(fate)} × {count}" for fate, count in sorted(fates.items(), key=str))
    for line in compare(forecast.forecast, happened.forecast):
        texts = (", ".join(side) or "nothing" for side in (line.forecast, line.happened))
        yield "{}: forecast: {}; happened: {}".format(line.name, *texts)


def in_the_end(forecast: Forecast) -> tuple[Counter[Fact], Counter[tuple[str, str, str]]]:
    """What happens to workloads, and by how many nodes each pool grows or shrinks in the end."""
    changes = {fact[:3]: fact.came - fact.went for fact in pool_facts(forecast)}
    return facts(forecast), Counter({pool: change for pool, change in changes.items() if change})


def fate_text(fate: Fate) -> str:
    by = f" by {fate.preemptor}" if fate.preemptor else ""
    return f"{fate.workload} {fate.outcome}{by}{f' in {fate.flavor}' if fate.flavor else ''}"


def judge(case: SeededCase, happened: Outcome, forecast: Outcome, again: Outcome | None) -> Verdict:
    """Compare a forecast, and if there is one a second forecast from the same snapshot, with what happened."""
    if not (found := tuple(differences(forecast, happened))):
        return Verdict(case, "agrees")
    if forecast.fates == happened.fates and in_the_end(forecast.forecast) == in_the_end(happened.forecast):
        return Verdict(case, "recreated", found)
    by_chance = again is not None and any(differences(forecast, again))
    return Verdict(case, "chance" if by_chance else "differs", found)


def report(verdicts: Sequence[Verdict]) -> str:
    """The share of forecasts that agree, and every other one with its differences."""
    counts = Counter(verdict.kind for verdict in verdicts)
    head = (
        f"{counts['agrees']} of {len(verdicts)} forecasts agree with what happened, {counts['recreated']} agree except "
        f"for an idle node that was created again, {counts['chance']} were left to chance by Kueue, "
        f"{counts['differs']} differ."
    )
    return "\n".join([head, *(str(verdict) for verdict in verdicts if verdict.kind != "agrees")])
