"""What the provider plans for new inputs, property by property, and what it keeps of the old ones.

A property that is stated is compared with what the cloud has. One that is no longer stated goes back to its default,
unless it is computed: then the provider keeps the cloud's value and plans nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from emulator.gcp_plugin.schema import Schema, join

Kind = Literal["ADD", "DELETE", "UPDATE"]
Values = dict[str, Any]


@dataclass(frozen=True)
class Change:
    """One property that differs; `path` is as the engine writes it, `nodeConfig.guestAccelerators[0].count`."""

    path: str
    kind: Kind
    replaces: bool


def changes(schema: Schema, old: Values, new: Values, cloud: Values) -> list[Change]:
    """The differences of two sets of inputs; `cloud` has what the resource is, which inputs need not state."""
    return list(_of_block(schema, old, new, cloud, ""))


def _of_block(schema: Schema, old: Values, new: Values, cloud: Values, path: str) -> Iterator[Change]:
    for name in sorted({*old, *new}):
        if not name.startswith("__"):
            yield from _of_property(schema, old.get(name), new.get(name), cloud.get(name), join(path, name))


def _of_property(schema: Schema, old: Any, new: Any, cloud: Any, path: str) -> Iterator[Change]:
    known = schema.at(path)
    # The provider can't tell an empty list of blocks from none.
    old, new = (None if known.block and value == [] else value for value in (old, new))
    if new is None:
        if old is not None and not known.computed and old != known.default:
            yield Change(path, "DELETE", schema.replaces(path, old))
        return
    if old is not None:
        yield from _of_value(schema, old, new, cloud, path, "UPDATE")
        return
    there = known.default if cloud is None else cloud
    if there is None:
        if new != {} or known.block:
            yield Change(path, "ADD", schema.replaces(path, new))
    elif known.block and isinstance(new, dict):
        yield from _of_block(schema, {}, new, there, path)
    else:
        yield from _of_value(schema, there, new, there, path, "ADD")


def _of_value(schema: Schema, old: Any, new: Any, cloud: Any, path: str, kind: Kind) -> Iterator[Change]:
    """Two values that are both there: the earlier inputs', or the cloud's."""
    if isinstance(old, dict) and isinstance(new, dict):
        yield from _of_block(schema, old, new, cloud if isinstance(cloud, dict) else {}, path)
    elif isinstance(old, list) and isinstance(new, list):
        further = cloud if isinstance(cloud, list) else []
        for index in range(max(len(old), len(new))):
            place = f"{path}[{index}]"
            one, other, there = (values[index] if index < len(values) else None for values in (old, new, further))
            if one is None or other is None:
                yield Change(place, "ADD" if one is None else "DELETE", schema.replaces(place, other or one))
            else:
                yield from _of_value(schema, one, other, there, place, kind)
    elif old != new:
        yield Change(path, kind, schema.replaces(path, new))


def kept(schema: Schema, old: Values, new: Values, path: str = "") -> Values:
    """The new inputs, with what the cloud keeps of the old ones."""
    result = dict(new)
    for name, value in old.items():
        place, stated = join(path, name), new.get(name)
        known = schema.at(place)
        if stated is None or (known.block and stated == []):
            if known.computed:
                result[name] = value
        elif known.block:
            result[name] = _kept_within(schema, value, stated, place)
    return result


def _kept_within(schema: Schema, old: Any, new: Any, path: str) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        return kept(schema, old, new, path)
    if isinstance(old, list) and isinstance(new, list):
        return [_kept_within(schema, *pair, path) for pair in zip(old, new)] + new[len(old) :]  # noqa: B905
    return new


def stated(schema: Schema, inputs: Values, found: Values, path: str = "") -> Values:
    """Of what a refresh found, what belongs to the inputs: all but what the cloud has kept or decided."""
    result = {}
    for name, value in found.items():
        place, before = join(path, name), inputs.get(name)
        known = schema.at(place)
        if before is None and known.computed:
            continue
        if known.block and isinstance(before, dict) and isinstance(value, dict):
            result[name] = stated(schema, before, value, place)
        else:
            result[name] = value
    return result
