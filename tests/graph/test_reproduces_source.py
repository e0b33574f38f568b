"""Both mixed examples register the objects of their source document, except for these differences."""

import pytest
import yaml

from tests.support import reproduced
from tests.support.recorder import ROOT, TOKEN, Record, configuration, shared_record
from tests.support.reproduced import BUCKET, Object, are_equal, comparable, identity, unwrapped

EXPECTED = ROOT / "tests" / "data" / "expected"
EXAMPLES = [f"examples/mixed-training-inference{mode}.yaml" for mode in ("", "-autopilot")]


def change(item: Object) -> None:
    """The differences from the document."""
    reproduced.kueue_objects_are_v1beta2(item)
    reproduced.rollouts_are_stated(item)
    reproduced.token_has_both_names(item)
    reproduced.pods_end_when_requests_have(item)
    reproduced.pulumi_does_not_wait_for_queues(item)
    reproduced.pulumi_sets_replicas_back(item)
    # The document selects pods by `kueue-job`. Current Kueue selects by the queue's label instead.
    if item["kind"] == "Deployment":
        del item["spec"]["template"]["metadata"]["labels"]["kueue-job"]
        item["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "lq"


def change_manager(manager: Object) -> None:
    """The differences from the document's configuration of Kueue's manager."""
    # The document uses Kueue 0.10. Current Kueue reads v1beta2, and serves its metrics by HTTPS.
    manager["apiVersion"] = "config.kueue.x-k8s.io/v1beta2"
    manager["metrics"]["bindAddress"] = ":8443"
    # The options of pods are gone. The namespaces count for every kind, and a queue's label selects pods.
    del manager["integrations"]["podOptions"]
    of_the_stack = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["llm"]}
    manager["managedJobsNamespaceSelector"] = {"matchExpressions": [of_the_stack]}
    # A framework whose kind the cluster lacks does nothing. `trainer` and `ray` install others.
    frameworks = manager["integrations"]["frameworks"]
    frameworks[:] = [name for name in frameworks if not name.startswith(("kubeflow.org/", "ray.io/"))]
    frameworks += ["deployment", "statefulset"]
    # Without it, a run whose pods can't start holds its quota for ever.
    again = {"timestamp": "Eviction", "backoffBaseSeconds": 60, "backoffMaxSeconds": 3600}
    manager["waitForPodsReady"] = {"timeout": "3600s", "blockAdmission": False, "requeuingStrategy": again}


# Not in the source as objects: Kueue is installed by its chart there too, from a manifest.
ROLES = [("ClusterRole", f"kueue-batch-{who}-role") for who in ("admin", "user")]
INSTALLATION = [("Namespace", "kueue-system"), *ROLES]


@pytest.fixture(params=EXAMPLES, ids=["standard", "autopilot"])
def record(request: pytest.FixtureRequest) -> Record:
    return shared_record(configuration(request.param))


def test_kubernetes_objects_are_those_of_the_source(record: Record) -> None:
    expected = {}
    text = (EXPECTED / "objects.yaml").read_text()
    for variable, content in {"MODEL_BUCKET": BUCKET, "hf_api_token: HF_TOKEN": f"hf_api_token: {TOKEN}"}.items():
        text = text.replace(variable, content)
    for item in yaml.safe_load_all(text):
        change(item)
        expected[identity(item)] = comparable(item)
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
    change_manager(expected)
    (release,) = (release for release in record.all("Release") if release.part == "kueue")
    assert yaml.safe_load(release.inputs["values"]["managerConfig"]["controllerManagerConfigYaml"]) == expected
