"""Kueue's and the scheduler's reasons in plain words. gke_ai/catalog/kueue/messages.yaml has those of Kueue."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any

from gke_ai.catalog.machines.tpus import GOOGLE_TPU
from gke_ai.catalog.nodes.shape import NVIDIA_GPU
from gke_ai.catalog.quantities import parse_quantity, readable
from gke_ai.catalog.tables import table
from gke_ai.kube.creation import Exceeded
from gke_ai.kube.objects import Object, condition
from gke_ai.kube.pods import requests
from gke_ai.kube.values import quantity

NO_NODE, GATED, REFUSED, SUSPENDED = "NoNode", "SchedulingGated", "FailedCreate", "Suspended"
ADMISSION_CHECKS = "AdmissionChecks"
PENDING, INADMISSIBLE = "Pending", "Inadmissible"
UNPROCESSED = "Kueue has not processed it"
LONGEST = 2048  # characters of a message that are read: each form of Kueue's is looked for in it
_TABLE: Any = table("kueue/messages.yaml")
# What Kueue says of a workload that it considered after another one, in the same cycle.
OVERTAKEN: str = _TABLE["messages"]["pkg/scheduler/scheduler.go"][
    "Workload no longer fits after processing another workload"
]
_UNUSED = re.compile(r"insufficient unused quota for (\S+) in flavor (\S+?), (\S+) more needed")
_NEVER = re.compile(
    r"insufficient quota for (\S+) in flavor (\S+?), previously considered pod\w+ requests \((\S+?)\) "
    r"\+ current pod\w+ request \((\S+?)\) > maximum capacity \((\S+?)\)"
)
_EXCLUDED = re.compile(
    r"untolerated taint \{.*?\} in flavor ([^\s,;]+)|flavor \"?([^\s,;\"]+)\"? (?:doesn't match node affinity|not found"
    r"|does not support Topology|supports only Topology|does not contain the requested level)",
    re.I,
)
_LOST = re.compile(r"(LocalQueue|ClusterQueue) (\S*) (?:doesn't exist|not found)")
_NAMESPACE = "workload namespace doesn't match clusterqueue selector"
_TAINT = re.compile(r"\{(\S+) (\S*) (\w+) [^}]*\}")
_NODES = re.compile(r"\. Total nodes: (\d+); excluded: ")
_POD_SET = "couldn't assign flavors to pod set "
_UNAVAILABLE = re.compile(r"resource (\S+) unavailable in ClusterQueue")
_PREEMPTOR = re.compile(r"workload \(UID: ([^,]+), JobUID: ([^)]+)\)")
# What the API server says of a pod that it refuses.
_FORBIDDEN = re.compile(r"(?: is forbidden| denied the request): (.*)", re.S)
NAMES = {NVIDIA_GPU: "GPU", GOOGLE_TPU: "TPU chip"}
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
    "EvictedOnManagerCluster": "its manager cluster evicted it",
    "DeactivatedDueToMaximumExecutionTimeExceeded": "it reached its maximum execution time",
    "DeactivatedDueToRequeuingLimitExceeded": "it was queued again as often as Kueue allows",
    "DeactivatedDueToAdmissionCheck": "an admission check rejected it",
}


def why_it_waits(workload: Object) -> tuple[str, str]:
    """Returns the reason of a workload that is not admitted: Kueue's word, and plain words."""
    kind, text = stated_reason(workload)
    return kind, text or UNPROCESSED


def stated_reason(workload: Object) -> tuple[str, str]:
    """Returns what Kueue itself says of a workload that is not admitted: its word, and plain words.

    The words are empty if Kueue has not said why: it considers only the first of equal workloads, and after an eviction
    it repeats what happened.
    """
    reserved = condition(workload, "QuotaReserved")
    if reserved.get("status") == "True":
        checks = (workload.get("status") or {}).get("admissionChecks") or []
        waiting = [
            f"{check['name']} ({plain(str(check.get('message') or check['state']))})"
            for check in checks
            if check["state"] != "Ready"
        ]
        return ADMISSION_CHECKS, f"admission checks: {', '.join(waiting) or 'Kueue has not started them'}"
    message = message_of(workload)
    if message == condition(workload, "Evicted").get("message", ""):
        message = ""
    return str(reserved.get("reason") or PENDING), plain(message)


def message_of(workload: Object) -> str:
    """Returns what Kueue says of a workload without quota."""
    return str(condition(workload, "QuotaReserved").get("message", ""))


def never_starts(message: str, groups: Collection[Collection[str]]) -> bool:
    """Whether a message of Kueue says that a workload can't start however much of the quota is free.

    `groups` are the flavors of each resource group of the cluster queue. One of them has no flavor for the workload.
    """
    if _LOST.search(message) or message.lower() == _NAMESPACE:
        return True
    for pod_set in message.split(_POD_SET)[1:]:
        # Beside other pod sets it may be too large for a flavor only because Kueue gave them that one, of several.
        never = {
            flavor
            for _, flavor, _, request, most in _NEVER.findall(pod_set)
            if parse_quantity(request) > parse_quantity(most) or any(tuple(group) == (flavor,) for group in groups)
        }
        never |= {flavor for names in _EXCLUDED.findall(pod_set) for flavor in names if flavor}
        if _UNAVAILABLE.search(pod_set) or any(group and never >= {*group} for group in groups):
            return True
    return False


def missing_quota(message: str) -> dict[tuple[str, str], Fraction]:
    """Returns how much more quota a message says is needed, by flavor and resource."""
    return {(flavor, resource): quantity(more) or Fraction(0) for resource, flavor, more in _UNUSED.findall(message)}


@lru_cache(LONGEST)
def plain(message: str) -> str:
    """Returns a message of Kueue in plain words; an unknown message without uids."""
    message = message[:LONGEST]
    missing: dict[str, list[str]] = {}
    for resource, flavor, more in _UNUSED.findall(message):
        missing.setdefault(flavor, []).append(_amount(resource, more, "more"))
    texts = [f"{', '.join(dict.fromkeys(amounts))} in flavor {flavor}" for flavor, amounts in missing.items()]
    texts += [
        f"{'' if others == '0' else f'{_number(resource, others)} + '}{_amount(resource, request)} in flavor {flavor}, "
        f"which never has more than {_number(resource, most)}"
        for resource, flavor, others, request, most in _NEVER.findall(message)
    ]
    found: dict[int, str] = {}
    left = _NODES.sub(r", nodes: \1, ", _TAINT.sub(_taint, message))
    for form, words in _words():

        def note(match: re.Match[str], words: str = words) -> str:
            found[match.start()] = words.format(*match.groups())
            return "\0" * len(match[0])

        left = form.sub(note, left)
    texts += [text for _, text in sorted(found.items())]
    if texts:
        return ", ".join(dict.fromkeys(texts))
    return re.sub(r" \(UID: [^)]*\)|; preempt(or|ee) path: [^;]*", "", message)


def _taint(match: re.Match[str]) -> str:
    """A taint as kubectl writes it, in place of Go's form."""
    return f"{match[1]}{f'={match[2]}' if match[2] else ''}:{match[3]}"


@cache
def _words() -> list[tuple[re.Pattern[str], str]]:
    """The forms of Kueue's messages as patterns, the longest first, with our words."""
    forms = {form: words for of_file in _TABLE["messages"].values() for form, words in of_file.items()}
    known = sorted(((form, words) for form, words in forms.items() if words[:1] != "("), key=lambda item: -len(item[0]))
    return [(_pattern(form), words) for form, words in known]


def _pattern(form: str) -> re.Pattern[str]:
    """A pattern of what Go's fmt.Sprintf makes of a form. A text ends before the next part of a message."""
    verbs = {"%d": r"(-?\d+)", "%q": r'"([^"]*)"', "%v": r"([^;]+)", "%s": r"([^,;]+?)"}
    parts = (verbs.get(part, re.escape(part)) for part in re.split(r"(%[dqvs])", form))
    return re.compile("".join(parts) + (r"(?=[,;]|\. |$)" if form.endswith("%s") else ""), re.I)


def why_refused(message: str, stay: Collection[Object] = ()) -> tuple[str, bool]:
    """Returns what a pod waits for that the API server refuses, in plain words, and whether it waits forever.

    `stay` are pods that run until this one does.
    """
    refusal = _FORBIDDEN.search(message)
    if not (exceeded := Exceeded.of(message)):
        return f"pods that the cluster accepts: {refusal[1] if refusal else message}", bool(refusal)
    held = Counter({"pods": Fraction(len(stay))})
    for pod in stay:
        held.update(requests(pod["spec"]))
    texts, never = [], False
    for name, amount in exceeded.requested.items():
        limit = exceeded.limited.get(name)
        most, more = quantity(limit), quantity(amount)
        texts.append(f"{name}: {amount} more, {exceeded.used.get(name)} of {limit} used")
        own = held[name.removeprefix("requests.").removeprefix("count/")]
        never = never or bool(most is not None and more is not None and more + own > most)
    return f"room in ResourceQuota {exceeded.quota} ({'; '.join(texts)})", never


def preemptor_of(workload: Object) -> tuple[str, str]:
    """Returns the uids of the Workload that preempts, and of its Job or pod."""
    match = _PREEMPTOR.search(str(condition(workload, "Preempted").get("message", "")))
    return (match[1], match[2]) if match else ("", "")


def why_evicted(reason: str, cause: str, preemptor: object) -> str:
    """Returns why Kueue evicts a workload, in plain words."""
    text = EVICTIONS.get(reason) or EVICTIONS.get(reason.split("DueTo")[0], reason)
    if preemptor:
        text += f" by {preemptor}"
    return f"{text}: {CAUSES.get(cause, cause)}" if cause else text


def _amount(resource: str, quantity: str, more: str = "") -> str:
    number = _number(resource, quantity)
    name = NAMES.get(resource, resource) + ("s" if resource in NAMES and number != "1" else "")
    return " ".join(filter(None, [number, more, name]))


def _number(resource: str, quantity: str) -> str:
    try:
        return readable(resource, parse_quantity(quantity))
    except ValueError:
        return quantity
