"""The result of a claim, and the stack and cluster that are compared."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from gke_ai.catalog.quantities import format_quantity, readable
from gke_ai.ops.verify.live import Live
from gke_ai.registered.registration import RegisteredStack
from gke_ai.settings.calibration import Calibration

PASS, FAIL, UNSEEN, UNCHECKED = "pass", "fail", "not seen yet", "not checked"


@dataclass(frozen=True)
class Check:
    """The result of one claim: what the stack relies on, what the cluster has, and the next step if it failed."""

    state: str
    claim: str
    subject: str
    relied_on: str
    found: str
    step: str = ""


def judged(good: bool, claim: str, subject: str, relied_on: str, found: str, step: str = "") -> Check:
    """Returns the result of a claim that was compared. The step is for one that fails."""
    return Check(PASS if good else FAIL, claim, subject, relied_on, found, "" if good else step)


@dataclass
class Comparison:
    """A recorded stack, its live cluster, and the calibration that the stack plans with."""

    stack: RegisteredStack
    live: Live
    measured: Calibration = field(default_factory=Calibration)


def on_nodes(count: int, total: int) -> str:
    """Formats the number of nodes that have a value."""
    return f" (on {count} of {total} nodes)" if total > 1 else ""


def both(resource: str, first: Fraction, second: Fraction) -> tuple[str, str]:
    """Formats two amounts, with enough digits to show a difference."""
    short = readable(resource, first), readable(resource, second)
    if first == second or short[0] != short[1]:
        return short
    return format_quantity(resource, first), format_quantity(resource, second)
