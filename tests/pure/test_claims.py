"""Claims of devices in the status: allocated NICs of a pool, and what a pending pod waits for."""

from __future__ import annotations

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


def claim(name: str, node: str = "", count: int = 8) -> Object:
    """A claim of the template, with all NICs of a node or without any."""
    devices = [
        {"driver": DRIVER, "pool": f"{node}-{DRIVER}", "device": f"dra-net-device-{number + 1}"} for number in range(8)
    ]
    template = claim_template("llm")["spec"]["spec"]
    template["devices"]["requests"][0]["exactly"]["count"] = count
    return {
        "metadata": {"name": name, "namespace": "llm"},
        "spec": template,
        "status": {"allocation": {"devices": {"results": devices}}} if node else {},
    }


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


def why(pod: Object, *claims: Object, nodes: tuple[str, ...] = ("a", "b")) -> str:
    """Why the pod waits, by the status."""
    slices = [resource_slice(node(name)) for name in nodes]
    ((_, text),) = status.waiting_rows(status.ClusterObjects(pods=[pod], claims=claims, slices=slices))
    return text


def test_a_pool_shows_how_many_of_its_nics_are_allocated() -> None:
    nodes = [node("a"), node("b")]
    slices = [resource_slice(item) for item in nodes]
    snapshot = status.ClusterObjects(nodes=nodes, slices=slices, claims=[claim("first", "a"), claim("second")])
    ((*_, used),) = status.pool_rows(snapshot)
    assert used == "0 of 16, NICs 8 of 16", "the ninth device of a node has no RDMA"
    ((*_, used),) = status.pool_rows(status.ClusterObjects(nodes=nodes))
    assert used == "0 of 16"


@pytest.mark.parametrize(
    ("waiting", "claims", "nodes", "text"),
    [
        (pod(), [claim("second-x7"), claim("first", "a"), claim("other", "b")], ("a", "b"), "than 0 free (0/2 nodes"),
        (pod(), [claim("second-x7", count=9)], ("a", "b"), "requests 9 NICs, and no node has more than 8 free"),
        (pod(), [claim("second-x7")], (), "claim second-x7 is not allocated: it requests 8 NICs, and no node has any"),
        (pod(), [claim("second-x7"), claim("first", "a")], ("a", "b"), "and nodes that have them do not fit the pod"),
        (pod(created=None), [], ("a",), "no claim rdma yet: see whether namespace llm has the template rdma"),
        (pod(created=None, resourceClaimName="mine"), [], ("a",), "there is no claim mine in namespace llm"),
        (pod(), [claim("second-x7", "a")], ("a",), "Unschedulable: 0/2 nodes are available"),
        (pod("SchedulingGated"), [], ("a",), "SchedulingGated: its queue has not admitted it"),
    ],
)
def test_a_pending_pod_names_its_claim_and_what_it_lacks(
    waiting: Object, claims: list[Object], nodes: tuple[str, ...], text: str
) -> None:
    assert text in why(waiting, *claims, nodes=nodes)


def test_a_claim_of_other_devices_is_named_without_a_count() -> None:
    other = claim("second-x7")
    other["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = "compute-domain-channel.nvidia.com"
    assert why(pod(), other).startswith("Unschedulable: claim second-x7 is not allocated (0/2 nodes are available")
