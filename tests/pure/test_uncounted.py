"""Accelerators that tenants have on nodes, beside those that Kueue counts."""

from typing import Any

import pytest

from gke_ai.kube.uncounted import Uncounted, uncounted
from gke_ai.ops.doctor import context
from gke_ai.ops.doctor.context import ClusterAlone
from gke_ai.ops.status.queues import uncounted_rows

Object = dict[str, Any]
GPU = "nvidia.com/gpu"


def quota(namespace: str = "team-a", bound: str = "6") -> Object:
    return {"metadata": {"namespace": namespace, "name": "tenant"}, "spec": {"hard": {f"requests.{GPU}": bound}}}


def pod(gpus: int = 1, node: str = "n", phase: str = "Running", **metadata: Any) -> Object:
    container = {"resources": {"limits": {GPU: str(gpus)}}}
    spec = {"containers": [container], **({"nodeName": node} if node else {})}
    return {"metadata": {"namespace": "team-a", **metadata}, "spec": spec, "status": {"phase": phase}}


def workload(gpus: int, finished: bool = False, namespace: str = "team-a") -> Object:
    assignment = {"flavors": {GPU: "gpus", "cpu": "gpus"}, "resourceUsage": {GPU: str(gpus), "cpu": "500m"}}
    condition = [{"type": "Finished", "status": "True"}] if finished else []
    status = {"admission": {"podSetAssignments": [assignment]}, "conditions": condition}
    return {"metadata": {"namespace": namespace, "name": "w"}, "status": status}


ENDING = {"deletionTimestamp": "2026-11-28T09:00:00Z"}


@pytest.mark.parametrize(
    ("pods", "workloads"),
    [
        *(([], []), ([pod(2), pod(1)], [workload(3)]), ([pod(1, phase="Succeeded")], [])),
        ([pod(1, node="")], []),  # waits
        ([pod(1)], [workload(4)]),  # admitted, and not all on nodes yet
        ([pod(1, namespace="llm")], []),  # no tenant
    ],
)
def test_a_tenant_with_what_its_queues_admitted_is_not_listed(pods: list[Object], workloads: list[Object]) -> None:
    assert [*uncounted([quota()], pods, workloads)] == []


@pytest.mark.parametrize(
    ("pods", "workloads", "expected", "cause"),
    [
        ([pod(3)], [], (3, 0, 0), "no queue admitted"),
        ([pod(3)], [workload(3, finished=True)], (3, 0, 0), "no queue admitted"),
        ([pod(3)], [workload(3, namespace="team-b")], (3, 0, 0), "no queue admitted"),
        ([pod(3), pod(3, **ENDING)], [workload(3)], (6, 3, 3), "pods that end"),
        ([pod(4), pod(1, **ENDING)], [workload(3)], (5, 1, 3), "no queue admitted"),
    ],
)
def test_what_kueue_does_not_count_is_listed_with_its_cause(
    pods: list[Object], workloads: list[Object], expected: tuple[int, int, int], cause: str
) -> None:
    (found,) = uncounted([quota()], pods, workloads)
    assert found == Uncounted("team-a", GPU, *expected, "6")
    assert cause in found.cause


def test_quota_that_kueue_freed_is_not_counted_and_the_status_shows_the_bound() -> None:
    """A JobSet that restarts creates them again."""
    freed = workload(3)
    (main,) = freed["status"]["admission"]["podSetAssignments"]
    main |= {"name": "main", "count": 3}
    freed["status"]["reclaimablePods"] = [{"name": "main", "count": 2}]
    (found,) = uncounted([quota()], [pod(), pod(), pod()], [freed])
    assert (found.on_nodes, found.counted) == (3, 1)
    (row,) = uncounted_rows([quota()], [pod(3), pod(3, **ENDING)], [workload(3)])
    assert row == ("team-a", GPU, "6, 3 of them end", "3", "6", "pods that end, as after a preemption or a deletion")


@pytest.mark.parametrize("tenants", [True, False])
def test_the_doctor_of_a_cluster_names_it(tenants: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a tenant, it reads no pods."""
    lists = {"resourcequotas": [quota()] if tenants else [], "pods": [pod(3)], "workloads": [workload(1)]}
    asked: list[str] = []

    def listed(_: object, path: str, **_query: str) -> list[Object]:
        asked.append(path.rpartition("/")[2])
        return lists[asked[-1]]

    monkeypatch.setattr(context, "list_objects", listed)
    findings = [*ClusterAlone(object(), "kubectl").counted_by_kueue()]  # type: ignore[arg-type]
    texts = [f"3 {GPU} are in use, and Kueue counts 1: pods that no queue admitted"] if tenants else []
    assert [finding.text for finding in findings] == texts
    assert asked == (["resourcequotas", "pods", "workloads"] if tenants else ["resourcequotas"])
