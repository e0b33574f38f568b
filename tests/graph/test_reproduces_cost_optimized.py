"""The cost-optimized serving example registers the objects of its source document, except for these differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tests.support.recorder import ROOT, TOKEN, configuration, run_program
from tests.support.reproduced import (
    are_equal,
    identity,
    pods_end_when_requests_have,
    pulumi_does_not_wait_for_queues,
    pulumi_sets_replicas_back,
    rollouts_are_stated,
    token_has_both_names,
    unwrapped,
)

EXAMPLE = "examples/cost-optimized-serving.yaml"
EXPECTED = ROOT / "tests" / "data" / "expected" / "cost-optimized-serving.yaml"
Object = dict[str, Any]


def class_is_asked_for_by_the_pods(item: Object) -> None:
    """The document has the node selector under the Deployment's spec, which has no such field."""
    if item["kind"] == "Deployment":
        item["spec"]["template"]["spec"]["nodeSelector"] = item["spec"].pop("nodeSelector")


def class_says_what_happens_without_capacity(item: Object) -> None:
    """GKE's default changed in 1.33, so the program writes the value."""
    if item["kind"] == "ComputeClass":
        item["spec"]["whenUnsatisfiable"] = "DoNotScaleUp"


def class_says_that_its_choices_have_gpus(item: Object) -> None:
    """Autopilot accepts a pod with GPUs only if a priority states GPUs. Otherwise the machine type is enough."""
    if item["kind"] == "ComputeClass":
        for priority in item["spec"]["priorities"]:
            priority["gpu"] = {"type": "nvidia-l4", "count": 2}


def namespace_is_stated(item: Object) -> None:
    """The document omits the namespace, and kubectl uses `default`."""
    if item["kind"] != "ComputeClass":
        item["metadata"]["namespace"] = "default"


def deployment_carries_the_label_of_its_pods(item: Object) -> None:
    """The label that the mixed training and inference document uses, so people can select it."""
    if item["kind"] == "Deployment":
        item["metadata"]["labels"] = {"app": "llm"}


DIFFERENCES: list[Callable[[Object], None]] = [
    class_is_asked_for_by_the_pods,
    class_says_what_happens_without_capacity,
    class_says_that_its_choices_have_gpus,
    namespace_is_stated,
    deployment_carries_the_label_of_its_pods,
    rollouts_are_stated,
    token_has_both_names,
    pods_end_when_requests_have,
    pulumi_does_not_wait_for_queues,
    pulumi_sets_replicas_back,
]
# The document forwards port 8080 of service/llm-service, and defines no such Service.
SERVICE: Object = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "llm-service"},
    "spec": {
        "type": "ClusterIP",
        "selector": {"app": "llm"},
        "ports": [{"protocol": "TCP", "port": 8080, "targetPort": 8080}],
    },
}


def comparable(item: Object) -> Object:
    """The object with a sorted environment, whose order has no meaning."""
    if item["kind"] == "Deployment":
        for container in item["spec"]["template"]["spec"]["containers"]:
            container["env"] = sorted(container["env"], key=lambda item: str(item["name"]))
    return item


def test_objects_are_those_of_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    record = run_program(configuration(EXAMPLE), False, monkeypatch)
    expected = {}
    for item in [*yaml.safe_load_all(EXPECTED.read_text()), SERVICE]:
        for difference in DIFFERENCES:
            difference(item)
        if item["kind"] == "Secret":
            item["stringData"] = dict.fromkeys(item["stringData"], TOKEN)
        expected[identity(item)] = comparable(item)
    registered = {
        identity(resource.inputs): comparable(unwrapped(resource.inputs))
        for resource in record.resources.values()
        if resource.type.startswith("kubernetes:")
    }
    are_equal(registered, expected)


def test_nothing_is_created_in_the_cloud(monkeypatch: pytest.MonkeyPatch) -> None:
    record = run_program(configuration(EXAMPLE), False, monkeypatch)
    assert not [resource.type for resource in record.resources.values() if resource.type.startswith("gcp:")]
