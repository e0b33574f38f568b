"""Only here: what Autopilot changes at admission is in no plan, and the real Kueue counts what pods request after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest

from gke_ai.kube.objects import holds
from gke_ai.kube.quantity import parse_quantity
from tests.support.emulator import Emulator, begun, eventually, gone

EXAMPLES = [f"examples/{name}-autopilot.yaml" for name in ("flex-start-tpu", "mixed-training-inference", "multislice-training")]
MARK = "autopilot.gke.io/warden-version"


def requested(emulator: Emulator, resources: set[str]) -> Mapping[str, Fraction]:
    """What the pods of admitted workloads request, of these resources."""
    total: Counter[str] = Counter()
    return total


@pytest.mark.nightly
@pytest.mark.parametrize("example", EXAMPLES)
def test_a_second_preview_is_empty_although_autopilot_changed_the_workloads(example: str, emulator: Emulator) -> None:
    config = emulator.configure(example)
    before = begun(emulator, config)
    emulator.make("up", config)
    emulator.pulumi("preview", "--expect-no-changes")
