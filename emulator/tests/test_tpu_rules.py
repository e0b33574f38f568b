"""The emulator refuses TPU pools immediately that GKE refuses only when it creates them."""

from __future__ import annotations

from typing import Any

import pytest

from emulator.gcp_plugin import rest, rules

MULTI: dict[str, Any] = {
    "name": "p",
    "cluster": "c",
    "location": "us-east5",
    "nodeLocations": ["us-east5-b"],
    "nodeCount": 4,
    "placementPolicy": {"type": "COMPACT", "tpuTopology": "4x4"},
    "nodeConfig": {"machineType": "ct6e-standard-4t", "diskType": "hyperdisk-balanced"},
}
FLEX: dict[str, Any] = {
    **{key: value for key, value in MULTI.items() if key != "nodeCount"},
    "initialNodeCount": 0,
    "autoscaling": {"minNodeCount": 0, "maxNodeCount": 4, "locationPolicy": "ANY"},
    "nodeConfig": {
        **MULTI["nodeConfig"],
        "flexStart": True,
        "reservationAffinity": {"consumeReservationType": "NO_RESERVATION"},
    },
}
TPU7X: dict[str, Any] = {
    "nodeCount": 2,
    "nodeConfig": {"machineType": "tpu7x-standard-4t"},
    "placementPolicy": {"type": "", "policyName": "cube", "tpuTopology": "2x2x2"},
}


@pytest.mark.parametrize(
    ("inputs", "path", "text"),
    [
        (
            MULTI | {"placementPolicy": {"type": "COMPACT", "tpuTopology": "2x2"}, "nodeCount": 1},
            "placementPolicy.tpuTopology",
            "TPU topology can't be specified with single-host TPU slice pool",
        ),
        (
            MULTI | {"placementPolicy": {"type": "COMPACT", "tpuTopology": "4x2"}},
            "placementPolicy.tpuTopology",
            '"4x2" is invalid: it is one of 2x2, 2x4, 4x4',
        ),
        (
            MULTI | {"nodeConfig": {"machineType": "e2-standard-4"}},
            "placementPolicy.tpuTopology",
            "e2-standard-4 has no TPU",
        ),
        (MULTI | {"nodeCount": 16}, "nodeCount", "Requested invalid target size '16'"),
        (MULTI | {"nodeCount": 8}, "nodeCount", "in the gang mode of size '4'"),
        (
            FLEX | {"autoscaling": {"totalMinNodeCount": 0, "totalMaxNodeCount": 4}},
            "autoscaling",
            "Maximum node count 0 is not a valid size of TPU pod slice",
        ),
        (FLEX | {"autoscaling": {"maxNodeCount": 2}}, "autoscaling", "Maximum node count 2 is not a valid size"),
        (
            FLEX | {"autoscaling": {"minNodeCount": 2, "maxNodeCount": 4}},
            "autoscaling",
            "Minimum node count 2 is not a valid size",
        ),
        (
            FLEX | {"initialNodeCount": 4},
            "initialNodeCount",
            "Flex start node pools require initial node count to be set to 0.",
        ),
        (
            {key: value for key, value in FLEX.items() if key != "autoscaling"} | {"initialNodeCount": 0},
            "autoscaling",
            "Flex start node pools require autoscaling enabled.",
        ),
        (
            FLEX | {"nodeConfig": {**MULTI["nodeConfig"], "flexStart": True}},
            "nodeConfig.reservationAffinity",
            "flex start node pools don't support reservations",
        ),
        (FLEX | {"nodeLocations": ["us-east5-c"]}, "nodeConfig.flexStart", "not available for ct6e-standard-4t"),
        (MULTI | {"nodeLocations": ["us-east5-a", "us-east5-b"]}, "nodeLocations", "is in one zone"),
        (
            MULTI | {"nodeConfig": {"machineType": "ct6e-standard-4t", "diskType": "pd-balanced"}},
            "nodeConfig.diskType",
            "[pd-balanced] features are not compatible",
        ),
        (
            MULTI | TPU7X | {"placementPolicy": {"type": "COMPACT", "tpuTopology": "2x2x2"}},
            "placementPolicy",
            "Use workload policy instead",
        ),
    ],
)
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
