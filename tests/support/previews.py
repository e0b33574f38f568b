"""Plans for reports: a recorded change, the creation and the deletion of what it found."""

from gke_ai.review.report.preview import Preview, State, recorded
from tests.support.repository import ROOT

CHANGE = ROOT / "tests" / "data" / "recorded_reports" / "change.json"


def change() -> Preview:
    return recorded(CHANGE.read_text())


def creation() -> Preview:
    """A preview that creates the resources of the recorded one."""
    steps = tuple({"op": "create", "urn": state["urn"], "newState": state} for state in _resources())
    return Preview("fresh", steps=steps)


def deletion() -> Preview:
    """A preview that deletes them."""
    resources = _resources()
    steps = tuple({"op": "delete", "urn": state["urn"], "oldState": state} for state in resources)
    return Preview("mixed", resources, steps)


def _resources() -> tuple[State, ...]:
    """Those for which a preview has steps: all but Pulumi's default providers."""
    return tuple(state for state in change().resources if "::default_" not in state["urn"])
