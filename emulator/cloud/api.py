"""Access to a cluster's API server: HTTP clients, and views of collections that a watch keeps up to date."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import yaml

from emulator.cloud.folder import Folder

Object = dict[str, Any]
MERGE_PATCH = {"content-type": "application/merge-patch+json"}
# Server-side apply, and the parameters of objects that GKE itself applies.
APPLY_PATCH = {"content-type": "application/apply-patch+yaml"}
GKE = {"fieldManager": "gke"}
log = logging.getLogger(__name__)


class Refused(Exception):
    """The API server refused a request."""

    def __init__(self, response: httpx.Response) -> None:
        self.status = response.status_code
        try:
            cause = response.json()["message"]
        except (ValueError, KeyError, TypeError):
            cause = response.text[:300]
        super().__init__(f"{response.request.method} {response.request.url.path}: {response.status_code} {cause}")


def client(folder: Folder) -> httpx.Client:
    """Returns a client with the administrator's certificate."""
    return httpx.Client(base_url=f"https://{folder.host}", verify=_tls(folder), timeout=30, trust_env=False)


def async_client(folder: Folder) -> httpx.AsyncClient:
    """Returns the daemon's client.

    It has no read timeout, because a watch is silent while nothing changes.
    """
    timeout = httpx.Timeout(30, read=None)
    limits = httpx.Limits(max_connections=None)
    base_url = f"https://{folder.host}"
    return httpx.AsyncClient(base_url=base_url, verify=_tls(folder), timeout=timeout, limits=limits, trust_env=False)


def _tls(folder: Folder) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(folder.pki / "ca.crt"))
    context.load_cert_chain(folder.pki / "admin.crt", folder.pki / "admin.key")
    return context


def answer(response: httpx.Response) -> Object:
    """Returns the object of a response. Raises Refused for an error."""
    if response.is_error:
        raise Refused(response)
    content: Object = response.json()
    return content


def files_of(collection: str, item: Object) -> dict[str, bytes]:
    """Returns the content of a ConfigMap or a Secret, by key. `collection` is `configmaps` or `secrets`."""
    data = item.get("data") or {}
    if collection == "secrets":
        return {key: base64.b64decode(value) for key, value in data.items()}
    binary = item.get("binaryData") or {}
    return {key: value.encode() for key, value in data.items()} | {
        key: base64.b64decode(value) for key, value in binary.items()
    }


def kubeconfig(host: str, ca: bytes, user: Object) -> str:
    """Returns a kubeconfig for one cluster and one user."""
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "cluster",
                    "cluster": {
                        "server": f"https://{host}",
                        "certificate-authority-data": base64.b64encode(ca).decode(),
                    },
                }
            ],
            "users": [{"name": "user", "user": user}],
            "contexts": [{"name": "cluster", "context": {"cluster": "cluster", "user": "user"}}],
            "current-context": "cluster",
        }
    )


class View:
    """All objects of one collection, as the API server last reported them.

    `objects` is by (namespace, name). `changed` is called after each change. `synced` is set after the first list.
    """

    def __init__(self, api: httpx.AsyncClient, path: str, changed: Callable[[], None], **selectors: str) -> None:
        self.objects: dict[tuple[str, str], Object] = {}
        self.synced = asyncio.Event()
        self._api = api
        self._path = path
        self._changed = changed
        self._selectors = selectors

    async def follow(self) -> None:
        """Lists and watches forever. After a lost connection or a refusal it lists again."""
        while True:
            try:
                await self._watch(await self._list())
            except (httpx.HTTPError, Refused, ValueError) as error:
                log.info("%s: %s, listing again", self._path, error or type(error).__name__)
                await asyncio.sleep(0.5)

    async def _list(self) -> str:
        collection = answer(await self._api.get(self._path, params=self._selectors))
        self.objects = {_key(item): item for item in collection["items"]}
        self.synced.set()
        self._changed()
        return str(collection["metadata"]["resourceVersion"])

    async def _watch(self, version: str) -> None:
        parameters = self._selectors | {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": "600",
        }
        async with self._api.stream("GET", self._path, params=parameters) as response:
            if response.is_error:
                await response.aread()
                raise Refused(response)
            async for event in _events(response):
                item = event["object"]
                if event["type"] == "ERROR":
                    # 410 Gone: the resource version is too old to continue.
                    return
                if event["type"] == "BOOKMARK":
                    continue
                if event["type"] == "DELETED":
                    self.objects.pop(_key(item), None)
                else:
                    self.objects[_key(item)] = item
                self._changed()


async def _events(response: httpx.Response) -> AsyncIterator[Object]:
    # Not aiter_lines(): it also splits at line separators inside a JSON string.
    rest = b""
    async for chunk in response.aiter_bytes():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line:
                yield json.loads(line)


def _key(item: Object) -> tuple[str, str]:
    metadata = item["metadata"]
    return metadata.get("namespace", ""), metadata["name"]
