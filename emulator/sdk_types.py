"""Checks inputs against the input types of a Pulumi SDK, so that a mistake is found before anything is created."""

from __future__ import annotations

import collections.abc
import difflib
import functools
import importlib
import inspect
import threading
import typing
from types import ModuleType
from typing import Any

from pulumi import Asset, Output, _types

from emulator.plugin import UNKNOWN, Secret

KINDS_OF_VALUE = {bool: "a boolean", int: "a whole number", float: "a number", str: "a string"}


# An SDK's modules load one another when they are first looked into; a second thread would see them half loaded.
_LOADING = threading.RLock()


def load(module: str) -> ModuleType:
    """A module of an SDK, whichever thread asks first."""
    with _LOADING:
        return importlib.import_module(module)


@functools.cache
def properties(cls: type) -> dict[str, Any]:
    """The properties of an input type by their Pulumi names, with the type of each."""
    with _LOADING:
        return _types.input_type_types(cls)


@functools.cache
def _required(cls: type) -> list[str]:
    names = _types.input_type_py_to_pulumi_names(cls)
    parameters = list(inspect.signature(cls).parameters.values())
    return [names[parameter.name] for parameter in parameters if parameter.default is inspect.Parameter.empty]


def problems(cls: type, value: dict[str, Any], path: str = "") -> list[tuple[str, str]]:
    """What is wrong in `value` as an instance of the SDK's input type `cls`: (path of the property, reason) each.

    Found are unknown properties, missing required ones and values of a wrong type. Allowed values aren't known to the
    SDK: those are for the API to refuse.
    """
    known = properties(cls)
    found = [(_join(path, name), "required, but missing") for name in _required(cls) if name not in value]
    for name, item in value.items():
        if name in known:
            found += _problems(known[name], item, _join(path, name))
        elif not name.startswith("__"):
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
            found.append((_join(path, name), f"unknown property{f' (did you mean {near[0]}?)' if near else ''}"))
    return found


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _problems(expected: Any, value: Any, path: str) -> list[tuple[str, str]]:
    if isinstance(value, Secret):
        return _problems(expected, value.value, path)
    if value is UNKNOWN or value is None or expected is Any:
        return []
    origin = typing.get_origin(expected)
    if origin is typing.Union:
        return _of_union(typing.get_args(expected), value, path)
    if origin is typing.Literal:
        allowed = typing.get_args(expected)
        return [] if value in allowed else [(path, f"{value!r} is none of {', '.join(map(repr, allowed))}")]
    if origin is collections.abc.Sequence:
        if not isinstance(value, list):
            return [(path, f"expected a list, not {_kind(value)}")]
        (item_type,) = typing.get_args(expected)
        return [p for index, item in enumerate(value) for p in _problems(item_type, item, f"{path}[{index}]")]
    if origin is collections.abc.Mapping:
        if not isinstance(value, dict):
            return [(path, f"expected a map, not {_kind(value)}")]
        item_type = typing.get_args(expected)[1]
        return [p for key, item in value.items() for p in _problems(item_type, item, f'{path}["{key}"]')]
    if _types.is_input_type(expected):
        if not isinstance(value, dict):
            return [(path, f"expected an object, not {_kind(value)}")]
        return problems(expected, value, path)
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    fits = (
        number if expected is float else isinstance(value, expected) and (expected is bool) == isinstance(value, bool)
    )
    return [] if fits else [(path, f"expected {KINDS_OF_VALUE.get(expected, expected.__name__)}, not {_kind(value)}")]


def _of_union(members: tuple[Any, ...], value: Any, path: str) -> list[tuple[str, str]]:
    """`Input[X]` is a union of X with its Awaitable and Output; a union that is left has several real members."""
    real = [m for m in members if m is not type(None) and not _is_promise(m) and not _is_asset(m)]
    tried = [_problems(member, value, path) for member in real]
    if not tried or any(not found for found in tried):
        return []
    return tried[0] if len(tried) == 1 else min(tried, key=lambda found: all(place == path for place, _ in found))


def _is_promise(member: Any) -> bool:
    return typing.get_origin(member) in (collections.abc.Awaitable, Output)


def _is_asset(member: Any) -> bool:
    return isinstance(member, type) and issubclass(member, Asset)


def _kind(value: Any) -> str:
    if isinstance(value, dict):
        return "a map"
    return "a list" if isinstance(value, list) else KINDS_OF_VALUE.get(type(value), type(value).__name__)
