"""Refusals in the form of Google's API, and checks that several resources share."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

Problem = tuple[str, str]
"""A Pulumi property, and why Google refuses it."""
Values = Mapping[str, Any]

UNWRITTEN = "the provider drops a label without a value, or plans it in every preview. The emulator refuses it"


def bad_request(text: str) -> str:
    """Formats a refusal as the provider does."""
    return f"googleapi: Error 400: {text}, badRequest"


def resource_labels(labels: Values, path: str) -> Iterator[Problem]:
    """https://cloud.google.com/kubernetes-engine/docs/how-to/creating-managing-labels#requirements"""
    for key, value in labels.items():
        if not re.fullmatch(r"[a-z][-_a-z0-9]{0,62}", key):
            text = f'Invalid label key "{key}": 1 to 63 lower-case letters, digits, - and _, beginning with a letter'
            yield f'{path}["{key}"]', bad_request(text)
        elif not value:
            yield f'{path}["{key}"]', UNWRITTEN
        elif not re.fullmatch(r"[-_a-z0-9]{1,63}", value):
            text = f'Invalid label value "{value}": at most 63 lower-case letters, digits, - and _'
            yield f'{path}["{key}"]', bad_request(text)
    if len(labels) > 64:
        yield path, bad_request("At most 64 labels")


def one_of(value: str | None, allowed: tuple[str, ...], path: str) -> Iterator[Problem]:
    """Refuses a value that isn't one of the allowed values."""
    if value is not None and value not in allowed:
        yield path, f"googleapi: Error 400: Invalid argument: {value!r} is none of {', '.join(allowed)}, invalid"


def value_at(value: Values, path: str) -> Any:
    """Returns the value at a dotted path, or None."""
    for name in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)  # type: ignore[assignment]
    return value
