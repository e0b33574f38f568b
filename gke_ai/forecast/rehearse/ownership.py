"""Gives the status of a restored Workload back to Kueue, which owns its fields by server-side apply.

Kueue takes back an admission by applying a status without it. The API server then deletes only fields that Kueue had
applied before: https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management. Without that, an
evicted workload would keep its admission, and Kueue would admit it again before the workload that evicted it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Object = dict[str, Any]
# The field manager of PatchAdmissionStatus, and the fields of admissionStatusPatch:
# https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/workload/workload.go
MANAGER = "kueue-admission"
_FIELDS = ("accumulatedPastExecutionTimeSeconds", "admission", "conditions", "requeueState", "resourceRequests")
# Lists whose items are merged by a key, in Workloads. The items of any other list belong together.
_KEYS: Mapping[str, str] = {"conditions": "type", "podSetAssignments": "name", "resourceRequests": "name"}


def managed_fields(workload: Mapping[str, Any]) -> list[Object]:
    """Returns the entries of `metadata.managedFields` of a Workload whose status Kueue wrote; none without a status."""
    status = {name: value for name, value in workload.get("status", {}).items() if name in _FIELDS}
    if not status:
        return []
    entry = {
        "manager": MANAGER,
        "operation": "Apply",
        "apiVersion": workload["apiVersion"],
        "time": workload["metadata"].get("creationTimestamp"),
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:status": _fields(status)},
        "subresource": "status",
    }
    return [entry]


def _fields(value: Any, name: str = "") -> Object:
    """Returns the paths of all fields in a value, in the form of managed fields."""
    if isinstance(value, Mapping):
        return {f"f:{key}": _fields(part, key) for key, part in value.items()}
    if isinstance(value, list) and (key := _KEYS.get(name)):
        return {f'k:{{"{key}":"{item[key]}"}}': {".": {}, **_fields(item)} for item in value}
    return {}
