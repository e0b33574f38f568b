"""Claims of devices in the status: allocated NICs of a pool, and what a pending pod waits for."""

from typing import Any

import pytest

from emulator.nodes.devices import resource_slice
from gke_ai.catalog.fabric.rdma import DRIVER, claim_template
from gke_ai.catalog.nodes.shape import GKE_NODEPOOL, INSTANCE_TYPE, NVIDIA_GPU
from gke_ai.ops.status import command as status

Object = dict[str, Any]


def node(name: str) -> Object:
    """A node of A4."""
    labels = {GKE_NODEPOOL: "b200", INSTANCE_TYPE: "a4-highgpu-8g"}
    metadata = {"name": name, "uid": f"uid-{name}", "labels": labels}
    ready = [{"type": "Ready", "status": "True"}]
    return {"metadata": metadata, "status": {"conditions": ready, "allocatable": {NVIDIA_GPU: "8"}}}


def claim(name: str, node: str = "", count: int = 8, device_class: str = "") -> Object:
    """A claim of the template, with all NICs of a node or without any."""
    named = {"driver": DRIVER, "pool": f"{node}-{DRIVER}"}
    devices = [{**named, "device": f"dra-net-device-{number + 1}"} for number in range(8)]
    template = claim_template("llm")["spec"]["spec"]
    template["devices"]["requests"][0]["exactly"] |= {"count": count}
    template["devices"]["requests"][0]["exactly"] |= {"deviceClassName": device_class} if device_class else {}
    status = {"allocation": {"devices": {"results": devices}}} if node else {}
    return {"metadata": {"name": name, "namespace": "llm"}, "spec": template, "status": status}


def pod(reason: str = "Unschedulable", created: str | None = "second-x7", **entry: str) -> Object:
    """A pending pod with a claim."""
    message = "0/2 nodes are available: 2 cannot allocate all claims."
    scheduled = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    entries = [{"name": "rdma", **(entry or {"resourceClaimTemplateName": "rdma"})}]
    statuses = [{"name": "rdma", "resourceClaimName": created}] if created else []
    return {
        "metadata": {"name": "second-0", "namespace": "llm", "uid": "p"},
        "spec": {"containers": [], "resourceClaims": entries},
        "status": {"conditions": [scheduled], "resourceClaimStatuses": statuses},
    }


def test_a_pool_shows_how_many_of_its_nics_are_allocated() -> None:
    nodes = [node("a"), node("b")]
    slices = [resource_slice(item) for item in nodes]
    snapshot = status.ClusterObjects(nodes=nodes, slices=slices, claims=[claim("first", "a"), claim("second")])
    ((*_, used),) = status.pool_rows(snapshot)
    assert used == "0 of 16, NICs 8 of 16", "the ninth device of a node has no RDMA"
    ((*_, used),) = status.pool_rows(status.ClusterObjects(nodes=nodes))
    assert used == "0 of 16"


AB, OWN = ["a", "b"], claim("second-x7")
NEITHER = claim("second-x7", device_class="compute-domain-channel.nvidia.com")


@pytest.mark.parametrize(
    ("waiting", "claims", "nodes", "text"),
    [
        (pod(), [OWN, claim("first", "a"), claim("other", "b")], AB, "than 0 free (0/2 nodes"),
        (pod(), [claim("second-x7", count=9)], AB, "requests 9 NICs, and no node has more than 8 free"),
        (pod(), [OWN], [], "claim second-x7 is not allocated: it requests 8 NICs, and no node has any"),
        (pod(), [OWN, claim("first", "a")], AB, "and nodes that have them do not fit the pod"),
        (pod(created=None), [], ["a"], "no claim rdma yet: see whether namespace llm has the template rdma"),
        (pod(created=None, resourceClaimName="mine"), [], ["a"], "there is no claim mine in namespace llm"),
        (pod(), [claim("second-x7", "a")], ["a"], "Unschedulable: 0/2 nodes are available"),
        (pod("SchedulingGated"), [], ["a"], "SchedulingGated: its queue has not admitted it"),
        (pod(), [NEITHER], AB, "Unschedulable: claim second-x7 is not allocated (0/2 nodes are available"),
    ],
)
def test_a_pending_pod_names_what_it_lacks(waiting: Object, claims: list[Object], nodes: list[str], text: str) -> None:
    slices = [resource_slice(node(name)) for name in nodes]
    ((_, why),) = status.waiting_rows(status.ClusterObjects(pods=[waiting], claims=claims, slices=slices))
    assert text in why
