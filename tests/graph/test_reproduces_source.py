"""Both mixed examples register the objects of their source document, except for these differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tests.support.recorder import PROJECT, PROJECT_NUMBER, ROOT, TOKEN, Record, configuration, run_program
from tests.support.reproduced import (
    BUCKET,
    REGION,
    Object,
    are_equal,
    comparable,
    identity,
    kueue_objects_are_v1beta2,
    pods_end_when_requests_have,
    pulumi_does_not_wait_for_queues,
    pulumi_sets_replicas_back,
    rollouts_are_stated,
    token_has_both_names,
    unwrapped,
)

EXPECTED = ROOT / "tests" / "data" / "expected"
EXAMPLES = {
    "standard": "examples/mixed-training-inference.yaml",
    "autopilot": "examples/mixed-training-inference-autopilot.yaml",
}


def kueue_takes_deployments_by_their_queue_label(item: Object) -> None:
    """The document selects pods by `kueue-job`. Current Kueue selects by the queue's label instead."""
    if item["kind"] == "Deployment":
        del item["spec"]["template"]["metadata"]["labels"]["kueue-job"]
        item["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "lq"


def kueue_is_current(manager: Object) -> None:
    """The document uses Kueue 0.10. Current Kueue reads v1beta2, and serves its metrics by HTTPS."""
    manager["apiVersion"] = "config.kueue.x-k8s.io/v1beta2"
    manager["metrics"]["bindAddress"] = ":8443"


def kueue_manages_the_namespace_of_the_stack(manager: Object) -> None:
    """The options of pods are gone. The namespaces count for every kind, and a queue's label selects pods."""
    del manager["integrations"]["podOptions"]
    of_the_stack = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["llm"]}
    manager["managedJobsNamespaceSelector"] = {"matchExpressions": [of_the_stack]}


def kueue_manages_what_the_stack_can_run(manager: Object) -> None:
    """A framework whose kind the cluster lacks does nothing. `trainer` and `ray` install others."""
    frameworks = manager["integrations"]["frameworks"]
    frameworks[:] = [name for name in frameworks if not name.startswith(("kubeflow.org/", "ray.io/"))]
    frameworks += ["deployment", "statefulset"]


def kueue_takes_back_quota_of_pods_that_never_start(manager: Object) -> None:
    """Without it, a run whose pods can't start holds its quota for ever."""
    again = {"timestamp": "Eviction", "backoffBaseSeconds": 60, "backoffMaxSeconds": 3600}
    manager["waitForPodsReady"] = {"timeout": "3600s", "blockAdmission": False, "requeuingStrategy": again}


OF_THE_MANAGER: list[Callable[[Object], None]] = [
    kueue_is_current,
    kueue_manages_the_namespace_of_the_stack,
    kueue_manages_what_the_stack_can_run,
    kueue_takes_back_quota_of_pods_that_never_start,
]
DIFFERENCES: list[Callable[[Object], None]] = [
    kueue_objects_are_v1beta2,
    kueue_takes_deployments_by_their_queue_label,
    rollouts_are_stated,
    token_has_both_names,
    pods_end_when_requests_have,
    pulumi_does_not_wait_for_queues,
    pulumi_sets_replicas_back,
]
# Not in the source as objects: Kueue is installed by its chart there too, from a manifest.
INSTALLATION = {
    ("Namespace", "kueue-system"),
    ("ClusterRole", "kueue-batch-admin-role"),
    ("ClusterRole", "kueue-batch-user-role"),
}


@pytest.fixture(params=EXAMPLES, ids=list(EXAMPLES))
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def record(mode: str, monkeypatch: pytest.MonkeyPatch) -> Record:
    return run_program(configuration(EXAMPLES[mode]), False, monkeypatch)


def test_kubernetes_objects_are_those_of_the_source(record: Record) -> None:
    expected = {}
    for item in yaml.safe_load_all((EXPECTED / "objects.yaml").read_text()):
        for difference in DIFFERENCES:
            difference(item)
        expected[identity(item)] = comparable(filled(item))
    registered = {
        identity(resource.inputs): comparable(unwrapped(resource.inputs))
        for resource in record.resources.values()
        if resource.type.startswith("kubernetes:")
        and "helm.sh" not in resource.type
        and identity(resource.inputs) not in INSTALLATION
    }
    are_equal(registered, expected)


def test_manager_of_kueue_is_configured_as_the_patch_of_the_source(record: Record) -> None:
    expected = yaml.safe_load((EXPECTED / "kueue-patch.yaml").read_text())
    for difference in OF_THE_MANAGER:
        difference(expected)
    (release,) = (release for release in record.all("Release") if release.part == "kueue")
    assert yaml.safe_load(release.inputs["values"]["managerConfig"]["controllerManagerConfigYaml"]) == expected


def filled(value: Any) -> Any:
    """The document with its variables filled in."""
    if isinstance(value, str):
        variables = {"PROJECT_ID": PROJECT, "PROJECT_NUMBER": PROJECT_NUMBER, "MODEL_BUCKET": BUCKET, "REGION": REGION}
        for variable, content in variables.items():
            value = value.replace(variable, content)
        return TOKEN if value == "HF_TOKEN" else value
    if isinstance(value, list):
        return [filled(item) for item in value]
    if isinstance(value, dict):
        # A variable's name is no value: `HF_TOKEN` is also the name of an environment variable.
        return {key: item if key == "name" and item == "HF_TOKEN" else filled(item) for key, item in value.items()}
    return value
