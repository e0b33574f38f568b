"""The provider's own schema of the properties, from `properties.yaml`."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_FORMS = {
    "time": re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})"),
    "hour": re.compile(r"([01]\d|2[0-3]):[0-5]\d"),
    "range": re.compile(r"\d{1,3}(\.\d{1,3}){3}/\d{1,2}"),
}


@dataclass(frozen=True)
class Property:
    """How the provider treats a property; see the header of `properties.yaml`."""

    computed: bool = False
    force_new: bool = False
    block: bool = False
    set: bool = False
    default: Any = None
    conflicts: tuple[str, ...] = ()
    exactly_one_of: tuple[str, ...] = ()
    at_least: int | None = None
    max_items: int | None = None
    form: str | None = None

    def problem(self, value: Any) -> str | None:
        """Why the provider refuses a value, or None."""
        if self.at_least is not None and isinstance(value, int | float) and value < self.at_least:
            return f"expected a number of at least {self.at_least}, got {value:g}"
        if self.max_items is not None and isinstance(value, list) and len(value) > self.max_items:
            return f"too many list items: {len(value)}, and at most {self.max_items} are allowed"
        if self.form is not None and isinstance(value, str) and not _FORMS[self.form].fullmatch(value):
            return f"{value!r} is malformed"
        return None


@dataclass(frozen=True)
class Schema:
    """The properties of one resource type, by path without list indexes."""

    properties: Mapping[str, Property] = field(default_factory=dict)

    def at(self, path: str) -> Property:
        """The property at a path in the engine's form, `nodeConfig.guestAccelerators[0].count`.

        A key of a map replaces the resource if the map does, and it is never computed.
        """
        plain = re.sub(r'\[(\d+|".*?")\]', lambda match: "" if match[1].isdigit() else ".key", path)
        if plain in self.properties:
            return self.properties[plain]
        parent = self.properties.get(plain.rpartition(".")[0], Property())
        return Property(force_new=parent.force_new and not parent.block)

    def replaces(self, path: str, value: Any) -> bool:
        """Whether adding or removing this value replaces the resource."""
        if self.at(path).force_new:
            return True
        if isinstance(value, Mapping):
            return any(self.replaces(join(path, name), item) for name, item in value.items() if item is not None)
        return isinstance(value, list) and any(self.replaces(f"{path}[{i}]", item) for i, item in enumerate(value))

    def conflicts(self, inputs: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yields (property, error of the provider) for properties that exclude one another, whatever their values."""
        for path, property_ in self.properties.items():
            if property_.conflicts and _value(inputs, path) is not None:
                for other in property_.conflicts:
                    if _value(inputs, other) is not None:
                        yield path, f'Conflicting configuration arguments: "{path}" conflicts with {other}'
                        break

    def ambiguous_blocks(self, inputs: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yields (block, error of the provider) for blocks with none or several of properties that exclude others."""
        groups = dict.fromkeys(property_.exactly_one_of for property_ in self.properties.values())
        for paths in filter(None, groups):
            block = paths[0].rpartition(".")[0]
            if not isinstance(_value(inputs, block), Mapping):
                continue  # not set, or unknown
            stated = [path for path in paths if _value(inputs, path) is not None]
            if not stated:
                yield block, f"Invalid combination of arguments: one of {', '.join(paths)} must be specified"
            elif len(stated) > 1:
                yield block, f"Invalid combination of arguments: only one of {', '.join(stated)} can be specified"

    def invalid_values(self, inputs: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yields (property, error of the provider) for values out of range and malformed ones."""
        for path, property_ in self.properties.items():
            if (property_.at_least, property_.max_items, property_.form) != (None, None, None):
                for shown, value in _values(inputs, path.split("."), ""):
                    if text := property_.problem(value):
                        yield shown, text


@functools.cache
def schema_of(token: str) -> Schema:
    """The schema of a resource type.

    It is empty for a type that `properties.yaml` doesn't have.
    """
    return Schema({path: _parsed(text) for path, text in _table().get(token, {}).items()})


@functools.cache
def _table() -> Mapping[str, Mapping[str, str]]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    table: Mapping[str, Mapping[str, str]] = yaml.load(
        Path(__file__).with_name("properties.yaml").read_text(), Loader=loader
    )
    return table


def _parsed(text: str) -> Property:
    words = dict(re.findall(r"(\w+)[=:]?(\S*)", text))
    return Property(
        computed="computed" in words,
        force_new="forceNew" in words,
        block="block" in words,
        set="set" in words,
        default=json.loads(words["default"]) if "default" in words else None,
        conflicts=tuple(words["conflicts"].split(",")) if "conflicts" in words else (),
        exactly_one_of=tuple(words["exactlyOneOf"].split(",")) if "exactlyOneOf" in words else (),
        at_least=int(words["atLeast"]) if "atLeast" in words else None,
        max_items=int(words["maxItems"]) if "maxItems" in words else None,
        form=words.get("form"),
    )


def _values(value: Any, names: list[str], shown: str) -> Iterator[tuple[str, Any]]:
    """Every value at a path, in all items of lists of blocks, with its path in the engine's form."""
    if not names:
        yield shown, value
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _values(item, names, f"{shown}[{index}]")
    elif isinstance(value, Mapping) and names[0] in value:
        yield from _values(value[names[0]], names[1:], join(shown, names[0]))


def _value(value: Any, path: str) -> Any:
    """The value at a path, or None. Of a list of blocks the first counts."""
    for name in path.split("."):
        value = value[0] if isinstance(value, list) and value else value
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def join(path: str, name: str) -> str:
    """Appends a name to a property's path, in the engine's form."""
    if not re.fullmatch(r"[A-Za-z_$][\w$]*", name):
        return f'{path}["{name}"]'
    return f"{path}.{name}" if path else name
