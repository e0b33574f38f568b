"""Checks inputs against the input types of a Pulumi SDK, before anything is created."""

from __future__ import annotations

import collections.abc
import difflib
import functools
import importlib
import inspect
import threading
import typing
from typing import Any

from pulumi import Asset, Output, _types

from emulator.pulumi.plugin import UNKNOWN, Secret

TYPE_NAMES = {bool: "a boolean", int: "a whole number", float: "a number", str: "a string"}


# An SDK's modules load one another on first access. Without the lock a second thread sees half-loaded modules.
_LOADING = threading.RLock()


def load(module: str, *names: str) -> type:
    """Returns the class of an SDK's module that has the first of these names. Any thread may call it.

    Raises:
        LookupError: The SDK has no such module, or the module has no such class.
    """
    with _LOADING:
        try:
            loaded = importlib.import_module(module)
        except ModuleNotFoundError:
            raise LookupError(f"the SDK has no module {module}") from None
        # An SDK imports most of its modules only when an attribute of them is read.
        for name in names:
            if hasattr(loaded, name):
                cls: type = getattr(loaded, name)
                return cls
    raise LookupError(f"{module} of the SDK has no {' nor '.join(names)}")


@functools.cache
def properties(cls: type) -> dict[str, Any]:
    """The types of an input type's properties, by their Pulumi names."""
    with _LOADING:
        return _types.input_type_types(cls)


@functools.cache
def _required(cls: type) -> list[str]:
    names = _types.input_type_py_to_pulumi_names(cls)
    parameters = list(inspect.signature(cls).parameters.values())
    return [names[parameter.name] for parameter in parameters if parameter.default is inspect.Parameter.empty]


def problems(cls: type, value: dict[str, Any], path: str = "") -> list[tuple[str, str]]:
    """Problems of `value` as an instance of the SDK's input type `cls`, as pairs (path of the property, reason).

    It reports unknown properties, missing required properties and values of a wrong type. The SDK doesn't know the
    allowed values: the API checks those.
    """
    known = properties(cls)
    found = [(_join_path(path, name), "required, but missing") for name in _required(cls) if name not in value]
    for name, item in value.items():
        if name in known:
            found += _problems(known[name], item, _join_path(path, name))
        elif not name.startswith("__"):
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
            found.append((_join_path(path, name), f"unknown property{f' (did you mean {near[0]}?)' if near else ''}"))
    return found


def _join_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _problems(expected: Any, value: Any, path: str) -> list[tuple[str, str]]:
    if isinstance(value, Secret):
        return _problems(expected, value.value, path)
    if value is UNKNOWN or value is None or expected is Any:
        return []
    origin = typing.get_origin(expected)
    if origin is typing.Union:
        return _union_problems(typing.get_args(expected), value, path)
    if origin is typing.Literal:
        allowed = typing.get_args(expected)
        return [] if value in allowed else [(path, f"{value!r} is none of {', '.join(map(repr, allowed))}")]
    if origin is collections.abc.Sequence:
        if not isinstance(value, list):
            return [(path, f"expected a list, not {_type_name(value)}")]
        (item_type,) = typing.get_args(expected)
        return [p for index, item in enumerate(value) for p in _problems(item_type, item, f"{path}[{index}]")]
    if origin is collections.abc.Mapping:
        if not isinstance(value, dict):
            return [(path, f"expected a map, not {_type_name(value)}")]
        item_type = typing.get_args(expected)[1]
        return [p for key, item in value.items() for p in _problems(item_type, item, f'{path}["{key}"]')]
    if _types.is_input_type(expected):
        if not isinstance(value, dict):
            return [(path, f"expected an object, not {_type_name(value)}")]
        return problems(expected, value, path)
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    fits = (
        number if expected is float else isinstance(value, expected) and (expected is bool) == isinstance(value, bool)
    )
    return [] if fits else [(path, f"expected {TYPE_NAMES.get(expected, expected.__name__)}, not {_type_name(value)}")]


def _union_problems(members: tuple[Any, ...], value: Any, path: str) -> list[tuple[str, str]]:
    """Problems of a value of a union.

    `Input[X]` is a union of X, its Awaitable and its Output; only X counts.
    """
    real = [m for m in members if m is not type(None) and not _is_promise(m) and not _is_asset(m)]
    by_member = [_problems(member, value, path) for member in real]
    if not by_member or any(not problems for problems in by_member):
        return []
    # With several members, prefer the one that the value's own type fits.
    return by_member[0] if len(by_member) == 1 else min(by_member, key=lambda ps: all(place == path for place, _ in ps))


def _is_promise(member: Any) -> bool:
    return typing.get_origin(member) in (collections.abc.Awaitable, Output)


def _is_asset(member: Any) -> bool:
    return isinstance(member, type) and issubclass(member, Asset)


def _type_name(value: Any) -> str:
    if isinstance(value, dict):
        return "a map"
    return "a list" if isinstance(value, list) else TYPE_NAMES.get(type(value), type(value).__name__)
