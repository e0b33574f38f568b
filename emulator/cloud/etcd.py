"""Writes objects of a cluster straight into etcd, through its HTTP gateway: no admission and no new uid.

etcd listens only on a Unix socket in the cluster's folder, which only this user may enter: whoever writes to etcd runs
any program as this user.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Any

import httpx

from emulator.cloud.api import Object, Refused, answer
from emulator.cloud.folder import Folder, connected

# The limits of a transaction are 128 operations and 1.5 MiB (https://etcd.io/docs/v3.6/op-guide/configuration/). The
# content is longer by a third in base64, in the request alone.
OPERATIONS, BYTES = 128, 1_000_000
ROOT = "/registry"
# Names of the sockets, relative to the control plane's folder, in which etcd and the API server run.
SOCKET, PEER_SOCKET = "etcd.sock", "etcd-peer.sock"
# Kinds whose keys do not have the plural name of the kind: k8s.io/kubernetes, pkg/registry/core/rest/storage_core.go.
_OTHER_NAMES = {"nodes": "minions"}


class Failed(OSError):
    """etcd refuses a request or doesn't answer."""


class Keys:
    """Finds the key of an object: `/registry/pods/NAMESPACE/NAME`, or `/registry/GROUP/PLURAL/…` of a custom resource.

    https://github.com/kubernetes/apiextensions-apiserver/blob/master/pkg/registry/customresource/etcd.go
    """

    def __init__(self, api: httpx.Client) -> None:
        self._api = api
        self._plurals: dict[str, dict[str, str]] = {}
        definitions = answer(api.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions"))["items"]
        self._custom = {item["metadata"]["name"] for item in definitions}

    def of(self, item: Object) -> str:
        """Returns the key of an object. Raises KeyError if the cluster does not have its kind."""
        version, metadata = item["apiVersion"], item["metadata"]
        if version not in self._plurals:
            self._plurals[version] = self._discover(version)
        if item["kind"] not in self._plurals[version]:
            raise KeyError(f"{item['kind']} of {version}")
        plural = self._plurals[version][item["kind"]]
        group = version.rpartition("/")[0]
        prefix = f"{group}/{plural}" if f"{plural}.{group}" in self._custom else _OTHER_NAMES.get(plural, plural)
        parts = (ROOT, prefix, metadata.get("namespace"), metadata["name"])
        return "/".join(part for part in parts if part)

    def _discover(self, version: str) -> dict[str, str]:
        try:
            found = answer(self._api.get(f"/{'apis' if '/' in version else 'api'}/{version}"))
        except Refused:
            return {}
        return {item["kind"]: item["name"] for item in found["resources"] if "/" not in item["name"]}


class _Connection(HTTPConnection):
    """A connection to the etcd of a cluster. A simulated day sends thousands of requests: `httpx` took far longer."""

    def __init__(self, folder: Folder) -> None:
        super().__init__("etcd", timeout=30)
        self._folder = folder

    def connect(self) -> None:
        """Connects to etcd's socket."""
        self.sock = connected(self._folder.control_plane / SOCKET, self.timeout)

    def ask(self, request: str, content: Object) -> Object:
        """Returns the answer to a request of etcd's KV service. Raises Failed. The next request connects again."""
        try:
            self.request("POST", f"/v3/kv/{request}", json.dumps(content), {"content-type": "application/json"})
            response = self.getresponse()
            text = response.read()
        except (HTTPException, OSError) as error:
            self.close()
            raise Failed(f"etcd doesn't answer {request}: {error!r}") from None
        if response.status != HTTPStatus.OK:
            raise Failed(f"etcd answers {response.status} to {request}: {text[:300].decode(errors='replace')}")
        answered: Object = json.loads(text)
        return answered


def write(folder: Folder, puts: Iterable[tuple[str, Object]], deletes: Iterable[str]) -> None:
    """Deletes keys and writes objects."""
    with closing(_Connection(folder)) as etcd:
        for batch in _batches([*map(_delete, deletes), *(_put(key, item) for key, item in puts)]):
            etcd.ask("txn", {"success": batch})


class Writer:
    """Writes objects of one kind while the cluster runs: its controllers see them as changes by others.

    Each gets a revision of its own, as from the API: a controller that has to watch again, from the last revision that
    it saw, would never see another object of that revision.

    Use it as a context manager.
    """

    def __init__(self, folder: Folder, keys: Keys) -> None:
        self._etcd = _Connection(folder)
        self._keys = keys

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self._etcd.close()

    def write(self, puts: Iterable[Object], deletes: Iterable[Object]) -> list[str]:
        """Deletes and writes objects.

        An object is written only if it still has its resource version or, without one, if it does not exist: a request
        that is sent again changes nothing. Returns the names of objects that have changed.
        """
        for item in deletes:
            self._etcd.ask("txn", {"success": [_delete(self._keys.of(item))]})
        changed = []
        for item in puts:
            operation = _put(self._keys.of(item), item)
            version = item["metadata"].get("resourceVersion", "0")
            key = operation["requestPut"]["key"]
            unchanged = {"key": key, "target": "MOD", "result": "EQUAL", "modRevision": version}
            transaction = {"compare": [unchanged], "success": [operation]}
            if not self._etcd.ask("txn", transaction).get("succeeded") and version != "0":
                changed.append(item["metadata"]["name"])
        return changed


def delete_all(folder: Folder, prefix: str) -> None:
    """Deletes all keys with a prefix that ends with a slash."""
    end = prefix[:-1] + chr(ord("/") + 1)
    with closing(_Connection(folder)) as etcd:
        etcd.ask("deleterange", {"key": _encode(prefix), "range_end": _encode(end)})


def read(folder: Folder) -> dict[str, tuple[int, str]]:
    """Returns the revision and the encoded value of each key."""
    return {_decode(item["key"]): (int(item["mod_revision"]), item["value"]) for item in _range(folder, False)}


def revisions(folder: Folder) -> dict[str, int]:
    """Returns the revision of each key."""
    return {_decode(item["key"]): int(item["mod_revision"]) for item in _range(folder, True)}


def replace(folder: Folder, puts: Mapping[str, str], deletes: Iterable[str]) -> dict[str, int]:
    """Deletes keys and writes encoded values. Returns the new revisions of the written keys."""
    written: dict[str, int] = {}
    operations = [*map(_delete, deletes), *(_put_encoded(key, value) for key, value in puts.items())]
    with closing(_Connection(folder)) as etcd:
        for batch in _batches(operations):
            revision = int(etcd.ask("txn", {"success": batch})["header"]["revision"])
            keys = [operation["requestPut"]["key"] for operation in batch if "requestPut" in operation]
            written.update((_decode(key), revision) for key in keys)
    return written


def _range(folder: Folder, keys_only: bool) -> list[Object]:
    request = {"key": _encode(f"{ROOT}/"), "range_end": _encode(f"{ROOT}0"), "keys_only": keys_only}
    with closing(_Connection(folder)) as etcd:
        found: list[Object] = etcd.ask("range", request)["kvs"]
    return found


def _put(key: str, item: Object) -> Object:
    # etcd itself has the version of an object.
    metadata = {name: value for name, value in item["metadata"].items() if name != "resourceVersion"}
    return _put_encoded(key, _encode(json.dumps({**item, "metadata": metadata})))


def _put_encoded(key: str, value: str) -> Object:
    return {"requestPut": {"key": _encode(key), "value": value}}


def _delete(key: str) -> Object:
    return {"requestDeleteRange": {"key": _encode(key)}}


def _encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _decode(text: str) -> str:
    return base64.b64decode(text).decode()


def _batches(operations: Iterable[Any]) -> Iterator[list[Any]]:
    batch: list[Any] = []
    size = 0
    for operation in operations:
        length = len(str(operation))
        if batch and (len(batch) == OPERATIONS or size + length > BYTES):
            yield batch
            batch, size = [], 0
        batch.append(operation)
        size += length
    if batch:
        yield batch
