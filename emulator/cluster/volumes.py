"""Persistent disks as GKE's CSI driver makes them: a volume for each claim whose pod has a node, and none afterwards.

The scheduler and the controller manager do the rest; nothing is attached, as no container runs.
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
# Set by the controller manager on a claim that is somebody else's to serve.
_SERVED_BY = "volume.kubernetes.io/storage-provisioner"
_VOLUMES = "/api/v1/persistentvolumes"


def volume_for(claim: Object, node: Object, storage_class: Object) -> Object:
    """The volume that a claim waits for, in the zone of the node that its pod is to run on."""
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
    """Whether a claim's pod has a node and its volume is ours to make."""
    annotations = claim["metadata"].get("annotations", {})
    pending = claim["status"].get("phase") == "Pending" and not claim["metadata"].get("deletionTimestamp")
    return pending and annotations.get(_SERVED_BY) == DRIVER and _SELECTED_NODE in annotations


class Volumes:
    """Makes and removes volumes as claims come and go."""

    def __init__(self, api: httpx.AsyncClient) -> None:
        self._api = api
        self._changed = asyncio.Event()
        self._claims = View(api, "/api/v1/persistentvolumeclaims", self._changed.set)
        self._volumes = View(api, _VOLUMES, self._changed.set)
        self.views = (self._claims, self._volumes)

    async def run(self) -> None:
        """Reconcile at every change."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._reconcile()
            except (httpx.HTTPError, Refused) as error:
                log.warning("volumes: %s, trying again", error)
            except Exception:
                # As in the provisioner: what nobody thought of must not end what runs beside this.
                log.exception("volumes failed, trying again")
            else:
                continue
            await asyncio.sleep(1)
            self._changed.set()

    async def _reconcile(self) -> None:
        for volume in list(self._volumes.objects.values()):
            released = volume.get("status", {}).get("phase") == "Released"
            ours = volume["spec"].get("csi", {}).get("driver") == DRIVER
            going = volume["metadata"].get("deletionTimestamp")
            if ours and released and volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete" and not going:
                answer(await self._api.delete(f"{_VOLUMES}/{volume['metadata']['name']}"))
        for claim in filter(waits, list(self._claims.objects.values())):
            if ("", f"pvc-{claim['metadata']['uid']}") in self._volumes.objects:
                continue
            node = await self._get(f"/api/v1/nodes/{claim['metadata']['annotations'][_SELECTED_NODE]}")
            kind = await self._get(f"/apis/storage.k8s.io/v1/storageclasses/{claim['spec']['storageClassName']}")
            made = answer(await self._api.post(_VOLUMES, json=volume_for(claim, node, kind)))
            self._volumes.objects["", made["metadata"]["name"]] = made

    async def _get(self, path: str) -> Object:
        return answer(await self._api.get(path))
