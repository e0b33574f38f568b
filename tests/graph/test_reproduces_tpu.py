"""The TPU examples register the objects of their source documents, except for these differences."""

from collections.abc import Iterable
from typing import Any

import pytest
import yaml

from gke_ai.catalog.versions import JAX_TPU_IMAGE
from tests.support.recorder import ROOT, Record, configuration, shared_record
from tests.support.reproduced import are_equal, comparable, identity, kueue_objects_are_v1beta2

each_mode = pytest.mark.parametrize("mode", ["standard", "autopilot"])
Object = dict[str, Any]


def pods_of(item: Object) -> Iterable[Object]:
    """The pod specs in a Job or a JobSet."""
    if item["kind"] == "Job":
        yield item["spec"]["template"]["spec"]
    if item["kind"] == "JobSet":
        for job in item["spec"]["replicatedJobs"]:
            yield job["template"]["spec"]["template"]["spec"]


def request_chips(item: Object) -> None:
    for pod in pods_of(item):
        pod["containers"][0]["resources"] = {"requests": {"google.com/tpu": "4"}, "limits": {"google.com/tpu": "4"}}


def change_flex_start(item: Object) -> None:
    """The differences from the document on flex-start."""
    indexed = item["kind"] == "Job" and item["spec"].get("completionMode") == "Indexed"
    # The document names both Jobs job-1, but its section on deletion calls the second job-2.
    if indexed:
        item["metadata"]["name"] = "job-2"
    if item["kind"] == "Service":
        item["spec"]["selector"] = {"job-name": "job-2"}
    # The document leaves the slices open. Here: 2x2 and 4x4 of TPU v6e with 4 chips per machine.
    labels = {"gke-tpu-accelerator": "tpu-v6e-slice", "gke-tpu-topology": "4x4" if indexed else "2x2"}
    for pod in pods_of(item):
        pod["nodeSelector"] |= {f"cloud.google.com/{label}": value for label, value in labels.items()}
    request_chips(item)
    # The document has two pods for a 4x4 slice, which has four machines, as it says elsewhere.
    if indexed:
        item["spec"] |= {"completions": 4, "parallelism": 4}


def change_multislice(item: Object) -> None:
    """The differences from the document on Multislice."""
    kueue_objects_are_v1beta2(item)
    # The document uses python:3.8 and installs JAX at each start. Ours pins the JAX image.
    for pod in pods_of(item):
        container = pod["containers"][0]
        container["image"] = JAX_TPU_IMAGE
        kept = [line for line in container["command"][2].splitlines(keepends=True) if not line.startswith("pip ")]
        container["command"][2] = "".join(kept)
    request_chips(item)  # Kubernetes derives them from the limits.
    if item["kind"] == "PriorityClass":
        item["preemptionPolicy"] = "PreemptLowerPriority"  # Kubernetes' default.


def change_both(item: Object, mode: str) -> None:
    """The differences from both documents, and those on Autopilot."""
    if item["kind"] in ("Job", "JobSet", "Service"):
        # The documents omit the namespace, and kubectl uses `default`.
        item["metadata"]["namespace"] = "default"
        # Pulumi keeps a run that a newer one replaces. In a namespace that stays, both end with their owner.
        name = "runs-of-gke-ai-test"
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": f"uid of default/{name}"}
        item["metadata"]["ownerReferences"] = [{**owner, "blockOwnerDeletion": True}]
    # An annotation for Pulumi's plugin, without effect in the cluster.
    if item["kind"] == "Job":
        item["metadata"]["annotations"] = {"pulumi.com/skipAwait": "true"}
    if mode == "autopilot":
        for pod in pods_of(item):
            # Autopilot has no privileged containers. Since GKE 1.28 the document's Jobs on TPUs need none.
            pod["containers"][0].pop("securityContext", None)
            # As in the document's JobSets for Autopilot.
            pod.pop("hostNetwork", None)
            pod.pop("dnsPolicy", None)


CHANGES = {"flex-start-tpu": change_flex_start, "multislice-training": change_multislice}
# Not in the source as objects: Kueue and JobSet are installed from manifests there.
INSTALLATION = {
    *(("Namespace", "kueue-system"), ("Namespace", "jobset-system")),
    *(("ClusterRole", "kueue-batch-admin-role"), ("ClusterRole", "kueue-batch-user-role")),
}


def recorded(name: str, mode: str) -> Record:
    return shared_record(configuration(f"examples/{name}{'-autopilot' if mode == 'autopilot' else ''}.yaml"))


@each_mode
@pytest.mark.parametrize("name", CHANGES)
def test_objects_are_those_of_the_source(name: str, mode: str) -> None:
    expected = {}
    for item in yaml.safe_load_all((ROOT / "tests" / "data" / "expected" / f"{name}.yaml").read_text()):
        CHANGES[name](item)
        change_both(item, mode)
        expected[identity(item)] = comparable(item)
    registered = {
        identity(resource.inputs): comparable(dict(resource.inputs))
        for resource in recorded(name, mode).resources.values()
        if resource.type.startswith("kubernetes:")
        and "helm.sh" not in resource.type
        and identity(resource.inputs) not in INSTALLATION
        and not resource.object_name.startswith("runs-of-")
    }
    are_equal(registered, expected)


@each_mode
def test_jobsets_are_created_in_the_order_that_the_source_shows(mode: str) -> None:
    record = recorded("multislice-training", mode)
    before = {name: record.waits_for(record.one("JobSet", f"multislice-{name}slice")) for name in "123"}
    assert "JobSet multislice-3slice" in before["1"]
    assert "JobSet multislice-1slice" in before["2"]
    assert not any(dependency.startswith("JobSet") for dependency in before["3"])
