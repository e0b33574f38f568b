"""Hashes the names and uids in a snapshot, so that references between its objects still match.

These are names of namespaces, queues, Workloads, Jobs, servers and pods, and values of labels that the owner of an
object chose. Names that the stack's own objects use stay, because whoever rehearses a change has the configuration of
the stack. Names and labels of objects in namespaces that Kubernetes, GKE and this program create stay, but not those in
another one that begins with kube- or gke-. Names of nodes, node pools, resources, containers, replicated Jobs and pod
sets stay too, and those of drivers, devices and requests of a claim. An expression that selects devices can have any
text: it stays in GKE's own classes and if the stack has it. Another one becomes one that selects nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gke_ai.catalog.fabric.nvlink import CHANNEL_CLASS, DAEMON_CLASS
from gke_ai.catalog.fabric.rdma import DEVICE_CLASS, PLAIN_CLASS
from gke_ai.catalog.kueue.namespaces import PUBLIC
from gke_ai.forecast.snapshot.fields import SELECTED, kinds
from gke_ai.forecast.snapshot.format import Snapshot
from gke_ai.forecast.snapshot.pools import NodePool
from gke_ai.kube.objects import Object
from gke_ai.kube.values import texts

DIGITS = 10
# Of the name of a Workload: as many digits of a hash, after a prefix. Together they fit in a label.
_WORKLOAD_DIGITS = 5
_WORKLOAD_PREFIX = 63 - 1 - _WORKLOAD_DIGITS
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?", re.I)
_KEPT_KINDS = ("Node",)
# GKE and NVIDIA's driver bring these classes of devices.
_CLASSES = (DEVICE_CLASS, PLAIN_CLASS, CHANNEL_CLASS, DAEMON_CLASS)
_NO_DEVICE = "false"
# Names that every cluster has, and words that say nothing about who uses them. Kubernetes reserves names of priority
# classes that begin with system-: https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/
_PUBLIC = (
    *("", "true", "false", "present", "default", "default-scheduler"),
    *("system-node-critical", "system-cluster-critical"),
    *_CLASSES,
)
# Fields with a name, and fields whose own field `name` is the name of an object.
_NAMES = (
    *("queueName", "clusterQueue", "cohortName", "parentName", "podSetGroupName"),
    *("priorityClassName", "schedulerName", "topologyName", "subdomain", "runtimeClassName", "handler"),
    *("deviceClassName", "resourceClaimName", "resourceClaimTemplateName"),
)
_REFERENCES = (
    *("metadata", "ownerReferences", "priorityClassRef", "podTemplateRef", "scaleTargetRef", "describedObject"),
    *("parameters", "admissionChecks", "flavors", "flavorsReservation", "flavorsUsage", "metric", "rules"),
    "reservedFor",
)
_GATES = ("schedulingGates", "preemptionGates")
_UIDS = ("uid", "succeeded", "failed")
_MAPS_OF_LABELS = ("labels", "annotations", "matchLabels", "nodeSelector", "nodeLabels")
_WITH_KEY = ("matchExpressions", "taints", "nodeTaints", "tolerations")
# Fields of labels that belong to nodes, although an object of a system namespace has them.
_OF_NODES = ("nodeSelector", "nodeAffinity", "tolerations")
# Labels and annotations of Kubernetes, Kueue, JobSet and GKE whose values are names, or hashes of names.
_NAMESPACE_LABEL = "kubernetes.io/metadata.name"
_LABELS_WITH_NAMES = (
    *("batch.kubernetes.io/job-name", "job-name"),
    *("cloud.google.com/compute-class", "cloud.google.com/reservation-name"),
    "controller-revision-hash",  # of a pod of a StatefulSet: its name and a hash
    *("leaderworkerset.sigs.k8s.io/name", "kueue.x-k8s.io/job-owner-name"),
    *("jobset.sigs.k8s.io/jobset-name", "jobset.sigs.k8s.io/job-key"),
    *("kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class", "kueue.x-k8s.io/pod-group-name"),
    *("kueue.x-k8s.io/prebuilt-workload-name", "kueue.x-k8s.io/workload", "autoscaling.gke.io/provisioning-request"),
    "autoscaling.x-k8s.io/consume-provisioning-request",
    "cluster-autoscaler.kubernetes.io/consume-provisioning-request",
)
_LABELS_WITH_UIDS = (
    *("batch.kubernetes.io/controller-uid", "controller-uid"),
    *("kueue.x-k8s.io/job-uid", "jobset.sigs.k8s.io/jobset-uid"),
)
# Of a ProvisioningRequest, where GKE puts names of its own and of the project too:
# GoogleCloudPlatform/cluster-autoscaler, pkg/provisioningrequests/queuedwrapper/wrapper.go
_DETAILS = ("parameters", "provisioningClassDetails")
_PUBLIC_DETAILS = ("AcceleratorType", "SelectedZone", "NodePoolName", "NodePoolAutoProvisioned", "ProvisioningMode")
# Controllers give these objects the name of their owner, and a suffix.
_NAMED_AFTER = {
    "Job": ("JobSet",),
    "ReplicaSet": ("Deployment",),
    "Pod": ("Job", "ReplicaSet", "DaemonSet", "StatefulSet"),
}


def hash_names(snapshot: Snapshot, kept: Iterable[str], key: bytes) -> Snapshot:
    """Returns a snapshot with hashed names and uids.

    Args:
        snapshot: The snapshot.
        kept: Names that stay; `stack_names` returns those of a stack.
        key: Key of the hashes. The same key gives the same hashes.
    """
    names = _Names(snapshot, frozenset(kept), key)
    objects = {
        kind: [_Rewriter(names, kind, _is_system(kind, item["metadata"])).rewrite(item) for item in snapshot.of(kind)]
        for kind in snapshot.objects
    }
    kueue = _Rewriter(names, "Configuration", False).rewrite(snapshot.kueue)
    pools = snapshot.pools and [
        NodePool.model_validate(_Rewriter(names, "NodePool", False).rewrite(pool.model_dump(by_alias=True)))
        for pool in snapshot.pools
    ]
    return snapshot.model_copy(update={"objects": objects, "kueue": kueue, "pools": pools, "hashed": True})


def file_names(folder: Path) -> set[str]:
    """Returns every word in the files of a folder of manifests that can be a name."""
    files = (file for file in folder.rglob("*") if file.is_file() and not file.is_symlink())
    return {word for file in files for word in _NAME.findall(file.read_text(errors="replace"))}


def stack_names(resources: Iterable[Object]) -> Iterator[str]:
    """Yields every text in the Kubernetes objects that a stack records, except those of Secrets."""
    for resource in resources:
        if resource["type"].startswith("kubernetes:") and not resource["type"].endswith(":Secret"):
            yield from (text for _, text in texts(resource.get("inputs")))


def used_names(outputs: Object) -> Iterator[str]:
    """Yields the queues, classes and namespaces in a stack's outputs, some of which it uses and did not create."""
    for output in ("namespaces", "queues", "priorityClasses"):
        yield from (text for _, text in texts(outputs.get(output)))


def _is_system(kind: str, metadata: Mapping[str, Any]) -> bool:
    """Whether an object is of a system namespace, or a class of devices that GKE brings."""
    return metadata.get("namespace") in PUBLIC or (kind == "DeviceClass" and metadata["name"] in _CLASSES)


class _Names:
    """The hash of every name and uid."""

    def __init__(self, snapshot: Snapshot, kept: frozenset[str], key: bytes) -> None:
        self._kept = kept | {*_PUBLIC}
        self._key = key
        self._names: dict[str, str] = {}
        self._checks = [item["metadata"]["name"] for item in snapshot.of("AdmissionCheck")]
        owners = {item["metadata"].get("uid"): (kind, item["metadata"]["name"]) for kind, item in _items(snapshot)}
        for kind, item in _items(snapshot):
            metadata = item["metadata"]
            name = metadata["name"]
            if kind in _KEPT_KINDS or metadata.get("namespace") in PUBLIC:
                self._names.setdefault(name, name)
                continue
            for owner in metadata.get("ownerReferences", []):
                uid = owner.get("uid", "?")
                self._name_after(kind, name, *owners.get(uid, ("", "")), uid)

    def _name_after(self, kind: str, name: str, owner_kind: str, owner: str, uid: str) -> None:
        """Keeps the form of a name by which a controller finds an object of its owner again."""
        if (kind, owner_kind) == ("Workload", "StatefulSet"):
            self._names.setdefault(name, _workload_name(self.name(owner), self.uid(uid)))
        if not name.startswith(f"{owner}-"):
            return
        suffix = name.removeprefix(owner)
        if owner_kind in _NAMED_AFTER.get(kind, ()):
            self._names.setdefault(name, self.name(owner) + suffix)
        elif (kind, owner_kind) == ("ProvisioningRequest", "Workload"):
            # Kueue, pkg/controller/admissionchecks/provisioning/provisioning.go: WORKLOAD-CHECK-ATTEMPT
            check, _, attempt = suffix[1:].rpartition("-")
            if check in self._checks and attempt.isdigit():
                self._names.setdefault(name, f"{self.name(owner)}-{self.name(check)}-{attempt}")

    def name(self, name: str) -> str:
        """Returns the hash of a name, or the name itself if it stays."""
        if name in self._names:
            return self._names[name]
        return name if name in self._kept else "h" + self._digest(name).hex()[:DIGITS]

    def expression(self, text: str) -> str:
        """Returns an expression that selects devices if the stack has it, or one that selects none."""
        return text if text in self._kept else _NO_DEVICE

    def namespace(self, name: str) -> str:
        """Returns the hash of a namespace's name, or the name itself if it stays."""
        return name if name in PUBLIC else self.name(name)

    def uid(self, uid: str) -> str:
        """Returns the hash of a uid, which is a UUID too."""
        return str(uuid.UUID(bytes=self._digest(uid)[:16], version=4))

    def _digest(self, text: str) -> bytes:
        return hmac.new(self._key, text.encode(), hashlib.sha256).digest()


def _workload_name(owner: str, uid: str) -> str:
    """The name that Kueue gives the Workload of a StatefulSet, and by which it finds it again.

    https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobframework/workload_names.go
    """
    digest = hashlib.sha1("\n".join(("StatefulSet", "apps", owner, uid)).encode(), usedforsecurity=False).hexdigest()
    return f"{f'statefulset-{owner}'[:_WORKLOAD_PREFIX]}-{digest[:_WORKLOAD_DIGITS]}"


class _Rewriter:
    """Hashes the names in an object.

    Attributes:
        is_system: Whether the object is in a system namespace, so that its labels stay: Services, which a snapshot does
            not have, select its pods by them.
    """

    def __init__(self, names: _Names, kind: str, is_system: bool) -> None:
        self._names = names
        self._kind = kind
        self.is_system = is_system

    def rewrite(self, value: Any, field: str = "") -> Any:
        """Returns a part of an object with hashed names."""
        if isinstance(value, Mapping):
            return {key: self._part(value, key, field) for key in value}
        if isinstance(value, list):
            return [self._item(part, field) for part in value]
        return value

    def _item(self, value: Any, field: str) -> Any:
        if not isinstance(value, str):
            return self.rewrite(value, field)
        if field == "namespaces":
            return self._names.namespace(value)
        if field in _UIDS:
            return self._names.uid(value)
        return self._names.name(value) if field in ("onFlavors", "deviceClassNames") else value

    def _part(self, value: Mapping[str, Any], key: str, field: str) -> Any:
        part = value[key]
        if field in _WITH_KEY and key == "values" and isinstance(part, list):
            return [self._label(value.get("key", ""), text) for text in part]
        if not isinstance(part, str):
            if key in _OF_NODES and self.is_system:
                return _Rewriter(self._names, self._kind, False).rewrite(part, key)
            return self.rewrite(part, key)
        if field in _WITH_KEY:
            return self._label(value.get("key", ""), part) if key == "value" else part
        # In a ProvisioningRequestConfig it is a list of keys, and of details that give the values.
        if field in _MAPS_OF_LABELS and (field, self._kind) != ("nodeSelector", "ProvisioningRequestConfig"):
            return self._label(key, part)
        return self._text(part, key, field)

    def _text(self, text: str, key: str, field: str) -> str:
        if key == "namespace" or (self._kind, field, key) == ("Namespace", "metadata", "name"):
            return self._names.namespace(text)
        if key in _UIDS:
            return self._names.uid(text)
        if (field, key) == ("cel", "expression"):
            return text if self.is_system else self._names.expression(text)
        if self._kind.startswith("ProvisioningRequest") and field in _DETAILS:
            return text if key in _PUBLIC_DETAILS or text.isdigit() else self._names.name(text)
        if field in _GATES and key == "name":
            return text if text.startswith("kueue.x-k8s.io/") else self._names.name(text)
        is_name = key in _NAMES or (key == "name" and field in _REFERENCES)
        # In the status of a Workload: the flavor of each resource.
        return self._names.name(text) if is_name or field == "flavors" else text

    def _label(self, key: str, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if key == _NAMESPACE_LABEL:
            return self._names.namespace(value)
        if key in _LABELS_WITH_UIDS:
            return self._names.uid(value)
        is_public = key in _PUBLIC_LABELS or self.is_system
        return value if is_public and key not in _LABELS_WITH_NAMES else self._names.name(value)


def _listed_labels() -> Iterator[str]:
    """Yields the labels and annotations that fields.yaml lists by key."""
    metadata = kinds()["Pod"].fields["metadata"]
    return (key for field in ("labels", "annotations") for key in metadata[field] if key != SELECTED)


# Who writes these labels does not choose their values freely. Any other key, of whatever domain, may be a user's.
_PUBLIC_LABELS = frozenset(_listed_labels())


def _items(snapshot: Snapshot) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The objects, owners before the objects that they own."""
    return ((kind, item) for kind in kinds() for item in snapshot.of(kind))
