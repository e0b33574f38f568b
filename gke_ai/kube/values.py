"""Access to nested properties of resources, parts of which may be secret or not known yet.

A value that is known only after an `up` is `UNKNOWN`. A value that Pulumi keeps secret is `SECRET`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from fractions import Fraction
from typing import Any

from gke_ai.catalog.quantities import parse_quantity


class Hidden(Enum):
    """A value that is not visible."""

    UNKNOWN = "known after an up"
    SECRET = "secret"

    def __str__(self) -> str:
        return f"({self.value})"


UNKNOWN, SECRET = Hidden.UNKNOWN, Hidden.SECRET


def value(data: object, *path: str) -> Any:
    """Returns the value at a path, None if there is none, or the `Hidden` that covers it."""
    for key in path:
        if isinstance(data, Hidden):
            return data
        data = data.get(key) if isinstance(data, Mapping) else None
    return data


def mapping(data: object, *path: str) -> Mapping[str, Any]:
    """Returns the mapping at a path; an empty one if there is no visible mapping."""
    nested = value(data, *path)
    return nested if isinstance(nested, Mapping) else {}


def list_at(data: object, *path: str) -> list[Any]:
    """Returns the list at a path; an empty one if there is no visible list."""
    nested = value(data, *path)
    return nested if isinstance(nested, list) else []


def items(data: object, *path: str) -> list[Mapping[str, Any]]:
    """Returns the visible mappings in the list at a path."""
    return [item for item in list_at(data, *path) if isinstance(item, Mapping)]


def is_unset(data: object) -> bool:
    """Whether a value is missing or empty. A hidden value is set."""
    return data is None or data == "" or data == [] or data == {}


def quantity(data: object) -> Fraction | None:
    """Parses a Kubernetes quantity, which the engine may send as a float. None if it is missing, hidden or invalid."""
    try:
        return None if data is None else parse_quantity(str(number(data) if isinstance(data, float) else data))
    except ValueError:
        return None


def number(data: object) -> int | None:
    """Returns a whole number, which the engine sends as a float; None for anything else."""
    return int(data) if isinstance(data, int | float) and not isinstance(data, bool) else None


def texts(data: object, at: str = "") -> Iterator[tuple[str, str]]:
    """Yields every visible text in nested data, with its path."""
    if isinstance(data, str):
        yield at, data
    elif isinstance(data, Mapping):
        for key, inner in data.items():
            yield from texts(inner, f"{at}.{key}" if at else str(key))
    elif isinstance(data, list):
        for index, inner in enumerate(data):
            yield from texts(inner, f"{at}[{index}]")
