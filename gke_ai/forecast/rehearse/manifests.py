"""The change of a folder of Kubernetes manifests: reads both sides, which may be a stranger's, and compares them."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gke_ai.catalog.documents import InvalidDocument, Reader
from gke_ai.catalog.documents import read as documents_of
from gke_ai.catalog.kueue.namespaces import is_system
from gke_ai.forecast.rehearse.kustomization import kustomization, render
from gke_ai.forecast.snapshot.fields import Kind, kinds
from gke_ai.forecast.snapshot.values import MAX_PODS, SHOWN, invalid_values
from gke_ai.formats.sentences import join_names
from gke_ai.kube.objects import ApiObject
from gke_ai.kube.pods import wanted_pods
from gke_ai.terminal import Stop

Object = dict[str, Any]
# An object of Kubernetes has 1.5 MiB at most: https://etcd.io/docs/v3.6/dev-guide/limit/
MAX_BYTES, MAX_FILES, MAX_OBJECTS = 4 * 2**20, 1_000, 2_000
_SUFFIXES = (".yaml", ".yml", ".json")


# What decides who is admitted and where pods run, in the order in which it is applied. No CronJob: the clock starts its
# Jobs, not the change.
_APPLIED = (
    *("Namespace", "PriorityClass", "WorkloadPriorityClass", "ServiceAccount", "LimitRange", "ResourceQuota"),
    *("ComputeClass", "DeviceClass", "ResourceClaimTemplate", "ResourceClaim", "Topology", "ResourceFlavor"),
    *("ProvisioningRequestConfig", "AdmissionCheck", "Cohort", "ClusterQueue", "LocalQueue", "Service"),
    *("PersistentVolumeClaim", "PodDisruptionBudget", "HorizontalPodAutoscaler", "DaemonSet", "Deployment"),
    *("StatefulSet", "ReplicaSet", "Pod", "Job", "JobSet", "Workload"),
)
_OF_CLUSTER = (
    *("Namespace", "PriorityClass", "WorkloadPriorityClass", "ComputeClass", "DeviceClass", "Topology"),
    *("ResourceFlavor", "ProvisioningRequestConfig", "AdmissionCheck", "Cohort", "ClusterQueue"),
)
# Kinds that a snapshot does not have.
_UNLISTED = {
    name: Kind(name, "v1", f"{name.lower()}s", {}) for name in ("ServiceAccount", "Service", "PersistentVolumeClaim")
}
KINDS: Mapping[str, Kind] = {name: _UNLISTED.get(name) or kinds()[name] for name in _APPLIED}
_ORDER = {kind: number for number, kind in enumerate(KINDS)}
# Kinds that decide nothing in the queue, because simulated pods read and reach nothing: left out without a note.
WITHOUT_EFFECT = ("ConfigMap", "Secret", "NetworkPolicy", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
_FORMS = {"kind": re.compile("[A-Za-z][A-Za-z0-9]{0,62}"), "apiVersion": re.compile("[A-Za-z0-9./-]{1,300}")}
_VERSION = re.compile(r"v\d+((alpha|beta)\d+)?")
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_COUNTS = ("replicas", "parallelism", "minReplicas", "maxReplicas")
_NAMED = 8  # objects that a text names, before it counts the others


@dataclass(frozen=True)
class Manifest(ApiObject):
    """An object of a folder. Its images have other names, which no program of this machine belongs to.

    Attributes:
        source: The file and the document in it, for messages.
    """

    content: Object
    source: str

    @property
    def name(self) -> str:
        """The name, or what the API server begins it with."""
        metadata = self.content["metadata"]
        return str(metadata.get("name") or metadata["generateName"])

    @property
    def is_named(self) -> bool:
        """Whether the manifest names the object. Otherwise each application creates another one."""
        return bool(self.content["metadata"].get("name"))

    @property
    def namespace(self) -> str:
        """The namespace; empty for an object of the whole cluster."""
        if self.is_rehearsed and self.kind in _OF_CLUSTER:
            return ""
        return str(self.content["metadata"].get("namespace") or ("default" if self.is_rehearsed else ""))

    @property
    def is_rehearsed(self) -> bool:
        """Whether a rehearsal applies objects of this kind."""
        return self.kind in KINDS and KINDS[self.kind].group == self.group

    @property
    def key(self) -> tuple[str, ...]:
        """What identifies the object. One without a name is another object if anything in it changes."""
        content = "" if self.is_named else hashlib.sha256(repr(self.content).encode()).hexdigest()
        return self.group, self.kind, self.namespace, self.name, content

    @property
    def path(self) -> str:
        """The API path of the object, or of its collection if the API server names it."""
        api = f"/{'apis' if self.group else 'api'}/{self.content['apiVersion']}"
        inside = f"/namespaces/{self.namespace}" if self.namespace else ""
        collection = f"{api}{inside}/{KINDS[self.kind].plural}"
        return f"{collection}/{self.name}" if self.is_named else collection


# ------------------------------------------------------------------------------------------------------------- reading
def read(folder: Path, root: Path) -> list[Manifest]:
    """Returns the objects of a folder with all its subfolders, or of a Kustomization whose files lie under `root`."""
    if kustomization(folder):
        return _checked(parse(render(folder, root), str(folder)))
    files, total, manifests = list(_files(folder)), 0, list[Manifest]()
    if len(files) > MAX_FILES:
        raise Stop(f"{folder} has {len(files)} manifests. A rehearsal reads {MAX_FILES}. Name a smaller folder.")
    for file in files:
        if (total := total + file.stat().st_size) > MAX_BYTES:
            raise Stop(f"{folder} has more than {MAX_BYTES >> 20} MiB of manifests. Name a smaller folder.")
        try:
            text = file.read_text()
        except UnicodeDecodeError:
            raise Stop(f"{file} is not text. Move it out of the folder of the manifests.") from None
        manifests += parse(text, str(file.relative_to(folder)))
    return _checked(manifests)


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_symlink():
            raise Stop(f"{path} is a link. A rehearsal reads only files of the folder. Replace it by what it links to.")
        if path.is_dir():
            if kustomization(path):
                raise Stop(f"{path} is a Kustomization inside a folder of manifests. Name it alone: --manifests {path}")
            yield from _files(path)
        elif path.is_file() and path.suffix in _SUFFIXES:
            yield path


def parse(text: str, source: str) -> list[Manifest]:
    """Returns the objects in a text. Stops if it is not YAML, too large with its aliases, or nested too deeply."""
    if len(text) > MAX_BYTES:
        raise Stop(f"{source} has more than {MAX_BYTES >> 20} MiB. Name a smaller folder.")
    try:
        documents = documents_of(text, Reader.KUBECTL)
    except InvalidDocument as invalid:
        raise Stop(f"{source} {invalid}") from None
    return [
        _manifest(item, f"{source}, document {number}")
        for number, document in enumerate(documents, 1)
        for item in _items(document)
    ]


def _items(document: Any) -> list[Any]:
    """The objects in a document: none, one, or those of a List."""
    if document is None:
        return []
    if isinstance(document, dict) and document.get("kind") == "List" and isinstance(document.get("items"), list):
        return list(document["items"])
    return [document]


def _manifest(item: Any, where: str) -> Manifest:
    metadata = item.get("metadata") if isinstance(item, dict) else None
    if not isinstance(item, dict) or not all(isinstance(item.get(key), str) for key in ("apiVersion", "kind")):
        raise Stop(f"{where}: this is no manifest: it has no apiVersion or no kind. Move it out of the folder.")
    for key, pattern in _FORMS.items():
        if not pattern.fullmatch(item[key]):
            raise Stop(f"{where}: {key}: {item[key][:SHOWN]!r} is none that Kubernetes has. Correct it.")
    if not isinstance(metadata, dict) or not any(
        isinstance(metadata.get(key), str) for key in ("name", "generateName")
    ):
        if isinstance(metadata, dict) and isinstance(name := metadata.get("name"), bool | int | float):
            read_as = f"metadata.name is read as {str(name)[:SHOWN].lower()}, as kubectl reads it"
            raise Stop(f"{where}: {read_as}. A name is a text. Write it in quotes.")
        raise Stop(f"{where}: metadata.name: {item['kind'][:SHOWN]} has no name. Name it.")
    manifest = Manifest(inert(item), where)
    if manifest.is_rehearsed:
        stated = {key: metadata[key] for key in ("name", "namespace") if key in metadata}
        for path, reason in invalid_values(stated, {"name": "name", "namespace": "label"}, "metadata"):
            raise Stop(f"{where}: {path} {reason}. The cluster refuses it.")
        if not _VERSION.fullmatch(item["apiVersion"].rpartition("/")[2]):
            raise Stop(f"{where}: apiVersion: {item['apiVersion'][:SHOWN]!r} is no version of an API. Correct it.")
        for key, count in _counts(item):
            raise Stop(f"{where}: {key} is {count}. A scratch cluster holds {MAX_PODS} pods. Lower it.")
    return manifest


def _counts(value: Any) -> Iterator[tuple[str, int]]:
    """Yields the counts that a scratch cluster cannot hold."""
    for key, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if key in _COUNTS and isinstance(part, int) and not 0 <= part <= MAX_PODS:
            yield key, part
        yield from _counts(part)


def _checked(manifests: list[Manifest]) -> list[Manifest]:
    """The manifests of one side. Stops if there are too many, or if two are the same object."""
    if len(manifests) > MAX_OBJECTS:
        raise Stop(f"The folder has {len(manifests)} objects. A rehearsal reads {MAX_OBJECTS}. Name a smaller folder.")
    first: dict[tuple[str, ...], Manifest] = {}
    for manifest in manifests:
        if manifest.is_named and manifest.key in first:
            other = first[manifest.key].source
            raise Stop(f"{manifest.source}: {manifest.title} is in {other} too. Remove one of them.")
        first[manifest.key] = manifest
    if (pods := sum(map(_pods, manifests))) > MAX_PODS:
        raise Stop(f"The manifests want {pods} pods. A scratch cluster holds {MAX_PODS}. Lower the counts.")
    return manifests


def _pods(manifest: Manifest) -> int:
    try:
        return wanted_pods(manifest.content) if manifest.is_rehearsed else 0
    except (AttributeError, TypeError, ValueError):
        return 0  # the API server refuses an object of another form


def inert(value: Any, field: str = "") -> Any:
    """Returns a part of an object in which images have other names.

    The emulator runs the programs of images that it knows, and those in manifests may be a stranger's. Another image
    is still another one.
    """
    if isinstance(value, dict):
        renamed = {key: inert(part, key if isinstance(key, str) else "") for key, part in value.items()}
        if field in _CONTAINERS and isinstance(value.get("image"), str):
            renamed["image"] = f"rehearsal.invalid/{hashlib.sha256(value['image'].encode()).hexdigest()[:16]}"
        return renamed
    return [inert(part, field) for part in value] if isinstance(value, list) else value


# ----------------------------------------------------------------------------------------------------------- comparing
@dataclass(frozen=True)
class Change:
    """What a change of manifests does.

    Attributes:
        apply: New and changed objects, in the order in which they are applied.
        delete: Objects that the change removes, in the order in which they are deleted.
        notes: What the rehearsal leaves out.
    """

    apply: tuple[Manifest, ...] = ()
    delete: tuple[Manifest, ...] = ()
    notes: tuple[str, ...] = ()

    def names(self) -> list[str]:
        """The objects that change, shortened."""
        return named([manifest.title for manifest in (*self.apply, *self.delete)])


def named(titles: Sequence[str]) -> list[str]:
    """Returns the first titles, and how many others there are."""
    return [*titles[:_NAMED], *([f"{len(titles) - _NAMED} more"] if len(titles) > _NAMED else [])]


def compare(before: Iterable[Manifest], after: Iterable[Manifest]) -> Change:
    """Returns what leads from the manifests of the base to those of the change.

    Namespaces and queues are applied before workloads. Deletions come last, in the opposite order.
    """
    old, new = ({manifest.key: manifest for manifest in side} for side in (before, after))
    applied = [item for key, item in new.items() if key not in old or old[key].content != item.content]
    removed = [item for key, item in old.items() if key not in new]
    return Change(
        tuple(sorted(filter(_is_applied, applied), key=_order)),
        tuple(sorted(filter(_is_applied, (item for item in removed if item.is_named)), key=_order, reverse=True)),
        tuple(_left_out([*applied, *removed], [item for item in removed if not item.is_named])),
    )


def _order(manifest: Manifest) -> int:
    return _ORDER[manifest.kind]


def _is_applied(manifest: Manifest) -> bool:
    return manifest.is_rehearsed and not _is_of_system(manifest)


def _is_of_system(manifest: Manifest) -> bool:
    return is_system(manifest.name if manifest.kind == "Namespace" else manifest.namespace)


def _left_out(changed: Sequence[Manifest], unnamed: Sequence[Manifest]) -> Iterator[str]:
    """Yields a note for each reason for which a part of a change is not rehearsed."""
    counts = Counter(item.kind for item in changed if not item.is_rehearsed and item.kind not in WITHOUT_EFFECT)
    if counts:
        counted = join_names(named([f"{count} {kind}" for kind, count in sorted(counts.items())]))
        yield f"The change has kinds that a rehearsal does not apply, so the result lacks what they do: {counted}."
    if system := [item.title for item in changed if item.is_rehearsed and _is_of_system(item)]:
        named_system = join_names(named(system))
        yield f"Objects in namespaces of Kubernetes, GKE, Kueue or JobSet are not rehearsed: {named_system}."
    if removed := [item.title for item in unnamed if item.is_rehearsed]:
        yield (
            f"The manifest of {join_names(named(removed))} is removed or changed, but names no object, so none is "
            "deleted."
        )
