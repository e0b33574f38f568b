"""Simulates GKE's Secret synchronization: creates a Kubernetes Secret for each SecretSync.

The value of each secret of the emulator (`emulator/run existing secret NAME`) is the dummy token. The SecretSync's
service account needs the role on the secret, as on GKE; without the role there is no Secret. As in GKE's controller, a
Secret that something else created stays unchanged, and failures are retried.
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

from emulator.cloud.api import MERGE_PATCH, Refused, View, answer
from emulator.cloud.folder import Folder
from emulator.cloud.store import Store, project_number
from gke_ai.catalog.project.identities import SECRET_ACCESSOR, principal
from gke_ai.catalog.versions import SECRET_PROVIDER_CLASS_API, SECRET_SYNC_API
from gke_ai.kube.objects import condition, holds

Object = dict[str, Any]
log = logging.getLogger(__name__)

DUMMY_TOKEN = "hf_emulator"  # HF_TOKEN in emulator/run
TRY_AGAIN_SECONDS = 1.0


class NotSynced(Exception):
    """Why a SecretSync has no Secret: the controller's reason and message."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class SecretSyncs:
    """Creates the Secrets of SecretSyncs.

    Kubernetes' garbage collection deletes a Secret with its SecretSync.

    Args:
        folder: Folder of the cluster.
        api: Client of the cluster.
        store: The cloud's resources, with secrets and the roles on them.
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
        """Reconciles at every change, and again after a failure."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                done = await self._reconcile()
            except (httpx.HTTPError, Refused) as error:
                log.warning("secrets: %s, trying again", error)
                done = False
            except Exception:
                # As in the provisioner: an unexpected error must not end the other tasks of the daemon.
                log.exception("secrets failed, trying again")
                done = False
            if not done:
                await asyncio.sleep(TRY_AGAIN_SECONDS)
                self._changed.set()

    async def _reconcile(self) -> bool:
        """Creates missing Secrets. Returns whether every SecretSync has its Secret."""
        waiting = [sync for sync in self._syncs.objects.values() if not synced(sync)]
        if not waiting:
            return True
        if not self._folder.record.secret_sync:
            return False  # the cluster's setting may still change
        results = [await self._sync(sync) for sync in waiting if not sync["metadata"].get("deletionTimestamp")]
        return all(results)

    async def _sync(self, sync: Object) -> bool:
        try:
            await self._write_secret(sync)
        except NotSynced as error:
            await self._write_status(sync, "False", error.reason, str(error))
            return False
        await self._write_status(sync, "True", "CreateSuccessful", "Secret created successfully.")
        return True

    async def _write_secret(self, sync: Object) -> None:
        metadata, spec = sync["metadata"], sync["spec"]
        files = await self._read(metadata["namespace"], spec)
        unknown = [item["sourcePath"] for item in spec["secretObject"]["data"] if item["sourcePath"] not in files]
        if unknown:
            raise NotSynced("RemoteSecretStoreFetchFailed", f"no secret has the path {unknown[0]}")
        owner = {"apiVersion": SECRET_SYNC_API, "kind": "SecretSync", "name": metadata["name"], "uid": metadata["uid"]}
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": metadata["name"], "ownerReferences": [owner]},
            "type": spec["secretObject"]["type"],
            "data": {item["targetKey"]: files[item["sourcePath"]] for item in spec["secretObject"]["data"]},
        }
        path = f"/api/v1/namespaces/{metadata['namespace']}/secrets"
        response = await self._api.get(f"{path}/{metadata['name']}")
        if response.status_code == 404:
            answer(await self._api.post(path, json=secret))
        elif owner["uid"] not in [ref["uid"] for ref in answer(response)["metadata"].get("ownerReferences", [])]:
            text = f"Secret {metadata['name']} exists and was not created by this SecretSync: delete it"
            raise NotSynced("ControllerPatchError", text)
        else:
            answer(await self._api.put(f"{path}/{metadata['name']}", json=secret))

    async def _read(self, namespace: str, spec: Object) -> dict[str, str]:
        """Returns the values in base64, by path."""
        provider_class = self._classes.objects.get((namespace, spec["secretProviderClassName"]))
        if provider_class is None:
            text = f"SecretProviderClass {spec['secretProviderClassName']} doesn't exist"
            raise NotSynced("SecretProviderClassMisconfigured", text)
        account = spec["serviceAccountName"]
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}"
        if (await self._api.get(path)).status_code == 404:
            raise NotSynced("ControllerSyncError", f"service account {account} doesn't exist")
        value = base64.b64encode(DUMMY_TOKEN.encode()).decode()
        files = {}
        for secret in yaml.safe_load(provider_class["spec"]["parameters"]["secrets"]):
            self._check_access(secret["resourceName"], namespace, account)
            files[secret["path"]] = value
        return files

    def _check_access(self, version: str, namespace: str, account: str) -> None:
        match = re.fullmatch(r"(projects/[^/]+/secrets/[^/]+)/versions/(latest|\d+)", version)
        if match is None or self._store.get(match[1]) is None:
            raise NotSynced("ProviderError", f"{version} not found")
        project = self._folder.record.project
        member = principal(project_number(project), project, namespace, account)
        if self._store.get(f"{match[1]}/{SECRET_ACCESSOR}/{member}") is None:
            raise NotSynced("ProviderError", f"permission secretmanager.versions.access denied on {version}")

    async def _write_status(self, sync: Object, status: str, reason: str, message: str) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        before = condition(sync, "SecretCreated")
        if (before.get("reason"), before.get("message")) == (reason, message):
            return
        created: Object = {"type": "SecretCreated", "status": status, "reason": reason, "message": message}
        content: Object = {"conditions": [created | {"lastTransitionTime": now}]}
        if status == "True":
            content["lastSuccessfulSyncTime"] = now
        metadata = sync["metadata"]
        path = f"/apis/{SECRET_SYNC_API}/namespaces/{metadata['namespace']}/secretsyncs/{metadata['name']}/status"
        response = await self._api.patch(path, json={"status": content}, headers=MERGE_PATCH)
        if response.status_code != 404:  # the SecretSync may be deleted meanwhile
            answer(response)


def synced(sync: Object) -> bool:
    """Whether a SecretSync has its Secret."""
    return holds(sync, "SecretCreated")
