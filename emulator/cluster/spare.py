"""Keeps the control plane of a deleted cluster for the next one, in tests: starting it costs more than all else.

A state folder with a link `spare` takes control planes from that folder and leaves them there, and so do the states
inside it, such as a rehearsal's. etcd and the API server keep running. Before a cluster uses them again, etcd gets
exactly the objects of a new cluster. Only differences are written, so the API server sees ordinary changes. If anything
fails, the control plane is discarded and the cluster gets a new one.

Without the link, as outside tests, nothing of this happens.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx

from emulator.cloud import control_plane, etcd
from emulator.cloud.api import Refused, answer, client
from emulator.cloud.folder import Folder, locked
from emulator.machine import paths, processes
from emulator.machine.polling import poll_until
from gke_ai.kube.objects import holds

# As many as a test has clusters at a time: its stack's and its rehearsal's.
WAITING = 2
# Keys that the API server itself writes at any time: its addresses and the leases.
_OWN = tuple(f"{etcd.ROOT}/{kind}/" for kind in ("masterleases", "peerserverleases", "leases"))
# Keys that no new cluster needs.
_TRANSIENT = (*_OWN, f"{etcd.ROOT}/events/")
# Keys that are no objects of an API.
_INTERNAL = (*_OWN, f"{etcd.ROOT}/ranges/")
_NOT_STORED = ("leases", "componentstatuses")
_DISCOVERY = {"accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
_METADATA = {"accept": "application/json;g=meta.k8s.io;v=v1;as=PartialObjectMetadataList"}


class Unusable(Exception):
    """A control plane can't be used again. The message says why."""


@dataclass(frozen=True)
class Base:
    """The content of a new cluster: values and revisions by key of etcd, and the paths of all collections."""

    host: str
    values: dict[str, str]
    revisions: dict[str, int]
    collections: list[str]


def place(folder: Folder) -> None:
    """Gives a new cluster a control plane's folder that outlives it, if its state has spare control planes."""
    if parent := _parent():
        slot = Path(tempfile.mkdtemp(dir=parent))
        folder.control_plane.parent.mkdir(parents=True)
        folder.control_plane.symlink_to(slot / "clusters" / "spare")


def used(folder: Folder) -> bool:
    """Whether the cluster's control plane outlives it."""
    return _slot(folder) is not None


def environment(folder: Folder) -> dict[str, str] | None:
    """The environment of a control plane that outlives its cluster: it belongs to no state. None for others."""
    if not used(folder):
        return None
    variables = processes.environment(folder.control_plane)
    return {name: value for name, value in variables.items() if name != "GKE_AI_STATE"}


def save(folder: Folder) -> None:
    """Saves the objects of a new cluster, before its daemon adds others."""
    slot = _slot(folder)
    assert slot is not None
    with client(folder) as api:
        if not poll_until(lambda: _established(api), timeout=20, pause=0.1):
            return  # nobody takes it
        collections = _collections(api)
    stored = {key: item for key, item in etcd.read(folder).items() if not key.startswith(_TRANSIENT)}
    values = {key: value for key, (_, value) in stored.items()}
    revisions = {key: revision for key, (revision, _) in stored.items()}
    _write(slot, Base(folder.host, values, revisions, collections))


def leave(folder: Folder) -> bool:
    """Keeps the control plane of a cluster that is deleted. False if it can't be used again or enough wait."""
    slot = _slot(folder)
    if slot is None or not folder.ready or not (slot / "base.json").exists():
        return False
    kept = {control_plane.id_of(folder, component) for component in control_plane.KEPT}
    with locked(slot.parent):
        if len(list(slot.parent.glob("*/idle"))) >= WAITING:
            return False
        processes.end(folder.path, keep=kept)
        if set(processes.of(folder.path)) != kept:
            return False
        folder.control_plane.unlink()
        (slot / "idle").touch()
    return True


def take(folder: Folder) -> str | None:
    """Gives a new cluster the control plane that waits. Returns its address, or None if there is none."""
    parent = _parent()
    if not parent:
        return None
    with locked(parent):
        for idle in parent.glob("*/idle"):
            idle.unlink()
            folder.create()
            folder.control_plane.parent.mkdir(parents=True)
            folder.control_plane.symlink_to(idle.parent / "clusters" / "spare")
            return _base(idle.parent).host
    return None


def discard(folder: Folder) -> None:
    """Deletes the control plane's folder if it is outside the cluster's. Its processes have ended."""
    if slot := _slot(folder):
        shutil.rmtree(slot, ignore_errors=True)


def restore(folder: Folder) -> None:
    """Gives a control plane the objects of a new cluster, and waits until its API server serves exactly these.

    Raises:
        Unusable: It does not answer, or its objects differ.
    """
    slot = _slot(folder)
    assert slot is not None
    base = _base(slot)
    running = processes.of(folder.path)
    if {control_plane.id_of(folder, component) for component in control_plane.KEPT} != set(running):
        raise Unusable(f"a component has ended: {running} run")
    try:
        with client(folder) as api:
            # The API server may still write an object whose kind is being deleted.
            if not poll_until(lambda: not _write_differences(folder, base), timeout=20, pause=0.1):
                raise Unusable("its objects keep changing")
            if not poll_until(lambda: _serves(api, folder, base), timeout=20, pause=0.1):
                raise Unusable("its API server serves other objects than etcd has")
    except (httpx.HTTPError, Refused, etcd.Failed) as error:
        raise Unusable(f"it doesn't answer: {error}") from None
    _write(slot, base)


def _write_differences(folder: Folder, base: Base) -> list[str]:
    """Writes and deletes keys that differ from a new cluster's. Returns them."""
    found = etcd.revisions(folder)
    deletes = [key for key in found if key not in base.revisions and not key.startswith(_OWN)]
    puts = [key for key, revision in base.revisions.items() if found.get(key) != revision and not key.startswith(_OWN)]
    base.revisions.update(etcd.replace(folder, {key: base.values[key] for key in puts}, deletes))
    return puts + deletes


def _serves(api: httpx.Client, folder: Folder, base: Base) -> bool:
    """Whether the API server has the kinds of a new cluster and its caches have exactly the objects of etcd."""
    try:
        if _collections(api) != base.collections:
            return False
        served = set(_served(api, base.collections))
    except Refused:  # the storage of a changed kind starts again
        return False
    stored = {key: revision for key, revision in etcd.revisions(folder).items() if not key.startswith(_INTERNAL)}
    return served == {(key.rpartition("/")[2], item) for key, item in stored.items()}


def _served(api: httpx.Client, collections: list[str]) -> Iterator[tuple[str, int]]:
    """Names and revisions of all objects in the API server's caches."""
    for path in collections:
        for item in answer(api.get(path, params={"resourceVersion": "0"}, headers=_METADATA))["items"] or ():
            yield item["metadata"]["name"], int(item["metadata"]["resourceVersion"])


def _established(api: httpx.Client) -> bool:
    """Whether the API server has the kinds of all definitions: it changes the definitions until then."""
    definitions = answer(api.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions"))["items"]
    return all(holds(definition, "Established") for definition in definitions)


def _collections(api: httpx.Client) -> list[str]:
    """Paths of all collections that the API server itself stores, but leases."""
    found: dict[tuple[str, str], str] = {}
    for root in ("/api", "/apis"):
        for group in answer(api.get(root, headers=_DISCOVERY))["items"]:
            name = group["metadata"].get("name", "")
            for version in group["versions"]:
                for resource in version.get("resources", []):
                    if "list" in resource["verbs"] and resource["resource"] not in _NOT_STORED:
                        parts = (root, name, version["version"], resource["resource"])
                        found.setdefault((name, resource["resource"]), "/".join(part for part in parts if part))
    return sorted(found.values())


def _write(slot: Path, base: Base) -> None:
    (slot / "base.json").write_text(json.dumps(asdict(base)))


def _base(slot: Path) -> Base:
    return Base(**json.loads((slot / "base.json").read_text()))


def _parent() -> Path | None:
    """The folder of spare control planes."""
    links = (state / "spare" for state in (paths.STATE, paths.STATE.parent))
    return next((link.resolve() for link in links if link.exists()), None)


def _slot(folder: Folder) -> Path | None:
    """The spare's folder whose control plane the cluster uses."""
    return folder.control_plane.readlink().parent.parent if folder.control_plane.is_symlink() else None
