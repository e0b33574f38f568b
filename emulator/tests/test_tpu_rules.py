"""The emulator refuses TPU pools immediately that GKE refuses only when it creates them."""

from __future__ import annotations

from typing import Any

import pytest

from emulator.google import rest, rules
from emulator.tests.gcp_engine import accepted, mistakes

MULTI, FLEX = accepted("multi-host slice"), accepted("flex-start slice")
TPU7X: dict[str, Any] = {
    "nodeCount": 2,
    "nodeConfig": {"machineType": "tpu7x-standard-4t"},
    "placementPolicy": {"type": "", "policyName": "cube", "tpuTopology": "2x2x2"},
}


ROWS = mistakes("multi-host slice", "flex-start slice")


@pytest.mark.parametrize(("inputs", "path", "text"), [pytest.param(*row.values[1:], id=row.id) for row in ROWS])
def test_emulator_refuses_what_google_refuses_late(inputs: dict[str, Any], path: str, text: str) -> None:
    for good in (MULTI, FLEX, MULTI | TPU7X):
        body = rest.node_pool(good)
        assert [*body.problems("node_pool"), *_refused(good, body)] == []
    body = rest.node_pool(inputs)
    problems = [*body.problems("node_pool"), *_refused(inputs, body)]
    assert [place for place, _ in problems if place == path], problems
    assert any(text in reason for place, reason in problems if place == path), problems


def test_flex_start_of_a_version_without_listed_zones_is_accepted_in_all() -> None:
    flex = MULTI | TPU7X | {key: FLEX[key] for key in ("autoscaling", "initialNodeCount") if key in FLEX}
    flex["nodeConfig"] = {**FLEX["nodeConfig"], **TPU7X["nodeConfig"]}
    flex["autoscaling"] = {**FLEX["autoscaling"], "maxNodeCount": 2}
    flex.pop("nodeCount", None)
    assert _refused(flex, rest.node_pool(flex)) == []


def _refused(inputs: dict[str, Any], body: rest.Body) -> list[tuple[str, str]]:
    return [*rules.node_pool(inputs, body.content, "us-east5"), *rules.new_node_pool(inputs, body.content)]
