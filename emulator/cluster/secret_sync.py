"""GKE's Secret synchronization, simulated: a Kubernetes Secret for each SecretSync, from the emulator's Secret Manager.

A secret of the emulator is a name (`emulator/run existing secret NAME`) whose value is the dummy token. It is read
as the SecretSync's service account: without the role on the secret that GKE would need, nothing is made. As in the
controller behind GKE's, a Secret that something else has made is left alone, and what failed is tried again.
https://cloud.google.com/secret-manager/docs/sync-k8-secrets, kubernetes-sigs/secrets-store-sync-controller
"""

from __future__ import annotations

import asyncio
import base64
import logging
import re
from datetime import UTC, datetime
from typing import Any

import httpx
import yaml

from catalog.versions import SECRET_PROVIDER_CLASS_API, SECRET_SYNC_API
from catalog.workload_identity import SECRET_ACCESSOR, principal
from emulator.cluster.api import MERGE_PATCH, Refused, View, answer
from emulator.cluster.folder import Folder
from emulator.gcp_plugin.store import Store, project_number

Object = dict[str, Any]
log = logging.getLogger(__name__)

DUMMY_TOKEN = "hf_emulator"  # as emulator/run has it for HF_TOKEN
TRY_AGAIN_SECONDS = 1.0


class NotSynced(Exception):
    """Why a SecretSync has no Secret: a reason of the controller's, and its words."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class SecretSyncs:
    """Makes Secrets as SecretSyncs come; with a SecretSync its Secret goes, by Kubernetes' own garbage collection.

    Args:
        folder: Of the cluster.
        api: A client of the cluster.
        store: The cloud's memory, with secrets and who may read them.
    """

    def __init__(self, folder: Folder, api: httpx.AsyncClient, store: Store) -> None:
        self._folder = folder
        self._api = api
        self._store = store
        self._changed = asyncio.Event()
        self._syncs = View(api, f"/apis/{SECRET_SYNC_API}/secretsyncs", self._changed.set)
        self._classes = View(api, f"/apis/{SECRET_PROVIDER_CLASS_API}/secretproviderclasses", self._changed.set)
        self.views = (self._syncs, self._classes)

    async def run(self) -> None:
        """Reconcile at every change, and again while something has failed."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                done = await self._reconcile()
            except (httpx.HTTPError, Refused) as error:
                log.warning("secrets: %s, trying again", error)
                done = False
            except Exception:
                # As in the provisioner: what nobody thought of must not end what runs beside this.
                log.exception("secrets failed, trying again")
                done = False
            if not done:
                await asyncio.sleep(TRY_AGAIN_SECONDS)
                self._changed.set()

    async def _reconcile(self) -> bool:
        """Whether every SecretSync has its Secret."""
        waiting = [one for one in self._syncs.objects.values() if not synced(one)]
        if not waiting:
            return True
        if not self._folder.record.secret_sync:
            return False  # the cluster's setting may yet change
        results = [await self._sync(one) for one in waiting if not one["metadata"].get("deletionTimestamp")]
        return all(results)

    async def _sync(self, sync: Object) -> bool:
        try:
            await self._make(sync)
        except NotSynced as error:
            await self._say(sync, "False", error.reason, str(error))
            return False
        await self._say(sync, "True", "CreateSuccessful", "Secret created successfully.")
        return True

    async def _make(self, sync: Object) -> None:
        metadata, spec = sync["metadata"], sync["spec"]
        files = await self._read(metadata["namespace"], spec)
        unknown = [one["sourcePath"] for one in spec["secretObject"]["data"] if one["sourcePath"] not in files]
        if unknown:
            raise NotSynced("RemoteSecretStoreFetchFailed", f"no secret has the path {unknown[0]}")
        owner = {"apiVersion": SECRET_SYNC_API, "kind": "SecretSync", "name": metadata["name"], "uid": metadata["uid"]}
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": metadata["name"], "ownerReferences": [owner]},
            "type": spec["secretObject"]["type"],
            "data": {one["targetKey"]: files[one["sourcePath"]] for one in spec["secretObject"]["data"]},
        }
        path = f"/api/v1/namespaces/{metadata['namespace']}/secrets"
        found = await self._api.get(f"{path}/{metadata['name']}")
        if found.status_code == 404:
            answer(await self._api.post(path, json=secret))
        elif owner["uid"] not in [one["uid"] for one in answer(found)["metadata"].get("ownerReferences", [])]:
            text = f"Secret {metadata['name']} is there, and was not made by this SecretSync: delete it"
            raise NotSynced("ControllerPatchError", text)
        else:
            answer(await self._api.put(f"{path}/{metadata['name']}", json=secret))

    async def _read(self, namespace: str, spec: Object) -> dict[str, str]:
        """Values by path, in base64."""
        found = self._classes.objects.get((namespace, spec["secretProviderClassName"]))
        if found is None:
            text = f"there is no SecretProviderClass {spec['secretProviderClassName']}"
            raise NotSynced("SecretProviderClassMisconfigured", text)
        account = spec["serviceAccountName"]
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}"
        if (await self._api.get(path)).status_code == 404:
            raise NotSynced("ControllerSyncError", f"there is no service account {account}")
        value = base64.b64encode(DUMMY_TOKEN.encode()).decode()
        files = {}
        for secret in yaml.safe_load(found["spec"]["parameters"]["secrets"]):
            self._may_read(secret["resourceName"], namespace, account)
            files[secret["path"]] = value
        return files

    def _may_read(self, version: str, namespace: str, account: str) -> None:
        named = re.fullmatch(r"(projects/[^/]+/secrets/[^/]+)/versions/(latest|\d+)", version)
        if named is None or self._store.get(named[1]) is None:
            raise NotSynced("ProviderError", f"{version} not found")
        project = self._folder.record.project
        member = principal(project_number(project), project, namespace, account)
        if self._store.get(f"{named[1]}/{SECRET_ACCESSOR}/{member}") is None:
            raise NotSynced("ProviderError", f"permission secretmanager.versions.access denied on {version}")

    async def _say(self, sync: Object, status: str, reason: str, message: str) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        before: Object = next(iter(sync.get("status", {}).get("conditions", [])), {})
        if (before.get("reason"), before.get("message")) == (reason, message):
            return
        said: Object = {"type": "SecretCreated", "status": status, "reason": reason, "message": message}
        content: Object = {"conditions": [said | {"lastTransitionTime": now}]}
        if status == "True":
            content["lastSuccessfulSyncTime"] = now
        metadata = sync["metadata"]
        path = f"/apis/{SECRET_SYNC_API}/namespaces/{metadata['namespace']}/secretsyncs/{metadata['name']}/status"
        done = await self._api.patch(path, json={"status": content}, headers=MERGE_PATCH)
        if done.status_code != 404:  # it has gone meanwhile
            answer(done)


def synced(sync: Object) -> bool:
    """Whether a SecretSync has its Secret."""
    return any(one["status"] == "True" for one in sync.get("status", {}).get("conditions", []))
