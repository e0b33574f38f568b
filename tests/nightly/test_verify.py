"""Only here: verify finds a live cluster as declared, and reports each later change in it."""

import json
import re
from collections.abc import Iterator
from functools import partial

import pytest

from gke_ai.catalog.nodes.daemonsets import agent_requests
from gke_ai.catalog.nodes.shape import GKE_ACCELERATOR
from gke_ai.catalog.quantities import parse_quantity, readable
from gke_ai.kube.objects import holds
from gke_ai.settings import calibration
from tests.support.emulator import ROOT, Emulator, eventually, fresh
from tests.support.workloads import fails

DEV = "Pulumi.dev.yaml"
NAMESPACE = "llm"
DAEMONS = ROOT / "tests" / "data" / "verify_daemons.yaml"


@pytest.fixture(scope="module")
def dev() -> Iterator[Emulator]:
    """The dev environment, with all its pods running."""
    with fresh() as emulator:
        emulator.make("up", emulator.configure(DEV))
        pods = partial(emulator.get, "pods", "-n", NAMESPACE)
        ready = "the server and both pods of the run are ready"
        eventually(lambda: sum(holds(pod, "Ready") for pod in pods()) == 3, ready, 120)
        yield emulator


def test_dev_environment_is_as_the_stack_relies_on(dev: Emulator) -> None:
    def verified() -> str | None:
        """What verify prints, once the API server counts the JobSets of the new cluster's tenant."""
        printed = dev.make("verify")
        assert fails(printed) == []
        return printed if " 0 fail, 0 not seen yet, 1 not checked." in printed else None

    printed = eventually(verified, "all but the bucket is checked")
    for claim in ("webhook", "grant", "secret", "label", "taint", "accelerators", "quota", "image", "model load"):
        assert re.search(rf"^pass +{claim}\b", printed, re.MULTILINE), claim
    # No gcloud here: what can't be read is said to be so, with the command.
    assert "gcloud storage buckets get-iam-policy gs://ai-dev-models-" in printed
    assert not any(value in printed for value in dev.get("secrets", "-n", NAMESPACE)[0]["data"].values())


def test_program_plans_with_the_measured_figures(dev: Emulator) -> None:
    file = dev.state / "calibration" / f"{dev.stack}.yaml"
    measured = calibration.read(file)
    (node,) = {figures.machine_type for figures in measured.nodes if figures.gpus == 2}
    assert node == "g2-standard-24"
    assert {"clusterReady", "nodeReady", "modelLoad", "admission"} <= {duration.step for duration in measured.durations}
    dev.make("verify")
    again = calibration.read(file)
    assert [node.machine_type for node in measured.nodes] == [node.machine_type for node in again.nodes]
    dev.make("preview", dev.configure(DEV, calibration=str(file)))
    # Members submit by the same figures.
    assert dev.planned() == {"update": ["kubernetes:core/v1:ConfigMap::research/gke-ai-stack"]}


def test_each_difference_and_a_webhook_that_is_down_are_reported(dev: Emulator) -> None:
    (server,) = dev.get("pods", "-n", NAMESPACE, "-l", "app=gemma")
    name = str(server["spec"]["nodeName"])
    dev.kubectl("label", "node", name, f"{GKE_ACCELERATOR}=nvidia-tesla-t4", "--overwrite")
    smaller = json.dumps({"status": {"allocatable": {"memory": "70Gi"}}})
    dev.kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", smaller)
    dev.kubectl("taint", "node", name, "planted=true:PreferNoSchedule")
    removed = json.dumps([{"op": "remove", "path": "/data/hf_api_token"}])
    dev.kubectl("patch", "secret", "hf-secret", "-n", NAMESPACE, "--type=json", "-p", removed)
    (queue,) = dev.get("clusterqueues", "--field-selector=metadata.name=research")
    (flavor,) = queue["spec"]["resourceGroups"][0]["flavors"]
    index = [resource["name"] for resource in flavor["resources"]].index("nvidia.com/gpu")
    path = f"/spec/resourceGroups/0/flavors/0/resources/{index}/nominalQuota"
    shrunk = json.dumps([{"op": "replace", "path": path, "value": "1"}])
    dev.kubectl("patch", "clusterqueue", "research", "--type=json", "-p", shrunk)
    dev.kubectl("delete", "rolebinding", "submit", "-n", "research")
    dev.kubectl("apply", "-f", str(DAEMONS))
    planted = ("pods", "-n", "kube-system", "-l", "app=planted", f"--field-selector=spec.nodeName={name}")
    eventually(lambda: dev.get(*planted), "the DaemonSet has a pod on the node")
    (server,) = dev.get("pods", "-n", NAMESPACE, "-l", "app=gemma")
    (status,) = server["status"]["containerStatuses"]
    waiting = {**status, "ready": False, "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}}
    broken = json.dumps({"status": {"containerStatuses": [waiting]}})
    of_server = ("pod", server["metadata"]["name"], "-n", NAMESPACE)
    dev.kubectl("patch", *of_server, "--subresource=status", "--type=merge", "-p", broken)

    printed = dev.make("verify", fails=True)
    expected = ["DaemonSets cpu", "allocatable memory", "grant", "grant", "image", "label", "quota", "secret", "taint"]
    assert fails(printed) == expected
    # Beside the planted DaemonSet, GKE's own agents run on the node.
    cpu = readable("cpu", parse_quantity("2500m") + agent_requests(gpu=True, tpu=False)["cpu"])
    for value in ("nvidia-tesla-t4", "70Gi", "planted=true:PreferNoSchedule", "no keys", cpu, "ErrImagePull"):
        assert value in printed, value
    assert "may not create jobs" in printed

    dev.kubectl("scale", "deployment", "-n", "kueue-system", "--all", "--replicas=0")
    managers = ("pods", "-n", "kueue-system", "-l", "control-plane=controller-manager")
    eventually(lambda: not dev.get(*managers), "Kueue is down")
    cause = "no ready endpoint of Service kueue-webhook-service"
    eventually(lambda: cause in dev.make("verify", fails=True), "the webhook is said to be down", 30)
