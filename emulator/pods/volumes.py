"""Simulates GKE's CSI driver: creates a volume for each claim whose pod has a node, and deletes released volumes.

The scheduler and the controller manager do the rest. Nothing is attached, because no container runs. A disk that the
machine does not attach is not created, so the pod waits. On GKE the disk exists, and its attachment fails.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import httpx

from emulator.cloud.api import Refused, View, answer
from emulator.nodes import objects as nodes
from emulator.pods.local_status import now
from gke_ai.catalog.machines.disks import BOOT_TYPES, PD_STANDARD, attached_disks
from gke_ai.catalog.nodes.shape import INSTANCE_TYPE, ZONE

Object = dict[str, Any]
log = logging.getLogger(__name__)

# https://cloud.google.com/kubernetes-engine/docs/how-to/persistent-volumes/gce-pd-csi-driver
DRIVER = "pd.csi.storage.gke.io"
_SELECTED_NODE = "volume.kubernetes.io/selected-node"
# The controller manager sets it on a claim of an external driver.
_SERVED_BY = "volume.kubernetes.io/storage-provisioner"
_VOLUMES = "/api/v1/persistentvolumes"


def volume_for(claim: Object, node: Object, storage_class: Object) -> Object:
    """Returns the volume for a claim, in the zone of the node that is selected for its pod."""
    metadata, spec = claim["metadata"], claim["spec"]
    zone = {"key": ZONE, "operator": "In", "values": [node["metadata"]["labels"][ZONE]]}
    name = f"pvc-{metadata['uid']}"
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": DRIVER}},
        "spec": {
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "accessModes": spec["accessModes"],
            "storageClassName": spec["storageClassName"],
            "persistentVolumeReclaimPolicy": storage_class["reclaimPolicy"],
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                **{key: metadata[key] for key in ("namespace", "name", "uid")},
            },
            "csi": {"driver": DRIVER, "volumeHandle": name},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}},
        },
    }


def refusal(storage_class: Object, node: Object) -> str | None:
    """Why the machine of the node does not attach a disk of the class, in the driver's words; None if it does.

    https://github.com/kubernetes-sigs/gcp-compute-persistent-disk-csi-driver/pull/1212
    """
    # The default: https://github.com/kubernetes-sigs/gcp-compute-persistent-disk-csi-driver/issues/1391
    kind = storage_class.get("parameters", {}).get("type", PD_STANDARD)
    machine = nodes.label(node, INSTANCE_TYPE)
    if kind not in BOOT_TYPES or kind in attached_disks(machine):
        return None  # the catalog has no other types
    return (
        f"'{kind}' is not a compatible disk type with the machine type {machine}, please review the GCP online "
        "documentation for available persistent disk options"
    )


def refused(claim: Object, text: str) -> Object:
    """The event of the pod whose disk is refused. A claim that is no pod's own has it itself."""
    metadata, time = claim["metadata"], now()
    owners = [owner for owner in metadata.get("ownerReferences", []) if owner["kind"] == "Pod"]
    involved = owners[0] if owners else {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **metadata}
    error = f"rpc error: code = InvalidArgument desc = {text}"
    return {
        "metadata": {"generateName": f"{involved['name']}.", "namespace": metadata["namespace"]},
        "involvedObject": {
            "namespace": metadata["namespace"],
            **{key: involved[key] for key in ("apiVersion", "kind", "name", "uid")},
        },
        "type": "Warning",
        "reason": "FailedAttachVolume",
        "message": f'AttachVolume.Attach failed for volume "pvc-{metadata["uid"]}" : {error}',
        "source": {"component": "attachdetach-controller"},
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    }


def waits(claim: Object) -> bool:
    """Whether a claim waits for a volume of this driver and its pod has a node."""
    annotations = claim["metadata"].get("annotations", {})
    pending = claim["status"].get("phase") == "Pending" and not claim["metadata"].get("deletionTimestamp")
    return pending and annotations.get(_SERVED_BY) == DRIVER and _SELECTED_NODE in annotations


class Volumes:
    """Creates volumes for claims and deletes released volumes."""

    def __init__(self, api: httpx.AsyncClient) -> None:
        self._api = api
        self._changed = asyncio.Event()
        self._claims = View(api, "/api/v1/persistentvolumeclaims", self._changed.set)
        self._volumes = View(api, _VOLUMES, self._changed.set)
        self.views = (self._claims, self._volumes)
        self._reported: set[str] = set()

    async def run(self) -> None:
        """Reconciles at every change, and again after a failure."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._reconcile()
            except (httpx.HTTPError, Refused) as error:
                log.warning("volumes: %s, trying again", error)
            except Exception:
                # As in the provisioner: an unexpected error must not end the other tasks of the daemon.
                log.exception("volumes failed, trying again")
            else:
                continue
            await asyncio.sleep(1)
            self._changed.set()

    async def _reconcile(self) -> None:
        for volume in list(self._volumes.objects.values()):
            released = volume.get("status", {}).get("phase") == "Released"
            ours = volume["spec"].get("csi", {}).get("driver") == DRIVER
            deleting = volume["metadata"].get("deletionTimestamp")
            if ours and released and volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete" and not deleting:
                answer(await self._api.delete(f"{_VOLUMES}/{volume['metadata']['name']}"))
        for claim in filter(waits, list(self._claims.objects.values())):
            if ("", f"pvc-{claim['metadata']['uid']}") in self._volumes.objects:
                continue
            node = await self._get(f"/api/v1/nodes/{claim['metadata']['annotations'][_SELECTED_NODE]}")
            class_name = claim["spec"]["storageClassName"]
            storage_class = await self._get(f"/apis/storage.k8s.io/v1/storageclasses/{class_name}")
            if text := refusal(storage_class, node):
                await self._report(claim, text)
                continue
            volume = answer(await self._api.post(_VOLUMES, json=volume_for(claim, node, storage_class)))
            self._volumes.objects["", volume["metadata"]["name"]] = volume

    async def _report(self, claim: Object, text: str) -> None:
        metadata = claim["metadata"]
        if metadata["uid"] not in self._reported:
            path = f"/api/v1/namespaces/{metadata['namespace']}/events"
            answer(await self._api.post(path, json=refused(claim, text)))
            self._reported.add(metadata["uid"])

    async def _get(self, path: str) -> Object:
        return answer(await self._api.get(path))
