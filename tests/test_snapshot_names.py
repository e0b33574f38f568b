"""Hashed names: no name of another team stays, and every reference still matches."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ops.snapshot import command
from ops.snapshot.format import Snapshot, build
from ops.snapshot.names import hash_names, stack_names
from ops.stack import Stack, Stop

KEY = b"k" * 32
OWN = "gemma"
PRIVATE = "atlantis"


def meta(name: str, uid: str, owner: tuple[str, str] | None = None, namespace: str = PRIVATE, **labels: str) -> Any:
    owners = [{"name": owner[0], "uid": owner[1], "controller": True}] if owner else []
    return {"name": name, "namespace": namespace, "uid": uid, "ownerReferences": owners, "labels": labels}


def taken() -> Snapshot:
    """A JobSet of another team with what belongs to it, a server of the stack, and an agent of GKE."""
    run, job, pod = f"{PRIVATE}-run", f"{PRIVATE}-run-workers-0", f"{PRIVATE}-run-workers-0-1-x7k2p"
    queue = {"kueue.x-k8s.io/queue-name": f"{PRIVATE}-queue"}
    of_job = {"job-name": job, "jobset.sigs.k8s.io/jobset-name": run, "team": PRIVATE}
    selector = {"matchLabels": {"team": PRIVATE}}
    assignment = {"name": "workers", "flavors": {"nvidia.com/gpu": f"{PRIVATE}-flavor"}}
    admission = {"clusterQueue": f"{PRIVATE}-queue", "podSetAssignments": [assignment]}
    quota = {"coveredResources": ["nvidia.com/gpu"], "flavors": [{"name": f"{PRIVATE}-flavor"}]}
    placed = {"nodeName": "gke-node-1", "nodeSelector": {"pool": PRIVATE, "cloud.google.com/gke-nodepool": "l4"}}
    own = {"nodeSelector": {"pool": "shared"}, "priorityClassName": "system-node-critical"}
    objects: dict[str, list[Any]] = {
        "Namespace": [{"metadata": {"name": PRIVATE, "labels": {"kubernetes.io/metadata.name": PRIVATE}}}],
        "Node": [{"metadata": {"name": "gke-node-1", "labels": {"pool": PRIVATE}}}],
        "ResourceFlavor": [{"metadata": {"name": f"{PRIVATE}-flavor"}, "spec": {"nodeLabels": {"pool": PRIVATE}}}],
        "ClusterQueue": [{"metadata": {"name": f"{PRIVATE}-queue"}, "spec": {"resourceGroups": [quota]}}],
        "LocalQueue": [
            {"metadata": meta(f"{PRIVATE}-queue", "q"), "spec": {"clusterQueue": f"{PRIVATE}-queue"}},
        ],
        "JobSet": [{"metadata": meta(run, "s", None, **queue), "spec": {"replicatedJobs": [{"name": "workers"}]}}],
        "Job": [{"metadata": meta(job, "j", (run, "s"), **of_job)}],
        "Pod": [
            {"metadata": meta(pod, "p", (job, "j"), **of_job), "spec": placed},
            {"metadata": meta(f"{OWN}-1", "g", None, OWN, app=OWN), "spec": own},
            {"metadata": meta("fluentbit-1", "f", None, "kube-system"), "spec": {}},
        ],
        "Workload": [
            {
                "metadata": meta(f"jobset-{run}-12345", "w", (run, "s")),
                "spec": {"queueName": f"{PRIVATE}-queue"},
                "status": {"admission": admission},
            }
        ],
        "Deployment": [{"metadata": meta(OWN, "d", None, OWN), "spec": {"selector": {"matchLabels": {"app": OWN}}}}],
        "PodDisruptionBudget": [{"metadata": meta(f"{PRIVATE}-budget", "b"), "spec": {"selector": selector}}],
    }
    return build("prod", objects, datetime(2026, 11, 22, tzinfo=UTC))


@pytest.fixture
def hashed() -> Snapshot:
    return hash_names(taken(), {OWN, "shared"}, KEY)


def test_no_name_of_another_team_stays(hashed: Snapshot) -> None:
    assert PRIVATE in taken().to_json()
    assert PRIVATE not in hashed.to_json()
    assert hashed.hashed


def test_names_of_the_stack_of_gke_and_of_nodes_stay(hashed: Snapshot) -> None:
    text = hashed.to_json()
    for name in (f'"{OWN}"', "fluentbit-1", "kube-system", "gke-node-1", "workers", '"l4"', "system-node-critical"):
        assert name in text, name
    own = next(pod for pod in hashed.of("Pod") if pod["metadata"]["namespace"] == OWN)
    assert (own["metadata"]["labels"], own["spec"]["nodeSelector"]) == ({"app": OWN}, {"pool": "shared"})


def test_every_reference_still_matches(hashed: Snapshot) -> None:
    namespace = hashed.of("Namespace")[0]["metadata"]
    (run,), (job,), (workload,) = hashed.of("JobSet"), hashed.of("Job"), hashed.of("Workload")
    pod = next(pod for pod in hashed.of("Pod") if pod["metadata"]["uid"] == "p")
    queue, flavor = hashed.of("ClusterQueue")[0], hashed.of("ResourceFlavor")[0]["metadata"]["name"]
    assert namespace["labels"]["kubernetes.io/metadata.name"] == namespace["name"] == run["metadata"]["namespace"]
    assert job["metadata"]["name"] == run["metadata"]["name"] + "-workers-0"
    assert pod["metadata"]["name"] == job["metadata"]["name"] + "-1-x7k2p"
    assert pod["metadata"]["ownerReferences"][0]["name"] == job["metadata"]["name"]
    assert pod["metadata"]["labels"]["job-name"] == job["metadata"]["name"]
    assert pod["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] == run["metadata"]["name"]
    assert workload["metadata"]["ownerReferences"][0]["name"] == run["metadata"]["name"]
    local = hashed.of("LocalQueue")[0]["metadata"]["name"]
    assert workload["spec"]["queueName"] == local == run["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
    admission = workload["status"]["admission"]
    assert admission["clusterQueue"] == queue["metadata"]["name"]
    assert admission["podSetAssignments"][0]["flavors"]["nvidia.com/gpu"] == flavor
    assert queue["spec"]["resourceGroups"][0]["flavors"][0]["name"] == flavor
    node = hashed.of("Node")[0]["metadata"]["labels"]
    assert pod["spec"]["nodeSelector"]["pool"] == node["pool"]
    budget = hashed.of("PodDisruptionBudget")[0]["spec"]["selector"]["matchLabels"]
    assert budget == {"team": pod["metadata"]["labels"]["team"]}


def test_the_same_key_gives_the_same_hashes_and_another_key_others(hashed: Snapshot) -> None:
    assert hash_names(taken(), {OWN, "shared"}, KEY) == hashed
    other = hash_names(taken(), {OWN, "shared"}, b"x" * 32)
    assert other.of("Job")[0]["metadata"]["name"] != hashed.of("Job")[0]["metadata"]["name"]


def test_a_stack_uses_the_texts_of_its_objects_but_not_those_of_secrets() -> None:
    resources = [
        {"type": "kubernetes:core/v1:Namespace", "inputs": {"metadata": {"name": "serving", "labels": {"a": "b"}}}},
        {"type": "kubernetes:core/v1:Secret", "inputs": {"metadata": {"name": "hidden"}}},
        {"type": "gcp:storage/bucket:Bucket", "inputs": {"name": "bucket"}},
    ]
    assert set(stack_names(resources)) == {"serving", "b"}


def test_a_short_key_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "key"
    file.write_text("secret")
    monkeypatch.setattr(Stack, "api", lambda _: object())
    monkeypatch.setattr(command, "take", lambda *_: taken())
    with pytest.raises(Stop, match="has 6 bytes"):
        command.show(Stack("prod"), True, file)


def test_the_command_prints_hashed_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "key"
    file.write_bytes(KEY)
    monkeypatch.setattr(Stack, "api", lambda _: object())
    monkeypatch.setattr(Stack, "resources", [])
    monkeypatch.setattr(command, "take", lambda *_: taken())
    command.show(Stack("prod"), True, file)
    printed = capsys.readouterr().out
    assert json.loads(printed)["hashed"]
    assert PRIVATE not in printed
