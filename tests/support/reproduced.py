"""Differences between the source documents and what the program registers, each with its reason."""

import copy
from collections.abc import Mapping
from typing import Any

from gke_ai.catalog.quantities import parse_quantity
from tests.support.recorder import PROJECT

REGION, BUCKET = "us-central1", f"model-bucket-{PROJECT}"
Object = dict[str, Any]


def kueue_objects_are_v1beta2(item: Object) -> None:
    """The document uses Kueue 0.10. Current Kueue stores v1beta2."""
    if item["apiVersion"] == "kueue.x-k8s.io/v1beta1":
        item["apiVersion"] = "kueue.x-k8s.io/v1beta2"


def rollouts_are_stated(item: Object) -> None:
    """Equals Kubernetes' default with one replica. Set because a rollout at full quota is a choice."""
    if item["kind"] == "Deployment":
        item["spec"]["strategy"] = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}


def token_has_both_names(item: Object) -> None:
    """TGI's launcher reads the second name to download the model's configuration."""
    if item["kind"] == "Deployment":
        container = item["spec"]["template"]["spec"]["containers"][0]
        place, token = next(
            (place, variable)
            for place, variable in enumerate(container["env"])
            if variable["name"] == "HUGGING_FACE_HUB_TOKEN"
        )
        container["env"].insert(place + 1, {**token, "name": "HF_TOKEN"})


def pods_end_when_requests_have(item: Object) -> None:
    """The documents keep Kubernetes' 30 s, which aborts requests at each rollout and drain."""
    if item["kind"] == "Deployment":
        pod = item["spec"]["template"]["spec"]
        pod["terminationGracePeriodSeconds"] = 120
        for container in pod["containers"]:
            container["lifecycle"] = {"preStop": {"sleep": {"seconds": 15}}}


def pulumi_does_not_wait_for_queues(item: Object) -> None:
    """An annotation for Pulumi's plugin, without effect in the cluster."""
    if item["kind"] in ("Deployment", "Job") or item["metadata"]["name"] == "llm-service":
        item["metadata"]["annotations"] = {"pulumi.com/skipAwait": "true"}


def pulumi_sets_replicas_back(item: Object) -> None:
    """An annotation for Pulumi's plugin, without effect in the cluster."""
    if item["kind"] == "Deployment":
        item["metadata"]["annotations"]["pulumi.com/patchForce"] = "true"


def identity(item: Mapping[str, Any]) -> tuple[str, str]:
    return item["kind"], item["metadata"]["name"]


def unwrapped(inputs: Mapping[str, Any]) -> Object:
    """The object with its secret decoded, as the API server receives it."""
    item = dict(inputs)
    if item["kind"] == "Secret":
        item["stringData"] = item["stringData"]["value"]
    return item


def comparable(item: Object) -> Object:
    """The object with normalized quantities, and sorted lists whose order has no meaning."""
    if item["kind"] == "ClusterQueue":
        item = copy.deepcopy(item)
        for group in item["spec"]["resourceGroups"]:
            group["coveredResources"] = sorted(group["coveredResources"])
            for flavor in group["flavors"]:
                flavor["resources"] = {
                    quota["name"]: parse_quantity(str(quota["nominalQuota"])) for quota in flavor["resources"]
                }
    return item


def are_equal(registered: Mapping[Any, Any], expected: Mapping[Any, Any]) -> None:
    """Asserts that the registered objects are those of the documents. Names the first that is not."""
    assert registered.keys() == expected.keys()
    for key, wanted in expected.items():
        assert registered[key] == wanted, key
