"""What Kubernetes says, read by its own rules."""

from typing import Any

import pytest

from gke_ai.kube.nodes import accelerator_type, capacity_mode, pool_of, shape_of
from gke_ai.kube.pods import accelerators, requests
from gke_ai.kube.values import UNKNOWN
from gke_ai.kube.workloads import is_server


def container(limits: dict[str, Any] | None = None, **requested: Any) -> dict[str, Any]:
    return {"name": "main", "resources": {"requests": requested, **({"limits": limits} if limits else {})}}


def pod(*containers: Any, init: Any = (), **more: Any) -> dict[str, Any]:
    return {"containers": [*containers], "initContainers": [*init], **more}


ONE, FOUR, SIDECAR = container(cpu="1"), container(cpu="4"), {**container(cpu="2"), "restartPolicy": "Always"}
GPU = container({"nvidia.com/gpu": "2"})
QUEUED = {"labels": {"kueue.x-k8s.io/queue-name": "team"}}


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        pytest.param(pod(container(cpu="2"), container(cpu="500m")), "5/2", id="containers count together"),
        pytest.param(pod(container({"cpu": "3"})), "3", id="a limit stands for a request"),
        pytest.param(pod(container({"cpu": "3"}, cpu="1")), "1", id="a request counts, not its limit"),
        pytest.param(pod(ONE, init=[container(cpu="3")]), "3", id="a larger init container"),
        pytest.param(pod(FOUR, init=[container(cpu="3")]), "4", id="a smaller init container"),
        pytest.param(pod(ONE, init=[SIDECAR]), "3", id="a sidecar counts with the containers"),
        pytest.param(pod(ONE, init=[SIDECAR, FOUR]), "6", id="an init container after a sidecar"),
        pytest.param(pod(ONE, init=[FOUR, SIDECAR]), "4", id="an init container before it"),
        pytest.param(pod(ONE, overhead={"cpu": "250m"}), "5/4", id="the overhead of a runtime class"),
        pytest.param(pod(ONE, resources={"requests": {"cpu": "2"}}), "2", id="requests of the whole pod"),
        pytest.param(pod(container(cpu=UNKNOWN), container(cpu=2.0)), "2", id="what is not known yet is not counted"),
    ],
)
def test_requests_are_counted_as_kubernetes_does(spec: dict[str, Any], cpu: str) -> None:
    assert str(requests(spec)["cpu"]) == cpu


def test_accelerators_of_init_containers_and_limits_count() -> None:
    counts = accelerators(pod(GPU, init=[container({"google.com/tpu": 4})]))
    assert counts == {"nvidia.com/gpu": 2, "google.com/tpu": 4}


@pytest.mark.parametrize(
    ("metadata", "spec", "server"),
    [
        ({}, {"template": {"spec": pod(ONE)}}, False),
        (QUEUED, {"template": {"spec": pod(ONE)}}, True),
        ({}, {"template": {"metadata": QUEUED, "spec": pod(ONE)}}, True),
        ({}, {"template": {"spec": pod(GPU)}}, True),
        (UNKNOWN, {}, False),
        ({"labels": UNKNOWN}, UNKNOWN, False),
        ({}, {"template": UNKNOWN}, False),
        ({}, {"template": {"metadata": {"labels": UNKNOWN}, "spec": UNKNOWN}}, False),
    ],
)
def test_a_server_is_known_to_have_a_queue_or_accelerators(metadata: Any, spec: Any, server: bool) -> None:
    assert is_server({"metadata": metadata, "spec": spec}) == server


def node(count: int = 0, **labels: str) -> dict[str, Any]:
    """A node with labels of GKE, and of this program if they name the pool."""
    keys = {"pool": "gke-ai/pool", "until": "gke-ai/until", "machine": "node.kubernetes.io/instance-type"}
    stated = {keys.get(key, f"cloud.google.com/{key.replace('_', '-')}"): text for key, text in labels.items()}
    return {"metadata": {"labels": stated}, "status": {"capacity": {"nvidia.com/gpu": str(count)} if count else {}}}


@pytest.mark.parametrize(
    ("stated", "mode"),
    [
        (node(), "onDemand"),
        ({"metadata": {}}, "onDemand"),
        (node(gke_provisioning="standard"), "onDemand"),
        (node(gke_provisioning="spot", gke_spot="true"), "spot"),
        (node(gke_provisioning="flex-start", gke_flex_start="true"), "flexStart"),
        (node(gke_provisioning="standard", reservation_name="mine"), "reservation"),
        (node(gke_provisioning="standard", until="20270101T000000Z"), "reservation"),
        (node(gke_provisioning="preemptible"), "preemptible"),
    ],
)
def test_the_labels_of_a_node_show_its_capacity_mode(stated: dict[str, Any], mode: str) -> None:
    assert capacity_mode(stated) == mode


def test_a_node_belongs_to_the_stable_name_of_its_pool() -> None:
    assert pool_of(node(gke_nodepool="l4-0a1b2c", pool="l4")) == "l4"
    assert pool_of(node(gke_nodepool="theirs")) == "theirs"


def test_a_node_has_the_shape_of_its_machine_and_of_gpus_that_are_attached_to_it() -> None:
    n1 = node(4, machine="n1-standard-8", gke_accelerator="nvidia-tesla-t4", reservation_name="mine")
    assert accelerator_type(n1) == "nvidia-tesla-t4"
    built_in = node(machine="g2-standard-24", gke_accelerator="nvidia-l4", gke_spot="true")
    for shape, found in (
        (shape_of(built_in), ("nvidia-l4", 2, "spot")),
        (shape_of(n1), ("nvidia-tesla-t4", 4, "onDemand")),
    ):
        assert shape is not None
        assert (shape.gpu, shape.gpus, shape.capacity) == found
    assert shape_of(node(machine="z9-standard-1")) is None
