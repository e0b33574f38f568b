"""The TPU examples register the objects of their source documents, except for these differences."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import yaml

from gke_ai.catalog.versions import JAX_TPU_IMAGE
from tests.support.recorder import ROOT, Record, configuration, run_program
from tests.support.reproduced import are_equal, comparable, identity, kueue_objects_are_v1beta2

EXPECTED = ROOT / "tests" / "data" / "expected"
FLEX_START = "examples/flex-start-tpu.yaml"
MULTISLICE = "examples/multislice-training.yaml"
SUFFIX = {"standard": ".yaml", "autopilot": "-autopilot.yaml"}
Object = dict[str, Any]
Difference = Callable[[Object], None]


def pods_of(item: Object) -> Iterable[Object]:
    """The pod specs in a Job or a JobSet."""
    if item["kind"] == "Job":
        yield item["spec"]["template"]["spec"]
    if item["kind"] == "JobSet":
        for job in item["spec"]["replicatedJobs"]:
            yield job["template"]["spec"]["template"]["spec"]


def second_job_is_job_2(item: Object) -> None:
    """The document names both Jobs job-1, but its section on deletion calls the second job-2."""
    if item["kind"] == "Job" and item["spec"].get("completionMode") == "Indexed":
        item["metadata"]["name"] = "job-2"
    if item["kind"] == "Service":
        item["spec"]["selector"] = {"job-name": "job-2"}


def slices_are_chosen(item: Object) -> None:
    """The document leaves them open. Here: 2x2 and 4x4 of TPU v6e with 4 chips per machine."""
    for pod in pods_of(item):
        topology = "4x4" if "completions" in item["spec"] else "2x2"
        pod["nodeSelector"] |= {
            "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
            "cloud.google.com/gke-tpu-topology": topology,
        }
        pod["containers"][0]["resources"] = {"requests": {"google.com/tpu": "4"}, "limits": {"google.com/tpu": "4"}}


def pods_are_as_many_as_the_slice_has_machines(item: Object) -> None:
    """The document has two pods for a 4x4 slice, which has four machines, as it says elsewhere."""
    if "completions" in item["spec"]:
        item["spec"] |= {"completions": 4, "parallelism": 4}


def namespace_is_stated(item: Object) -> None:
    """The document omits the namespace, and kubectl uses `default`."""
    if item["kind"] in ("Job", "JobSet", "Service"):
        item["metadata"]["namespace"] = "default"


def pulumi_does_not_wait_for_runs(item: Object) -> None:
    """An annotation for Pulumi's plugin, without effect in the cluster."""
    if item["kind"] == "Job":
        item["metadata"]["annotations"] = {"pulumi.com/skipAwait": "true"}


def image_has_jax(item: Object) -> None:
    """The document uses python:3.8 and installs JAX at each start. Ours pins the JAX image."""
    for pod in pods_of(item):
        container = pod["containers"][0]
        container["image"] = JAX_TPU_IMAGE
        kept = [line for line in container["command"][2].splitlines(keepends=True) if not line.startswith("pip ")]
        container["command"][2] = "".join(kept)


def requests_are_stated(item: Object) -> None:
    """Kubernetes derives them from the limits."""
    for pod in pods_of(item):
        pod["containers"][0]["resources"] = {"requests": {"google.com/tpu": "4"}, "limits": {"google.com/tpu": "4"}}


def preemption_is_stated(item: Object) -> None:
    """Kubernetes' default."""
    if item["kind"] == "PriorityClass":
        item["preemptionPolicy"] = "PreemptLowerPriority"


def autopilot_pods_are_not_privileged(item: Object) -> None:
    """Autopilot has no privileged containers. Since GKE 1.28 the document's Jobs on TPUs need none."""
    for pod in pods_of(item):
        pod["containers"][0].pop("securityContext", None)


def autopilot_pods_have_a_network_of_their_own(item: Object) -> None:
    """As in the document's JobSets for Autopilot."""
    for pod in pods_of(item):
        pod.pop("hostNetwork", None)
        pod.pop("dnsPolicy", None)


def runs_have_an_owner(item: Object) -> None:
    """Pulumi keeps a run that a newer one replaces. In a namespace that stays, both end with their owner."""
    if item["kind"] in ("Job", "JobSet", "Service"):
        name = "runs-of-gke-ai-test"
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": f"uid of default/{name}"}
        item["metadata"]["ownerReferences"] = [{**owner, "blockOwnerDeletion": True}]


BOTH: list[Difference] = [namespace_is_stated, pulumi_does_not_wait_for_runs, runs_have_an_owner]
FLEX_START_DIFFERENCES: list[Difference] = [
    second_job_is_job_2,
    slices_are_chosen,
    pods_are_as_many_as_the_slice_has_machines,
    *BOTH,
]
MULTISLICE_DIFFERENCES: list[Difference] = [
    kueue_objects_are_v1beta2,
    image_has_jax,
    requests_are_stated,
    preemption_is_stated,
    *BOTH,
]
AUTOPILOT: list[Difference] = [autopilot_pods_are_not_privileged, autopilot_pods_have_a_network_of_their_own]
# Not in the source as objects: Kueue and JobSet are installed from manifests there.
INSTALLATION = {
    ("Namespace", "kueue-system"),
    ("Namespace", "jobset-system"),
    ("ClusterRole", "kueue-batch-admin-role"),
    ("ClusterRole", "kueue-batch-user-role"),
}


@pytest.fixture(params=SUFFIX, ids=list(SUFFIX))
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def example(path: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> Record:
    return run_program(configuration(path.replace(".yaml", SUFFIX[mode])), False, monkeypatch)


def objects_of(record: Record) -> dict[tuple[str, str], Object]:
    """The objects that the program registers in the cluster, without its controllers."""
    return {
        identity(resource.inputs): comparable(dict(resource.inputs))
        for resource in record.resources.values()
        if resource.type.startswith("kubernetes:")
        and "helm.sh" not in resource.type
        and identity(resource.inputs) not in INSTALLATION
        and not resource.object_name.startswith("runs-of-")
    }


def of_the_source(file: str, differences: list[Difference], mode: str) -> dict[tuple[str, str], Object]:
    """The document's objects, with the differences applied."""
    expected = {}
    for item in yaml.safe_load_all((EXPECTED / file).read_text()):
        for difference in [*differences, *(AUTOPILOT if mode == "autopilot" else [])]:
            difference(item)
        expected[identity(item)] = comparable(item)
    return expected


def test_flex_start_objects_are_those_of_the_source(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    record = example(FLEX_START, mode, monkeypatch)
    expected = of_the_source("flex-start-tpu.yaml", FLEX_START_DIFFERENCES, mode)
    registered = objects_of(record)
    are_equal(registered, expected)


def test_multislice_objects_are_those_of_the_source(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    record = example(MULTISLICE, mode, monkeypatch)
    expected = of_the_source("multislice-training.yaml", MULTISLICE_DIFFERENCES, mode)
    registered = objects_of(record)
    are_equal(registered, expected)


def test_jobsets_are_created_in_the_order_that_the_source_shows(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    record = example(MULTISLICE, mode, monkeypatch)
    before = {name: record.waits_for(record.one("JobSet", f"multislice-{name}slice")) for name in "123"}
    assert "JobSet multislice-3slice" in before["1"]
    assert "JobSet multislice-1slice" in before["2"]
    assert not any(dependency.startswith("JobSet") for dependency in before["3"])
