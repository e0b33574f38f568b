"""Kubernetes resource quantities: parsing without rounding, and formatting in the shortest form.

The grammar is at https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/: a number with
an SI suffix (n u m k M G T P E), a binary one (Ki Mi Gi Ti Pi Ei) or an exponent (e3, E-2).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from itertools import chain
from math import ceil

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_QUANTITY = re.compile(
    r"(?P<number>[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+))((?P<suffix>[KMGTPE]i|[numkMGTPE]|)|[eE](?P<exponent>[+-]?[0-9]{1,3}))"
)

KI, MI, GI = 2**10, 2**20, 2**30
# Kubernetes caps larger ones: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
_LARGEST = 2**63 - 1
_LONGEST = 64  # characters, far above any written amount


def parse_quantity(text: str) -> Fraction:
    """Returns the exact value of a quantity in its base unit (cores, bytes, pieces).

    Raises ValueError, with a message for the user, for text that Kubernetes refuses (`4GB`, `4 Gi`, `4gi`, no text).
    """
    return _parsed(text)


def parse_quantities(texts: Mapping[str, str]) -> dict[str, Fraction]:
    """Returns the exact values of quantities by resource."""
    return {resource: parse_quantity(text) for resource, text in texts.items()}


def added(*amounts: Mapping[str, Fraction]) -> dict[str, Fraction]:
    """Adds amounts by resource."""
    total: dict[str, Fraction] = {}
    for resource, amount in chain.from_iterable(own.items() for own in amounts):
        total[resource] = total.get(resource, Fraction(0)) + amount
    return total


@lru_cache(4096)  # a configuration has few distinct quantities, and its rules read each many times
def _parsed(text: str) -> Fraction:
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise ValueError(
            f"{text[:_LONGEST]!r} is not a Kubernetes quantity (a number, then nothing or one of m k M G T Ki Mi Gi Ti)"
        )
    amount = _amount(match)
    if abs(amount) > _LARGEST:
        raise ValueError(f"{text!r} is above the largest Kubernetes quantity, 2^63 - 1")
    return amount


def _amount(match: re.Match[str]) -> Fraction:
    number = Fraction(match["number"].rstrip("."))
    if match["exponent"] is not None:
        return number * Fraction(10) ** int(match["exponent"])
    suffix = match["suffix"]
    return number * (2 ** _BINARY[suffix] if suffix in _BINARY else Fraction(10) ** _DECIMAL[suffix])


def format_cpu(cores: Fraction) -> str:
    """Formats cores: whole (`4`) or in thousandths (`23870m`), rounded down to a thousandth."""
    milli = cores * 1000 // 1
    return f"{milli}m" if milli % 1000 else str(milli // 1000)


def format_bytes(amount: Fraction) -> str:
    """Formats bytes in the largest of Gi, Mi and Ki that needs no fraction, rounded down to a KiB."""
    kib = amount // KI
    for suffix, size in (("Gi", GI // KI), ("Mi", MI // KI)):
        if kib % size == 0:
            return f"{kib // size}{suffix}"
    return f"{kib}Ki"


def readable(resource: str, amount: Fraction) -> str:
    """Formats an amount for people: `23.87` cores, `86.8Gi`, `6` pieces."""
    if resource == "cpu":
        return f"{float(amount):.15g}"
    if resource in ("memory", "ephemeral-storage"):
        return f"{round(float(amount / GI), 1):.15g}Gi"
    return str(amount // 1)


# The smallest amount that `format_quantity` writes. Other resources are whole pieces.
_UNITS = {"cpu": Fraction(1, 1000), "memory": Fraction(KI), "ephemeral-storage": Fraction(KI)}


def round_up(resource: str, amount: Fraction) -> Fraction:
    """Rounds an amount up to the next one that `format_quantity` formats exactly."""
    unit = _UNITS.get(resource, Fraction(1))
    return ceil(amount / unit) * unit


def round_down(resource: str, amount: Fraction) -> Fraction:
    """Rounds an amount down to the next one that `format_quantity` formats exactly."""
    unit = _UNITS.get(resource, Fraction(1))
    return amount // unit * unit


def format_quantities(amounts: Mapping[str, Fraction]) -> dict[str, str]:
    """Formats amounts by resource."""
    return {resource: format_quantity(resource, amount) for resource, amount in amounts.items()}


def format_quantity(resource: str, amount: Fraction) -> str:
    """Formats an amount of a resource (`cpu`, `memory`, `ephemeral-storage`, or pieces such as `nvidia.com/gpu`)."""
    if resource == "cpu":
        return format_cpu(amount)
    if resource in ("memory", "ephemeral-storage"):
        return format_bytes(amount)
    return str(amount // 1)
