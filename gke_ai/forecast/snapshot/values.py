"""Checks names, uids, times, numbers and counts in a snapshot, which may be a stranger's.

Names and uids become names of objects and folders, and controllers create as many pods as counts say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

# https://kubernetes.io/docs/concepts/overview/working-with-objects/names/
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"(?=.{1,253}\Z)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*")
_UID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_FORMS = {
    _LABEL: "a name of lower-case letters, digits and hyphens with at most 63 characters",
    _SUBDOMAIN: "a DNS name in lower case",
    _UID: "a UUID",
}
# Longer than any name, key or value that Kubernetes accepts in a listed field.
LONGEST_TEXT = 4096
LARGEST_NUMBER = 2**63 - 1  # https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
# Pods of all objects together, and of each count. GKE has 256 pods a node at most, and a scratch cluster few nodes.
MAX_PODS = 20_000
SHOWN = 200  # characters of a stranger's text in a message
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_COUNTS = ("replicas", "parallelism", "completions", "minReplicas", "maxReplicas", "count", "minCount")
# https://github.com/kubernetes/api/blob/v0.36.1/resource/v1/types.go has the limits of these lists.
_LONGEST_LISTS = {
    "devices": 128,
    "requests": 32,
    "firstAvailable": 8,
    "results": 32,
    "selectors": 32,
    "reservedFor": 256,
}
_CONTAINERS = ("containers", "initContainers", "containerStatuses", "initContainerStatuses")
# By the field around them: keys of labels and of resources are free.
_FIELDS = {
    ("metadata", "name"): _SUBDOMAIN,
    ("metadata", "namespace"): _LABEL,
    ("metadata", "uid"): _UID,
    ("ownerReferences", "name"): _SUBDOMAIN,
    ("ownerReferences", "uid"): _UID,
    ("spec", "nodeName"): _SUBDOMAIN,
    ("status", "nominatedNodeName"): _SUBDOMAIN,
    **{(containers, "name"): _LABEL for containers in _CONTAINERS},
    **{(claims, "name"): _LABEL for claims in ("resourceClaims", "resourceClaimStatuses", "claims")},
    **{(claims, "resourceClaimName"): _SUBDOMAIN for claims in ("resourceClaims", "resourceClaimStatuses")},
    ("resourceClaims", "resourceClaimTemplateName"): _SUBDOMAIN,
    ("reservedFor", "name"): _SUBDOMAIN,
    ("reservedFor", "uid"): _UID,
    **{(requests, "deviceClassName"): _SUBDOMAIN for requests in ("exactly", "firstAvailable")},
}


# Fields without which Kubernetes accepts no item of these lists.
_OF_ITEMS = {
    **dict.fromkeys((*_CONTAINERS, "podSetAssignments", "admissionChecks", "reclaimablePods"), ("name",)),
    **dict.fromkeys(("resourceRequests", "unhealthyNodes", "preemptionGates", "schedulingGates"), ("name",)),
    "conditions": ("type",),
    "replicatedJobs": ("name", "template"),
    **dict.fromkeys(("resourceClaims", "resourceClaimStatuses", "claims", "devices"), ("name",)),
    "results": ("request", "driver", "pool", "device"),
    "reservedFor": ("resource", "name", "uid"),
}


def missing_fields(kind: str, item: Mapping[str, Any]) -> Iterator[str]:
    """Yields the path of each required field that an item of a list in an object does not have."""
    of_items = {**_OF_ITEMS, "podSets": ("name",)} if kind == "Workload" else _OF_ITEMS
    yield from _missing(item, of_items, "")


def _missing(value: Any, of_items: Mapping[str, tuple[str, ...]], path: str, field: str = "") -> Iterator[str]:
    if isinstance(value, list):
        for number, part in enumerate(value):
            required = of_items.get(field, ()) if isinstance(part, Mapping) else ()
            yield from (f"{path}[{number}].{key}" for key in required if key not in part)
            yield from _missing(part, of_items, f"{path}[{number}]", field)
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from _missing(part, of_items, f"{path}.{key}".lstrip("."), key)


def invalid_values(value: Any, path: str, around: str = "") -> Iterator[tuple[str, str]]:
    """Yields the path of each name or uid that Kubernetes would not accept, and the form that it should have.

    Args:
        value: A part of an object.
        path: Path of the part in the snapshot.
        around: Field that contains the part.
    """
    if isinstance(value, list):
        if len(value) > (longest := _LONGEST_LISTS.get(around, len(value))):
            yield path, f"a list of at most {longest} items"
        for number, part in enumerate(value):
            yield from invalid_values(part, f"{path}[{number}]", around)
    elif isinstance(value, Mapping):
        for key, part in value.items():
            form = _FIELDS.get((around, key))
            if len(key) > LONGEST_TEXT:
                yield path, f"an object with keys of at most {LONGEST_TEXT} characters"
            elif form is None:
                if key in _COUNTS and not isinstance(part, Mapping | list) and not _is_count(part):
                    yield f"{path}.{key}", f"a whole number between 0 and {MAX_PODS}"
                yield from invalid_values(part, f"{path}.{key}", key)
            elif not isinstance(part, str) or not form.fullmatch(part):
                yield f"{path}.{key}", _FORMS[form]
    elif isinstance(value, str):
        if len(value) > LONGEST_TEXT:
            yield path, f"a text of at most {LONGEST_TEXT} characters"
        elif TIME.fullmatch(value) and not is_valid_time(value):
            yield path, "a time of this century"
    elif abs(value) > LARGEST_NUMBER:
        yield path, "a number of 64 bits"


def is_valid_time(value: str | datetime) -> bool:
    """Whether a time exists, and every age of a snapshot stays a time when it moves."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        return False
    return 2000 <= moment.year <= 2100


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_PODS
