"""Status, recover and down on recorded objects: what would mislead a person, or lose something."""

from __future__ import annotations

import io
import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from catalog.quota import QUEUE_LABEL
from ops import down, recover, status
from ops.stack import BUCKET, CLUSTER, Stack, Stop

URN = "urn:pulumi:dev::gke-ai::"


def pending(kind: str, name: str, inputs: dict[str, Any], operation: str = "creating") -> dict[str, Any]:
    """A pending operation as a killed update leaves it."""
    return {"resource": {"urn": f"{URN}{kind}::{name}", "type": kind, "inputs": inputs}, "type": operation}


def deployment(*operations: dict[str, Any]) -> dict[str, Any]:
    """A recorded deployment with a Google Cloud provider and these pending operations."""
    provider = {
        "urn": f"{URN}pulumi:providers:gcp::default",
        "type": "pulumi:providers:gcp",
        "inputs": {"project": "acme"},
    }
    return {"resources": [provider], "pending_operations": list(operations)}


@pytest.mark.parametrize(
    ("kind", "inputs", "identity"),
    [
        (
            "gcp:container/cluster:Cluster",
            {"name": "llm-cluster", "location": "us-central1"},
            "projects/acme/locations/us-central1/clusters/llm-cluster",
        ),
        (
            "gcp:container/nodePool:NodePool",
            {"name": "gpupool", "cluster": "projects/p/locations/l/clusters/c"},
            "projects/p/locations/l/clusters/c/nodePools/gpupool",
        ),
        (
            "gcp:container/nodePool:NodePool",
            {"name": "gpupool", "cluster": "c", "location": "l", "project": "other"},
            "projects/other/locations/l/clusters/c/nodePools/gpupool",
        ),
        ("gcp:storage/bucket:Bucket", {"name": "models"}, "models"),
        ("kubernetes:batch/v1:Job", {"metadata": {"name": "job", "namespace": "llm"}}, "llm/job"),
        ("kubernetes:core/v1:Namespace", {"metadata": {"name": "llm"}}, "llm"),
    ],
)
def test_pending_creation_is_adopted_under_the_id_that_it_has(kind: str, inputs: dict[str, Any], identity: str) -> None:
    state = deployment(pending(kind, "it", inputs))
    adopted, dropped = recover.adopt_pending(state)
    assert (adopted, dropped) == ([f"{URN}{kind}::it"], [])
    assert state["resources"][-1]["id"] == identity
    assert state["resources"][-1]["inputs"] == inputs
    assert "pending_operations" not in state


def test_release_and_grant_are_made_again_rather_than_adopted() -> None:
    state = deployment(
        pending("kubernetes:helm.sh/v3:Release", "kueue", {"name": "kueue"}),
        pending("gcp:storage/bucketIAMMember:BucketIAMMember", "grant", {"bucket": "models"}),
    )
    adopted, dropped = recover.adopt_pending(state)
    assert adopted == []
    assert len(dropped) == 2
    assert len(state["resources"]) == 1


def test_interrupted_update_does_not_make_a_second_resource() -> None:
    bucket = pending("gcp:storage/bucket:Bucket", "models", {"name": "models"}, "updating")
    state = deployment(bucket)
    state["resources"].append({**bucket["resource"], "id": "models"})
    assert recover.adopt_pending(state) == ([], [])
    assert len(state["resources"]) == 2


def test_recover_refuses_while_the_update_still_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / ".pulumi" / "locks" / "organization" / "gke-ai" / "dev" / "one.json"
    lock.parent.mkdir(parents=True)
    held = {"pid": os.getpid(), "hostname": socket.gethostname(), "timestamp": "now"}
    lock.write_text(json.dumps(held))
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path}")
    with pytest.raises(Stop, match=f"process {os.getpid()}"):
        recover.refuse_if_running(Stack("dev"))
    lock.write_text(json.dumps({**held, "pid": 2**22 + 1}))
    recover.refuse_if_running(Stack("dev"))


def test_state_whose_sidecar_was_cut_off_can_be_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stacks = tmp_path / ".pulumi" / "stacks" / "gke-ai"
    stacks.mkdir(parents=True)
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path}")
    for name, content in (
        ("dev.json", "{}"),
        ("dev.json.attrs", ""),
        ("dev.json.bak.attrs", "{}"),
        ("b.json.attrs", ""),
    ):
        (stacks / name).write_text(content)
    recover.mend_sidecars("dev")
    assert {file.name for file in stacks.iterdir()} == {"dev.json", "dev.json.bak.attrs", "b.json.attrs"}


def test_down_names_the_key_that_protects() -> None:
    cluster = {"urn": f"{URN}c::c", "type": CLUSTER, "inputs": {"name": "prod", "deletionProtection": True}}
    bucket = {"urn": f"{URN}b::b", "type": BUCKET, "inputs": {"name": "models"}, "protect": True}
    free = {"urn": f"{URN}b::d", "type": BUCKET, "inputs": {"name": "scratch"}}
    assert down.protected([cluster, bucket, free]) == [
        "cluster prod: gke-ai:cluster.protect",
        "bucket models: gke-ai:buckets[].protect",
    ]


def node(name: str, ready: str = "True") -> dict[str, Any]:
    """A GPU node of two."""
    return {
        "metadata": {
            "name": name,
            "labels": {
                "cloud.google.com/gke-nodepool": "gpupool",
                "node.kubernetes.io/instance-type": "g2-standard-24",
                "cloud.google.com/gke-provisioning": "standard",
            },
        },
        "status": {"allocatable": {"nvidia.com/gpu": "2"}, "conditions": [{"type": "Ready", "status": ready}]},
    }


def pod(name: str, node_name: str | None, **scheduled: str) -> dict[str, Any]:
    """A pod of two GPUs, on a node or with the reason why not."""
    spec: dict[str, Any] = {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "2"}}}]}
    if node_name:
        spec["nodeName"] = node_name
    return {
        "metadata": {"name": name, "namespace": "llm"},
        "spec": spec,
        "status": {"conditions": [{"type": "PodScheduled", "status": "True" if node_name else "False", **scheduled}]},
    }


def workload(name: str, *conditions: dict[str, str]) -> dict[str, Any]:
    """A workload of a Job with these conditions."""
    return {
        "metadata": {"name": name, "namespace": "llm", "ownerReferences": [{"kind": "Job", "name": name}]},
        "spec": {"queueName": "lq", "priority": 20},
        "status": {"conditions": list(conditions)},
    }


def printed(snapshot: status.Snapshot) -> str:
    """The status as a person sees it, on a wide terminal."""
    out = io.StringIO()
    Console(file=out, width=240).print(*status.report(Stack("dev"), snapshot))
    return out.getvalue()


def test_status_says_what_waits_and_why() -> None:
    evicted = {
        "type": "Evicted",
        "status": "True",
        "reason": "Preempted",
        "message": "to make room (UID: 1d06, JobUID: 258e) for serving; preemptor path: /gpus; preemptee path: /gpus",
    }
    waits = {"type": "QuotaReserved", "status": "False", "message": "insufficient unused quota for nvidia.com/gpu"}
    text = printed(
        status.Snapshot(
            nodes=[node("a"), node("b", "False")],
            pods=[pod("runs", "a"), pod("gated", None, reason="SchedulingGated", message="blocked by gates")],
            workloads=[workload("old", evicted), workload("new", waits), workload("untouched")],
        )
    )
    assert "1 of 2" in text  # ready nodes
    assert "2 of 4" in text  # GPUs used
    assert "Evicted: Preempted" in text
    assert "to make room for serving " in text
    assert "UID" not in text
    assert "path:" not in text
    assert "insufficient unused quota for nvidia.com/gpu" in text
    assert "not looked at by Kueue yet" in text
    assert "SchedulingGated: its queue has not admitted it" in text
    assert "make down STACK=dev" in text


def test_status_of_an_empty_cluster_still_says_what_to_do() -> None:
    assert "make status STACK=dev" in printed(status.Snapshot())


def test_on_google_cloud_nothing_points_to_the_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    server = {
        "metadata": {"name": "gemma", "namespace": "llm"},
        "spec": {"template": {"metadata": {"labels": {QUEUE_LABEL: "lq"}}, "spec": {"containers": []}}},
    }
    snapshot = status.Snapshot(deployments=[server], workloads=[workload("waits")])
    assert "local/run kubectl -n llm scale" in printed(snapshot)
    monkeypatch.delenv("GKE_AI_STATE")
    text = printed(snapshot)
    assert "kubectl -n llm scale deployment/gemma" in text
    assert "python -m ops.down --stack dev" in text
    assert "local/run" not in text
    assert "make " not in text
    assert Stack("dev").next("up") == "pulumi up --stack dev"
