"""Mistakes in configurations: changes to a good one, and the one problem that must follow. Most are rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

import yaml

from gke_ai.settings import BadConfiguration, Problem, load
from tests.repository import ROOT

PROJECT = "my-project"
# Shaped like a token, so that a test can look for it; put together so that it looks like one nowhere else.
TOKEN = "hf_" + "NotARealTokenButShapedLikeOne"
FOLDER = ROOT / "tests" / "refused"

Configuration = dict[str, Any]


def good() -> Configuration:
    """A small stack in which every section is used and nothing is wrong."""
    return {
        "cluster": {"name": "llm-cluster", "mode": "standard", "location": "us-central1"},
        "buckets": [{"name": "models-{project}", "grants": [{"namespace": "llm"}]}],
        "gpuPools": [{"name": "l4", "machineType": "g2-standard-24", "zones": ["us-central1-a"], "nodesPerZone": 3}],
        "queues": {
            "flavors": [{"name": "l4", "pools": ["l4"]}],
            "clusterQueues": [{"name": "gpus", "flavors": [{"flavor": "l4", "quota": "derive"}]}],
            "localQueues": [{"name": "lq", "namespace": "llm", "clusterQueue": "gpus"}],
            "priorityClasses": [{"name": "low", "value": 10}, {"name": "high", "value": 20}],
        },
        "serving": [
            {
                "name": "gemma",
                "model": "google/gemma-2-9b-it",
                "queue": "lq",
                "priorityClass": "high",
                "pool": "l4",
                "gpus": 2,
                "resources": {"cpu": 4, "memory": "30Gi", "ephemeralStorage": "30Gi"},
            }
        ],
        "training": [
            {
                "name": "finetune",
                "queue": "lq",
                "priorityClass": "low",
                "pool": "l4",
                "volume": {"bucket": "models-{project}"},
            }
        ],
    }


def problems_of(values: Configuration, project: str = PROJECT, token_given: bool = True) -> list[Problem]:
    """The problems of a configuration."""
    try:
        load(values, project, token_given)
    except BadConfiguration as error:
        return error.problems
    return []


def put(path: str, value: Any) -> Callable[[Configuration], None]:
    """A change that sets `a.0.b` to a value; a last step of `+` appends."""

    def change(values: Configuration) -> None:
        *way, last = path.split(".")
        at: Any = values
        for step in way:
            at = at[int(step)] if step.isdigit() else at.setdefault(step, {})
        if last == "+":
            at.append(value)
        else:
            at[int(last) if last.isdigit() else last] = value

    return change


def drop(path: str) -> Callable[[Configuration], None]:
    """A change that removes `a.0.b`."""

    def change(values: Configuration) -> None:
        *way, last = path.split(".")
        at: Any = values
        for step in way:
            at = at[int(step)] if step.isdigit() else at[step]
        del at[last]

    return change


def both(*changes: Callable[[Configuration], None]) -> Callable[[Configuration], None]:
    """Several changes, one after the other."""

    def apply(values: Configuration) -> None:
        for change in changes:
            change(values)

    return apply


class Mistake(NamedTuple):
    """A change to a good configuration, and the one problem that must follow.

    Attributes:
        id: What is wrong, in words.
        change: The change.
        path: Path of the problem.
        cause: A part of its cause.
        remedy: A part of its remedy.
        base: The good configuration.
        rule: The rule that finds it: its module and name. Empty: it cannot be parsed or resolved.
    """

    id: str
    change: Callable[[Configuration], None]
    path: str
    cause: str
    remedy: str
    base: Callable[[], Configuration] = good
    rule: str = ""

    def values(self) -> Configuration:
        """The good configuration with the mistake in it."""
        values = self.base()
        self.change(values)
        return values


def is_reported_alone(mistake: Mistake, values: Configuration) -> None:
    """Asserts that the mistake is the only problem, and has its path, cause and remedy."""
    mistake.change(values)
    problems = problems_of(values)
    assert [problem.path for problem in problems] == [mistake.path], "\n".join(map(str, problems))
    # Cells of a table are padded.
    assert mistake.cause in " ".join(f"{problems[0].cause} {problems[0].table}".split())
    assert mistake.remedy in problems[0].remedy


def of_subject(subject: str) -> list[Mistake]:
    """The mistakes of a subject: rows of tests/refused/SUBJECT.yaml, and those of tests/test_bad_SUBJECT.py.

    Its good configurations are functions there. What it computes, or that looks like a token, is in Python.
    """
    module = import_module(f"tests.test_bad_{subject}")
    rows = yaml.safe_load((FOLDER / f"{subject}.yaml").read_text())
    return [*_rows(module, rows), *getattr(module, "MISTAKES", [])]


def _rows(module: ModuleType, rows: list[dict[str, Any]]) -> Iterator[Mistake]:
    for row in rows:
        drops = [drop(path) for path in row.get("drop", ())]
        puts = [put(path, value) for path, value in row.get("put", {}).items()]
        base = getattr(module, row.get("base", "good"))
        yield Mistake(
            row["id"], both(*drops, *puts), row["path"], row["cause"], row["remedy"], base, row.get("rule", "")
        )
