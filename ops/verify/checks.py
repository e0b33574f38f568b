"""A claim with its result, and what claims are compared with."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from catalog.quantities import format_quantity, readable
from ops.verify.live import Live
from resources.stack import Stack as Recorded
from settings.calibration import Calibration

PASS, FAIL, UNSEEN, UNCHECKED = "pass", "fail", "not seen yet", "not checked"


@dataclass(frozen=True)
class Check:
    """One claim: what the stack relies on, what the cluster has, and for what can't be compared, `step` to do."""

    state: str
    claim: str
    subject: str
    relied_on: str
    found: str
    step: str = ""


@dataclass
class Comparison:
    """A recorded stack, its live cluster, and the calibration that the stack plans with."""

    stack: Recorded
    live: Live
    measured: Calibration = field(default_factory=Calibration)


def on_nodes(count: int, total: int) -> str:
    """Formats on how many nodes of a group something was found."""
    return f" (on {count} of {total} nodes)" if total > 1 else ""


def both(resource: str, one: Fraction, other: Fraction) -> tuple[str, str]:
    """Two amounts as people read them, with enough digits to tell them apart."""
    short = readable(resource, one), readable(resource, other)
    if one == other or short[0] != short[1]:
        return short
    return format_quantity(resource, one), format_quantity(resource, other)
