"""The status of many workloads is a row per queue, and one that waits for an admission check says for what."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from gke_ai.ops import status
from gke_ai.ops.stack import Stack
from gke_ai.ops.workloads import span

WEEK = "2026-11-18T10:00:00Z"


def workload(number: int, state: str = "", queue: str = "lq", namespace: str = "llm", **content: Any) -> dict[str, Any]:
    """A workload of a Job in a state of Kueue: a condition that is true, or one that waits for quota."""
    waits = {"type": "QuotaReserved", "status": "False", "message": f"job-{number} needs more than is free"}
    conditions = [{"type": state, "status": "True", "message": "said"}] if state else [waits]
    reference = {"kind": "Job", "name": f"job-{number}"}
    metadata = {"name": f"w-{number}", "namespace": namespace, "ownerReferences": [reference], "uid": f"u-{number}"}
    return {
        "metadata": {**metadata, "creationTimestamp": f"2026-11-{10 + number % 15}T10:00:00Z"},
        "spec": {"queueName": queue},
        "status": {"conditions": conditions, **content},
    }


def printed(snapshot: status.ClusterObjects, selection: status.Selection = status.SUMMARY) -> str:
    """The status as a person sees it, on a wide terminal."""
    out = io.StringIO()
    Console(file=out, width=300).print(*status.report(Stack("dev"), snapshot, selection))
    return out.getvalue()


def pod(number: int) -> dict[str, Any]:
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node fits"}
    metadata = {"name": f"pod-{number}", "namespace": "llm", "uid": f"p-{number}"}
    return {"metadata": metadata, "spec": {"containers": []}, "status": {"conditions": [scheduled]}}


def many() -> status.ClusterObjects:
    """2,000 workloads in three queues, and 1,000 pending pods."""
    states = ("Admitted", "", "Evicted", "Finished")
    workloads = [workload(n, states[n % 4], "first" if n % 3 else "second") for n in range(1990)]
    workloads += [workload(n, "Admitted", "first", "other") for n in range(1990, 2000)]
    return status.ClusterObjects(workloads=workloads, pods=[pod(n) for n in range(1000)])


def test_many_workloads_are_a_row_per_queue() -> None:
    text = printed(many())
    assert len(text.splitlines()) < 45
    rows = {line.split()[0]: line.split()[1:5] for line in text.splitlines() if "/" in line.split(" ")[0]}
    assert sum(int(count) for name in ("llm/first", "llm/second") for count in rows[name]) == 1990
    assert rows["other/first"] == ["10", "–", "–", "–"]
    assert "Pending pods (the first 20 of 1000)" in text
    assert "list everything, or the workloads of a queue" in text


def test_the_longest_wait_of_a_queue_has_its_reason() -> None:
    waiting = [workload(n) for n in range(30)]
    waiting[7]["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
    waiting[8]["metadata"]["creationTimestamp"] = "2019-01-01T00:00:00Z"  # evicted a moment ago
    evicted = {"type": "Evicted", "status": "True", "lastTransitionTime": WEEK, "message": "preempted"}
    waiting[8]["status"]["conditions"].append(evicted)
    (row,) = [line for line in printed(status.ClusterObjects(workloads=waiting)).splitlines() if "llm/lq" in line]
    assert "job-7 needs more than is free" in row


@pytest.mark.parametrize(
    ("selection", "shown"),
    [
        (status.Selection(everything=True), 2000),
        (status.Selection(queue="second"), 664),
        (status.Selection(namespace="other"), 10),
        (status.Selection(namespace="llm", queue="first"), 1326),
        (status.Selection(queue="none"), 0),
    ],
)
def test_a_selection_is_listed_in_full(selection: status.Selection, shown: int) -> None:
    text = printed(many(), selection)
    assert sum("/job/job-" in line for line in text.splitlines()) == shown
    assert "the first 20" not in text


def test_few_workloads_are_a_row_each() -> None:
    text = printed(status.ClusterObjects(workloads=[workload(n) for n in range(status.ROWS)]))
    assert sum("/job/job-" in line for line in text.splitlines()) == status.ROWS
    assert "list everything" not in text


@pytest.mark.parametrize(
    ("seconds", "text"), [(-1, "0 s"), (119, "119 s"), (120, "2 m"), (7199, "120 m"), (7200, "2 h"), (172800, "2 d")]
)
def test_a_wait_has_the_largest_unit_that_gives_at_least_two(seconds: float, text: str) -> None:
    assert span(seconds) == text


# ---------------------------------------------------------------------------------------------------- admission checks
def checked(message: str = "", state: str = "Pending") -> dict[str, Any]:
    """A workload with quota whose admission check is not ready."""
    return workload(1, "QuotaReserved", admissionChecks=[{"name": "dws", "state": state, "message": message}])


def request(*conditions: tuple[str, str, str], pool: str = "", attempt: int = 1) -> dict[str, Any]:
    """A ProvisioningRequest of the workload."""
    found = [{"type": kind, "status": is_true, "message": message} for kind, is_true, message in conditions]
    metadata = {"name": f"w-1-dws-{attempt}", "namespace": "llm", "ownerReferences": [{"uid": "u-1"}]}
    details = {"NodePoolName": pool} if pool else {}
    return {
        "metadata": {**metadata, "creationTimestamp": f"2026-11-1{attempt}T10:00:00Z"},
        "status": {"conditions": found, "provisioningClassDetails": details},
    }


AT_MAXIMUM = "dws: it has 1 of at most 1 nodes, and the request needs 1 more"


@pytest.mark.parametrize(
    ("message", "requests", "why"),
    [
        ("Retrying after failure: no capacity", [], "Retrying after failure: no capacity"),
        ("", [request(("Accepted", "False", AT_MAXIMUM))], AT_MAXIMUM),
        ("", [request(("Accepted", "True", "queued"), ("Provisioned", "False", "GCE_STOCKOUT"))], "GCE_STOCKOUT"),
        ("", [request(("Failed", "True", "old")), request(("Failed", "True", AT_MAXIMUM), attempt=2)], AT_MAXIMUM),
        ("", [request()], "its nodes are requested"),
        ("", [], "admission check dws (Pending)"),
    ],
)
def test_a_workload_with_quota_says_which_admission_check_it_waits_for(
    message: str, requests: list[dict[str, Any]], why: str
) -> None:
    text = printed(status.ClusterObjects(workloads=[checked(message)], requests=requests))
    assert "Waiting" in text
    assert (
        f"it has quota, and waits for admission check dws (Pending){f': {why}' if ' dws ' not in why else ''}" in text
    )
    assert "said" not in text, "Kueue's message, that quota is reserved"


def test_an_evicted_workload_says_which_admission_check_evicted_it() -> None:
    evicted = checked("Retrying after failure: no capacity", "Retry")
    evicted["status"]["conditions"] = [
        {"type": "Evicted", "status": "True", "reason": "AdmissionCheck", "message": "At least one check is false"}
    ]
    text = printed(status.ClusterObjects(workloads=[evicted]))
    assert "admission check dws (Retry): Retrying after failure: no capacity" in text


def test_a_check_that_is_ready_is_no_reason() -> None:
    ready = checked(state="Ready")
    ready["status"]["admissionChecks"].append({"name": "other", "state": "Pending", "message": ""})
    text = printed(status.ClusterObjects(workloads=[ready]))
    assert "admission check other (Pending)" in text
    assert "check dws" not in text


def test_a_request_whose_pool_is_gone_is_named_with_its_remedy() -> None:
    accepted = ("Accepted", "True", "Provisioning Request was successfully queued.")
    waits = status.ClusterObjects(workloads=[checked()], requests=[request(accepted, pool="nap-1")])
    text = printed(waits)
    assert "its node pool nap-1 has no nodes and is not in this stack" in text
    assert "delete ProvisioningRequest llm/w-1-dws-1, and Kueue creates another" in text
    node = {
        "metadata": {"name": "n", "labels": {"cloud.google.com/gke-nodepool": "nap-1"}},
        "status": {"allocatable": {}, "conditions": []},
    }
    for known in ({"nodes": [node]}, {"pools": [{"name": "nap-1"}]}):
        found = printed(status.ClusterObjects(workloads=[checked()], requests=waits.requests, **known))
        assert "has no nodes" not in found
        assert "successfully queued" in found
