"""Only here: a paused cluster keeps its API server and objects, takes whole objects as they are, and goes on.

The tests of a cluster share one and depend on their order.
"""

import io
import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from emulator import cluster
from emulator.cloud import etcd
from emulator.cloud.api import Object, answer
from emulator.cloud.control_plane import COMPONENTS
from emulator.cloud.folder import Folder
from emulator.cluster import ClusterRecord, PoolRecord, paused
from emulator.cluster.__main__ import main
from emulator.machine import paths, processes
from emulator.nodes import objects as nodes
from emulator.nodes import planner
from emulator.tests.clusters import running as running_cluster
from emulator.tests.harness import eventually
from gke_ai.catalog.nodes.shape import GKE_NODEPOOL, INSTANCE_TYPE

ZONE = "us-central1-a"
RECORD = ClusterRecord("paused", "p", "us-central1", "standard", [ZONE], "1.36.1-gke.1")
POOL = PoolRecord("default-pool", "e2-standard-4", [ZONE], nodes_per_zone=1)
PODS = "/api/v1/namespaces/default/pods"
UID = "11111111-2222-4333-8444-555555555555"
TIME = "2026-01-02T03:04:05Z"


def node(name: str = "gke-live-1", **labels: str) -> Object:
    """A node that a snapshot has, of the pool of these tests."""
    own = {GKE_NODEPOOL: POOL.name, INSTANCE_TYPE: POOL.machine_type, "topology.kubernetes.io/zone": ZONE}
    # KWOK owns no node without a uid.
    metadata = {"name": name, "uid": str(uuid.uuid4()), "creationTimestamp": TIME, "labels": own | labels}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {}}


def test_a_node_with_the_mark_of_its_machine_is_current_and_a_foreign_one_is_never_idle() -> None:
    marked = node()
    assert not nodes.is_current(marked, POOL)
    marked["metadata"]["annotations"] = {nodes.MACHINE: nodes.fingerprint(POOL)}
    assert nodes.is_current(marked, POOL)
    assert not nodes.is_current(marked, replace(POOL, machine_type="e2-standard-8"))
    assert not nodes.is_current(marked, replace(POOL, zones=["us-central1-b"]))
    foreign = node(**{GKE_NODEPOOL: "of-another-team"})
    assert planner.idle([foreign], {}, {"gke-live-1"}) == [["gke-live-1"]]
    foreign["metadata"]["annotations"] = {nodes.FOREIGN: "true"}
    assert planner.idle([foreign], {}, {"gke-live-1"}) == []


def test_a_transaction_has_a_limited_number_of_operations_and_bytes() -> None:
    small = [{"requestPut": {"key": "k", "value": "v"}}] * 300
    assert [len(batch) for batch in etcd._batches(small)] == [128, 128, 44]
    large = [{"requestPut": {"key": "k", "value": "v" * 400_000}}] * 5
    assert [len(batch) for batch in etcd._batches(large)] == [2, 2, 1]


def test_a_stopped_cluster_can_be_stopped_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "CLUSTERS", tmp_path)
    folder = Folder(RECORD.name)
    (folder.control_plane / "pids").mkdir(parents=True)
    (folder.control_plane / "pids" / "etcd.pid").write_text(str(2**22))  # no process has this id
    folder.write(RECORD, "127.0.0.1:1", ready=True)
    paused.stop(RECORD.name)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with running_cluster(tmp_path_factory.mktemp("state"), RECORD, POOL) as api:
        yield api


def running() -> list[str]:
    """The programs of the cluster, without the local processes of pods."""
    found = []
    for pid in processes.of(Folder(RECORD.name).path):
        words = processes.command(pid)
        found.append("daemon" if b"emulator.cluster.daemon" in words else Path(words[0].decode()).name)
    return sorted(found)


def pod(name: str, **status: Any) -> Object:
    spec = {"nodeName": "gke-live-1", "containers": [{"name": "c", "image": "rehearsal.invalid/unlisted"}]}
    metadata = {"name": name, "namespace": "default", "uid": UID, "creationTimestamp": TIME}
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": TIME}]
    state = {"phase": "Running", "startTime": TIME, "conditions": conditions}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": state | status}


@pytest.mark.cluster
def test_objects_are_not_loaded_while_controllers_run(api: httpx.Client, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(paused.CannotLoad, match="runs, and its controllers would change the objects"):
        paused.load(RECORD.name, [pod("p")], [])
    assert main(["list"]) == 0
    assert capsys.readouterr().out == "paused\n"
    assert main(["pause", "other"]) == 1
    assert "no running cluster other" in capsys.readouterr().err
    assert api.get(f"{PODS}/p").status_code == 404


@pytest.mark.cluster
def test_a_paused_cluster_has_only_etcd_and_an_api_server_and_refuses_unknown_kinds(api: httpx.Client) -> None:
    paused.pause(RECORD.name)
    paused.pause(RECORD.name)
    assert running() == ["etcd", "kube-apiserver"]
    assert len(answer(api.get("/api/v1/nodes"))["items"]) == 1
    unknown = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}}
    with pytest.raises(paused.CannotLoad, match=r"doesn't have the kind Thing of example.com/v1. Nothing was written"):
        paused.load(RECORD.name, [pod("p"), unknown], [])
    assert api.get(f"{PODS}/p").status_code == 404


@pytest.mark.cluster
def test_loaded_objects_are_exactly_as_they_were_written(api: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    (old,) = answer(api.get("/api/v1/nodes"))["items"]
    old |= {"apiVersion": "v1", "kind": "Node"}
    compute_class: Object = {"apiVersion": "cloud.google.com/v1", "kind": "ComputeClass"}
    compute_class["metadata"] = {"name": "cheap", "uid": UID, "creationTimestamp": TIME, "generation": 7}
    compute_class["spec"] = {"priorities": [{"machineFamily": "e2"}]}
    request = {"put": [node(), node("gke-live-2", **{GKE_NODEPOOL: "of-another-team"}), pod("p"), compute_class]}
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps({**request, "delete": [old]})))
    assert main(["load"]) == 0
    # The API server reads etcd by a watch.
    eventually(lambda: len(answer(api.get(PODS))["items"]) == 1, "the pod is there")
    written = answer(api.get(f"{PODS}/p"))
    assert (written["metadata"]["uid"], written["metadata"]["creationTimestamp"]) == (UID, TIME)
    assert (written["status"]["phase"], written["status"]["startTime"]) == ("Running", TIME)
    found = answer(api.get("/apis/cloud.google.com/v1/computeclasses/cheap"))["metadata"]
    assert (found["uid"], found["generation"]) == (UID, 7)
    items = answer(api.get("/api/v1/nodes"))["items"]
    live = {item["metadata"]["name"]: item["metadata"]["annotations"] for item in items}
    assert live.keys() == {"gke-live-1", "gke-live-2"}
    assert nodes.MACHINE in live["gke-live-1"]
    assert nodes.FOREIGN in live["gke-live-2"]


@pytest.mark.cluster
def test_a_resumed_cluster_goes_on_with_the_loaded_objects(api: httpx.Client) -> None:
    paused.resume(RECORD.name)
    assert running() == sorted((*COMPONENTS, "daemon"))
    eventually(lambda: all(map(nodes.is_ready, answer(api.get("/api/v1/nodes"))["items"])), "the nodes are Ready")
    answer(api.post(PODS, json={**pod("new"), "metadata": {"name": "new"}, "status": {}}))
    eventually(lambda: answer(api.get(f"{PODS}/new"))["status"].get("phase") == "Running", "KWOK starts a pod")
    kept = answer(api.get(f"{PODS}/p"))
    assert (kept["metadata"]["uid"], kept["status"]["startTime"]) == (UID, TIME)
    # A change of the pool finds the machine of the loaded node and keeps it.
    cluster.set_pool(RECORD.name, replace(POOL, labels={"team": "a"}))
    live = {item["metadata"]["name"]: item["metadata"]["labels"] for item in answer(api.get("/api/v1/nodes"))["items"]}
    assert live["gke-live-1"].get("team") == "a"
    assert live.keys() == {"gke-live-1", "gke-live-2"}
