"""Kueue's and the scheduler's reasons in plain words.

Messages of Kueue 0.18: https://github.com/kubernetes-sigs/kueue/blob/v0.18.4/pkg/scheduler/flavorassigner/flavorassigner.go
and https://github.com/kubernetes-sigs/kueue/blob/v0.18.4/pkg/scheduler/preemption/preemption.go
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from catalog.nodes import NVIDIA_GPU
from catalog.objects import condition
from catalog.quantities import parse_quantity, readable
from catalog.tpus import GOOGLE_TPU
from forecast.timeline import Object

NO_NODE = "NoNode"
UNPROCESSED = "Unprocessed"
_UNUSED = re.compile(r"insufficient unused quota for (\S+) in flavor (\S+?), (\S+) more needed")
_NEVER = re.compile(
    r"insufficient quota for (\S+) in flavor (\S+?), .*?current podset request \((\S+?)\) > maximum capacity \((\S+?)\)"
)
_UNAVAILABLE = re.compile(r"resource (\S+) unavailable in ClusterQueue")
_PREEMPTOR = re.compile(r"workload \(UID: ([^,]+), JobUID: ([^)]+)\)")
_NAMES = {NVIDIA_GPU: "GPUs", GOOGLE_TPU: "TPU chips"}
# Why Kueue preempts, by the reason of the condition Preempted.
CAUSES: Mapping[str, str] = {
    "InClusterQueue": "it has a lower priority in the same cluster queue",
    "InCohortReclamation": "the cohort takes back the quota that it borrows",
    "InCohortFairSharing": "fair sharing in the cohort",
    "InCohortReclaimWhileBorrowing": "the cohort takes back quota, also for a workload that borrows",
}
# Why Kueue evicts, by the reason of the condition Evicted.
EVICTIONS: Mapping[str, str] = {
    "Preempted": "preempted",
    "PodsReadyTimeout": "its pods were not ready in time",
    "AdmissionCheck": "an admission check took back its approval",
    "ClusterQueueStopped": "its cluster queue is stopped",
    "LocalQueueStopped": "its local queue is stopped",
    "NodeFailures": "its nodes failed",
    "Deactivated": "it was deactivated",
    "FlavorMigration": "it moves to a better flavor",
}


def why_it_waits(workload: Object) -> tuple[str, str]:
    """Returns the reason of a workload that is not admitted: Kueue's word, and plain words."""
    reserved = condition(workload, "QuotaReserved")
    if reserved.get("status") == "True":
        checks = (workload.get("status") or {}).get("admissionChecks") or []
        waiting = [
            f"{check['name']} ({check.get('message') or check['state']})"
            for check in checks
            if check["state"] != "Ready"
        ]
        return "AdmissionChecks", f"admission checks: {', '.join(waiting) or 'Kueue has not started them'}"
    message = str(reserved.get("message", ""))
    if not message:
        return UNPROCESSED, "Kueue has not processed it"
    return str(reserved.get("reason", "")), plain(message)


def plain(message: str) -> str:
    """Returns a message of Kueue in plain words; an unknown message without uids."""
    missing: dict[str, list[str]] = {}
    for resource, flavor, more in _UNUSED.findall(message):
        missing.setdefault(flavor, []).append(_amount(resource, more, "more"))
    texts = [f"{', '.join(dict.fromkeys(amounts))} in flavor {flavor}" for flavor, amounts in missing.items()]
    texts += [
        f"{_amount(resource, request)} in flavor {flavor}, which never has more than {_number(resource, most)}"
        for resource, flavor, request, most in _NEVER.findall(message)
    ]
    texts += [f"a quota for {resource}, which its cluster queue lacks" for resource in _UNAVAILABLE.findall(message)]
    if texts:
        return ", ".join(dict.fromkeys(texts))
    return re.sub(r" \(UID: [^)]*\)|; preempt(or|ee) path: [^;]*", "", message)


def preemptor_of(workload: Object) -> tuple[str, str]:
    """Returns the uids of the Workload that preempts, and of its Job or pod."""
    match = _PREEMPTOR.search(str(condition(workload, "Preempted").get("message", "")))
    return (match[1], match[2]) if match else ("", "")


def why_evicted(reason: str, cause: str, preemptor: str) -> str:
    """Returns why Kueue evicts a workload, in plain words."""
    text = EVICTIONS.get(reason.split("DueTo")[0], reason)
    if preemptor:
        text += f" by {preemptor}"
    return f"{text}: {CAUSES.get(cause, cause)}" if cause else text


def _amount(resource: str, quantity: str, more: str = "") -> str:
    number = _number(resource, quantity)
    name = _NAMES.get(resource, resource)
    if number == "1":
        name = {NVIDIA_GPU: "GPU", GOOGLE_TPU: "TPU chip"}.get(resource, name)
    return " ".join(filter(None, [number, more, name]))


def _number(resource: str, quantity: str) -> str:
    try:
        return readable(resource, parse_quantity(quantity))
    except ValueError:
        return quantity
