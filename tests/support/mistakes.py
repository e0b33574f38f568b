"""Configurations, good and refused: tests/data/refused/SUBJECT.yaml has good ones, and changes to them.

`good` are whole configurations, or changes to another one (`from`). `mistakes` are changes, each with the one problem
that must follow, `together` are several with all problems that must follow, and `allowed` are changes after which
nothing is wrong. `token: false` means that no token is given.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache, partial
from typing import Any, NamedTuple

import yaml

from gke_ai.settings import BadConfiguration, Problem, load
from tests.support.repository import ROOT

PROJECT = "my-project"
# Shaped like a token, so that a test can look for it; put together so that it looks like one nowhere else.
TOKEN = "hf_" + "NotARealTokenButShapedLikeOne"
FOLDER = ROOT / "tests" / "data" / "refused"
Configuration = dict[str, Any]
Change = Callable[[Configuration], None]


@cache
def subject_of(name: str) -> dict[str, Any]:
    """The file of a subject, in which `$TOKEN` stands for the token."""
    rows: dict[str, Any] = yaml.load(
        (FOLDER / f"{name}.yaml").read_text().replace("$TOKEN", TOKEN), Loader=yaml.CSafeLoader
    )
    return rows


def base(subject: str, name: str = "good") -> Configuration:
    """A copy of a good configuration of a subject, or else of `configuration`. `OTHER.NAME` is of another subject."""
    other, _, name = name.rpartition(".")
    good = subject_of(other or subject).get("good", {})
    if name not in good:
        return base("configuration", name)
    values: Configuration = deepcopy(good[name])
    if "from" not in values:
        return values
    original = base(other or subject, values["from"])
    changed_by(values)(original)
    return original


good = partial(base, "configuration")


def problems_of(values: Configuration, project: str = PROJECT, token_given: bool = True) -> list[Problem]:
    try:
        load(values, project, token_given)
    except BadConfiguration as error:
        return error.problems
    return []


def put(path: str, value: Any) -> Change:
    """A change that sets `a.0.b` to a value; a last step of `+` appends."""

    def change(values: Configuration) -> None:
        *way, last = path.split(".")
        at: Any = values
        for step in way:
            at = at[int(step)] if step.isdigit() else at.setdefault(step, {})
        if last == "+":
            at.append(deepcopy(value))
        else:
            at[int(last) if last.isdigit() else last] = deepcopy(value)

    return change


def drop(path: str) -> Change:
    def change(values: Configuration) -> None:
        *way, last = path.split(".")
        at: Any = values
        for step in way:
            at = at[int(step)] if step.isdigit() else at[step]
        del at[int(last) if last.isdigit() else last]

    return change


def changed_by(row: dict[str, Any]) -> Change:
    """The change of a row: what it drops, then what it puts."""

    def apply(values: Configuration) -> None:
        for path in row.get("drop", ()):
            drop(path)(values)
        for path, value in row.get("put", {}).items():
            put(path, value)(values)

    return apply


class Mistake(NamedTuple):
    """A change to a good configuration, and the one problem that must follow.

    Attributes:
        id: What is wrong, in words.
        values: The good configuration with the mistake in it.
        path: Path of the problem.
        cause: A part of its cause.
        remedy: A part of its remedy.
        rule: The rule that finds it: its module and name. Empty: it cannot be parsed or resolved.
    """

    id: str
    values: Configuration
    path: str
    cause: str
    remedy: str
    rule: str = ""


def changed(subject: str, row: dict[str, Any]) -> Configuration:
    values = base(subject, row.get("base", "good"))
    changed_by(row)(values)
    return values


def of_subject(subject: str) -> list[Mistake]:
    return [
        Mistake(row["id"], changed(subject, row), row["path"], row["cause"], row["remedy"], row.get("rule", ""))
        for row in subject_of(subject)["mistakes"]
    ]


on_autopilot = partial(base, "configuration", "on_autopilot")
SECOND_POOL = {"name": "l4-big", "machineType": "g2-standard-48", "nodesPerZone": 1}
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def one_server(**server: Any) -> Configuration:
    """An Autopilot cluster with one server, of TGI unless stated."""
    return {"cluster": {"mode": "existing"}, "serving": [{"name": "s", "engine": "tgi", "model": LLAMA, **server}]}


def vllm(**server: Any) -> Configuration:
    return one_server(**{"engine": "vllm", **server})


described = partial(base, "model_memory", "described")
SHAPE: dict[str, int] = described()["serving"][0]["modelShape"]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yields the path of every value of a document, without its root."""
    if path:
        yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, part in parts:
        yield from places(part, (*path, step))
