"""Hashes the names in a snapshot, so that references between its objects still match.

These are names of namespaces, queues, Workloads, Jobs, servers and pods, and values of labels that the owner of an
object chose. Names that the stack's own objects use stay, because whoever rehearses a change has the configuration of
the stack. Names stay in namespaces of Kubernetes, GKE and Kueue. Names of nodes, resources, containers, replicated Jobs
and pod sets stay too.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ops.snapshot.fields import Object, kinds
from ops.snapshot.format import Snapshot

DIGITS = 10
# Namespaces that Kubernetes, GKE, Kueue and JobSet create.
_SYSTEM = ("default", "kueue-system", "jobset-system")
_SYSTEM_PREFIXES = ("kube-", "gke-", "gmp-", "system-")
_KEPT_KINDS = ("Node",)
# Fields with a name, and fields whose own field `name` is the name of an object.
_NAMES = (
    *("namespace", "queueName", "clusterQueue", "cohortName", "parentName"),
    *("priorityClassName", "topologyName", "subdomain"),
)
_LISTS_OF_NAMES = ("onFlavors", "namespaces")
_REFERENCES = (
    *("metadata", "ownerReferences", "priorityClassRef", "podTemplateRef", "scaleTargetRef", "describedObject"),
    *("parameters", "admissionChecks", "flavors", "flavorsReservation", "flavorsUsage"),
)
_MAPS_OF_LABELS = ("labels", "annotations", "matchLabels", "nodeSelector", "nodeLabels")
_WITH_KEY = ("matchExpressions", "taints", "nodeTaints", "tolerations")
# Labels and annotations of Kubernetes, Kueue and JobSet whose values are names, or hashes of names.
_LABELS_WITH_NAMES = (
    *("batch.kubernetes.io/job-name", "job-name", "kubernetes.io/metadata.name"),
    *("jobset.sigs.k8s.io/jobset-name", "jobset.sigs.k8s.io/job-key"),
    *("kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class", "kueue.x-k8s.io/pod-group-name"),
    *("kueue.x-k8s.io/prebuilt-workload-name", "kueue.x-k8s.io/workload"),
)
_PUBLIC = ("kubernetes.io", "k8s.io", "google.com", "gke.io", "nvidia.com", "gke-ai")
_PUBLIC_LABELS = ("controller-uid", "pod-template-hash", "controller-revision-hash", "pod-template-generation")


def hash_names(snapshot: Snapshot, kept: Iterable[str], key: bytes) -> Snapshot:
    """Returns a snapshot with hashed names.

    Args:
        snapshot: The snapshot.
        kept: Names that stay; `stack_names` returns those of a stack.
        key: Key of the hashes. The same key gives the same hashes.
    """
    hasher = _Hasher(snapshot, frozenset(kept), key)
    objects = {kind: [hasher.rewrite(item) for item in items] for kind, items in snapshot.objects.items()}
    return snapshot.model_copy(update={"objects": objects, "hashed": True})


def stack_names(resources: Iterable[Object]) -> Iterator[str]:
    """Yields every text in the Kubernetes objects that a stack records, except those of Secrets."""
    for resource in resources:
        if resource["type"].startswith("kubernetes:") and not resource["type"].endswith(":Secret"):
            yield from _texts(resource.get("inputs") or {})


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part)
    elif isinstance(value, str):
        yield value


class _Hasher:
    def __init__(self, snapshot: Snapshot, kept: frozenset[str], key: bytes) -> None:
        self._kept = kept
        self._key = key
        self._names: dict[str, str] = {}
        names = {item["metadata"].get("uid"): item["metadata"]["name"] for _, item in _items(snapshot)}
        for kind, item in _items(snapshot):
            metadata = item["metadata"]
            name = metadata["name"]
            if kind in _KEPT_KINDS or _is_system(metadata.get("namespace", "")):
                self._names.setdefault(name, name)
                continue
            # JobSet finds its Jobs by name: the name of the JobSet, then those of the replicated Job and the index.
            owner = next((names.get(own.get("uid"), "") for own in metadata.get("ownerReferences", [])), "")
            if owner and name.startswith(f"{owner}-"):
                self._names.setdefault(name, self.name(owner) + name.removeprefix(owner))

    def name(self, name: str) -> str:
        """Returns the hash of a name, or the name itself if it stays."""
        if name in self._names:
            return self._names[name]
        if not name or name in self._kept or _is_system(name):
            return name
        return "h" + hmac.new(self._key, name.encode(), hashlib.sha256).hexdigest()[:DIGITS]

    def rewrite(self, value: Any, field: str = "") -> Any:
        """Returns a part of an object with hashed names."""
        if isinstance(value, Mapping):
            return {key: self._part(value, key, field) for key in value}
        if isinstance(value, list):
            if field in _LISTS_OF_NAMES:
                return [self.name(part) for part in value]
            return [self.rewrite(part, field) for part in value]
        return value

    def _part(self, value: Mapping[str, Any], key: str, field: str) -> Any:
        part = value[key]
        if field in _MAPS_OF_LABELS:
            return self._label(key, part)
        if field in _WITH_KEY and "key" in value and key in ("value", "values"):
            label = value["key"]
            return [self._label(label, text) for text in part] if isinstance(part, list) else self._label(label, part)
        is_name = key in _NAMES or (key == "name" and field in _REFERENCES)
        # In the status of a Workload: the flavor of each resource.
        if isinstance(part, str) and (is_name or (field == "flavors" and key not in ("name", "resources"))):
            return self.name(part)
        return self.rewrite(part, key)

    def _label(self, key: str, value: str) -> str:
        domain = key.partition("/")[0]
        is_public = domain.endswith(_PUBLIC) or key in _PUBLIC_LABELS
        return value if is_public and key not in _LABELS_WITH_NAMES else self.name(value)


def _items(snapshot: Snapshot) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The objects, owners before the objects that they own."""
    return ((kind, item) for kind in kinds() for item in snapshot.of(kind))


def _is_system(name: str) -> bool:
    return name in _SYSTEM or name.startswith(_SYSTEM_PREFIXES)
