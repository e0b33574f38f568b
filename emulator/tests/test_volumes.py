"""Disks of claims: created for machines that attach them, and refused with the driver's reason for the others."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from emulator.pods.volumes import Volumes, refusal

Object = dict[str, Any]

ANNOTATIONS = {
    "volume.kubernetes.io/selected-node": "node",
    "volume.kubernetes.io/storage-provisioner": "pd.csi.storage.gke.io",
}
OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "server-0", "uid": "2"}
METADATA = {"name": "scratch", "namespace": "llm", "uid": "1", "annotations": ANNOTATIONS, "ownerReferences": [OWNER]}
STORAGE = {"requests": {"storage": "100Gi"}}
SPEC = {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "resources": STORAGE}
CLAIM: Object = {"metadata": METADATA, "spec": SPEC, "status": {"phase": "Pending"}}


def storage_class(kind: str | None) -> Object:
    return {"reclaimPolicy": "Delete", **({} if kind is None else {"parameters": {"type": kind}})}


def node(machine: str) -> Object:
    labels = {"node.kubernetes.io/instance-type": machine, "topology.kubernetes.io/zone": "us-east5-b"}
    return {"metadata": {"name": "node", "labels": labels}}


@pytest.mark.parametrize(
    ("kind", "machine", "attached"),
    [
        ("pd-ssd", "g2-standard-24", True),
        ("pd-ssd", "ct6e-standard-4t", False),
        ("hyperdisk-balanced", "ct6e-standard-4t", True),
        ("hyperdisk-balanced", "a2-highgpu-1g", False),
        ("pd-balanced", "g4-standard-48", False),
        # The driver's default is pd-standard.
        (None, "g2-standard-24", True),
        (None, "a3-highgpu-8g", False),
    ],
)
def test_a_machine_attaches_the_disks_of_its_family(kind: str | None, machine: str, attached: bool) -> None:
    assert (refusal(storage_class(kind), node(machine)) is None) == attached


def reconciled(kind: str, machine: str, times: int) -> list[tuple[str, Object]]:
    """What the controller creates for the claim: paths and objects."""
    created: list[tuple[str, Object]] = []

    def api(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, json=node(machine) if "/nodes/" in request.url.path else storage_class(kind))
        created.append((request.url.path, json.loads(request.content)))
        return httpx.Response(201, json=created[-1][1])

    async def run() -> None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(api), base_url="http://c") as client:
            volumes = Volumes(client)
            volumes.views[0].objects["llm", "scratch"] = CLAIM
            for _ in range(times):
                await volumes._reconcile()

    asyncio.run(run())
    return created


def test_a_disk_is_created_once_or_its_pod_waits_with_the_reason_why_the_machine_cannot_attach_it() -> None:
    ((path, volume),) = reconciled("hyperdisk-balanced", "ct6e-standard-4t", times=2)
    assert (path, volume["metadata"]["name"]) == ("/api/v1/persistentvolumes", "pvc-1")
    ((path, event),) = reconciled("pd-ssd", "ct6e-standard-4t", times=2)
    assert path == "/api/v1/namespaces/llm/events"
    assert (event["involvedObject"]["kind"], event["involvedObject"]["uid"]) == ("Pod", "2")
    assert (event["type"], event["reason"]) == ("Warning", "FailedAttachVolume")
    assert "'pd-ssd' is not a compatible disk type with the machine type ct6e-standard-4t" in event["message"]
