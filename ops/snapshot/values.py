"""Checks names and uids in a snapshot: they become names of objects and folders, and a snapshot may be a stranger's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
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
}


def invalid_values(value: Any, path: str, around: str = "") -> Iterator[tuple[str, str]]:
    """Yields the path of each name or uid that Kubernetes would not accept, and the form that it should have.

    Args:
        value: A part of an object.
        path: Path of the part in the snapshot.
        around: Field that contains the part.
    """
    if isinstance(value, list):
        for number, part in enumerate(value):
            yield from invalid_values(part, f"{path}[{number}]", around)
    elif isinstance(value, Mapping):
        for key, part in value.items():
            form = _FIELDS.get((around, key))
            if form is None:
                yield from invalid_values(part, f"{path}.{key}", key)
            elif not isinstance(part, str) or not form.fullmatch(part):
                yield f"{path}.{key}", _FORMS[form]
