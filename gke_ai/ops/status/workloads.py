"""Kueue's workloads for the status: the state of each and why it waits, or a row per queue if there are many."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime

from gke_ai.kube.creation import refused
from gke_ai.kube.names import WorkloadName
from gke_ai.kube.objects import Object, condition, holds

REQUEST_API = "autoscaling.x-k8s.io/v1"
# Key of a request's details: https://github.com/GoogleCloudPlatform/cluster-autoscaler,
# pkg/provisioningrequests/queuedwrapper/wrapper.go
NODE_POOL_NAME = "NodePoolName"
WAITING, ADMITTED, EVICTED, FINISHED = "Waiting", "Admitted", "Evicted", "Finished"

Requests = Mapping[str, list[Object]]
"""ProvisioningRequests by the uid of their workload."""


def requests_of(requests: Iterable[Object], pools: Collection[str]) -> Requests:
    """Returns the requests by workload. One whose pool isn't among the cluster's pools says so in a condition."""
    result: dict[str, list[Object]] = defaultdict(list)
    for request in requests:
        for reference in request["metadata"].get("ownerReferences") or []:
            result[reference.get("uid", "")].append(_with_lost_pool(request, pools))
    return result


def _with_lost_pool(request: Object, pools: Collection[str]) -> Object:
    """The request, as failed if GKE deleted its pool.

    GKE leaves such a request accepted forever, so Kueue does not retry: https://github.com/kubernetes/autoscaler/issues/9490
    """
    pool = ((request.get("status") or {}).get("provisioningClassDetails") or {}).get(NODE_POOL_NAME)
    if not pool or pool in pools or holds(request, "Provisioned") or holds(request, "Failed"):
        return request
    metadata = request["metadata"]
    message = (
        f"its node pool {pool} has no nodes and is not in this stack; if the pool is gone, the request never ends: "
        f"delete ProvisioningRequest {metadata['namespace']}/{metadata['name']}, and Kueue creates another"
    )
    status = {**request["status"], "conditions": [{"type": "Failed", "status": "True", "message": message}]}
    return {**request, "status": status}


def workload_rows(workloads: Iterable[Object], requests: Requests) -> Iterator[tuple[str, ...]]:
    """Yields a row per workload: admitted, waiting, evicted or finished, with Kueue's reason."""
    for workload in sorted(workloads, key=lambda workload: (workload["metadata"]["namespace"], name_of(workload))):
        state, why = state_of(workload, requests)
        priority = str(workload["spec"].get("priority", 0))
        yield name_of(workload), workload["spec"].get("queueName", ""), priority, state, why


def queue_rows(workloads: Iterable[Object], requests: Requests, now: datetime) -> Iterator[tuple[str, ...]]:
    """Yields a row per local queue: its workloads by state, and how long and why the first of them waits."""
    by_queue: dict[str, list[Object]] = defaultdict(list)
    for workload in workloads:
        by_queue[f"{workload['metadata']['namespace']}/{workload['spec'].get('queueName', '')}"].append(workload)
    for queue, members in sorted(by_queue.items()):
        states = [(*state_of(member, requests), waits_since(member)) for member in members]
        counts = Counter(state.partition(":")[0] for state, *_ in states)
        waits = [(since, why) for state, why, since in states if state.startswith((WAITING, EVICTED))]
        since, why = min(waits, default=(now, ""))
        shown = [str(counts[state] or "–") for state in (ADMITTED, WAITING, EVICTED, FINISHED)]
        yield queue, *shown, span((now - since).total_seconds()) if waits else "–", why


def refused_rows(
    deployments: Iterable[Object], jobs: Iterable[Object], events: Iterable[Object]
) -> Iterator[tuple[str, ...]]:
    """Yields a row per Deployment and Job whose pods the API server refuses, with its reason."""
    for item, why in refused(deployments, jobs, events):
        yield f"{item['metadata']['namespace']}/{item['metadata']['name']}", why


def waits_since(workload: Object) -> datetime:
    """Returns when a workload was created, or last evicted."""
    evicted = condition(workload, EVICTED).get("lastTransitionTime")
    created = workload["metadata"].get("creationTimestamp") or datetime.now(UTC).isoformat()
    return max(map(datetime.fromisoformat, (created, evicted or created)))


def span(seconds: float) -> str:
    """Formats a time as kubectl does: in its largest unit that gives at least two."""
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def state_of(workload: Object, requests: Requests) -> tuple[str, str]:
    """Returns the state of a workload in Kueue, and the reason."""
    if (finished := condition(workload, FINISHED)).get("status") == "True":
        return FINISHED, finished.get("message", "")
    if holds(workload, ADMITTED):
        return ADMITTED, ""
    checks = "; ".join(check_reasons(workload, requests))
    if (evicted := condition(workload, EVICTED)).get("status") == "True":
        why = plainly(evicted.get("message", ""))
        return f"{EVICTED}: {evicted.get('reason', '')}", f"{why}; {checks}" if checks else why
    if holds(workload, "QuotaReserved"):
        return WAITING, f"it has quota, and waits for {checks or 'its admission'}"
    return WAITING, condition(workload, "QuotaReserved").get("message", "Kueue has not processed it yet")


def check_reasons(workload: Object, requests: Requests) -> Iterator[str]:
    """Yields for each admission check that is not ready its state, and its own reason or that of its request."""
    for check in (workload.get("status") or {}).get("admissionChecks") or []:
        if check.get("state") != "Ready":
            reason = check.get("message") or request_reason(workload, check["name"], requests)
            yield f"admission check {check['name']} ({check.get('state', 'Pending')}){f': {reason}' if reason else ''}"


def request_reason(workload: Object, check: str, requests: Requests) -> str:
    """Returns why the newest ProvisioningRequest of a workload for a check has no nodes yet.

    Kueue names a request after its workload, the check and the attempt.
    """
    own = requests.get(workload["metadata"].get("uid", ""), [])
    # Kueue cuts long names, and then the check is not in them.
    of_check = [request for request in own if f"-{check}-" in request["metadata"]["name"]] or own
    newest = max(of_check, key=lambda request: request["metadata"].get("creationTimestamp", ""), default=None)
    if newest is None:
        return ""
    said = [condition(newest, "Failed")] if holds(newest, "Failed") else []
    said += [condition(newest, kind) for kind in ("Provisioned", "Accepted")]
    return str(next((found["message"] for found in said if found.get("message")), "its nodes are requested"))


def plainly(message: str) -> str:
    """Removes the UIDs of objects from Kueue's reason."""
    return re.sub(r" \(UID: [^)]*\)|; preempt(or|ee) path: [^;]*", "", message)


def name_of(workload: Object) -> str:
    """The name of a workload's owner."""
    return str(WorkloadName.of_workload(workload, {}))
