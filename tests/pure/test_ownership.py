"""Kueue owns the status of a restored Workload as it owns one that it wrote itself."""

from typing import Any

from gke_ai.forecast.rehearse.restore import managed_fields

TIME = "2026-01-01T00:00:00Z"


def workload(**status: Any) -> dict[str, Any]:
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "metadata": {"creationTimestamp": TIME}, "status": status}


def test_kueue_owns_the_admission_and_the_conditions_as_the_api_server_records_it() -> None:
    amounts = {"flavors": {"nvidia.com/gpu": "l4"}, "resourceUsage": {"nvidia.com/gpu": "2"}}
    admission = {"clusterQueue": "q", "podSetAssignments": [{"name": "main", "count": 1, **amounts}]}
    fields = ("lastTransitionTime", "message", "reason", "status", "type")
    condition = {**dict.fromkeys(fields, ""), "type": "QuotaReserved"}
    (entry,) = managed_fields(workload(admission=admission, conditions=[condition]))
    assert (entry["manager"], entry["operation"], entry["subresource"]) == ("kueue-admission", "Apply", "status")
    gpu: dict[str, Any] = {"f:nvidia.com/gpu": {}}
    pod_set = {".": {}, "f:count": {}, "f:flavors": gpu, "f:name": {}, "f:resourceUsage": gpu}
    # As read from a cluster whose Workload Kueue 0.18 admitted.
    assert entry["fieldsV1"] == {
        "f:status": {
            "f:admission": {"f:clusterQueue": {}, "f:podSetAssignments": {'k:{"name":"main"}': pod_set}},
            "f:conditions": {'k:{"type":"QuotaReserved"}': {".": {}, **{f"f:{name}": {} for name in fields}}},
        }
    }


def test_fields_of_other_managers_stay_theirs() -> None:
    assert managed_fields(workload(reclaimablePods=[{"name": "main", "count": 1}])) == []
    assert managed_fields({"apiVersion": "v1", "metadata": {}}) == []
