"""The cases of worked_cases.yaml: scenarios, changes, and their outcomes worked out by hand."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.support.rehearsal.fates import Fate
from tests.support.rehearsal.scenario import Change, Run, Scenario

FILE = Path(__file__).with_suffix(".yaml")
Object = Mapping[str, Any]


@dataclass(frozen=True)
class Case(Change):
    """A change with its outcome.

    Attributes:
        name: The outcome in words.
        source: The part of Kueue's documentation that decides.
        reasoning: Why the outcome follows from it.
        before: The fates of the workloads that run and wait before the change.
        expected: The fates of all workloads after the change.
    """

    name: str
    source: str
    reasoning: str
    before: Counter[Fate]
    expected: Counter[Fate]


@cache
def cases() -> tuple[Case, ...]:
    content = yaml.safe_load(FILE.read_text())
    return tuple(_case(content, number, entry) for number, entry in enumerate(content["cases"], 1))


def _case(content: Object, number: int, entry: Object) -> Case:
    namespace, change = f"case-{number}", entry["change"]
    runs = tuple(Run(**run) for run in entry["submitted"])
    queues = {"flavors": content["flavors"], "priorityClasses": content["priorityClasses"]}
    scenario = Scenario({**queues, "clusterQueues": entry["queues"]}, runs, entry.get("stopped", {}))
    changes = {key: change[key] for key in ("priorityClasses",) if key in change}
    changes |= {"clusterQueues": change["queues"]} if "queues" in change else {}
    more = (Run(**run) for run in change.get("submitted", ()))
    changed = replace(scenario, queues={**scenario.queues, **changes}, runs=(*runs, *more))
    source = content["documentation"] + entry["source"]
    before = Counter(_fates(entry["before"], namespace, changes_nothing=True))
    expected = Counter(_fates(entry["expected"], namespace))
    return Case(namespace, scenario, changed, entry["name"], source, entry["reasoning"], before, expected)


def _fates(fates: Object, namespace: str, changes_nothing: bool = False) -> Iterator[Fate]:
    """The fates of a case's workloads. A workload that runs before a change has started since it was submitted."""

    def place(name: str) -> str:
        return f"{namespace}/{name}"

    for name, preemptor in fates.get("evicted", {}).items():
        yield Fate(place(name), "evicted", place(preemptor))
    for outcome in ("starts", "runs"):
        for name, flavors in fates.get(outcome, {}).items():
            for flavor in [flavors] if isinstance(flavors, str) else flavors:
                yield Fate(place(name), "starts" if changes_nothing else outcome, flavor=f"{namespace}-{flavor}")
    for name in fates.get("waits", ()):
        yield Fate(place(name), "waits")
