"""What changed between two sets of inputs, property by property, and whether the provider can change it in place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["ADD", "DELETE", "UPDATE"]


@dataclass(frozen=True)
class Change:
    """One property that differs; `path` is as the engine writes it, `nodeConfig.guestAccelerators[0].count`."""

    path: str
    kind: Kind
    replaces: bool


def changes(old: dict[str, Any], new: dict[str, Any], replacing: Sequence[str]) -> list[Change]:
    """The differences of two inputs.

    `replacing` names the properties that can't be changed in place, without list indices: `name` is that property as a
    whole (for a block: its appearance and disappearance), `nodeConfig.metadata.*` it and everything below it.
    """
    return [Change(path, kind, _replaces(path, replacing)) for path, kind in _differences(old, new, "")]


def _differences(old: Any, new: Any, path: str) -> Iterator[tuple[str, Kind]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted({*old, *new}):
            if not name.startswith("__"):
                yield from _differences(old.get(name), new.get(name), _join(path, name))
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            one, other = (values[index] if index < len(values) else None for values in (old, new))
            yield from _differences(one, other, f"{path}[{index}]")
    elif old is None and new is not None:
        yield path, "ADD"
    elif old is not None and new is None:
        yield path, "DELETE"
    elif old != new:
        yield path, "UPDATE"


def _join(path: str, name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_$][\w$]*", name):
        return f'{path}["{name}"]'
    return f"{path}.{name}" if path else name


def _replaces(path: str, replacing: Sequence[str]) -> bool:
    plain = re.sub(r"\[\d+\]", "", path)
    for pattern in replacing:
        whole = pattern.removesuffix(".*")
        if plain == whole or (whole != pattern and re.match(re.escape(whole) + r"[.\[]", plain)):
            return True
    return False
