"""The changes that the provider plans for new inputs, and the old values that it keeps.

A property with a value is compared with the cloud's value. A property that was removed returns to its default, unless
it is computed: then the provider keeps the cloud's value and plans no change.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from emulator.google.schema import Schema, join

Kind = Literal["ADD", "DELETE", "UPDATE"]
Values = dict[str, Any]


@dataclass(frozen=True)
class Change:
    """A changed property.

    `path` has the engine's form, `nodeConfig.guestAccelerators[0].count`.
    """

    path: str
    kind: Kind
    replaces: bool


def changes(schema: Schema, old: Values, new: Values, cloud: Values) -> list[Change]:
    """Compares two sets of inputs.

    `cloud` has the resource's current values, which the inputs may omit.
    """
    return list(_of_block(schema, old, new, cloud, ""))


def _of_block(schema: Schema, old: Values, new: Values, cloud: Values, path: str) -> Iterator[Change]:
    for name in sorted({*old, *new}):
        if not name.startswith("__"):
            yield from _of_property(schema, old.get(name), new.get(name), cloud.get(name), join(path, name))


def _of_property(schema: Schema, old: Any, new: Any, cloud: Any, path: str) -> Iterator[Change]:
    property_ = schema.at(path)
    # The provider doesn't distinguish an empty list of blocks from an absent one.
    old, new = (None if property_.block and value == [] else value for value in (old, new))
    if new is None:
        unset = old is None if property_.default is not None else _is_unset(old)
        if not (unset or property_.computed or old == property_.default):
            yield Change(path, "DELETE", schema.replaces(path, old))
        return
    if old is not None:
        yield from _of_value(schema, old, new, cloud, path, "UPDATE")
        return
    current = property_.default if cloud is None else cloud
    if current is None:
        if property_.block or not (new == {} or _is_unset(new)):
            yield Change(path, "ADD", schema.replaces(path, new))
    elif property_.block and isinstance(new, dict):
        yield from _of_block(schema, {}, new, current, path)
    else:
        yield from _of_value(schema, current, new, current, path, "ADD")


def _is_unset(value: Any) -> bool:
    """Whether the provider stores the value as it stores none: 0, false, an empty text or list."""
    return not (value or isinstance(value, dict))


def _of_value(schema: Schema, old: Any, new: Any, cloud: Any, path: str, kind: Kind) -> Iterator[Change]:
    """Compares a new value with an existing one, of the old inputs or of the cloud."""
    if isinstance(old, dict) and isinstance(new, dict):
        yield from _of_block(schema, old, new, cloud if isinstance(cloud, dict) else {}, path)
    elif isinstance(old, list) and isinstance(new, list):
        if schema.at(path).set and _items(old) == _items(new):
            return
        cloud_items = cloud if isinstance(cloud, list) else []
        for index in range(max(len(old), len(new))):
            item_path = f"{path}[{index}]"
            before, after, current = (
                values[index] if index < len(values) else None for values in (old, new, cloud_items)
            )
            if before is None or after is None:
                replaces = schema.replaces(item_path, after or before)
                yield Change(item_path, "ADD" if before is None else "DELETE", replaces)
            else:
                yield from _of_value(schema, before, after, current, item_path, kind)
    elif old != new:
        yield Change(path, kind, schema.replaces(path, new))


def _items(values: list[Any]) -> set[str]:
    return {json.dumps(value, sort_keys=True, default=repr) for value in values}


def kept(schema: Schema, old: Values, new: Values, path: str = "") -> Values:
    """The new inputs with the old values that the cloud keeps."""
    result = dict(new)
    for name, value in old.items():
        property_path, new_value = join(path, name), new.get(name)
        property_ = schema.at(property_path)
        if new_value is None or (property_.block and new_value == []):
            if property_.computed:
                result[name] = value
        elif property_.block:
            result[name] = _kept_within(schema, value, new_value, property_path)
    return result


def _kept_within(schema: Schema, old: Any, new: Any, path: str) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        return kept(schema, old, new, path)
    if isinstance(old, list) and isinstance(new, list):
        return [_kept_within(schema, *pair, path) for pair in zip(old, new)] + new[len(old) :]  # noqa: B905
    return new


def refreshed_inputs(schema: Schema, inputs: Values, current: Values, path: str = "") -> Values:
    """The current values that belong to the inputs: all except those that the cloud kept or chose."""
    result = {}
    for name, value in current.items():
        property_path, before = join(path, name), inputs.get(name)
        property_ = schema.at(property_path)
        if before is None and property_.computed:
            continue
        if property_.block and isinstance(before, dict) and isinstance(value, dict):
            result[name] = refreshed_inputs(schema, before, value, property_path)
        else:
            result[name] = value
    return result
