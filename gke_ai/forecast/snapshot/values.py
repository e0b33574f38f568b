"""Checks the values of a snapshot, which may be a stranger's, by the forms of fields.yaml.

Names and uids become names of objects and folders, controllers create as many pods as counts say, and a controller that
can't decode one object of a kind reads none of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from functools import cache
from typing import Any

from gke_ai.forecast.snapshot.fields import ABSENT, REQUIRED, field_of, table
from gke_ai.kube.values import items, quantity

MAX_PODS: int = table()["forms"]["count"]["most"]
SHOWN = 200  # characters of a stranger's text in a message
TIME = re.compile(table()["forms"]["time"]["pattern"])
# https://github.com/kubernetes/api/blob/v0.36.1/resource/v1/types.go has the limits of these lists.
_LONGEST_LISTS = {
    "devices": 128,
    "requests": 32,
    "firstAvailable": 8,
    "results": 32,
    "selectors": 32,
    "reservedFor": 256,
}


@dataclass(frozen=True)
class Form:
    """What a listed field may hold: fields.yaml describes it."""

    title: str
    type: str = ""
    pattern: str = ""
    longest: int = 4096
    least: int | None = None
    most: int = 0

    def allows(self, value: object) -> bool:
        """Whether a field may hold a value. A time exists, and stays one when the snapshot moves."""
        if isinstance(value, bool):
            return self.type == "boolean"
        if isinstance(value, str) and self.type != "quantity":
            matches = self.pattern and len(value) <= self.longest and re.fullmatch(self.pattern, value)
            return bool(matches) and (TIME.fullmatch(value) is None or is_valid_time(value))
        # The API keeps a whole number in a field of Kueue as it is.
        number: object = quantity(value) if self.type == "quantity" and not isinstance(value, float) else value
        if self.least is None or not isinstance(number, int | Fraction | float):
            return False
        return self.least <= number <= self.most and (self.type == "number" or not isinstance(number, float))


@cache
def form_of(name: str) -> Form:
    """Returns a form by its name; A|B is one of these words."""
    if "|" not in name:
        return Form(**table()["forms"][name])
    return Form(f"one of {name.replace('|', ', ')}", pattern=name.replace(".", r"\."))


def is_valid_time(value: str | datetime) -> bool:
    """Whether a time exists, and every age of a snapshot stays a time when it moves."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        return False
    return 2000 <= moment.year <= 2100


def invalid_values(
    value: Any, listed: Any, path: str, selected: frozenset[str] = frozenset(), field: str = ""
) -> Iterator[tuple[str, str]]:
    """Yields the path of each value that no cluster has, and what is wrong with it.

    Args:
        value: A part of an object.
        listed: Its part of fields.yaml.
        path: Path of the part in the snapshot.
        selected: Keys of labels that are listed besides.
        field: Name of the part.
    """
    if isinstance(listed, str):
        if not form_of(listed).allows(value):
            yield path, f"is not {form_of(listed).title}"
    elif isinstance(listed, Mapping) and isinstance(value, Mapping):
        yield from ((f"{path}.{key}", "is missing") for key in listed.get(REQUIRED, ()) if key not in value)
        for key, part in value.items():
            below = field_of(listed, key, selected)
            if below is ABSENT:
                yield f"{path}.{key}", "is a field that a snapshot never contains"
            elif key not in listed and not form_of("key").allows(key):
                yield f"{path}.{key}", f"is not {form_of('key').title}"
            else:
                yield from invalid_values(part, below, f"{path}.{key}", selected, key)
    elif isinstance(listed, list) and isinstance(value, list):
        if len(value) > (longest := _LONGEST_LISTS.get(field, len(value))):
            yield path, f"is not a list of at most {longest} items"
        for number, part in enumerate(value):
            below = "|".join(listed) if len(listed) > 1 else listed[0]
            yield from invalid_values(part, below, f"{path}[{number}]", selected)
    else:
        yield path, f"is not {'an object' if isinstance(listed, Mapping) else 'a list'}"


def dangling(workload: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """Yields the pod sets that a Workload has quota for, if they are others than its own.

    Kueue finds one for the other by its place: getPodSetsInfoFromStatus,
    https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobframework/reconciler.go. Other references
    may lead nowhere in a cluster too, such as that of a local queue to a deleted cluster queue.
    """
    assigned = [assignment["name"] for assignment in items(workload, "status", "admission", "podSetAssignments")]
    pod_sets = [pod_set["name"] for pod_set in items(workload, "spec", "podSets")] if assigned else []
    if assigned != pod_sets:
        yield f"{path}.status.admission.podSetAssignments", f"are not those of its pod sets, {', '.join(pod_sets)}"
