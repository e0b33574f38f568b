"""The status of many workloads is a row per queue, and one that waits for an admission check says for what."""

import io
from typing import Any

import pytest
from rich.console import Console

from gke_ai.kube.client import Answer
from gke_ai.ops.runs.command import Run
from gke_ai.ops.status import command as status
from gke_ai.ops.status import silent_workloads
from gke_ai.ops.status.workloads import span, workload_rows
from gke_ai.workspace.stack import Stack

WEEK = "2026-11-18T10:00:00Z"


def workload(number: int, state: str = "", queue: str = "lq", namespace: str = "llm", **content: Any) -> dict[str, Any]:
    """A workload of a Job in a state of Kueue: a condition that is true, or one that waits for quota."""
    waits = {"type": "QuotaReserved", "status": "False", "message": f"job-{number} needs more than is free"}
    conditions = [{"type": state, "status": "True", "message": "said"}] if state else [waits]
    reference = {"kind": "Job", "name": f"job-{number}"}
    metadata = {"name": f"w-{number}", "namespace": namespace, "ownerReferences": [reference], "uid": f"u-{number}"}
    metadata |= {"creationTimestamp": f"2026-11-{10 + number % 15}T10:00:00Z"}
    return {"metadata": metadata, "spec": {"queueName": queue}, "status": {"conditions": conditions, **content}}


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


def test_many_workloads_are_a_row_per_queue_with_the_reason_of_the_longest_wait() -> None:
    text = printed(many())
    assert len(text.splitlines()) < 45
    rows = {line.split()[0]: line.split()[1:5] for line in text.splitlines() if "/" in line.split(" ")[0]}
    counts = [int(count) for name in ("llm/first", "llm/second") for count in rows[name]]
    assert (sum(counts), rows["other/first"]) == (1990, ["10", "–", "–", "–"])
    assert "Pending pods (the first 20 of 1000)" in text
    assert "list everything, or the workloads of a queue" in text
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
        *((status.Selection(everything=True), 2000), (status.Selection(queue="second"), 664)),
        *((status.Selection(namespace="other"), 10), (status.Selection(queue="none"), 0)),
        (status.Selection(namespace="llm", queue="first"), 1326),
    ],
)
def test_a_selection_is_listed_in_full(selection: status.Selection, shown: int) -> None:
    text = printed(many(), selection)
    assert sum("/job/job-" in line for line in text.splitlines()) == shown
    assert "the first 20" not in text


def test_few_workloads_are_a_row_each_with_their_wait_in_a_suitable_unit() -> None:
    text = printed(status.ClusterObjects(workloads=[workload(n) for n in range(status.ROWS)]))
    assert sum("/job/job-" in line for line in text.splitlines()) == status.ROWS
    assert "list everything" not in text
    texts = {-1: "0 s", 119: "119 s", 120: "2 m", 7199: "120 m", 7200: "2 h", 172800: "2 d"}
    assert {seconds: span(seconds) for seconds in texts} == texts


def checked(message: str = "", state: str = "Pending") -> dict[str, Any]:
    return workload(1, "QuotaReserved", admissionChecks=[{"name": "dws", "state": state, "message": message}])


def request(*conditions: tuple[str, str, str], pool: str = "", attempt: int = 1) -> dict[str, Any]:
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
def test_workload_with_quota_names_its_admission_check(message: str, requests: list[dict[str, Any]], why: str) -> None:
    text = printed(status.ClusterObjects(workloads=[checked(message)], requests=requests))
    assert "Waiting" in text
    check = f"admission check dws (Pending){f': {why}' if ' dws ' not in why else ''}"
    assert f"it has quota, and waits for {check}" in text
    assert "said" not in text, "Kueue's message, that quota is reserved"


def test_an_evicted_workload_says_which_admission_check_evicted_it_and_one_that_is_ready_is_no_reason() -> None:
    evicted = checked("Retrying after failure: no capacity", "Retry")
    condition = {"type": "Evicted", "status": "True", "reason": "AdmissionCheck", "message": "a check is false"}
    evicted["status"]["conditions"] = [condition]
    text = printed(status.ClusterObjects(workloads=[evicted]))
    assert "admission check dws (Retry): Retrying after failure: no capacity" in text
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
    metadata = {"name": "n", "labels": {"cloud.google.com/gke-nodepool": "nap-1"}}
    node = {"metadata": metadata, "status": {"allocatable": {}, "conditions": []}}
    for known in ({"nodes": [node]}, {"pools": [{"name": "nap-1"}]}):
        found = printed(status.ClusterObjects(workloads=[checked()], requests=waits.requests, **known))
        assert "has no nodes" not in found
        assert "successfully queued" in found


def skipped(number: int, cpu: str = "1", **metadata: Any) -> dict[str, Any]:
    """A workload of which Kueue has said nothing."""
    container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    item = workload(number)
    item["spec"] |= {"podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}]}
    return {**item, "metadata": {**item["metadata"], **metadata}, "status": {}}


def explained(number: int, cpu: str = "1") -> dict[str, Any]:
    return {**skipped(number, cpu), "status": workload(number)["status"]}


LOCAL = [{"metadata": {"name": "lq", "namespace": space}, "spec": {"clusterQueue": "cq"}} for space in ("llm", "b")]


def rows(*workloads: dict[str, Any]) -> dict[str, str]:
    """Why each workload waits, by the name of its owner."""
    found = silent_workloads.explained(workloads, LOCAL)
    return {row[0].rpartition("/")[2]: row[-1] for row in workload_rows(found, {})}


def test_equal_workloads_wait_for_what_the_first_of_them_waits_for() -> None:
    """Kueue states a reason for the first of equal workloads alone, in whatever namespace of its cluster queue."""
    why = rows(explained(0), skipped(1), skipped(2, "2"), skipped(3, namespace="b"))
    assert why["job-1"] == why["job-3"] == why["job-0"] == "job-0 needs more than is free"
    assert why["job-2"] == "Kueue has not processed it yet"
    lost = skipped(4)
    lost["spec"]["queueName"] = "gone"
    elsewhere = {**explained(5), "spec": {**explained(5)["spec"], "queueName": "gone too"}}
    assert rows(lost, elsewhere)["job-4"] == "Kueue has not processed it yet", "another queue that does not exist"
    many = [explained(0), *(skipped(number) for number in range(2950))]
    text = printed(status.ClusterObjects(workloads=silent_workloads.explained(many, LOCAL)))
    assert "job-0 needs more than is free" in text
    assert "has not processed" not in text


def run(name: str, priority: str = "", pod_class: str = "", **spec: Any) -> dict[str, Any]:
    labels = {"kueue.x-k8s.io/queue-name": "lq"} | ({"kueue.x-k8s.io/priority-class": priority} if priority else {})
    template = {"spec": {"containers": [], **({"priorityClassName": pod_class} if pod_class else {})}}
    metadata = {"name": name, "namespace": "llm", "uid": f"uid-{name}", "labels": labels, "creationTimestamp": WEEK}
    return {"metadata": metadata, "spec": {"suspend": True, "template": template, **spec}}


class Classes:
    """A cluster with one priority class of each kind; `code` answers for those of Kueue."""

    def __init__(self, code: int = 200) -> None:
        self.code = code
        self.asked: list[str] = []

    def answer(self, _: object, __: str, path: str) -> Answer:
        self.asked.append(path)
        code = self.code if "workloadpriority" in path else 200
        return Answer(code, {"items": [{"metadata": {"name": "known"}}]} if code == 200 else {})


GATED = run("gated", priority="absent", suspend=None, schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])
UNSEEN = [
    run("absent", priority="absent"),
    run("known", priority="known", pod_class="never looked up"),
    run("of-pods", pod_class="absent"),
    run("running", priority="absent", suspend=False),
]


@pytest.mark.parametrize("code", [200, 403, 404])
def test_a_run_whose_priority_class_is_missing_is_shown(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kueue creates no Workload for it, and says so only in its log."""
    cluster = Classes(code)
    monkeypatch.setattr(silent_workloads, "request", cluster.answer)
    other = workload(9)
    other["metadata"]["ownerReferences"] = [{"uid": "uid-queued"}]
    of_group = {**GATED["metadata"]["labels"], "kueue.x-k8s.io/pod-group-name": "web"}
    grouped = {**GATED, "metadata": {**GATED["metadata"], "uid": "g", "labels": of_group}}
    owners = {"Job": [*UNSEEN, run("queued")], "Pod": [GATED, grouped]}
    found = silent_workloads.known_workloads(None, [other], owners)  # type: ignore[arg-type]
    why = {row[0]: row[-1] for row in workload_rows(found[1:], {})}
    missing = "{} absent does not exist, so Kueue creates no Workload: create it, or name another class"
    unknown, of_kueue = "Kueue has created no Workload for it yet", missing.format("WorkloadPriorityClass")
    assert why == {
        "llm/job/absent": unknown if code == 403 else of_kueue,
        "llm/job/known": of_kueue.replace("absent", "known") if code == 404 else unknown,
        "llm/job/of-pods": missing.format("PriorityClass"),
        "llm/pod/gated": unknown if code == 403 else of_kueue,
    }
    assert silent_workloads.known_workloads(None, [other], {}) == [other]  # type: ignore[arg-type]
    assert len(cluster.asked) == 2, "no class is read where every run has its Workload"


def test_3000_runs_without_a_workload_are_a_row_of_their_queue() -> None:
    runs = [run(f"r-{n}", priority="x") for n in range(3000)]
    lost = [silent_workloads.not_created("Job", item, {"WorkloadPriorityClass": ()}) for item in runs]
    text = printed(status.ClusterObjects(workloads=lost))
    (row,) = [line for line in text.splitlines() if line.startswith("llm/lq")]
    assert "3000" in row
    assert "WorkloadPriorityClass x does not exist" in row


def test_3000_runs_are_matched_with_3000_pods_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of comparisons grows with the pods, not with runs times pods. No bucket is read for hidden rows."""
    jobs = [Run(f"r-{number}", "llm", "Job", "job", "gs://saved/r", run(f"r-{number}")) for number in range(3000)]
    running: dict[str, Any] = {"spec": {"containers": []}, "status": {"phase": "Running"}}
    labels = [{"batch.kubernetes.io/job-name": f"r-{n}"} for n in range(3000)]
    pods = [{"metadata": {"name": f"p-{n}", "namespace": "llm", "labels": labels[n]}, **running} for n in range(3000)]
    compared, read, owns = list[Any](), list[Run](), Run.owns

    def owned(own: Run, pod: Any) -> bool:
        compared.append(pod)
        return owns(own, pod)

    def saved(found: Run) -> tuple[str, str]:
        read.append(found)
        return "–", "–"

    monkeypatch.setattr(Run, "owns", owned)
    monkeypatch.setattr(status, "saved", saved)
    text = printed(status.ClusterObjects(pods=pods, runs=jobs))
    assert "Runs (the first 20 of 3000)" in text
    assert text.count("1 of 1") == len(read) == status.ROWS
    assert len(compared) == len(pods)


def test_the_latest_event_of_each_pending_pod_is_its_reason() -> None:
    events = [
        {"involvedObject": {"uid": f"p-{n}"}, "reason": "x", "message": f"{at} of {n}", "lastTimestamp": at}
        for n in range(3)
        for at in ("2026-11-02T00:00:00Z", "2026-11-01T00:00:00Z")
    ]
    text = printed(status.ClusterObjects(pods=[pod(n) for n in range(4)], events=events))
    assert [f"2026-11-02T00:00:00Z of {n} (no node fits)" in text for n in range(4)] == [True, True, True, False]
