"""The cost-optimized serving example registers the objects of its source document, except for these differences."""

import copy

import yaml

from tests.support import reproduced
from tests.support.recorder import ROOT, TOKEN, configuration, shared_record
from tests.support.reproduced import Object, are_equal, identity, unwrapped

EXPECTED = ROOT / "tests" / "data" / "expected" / "cost-optimized-serving.yaml"


def change(item: Object) -> None:
    """The differences from the document."""
    if item["kind"] == "ComputeClass":
        # GKE's default changed in 1.33, so the program writes the value.
        item["spec"]["whenUnsatisfiable"] = "DoNotScaleUp"
        # Autopilot accepts a pod with GPUs only if a priority states GPUs. Otherwise the machine type is enough.
        for priority in item["spec"]["priorities"]:
            priority["gpu"] = {"type": "nvidia-l4", "count": 2}
    else:
        # The document omits the namespace, and kubectl uses `default`.
        item["metadata"]["namespace"] = "default"
    if item["kind"] == "Deployment":
        # The document has the node selector under the Deployment's spec, which has no such field.
        item["spec"]["template"]["spec"]["nodeSelector"] = item["spec"].pop("nodeSelector")
        # The label that the mixed training and inference document uses, so people can select it.
        item["metadata"]["labels"] = {"app": "llm"}
    if item["kind"] == "Secret":
        item["stringData"] = dict.fromkeys(item["stringData"], TOKEN)
    reproduced.rollouts_are_stated(item)
    reproduced.token_has_both_names(item)
    reproduced.pods_end_when_requests_have(item)
    reproduced.pulumi_does_not_wait_for_queues(item)
    reproduced.pulumi_sets_replicas_back(item)


PORT = {"protocol": "TCP", "port": 8080, "targetPort": 8080}
# The document forwards port 8080 of service/llm-service, and defines no such Service.
SERVICE: Object = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "llm-service"},
    "spec": {"type": "ClusterIP", "selector": {"app": "llm"}, "ports": [PORT]},
}


def comparable(item: Object) -> Object:
    """The object with a sorted environment, whose order has no meaning."""
    if item["kind"] == "Deployment":
        item = copy.deepcopy(item)
        for container in item["spec"]["template"]["spec"]["containers"]:
            container["env"] = sorted(container["env"], key=lambda variable: str(variable["name"]))
    return item


def test_objects_are_those_of_the_source_and_nothing_is_created_in_the_cloud() -> None:
    resources = shared_record(configuration("examples/cost-optimized-serving.yaml")).resources.values()
    expected = {}
    for item in [*yaml.safe_load_all(EXPECTED.read_text()), SERVICE]:
        change(item)
        expected[identity(item)] = comparable(item)
    objects = [unwrapped(resource.inputs) for resource in resources if resource.type.startswith("kubernetes:")]
    are_equal({identity(item): comparable(item) for item in objects}, expected)
    assert not [resource.type for resource in resources if resource.type.startswith("gcp:")]
