"""Simulates GKE's CSI driver: creates a volume for each claim whose pod has a node, and deletes released volumes.

The scheduler and the controller manager do the rest. Nothing is attached, because no container runs.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import httpx

from catalog.nodes import ZONE
from emulator.cluster.api import Refused, View, answer

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
            volume = answer(await self._api.post(_VOLUMES, json=volume_for(claim, node, storage_class)))
            self._volumes.objects["", volume["metadata"]["name"]] = volume

    async def _get(self, path: str) -> Object:
        return answer(await self._api.get(path))
