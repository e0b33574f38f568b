"""Completes an object of a snapshot: its listed fields, over the unlisted fields of an object that has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gke_ai.forecast.snapshot.fields import SELECTED, kinds
from gke_ai.kube.pods import templates

Object = dict[str, Any]
IMAGE = "rehearsal.invalid/unlisted"
# What the API server adds to a container. It adds nothing to the containers in a Workload, and Kueue compares both.
_CONTAINER = {
    "image": IMAGE,
    "imagePullPolicy": "IfNotPresent",
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
# The Job controller renews a condition with another message: k8s.io/kubernetes, pkg/controller/job/job_controller.go.
_MESSAGES = {"JobSuspended": "Job suspended", "JobResumed": "Job resumed"}
# The field that identifies an item of a list.
_IDENTITIES = ("name", "type", "containerPort", "key")


def graft(kind: str, item: Mapping[str, Any], base: Mapping[str, Any]) -> Object:
    """Returns an object with the listed fields of `item` and the unlisted fields of `base`."""
    grafted: Object = _graft(item, base, kinds()[kind].fields)
    return grafted


def _graft(item: Any, base: Any, listed: Any) -> Any:
    if isinstance(listed, Mapping) and isinstance(item, Mapping):
        return _graft_map(item, base if isinstance(base, Mapping) else {}, listed)
    if isinstance(listed, list) and listed and isinstance(listed[0], Mapping) and isinstance(item, list):
        return _graft_list(item, base if isinstance(base, list) else [], listed[0])
    return item


def _graft_map(item: Mapping[str, Any], base: Mapping[str, Any], listed: Mapping[str, Any]) -> Object:
    if "*" in listed:
        return dict(item)
    grafted = {key: value for key, value in base.items() if key not in listed}
    for key, part in listed.items():
        if key in item:
            grafted[key] = _graft(item[key], base.get(key), part)
        # The snapshot has none of the listed fields below it, but there may be unlisted ones.
        elif (
            isinstance(part, Mapping) and isinstance(base.get(key), Mapping) and (below := _graft({}, base[key], part))
        ):
            grafted[key] = below
    if SELECTED in listed:
        grafted |= {key: value for key, value in item.items() if key not in listed}
    return grafted


def _graft_list(items: list[Any], base: list[Any], listed: Mapping[str, Any]) -> list[Any]:
    if identity := next((key for key in _IDENTITIES if items and key in listed and key in items[0]), None):
        by_identity = {part.get(identity): part for part in base}
        return [_graft(item, by_identity.get(item.get(identity)), listed) for item in items]
    same_length = len(items) == len(base)
    return [_graft(item, base[index] if same_length else None, listed) for index, item in enumerate(items)]


# --------------------------------------------------------------------------------------------------------- placeholders
def complete(kind: str, item: Object) -> Object:
    """Adds required fields that are not listed to an object: images of containers, and messages of conditions."""
    for spec in pod_specs(kind, item):
        spec.setdefault("dnsPolicy", "ClusterFirst")
        spec.setdefault("securityContext", {})
        if kind == "Pod":
            spec.setdefault("serviceAccountName", "default")
        for containers in ("containers", "initContainers"):
            if containers in spec:
                spec[containers] = [{**_CONTAINER, **container} for container in spec[containers]]
    status = item.get("status", {})
    for condition in [*status.get("conditions", []), *status.get("admissionChecks", [])]:
        condition.setdefault("message", _MESSAGES.get(condition.get("reason", ""), ""))
    if kind == "Namespace":
        item.setdefault("spec", {"finalizers": ["kubernetes"]})
    if kind == "DaemonSet" or (kind == "StatefulSet" and "updateRevision" not in status):
        # Its template has other unlisted fields than in the cluster, which would replace every pod.
        item.setdefault("spec", {})["updateStrategy"] = {"type": "OnDelete"}
    return item


def pod_specs(kind: str, item: Mapping[str, Any]) -> Iterator[Object]:
    """Yields the specifications of pods in an object."""
    for template in templates(kind, item):
        if "spec" in template:
            yield template["spec"]
