"""The REST bodies of the emulator's resources match Google's reference and discovery documents."""

import json
from pathlib import Path
from typing import Any

import pytest

from emulator.google import rest, rest_names, rules
from emulator.google.plugin import RESOURCES
from emulator.google.schema import schema_of
from emulator.pulumi.plugin import UNKNOWN
from emulator.tests.gcp_engine import accepted, mistakes

# Bodies that Google's reference asks for, and the Pulumi inputs that mean them.
GOLDEN = {file.stem: json.loads(file.read_text()) for file in Path(__file__).parent.glob("golden/rest_*.json")}
WRITERS = {"cluster": rest.cluster, "node_pool": rest.node_pool, "bucket": rest.bucket}
FLEX_START: dict[str, Any] = GOLDEN["rest_node_pool_flex_start"]["inputs"]
ACCELERATOR = {"type": "nvidia-l4", "count": "two"}
MODE = "nodeConfig.workloadMetadataConfig.mode"
MODES = '(google.container.v1.WorkloadMetadataConfig.Mode), "GKE_META"; it is one of GCE_METADATA, GKE_METADATA'
TAINT = {"key": "a", "value": "b", "effect": "NoSchedule"}
POLICY = {"totalMaxNodeCount": 1, "locationPolicy": "all"}
COUNT = "nodeConfig.guestAccelerators[0].count"


@pytest.mark.parametrize("golden", GOLDEN)
def test_a_body_has_the_form_of_google_s_reference(golden: str) -> None:
    expected = GOLDEN[golden]
    assert expected["reference"].startswith("https://cloud.google.com/")
    body = WRITERS[expected["kind"]](expected["inputs"])
    assert body.content == expected["body"]
    assert body.problems("body") == []
    token = next(token for token, kind in RESOURCES.items() if kind.__name__ == body.type)
    assert list(schema_of(token).conflicts(expected["inputs"])) == [], "the provider would refuse these inputs"


@pytest.mark.parametrize(
    ("change", "path", "text"),
    [
        ({"nodeConfig": {"flexxStart": True}}, "nodeConfig.flexxStart", "\"flexxStart\" at 'node_pool.config'"),
        ({"nodeConfig": {"flexStart": "yes"}}, "nodeConfig.flexStart", "node_pool.config.flex_start' (TYPE_BOOLEAN)"),
        ({"initialNodeCount": "many"}, "initialNodeCount", "'node_pool.initial_node_count' (TYPE_INT32), \"many\""),
        ({"initialNodeCount": 2**31}, "initialNodeCount", "TYPE_INT32"),
        ({"initialNodeCount": True}, "initialNodeCount", "TYPE_INT32"),
        ({"nodeLocations": "us-central1-a"}, "nodeLocations", "list expected"),
        ({"nodeLocations": [1]}, "nodeLocations[0]", "TYPE_STRING"),
        ({"nodeConfig": {"labels": {"team": 1}}}, "nodeConfig.labels", "'node_pool.config.labels[team]' (TYPE_STRING)"),
        ({"nodeConfig": {"maxRunDuration": "1h"}}, "nodeConfig.maxRunDuration", "google.protobuf.Duration"),
        ({"nodeConfig": []}, "nodeConfig", "object expected"),
        ({"instanceGroupUrls": []}, "instanceGroupUrls", "is output-only: Google sets it"),
        (
            {"nodeConfig": {"guestAccelerators": [ACCELERATOR]}},
            COUNT,
            "accelerators[0].accelerator_count' (TYPE_INT64)",
        ),
        ({"nodeConfig": {"workloadMetadataConfig": {"mode": "GKE_META"}}}, MODE, MODES),
        ({"autoscaling": POLICY}, "autoscaling.locationPolicy", "BALANCED, ANY"),
        ({"nodeConfig": {"taints": [TAINT]}}, "nodeConfig.taints[0].effect", "NO_SCHEDULE"),
    ],
)
def test_a_wrong_field_type_or_value_fails_google_s_description(change: dict[str, Any], path: str, text: str) -> None:
    ((place, problem),) = rest.node_pool({"name": "p", **change}).problems("node_pool")
    assert place == path
    assert text in problem


def test_a_mistake_deep_in_a_bucket_is_found_where_the_api_has_no_named_type() -> None:
    body = rest.bucket({"name": "b", "location": "us", "lifecycleRules": [{"condition": {"age": "30d", "old": True}}]})
    assert [(path, text.partition(" at ")[0]) for path, text in body.problems("bucket")] == [
        ("lifecycleRules[0].condition.age", "Invalid value"),
        ("lifecycleRules[0].condition.old", 'Invalid JSON payload received. Unknown name "old"'),
    ]


def test_a_mistake_in_a_maintenance_exclusion_is_reported_at_the_user_s_list() -> None:
    times = {"startTime": "2026-03-01T00:00:00Z", "endTime": "2026-03-21T00:00:00Z"}
    wrong = {"exclusionName": "wrong", **times, "exclusionOptions": {"scope": "NO_UPGRADE"}}
    exclusions = [{"exclusionName": "fine", **times}, wrong]
    body = rest.cluster({"name": "c", "maintenancePolicy": {"maintenanceExclusions": exclusions}})
    ((path, text),) = body.problems("cluster")
    assert path == "maintenancePolicy.maintenanceExclusions[1].exclusionOptions.scope"
    assert "NO_MINOR_UPGRADES" in text


def test_the_add_on_for_ray_is_a_list_in_the_provider_alone() -> None:
    body = rest.cluster({"name": "c", "addonsConfig": {"rayOperatorConfigs": [{"enabled": True}]}})
    assert body.content["addonsConfig"] == {"rayOperatorConfig": {"enabled": True}}
    assert body.problems("cluster") == []


def test_unknown_values_pass() -> None:
    unknown = {**FLEX_START, "initialNodeCount": UNKNOWN, "nodeConfig": {"labels": {"a": UNKNOWN}}}
    assert rest.node_pool(unknown).problems("node_pool") == []


def test_every_renamed_property_maps_to_a_field_of_google_s_description() -> None:
    """A typing error in the table would make the emulator refuse valid properties."""
    for key, names in rest_names.NAMES.items():
        type_, *inner = key.split(".")
        described = rest.api(rest_names.DOCUMENTS.get(type_, "container.v1"))
        schema, place = described.at({"$ref": type_}, "")
        for name in inner:
            schema, place = described.child(schema, place, name)
            schema = schema.get("items", schema)
        for target in filter(None, names.values()):
            schema_node, at = schema, place
            for name in target.split("."):
                assert name in schema_node["properties"], f"{key}: {target}"
                schema_node, at = described.child(schema_node, at, name)


MULTI, FLEX = accepted("multi-host slice"), accepted("flex-start slice")
TPU7X: dict[str, Any] = {
    "nodeCount": 2,
    "nodeConfig": {"machineType": "tpu7x-standard-4t"},
    "placementPolicy": {"type": "", "policyName": "cube", "tpuTopology": "2x2x2"},
}


@pytest.mark.parametrize(("_", "inputs", "path", "text"), mistakes("multi-host slice", "flex-start slice"))
def test_emulator_refuses_what_google_refuses_late(_: str, inputs: dict[str, Any], path: str, text: str) -> None:
    """GKE refuses these TPU pools only when it creates them."""
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
