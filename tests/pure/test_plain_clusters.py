"""Clusters that no program of this repository deployed: their node pools, their Kueue, and where its manager runs."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from emulator.cloud.folder import Folder
from emulator.cloud.records import read_pools
from emulator.cluster import PoolRecord, paused
from gke_ai.catalog.machines.types import MACHINES
from gke_ai.forecast.rehearse import evicted
from gke_ai.forecast.rehearse.plain import adopt, has_jobset, overlaid, unowned
from gke_ai.forecast.rehearse.pools import records
from gke_ai.forecast.snapshot import command
from gke_ai.forecast.snapshot.fields import kinds
from gke_ai.forecast.snapshot.format import InvalidSnapshot, Snapshot, read
from gke_ai.forecast.snapshot.names import file_names, hash_names
from gke_ai.forecast.snapshot.pools import NodePool
from gke_ai.forecast.snapshot.pools import read_pools as read_pool_file
from gke_ai.kube import kueue as live_kueue
from gke_ai.terminal import Stop
from gke_ai.workspace.stack import Stack
from tests.support.examples import POOLS
from tests.support.repository import ROOT

L4S = [{"acceleratorCount": "2", "acceleratorType": "nvidia-l4"}]
L4_MACHINE = {"machineType": "g2-standard-24", "spot": True, "diskSizeGb": 200, "accelerators": L4S}
# Of a Spot pool of GPUs and a pool of TPU slices, in the form of Google's API.
SPOT = {
    "name": "spot",
    "locations": ["us-central1-a", "us-central1-b"],
    "config": {
        **L4_MACHINE,
        "labels": {"team": "a"},
        "taints": [{"key": "team", "value": "a", "effect": "NO_SCHEDULE"}],
        "serviceAccount": "default",
    },
    "autoscaling": {"enabled": True, "minNodeCount": 1, "maxNodeCount": 3},
}
TPU = {
    "name": "tpu",
    "locations": ["us-east5-b"],
    "config": {"machineType": "ct6e-standard-4t", "flexStart": True},
    "autoscaling": {"enabled": True, "totalMaxNodeCount": 4, "locationPolicy": "ANY"},
    "placementPolicy": {"type": "COMPACT", "tpuTopology": "4x4"},
    "queuedProvisioning": {"enabled": True},
}


def snapshot(**more: Any) -> Snapshot:
    return Snapshot.model_validate({"takenAt": "2026-11-22T10:00:00Z", "stack": "prod", "objects": {}, **more})


def named(name: str, namespace: str = "", **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **({"namespace": namespace} if namespace else {})}, **more}


def test_autoscaled_pools_have_the_limits_network_and_nodes_of_googles_api() -> None:
    profile = {"networkConfig": {"acceleratorNetworkProfile": "auto", "subnetwork": "private"}}
    (spot, tpu), notes = records(snapshot(pools=[SPOT | profile, TPU]))
    assert notes == []
    pool, slices = PoolRecord(**spot), PoolRecord(**tpu)
    assert (pool.floor, pool.ceiling, pool.capacity) == (2, 6, "spot")
    assert (pool.gpu, pool.gpus, pool.disk_gb, pool.network_profile) == ("nvidia-l4", 2, 200, "auto")
    assert pool.taints == [{"key": "team", "value": "a", "effect": "NoSchedule"}]
    assert (slices.shape("us-east5-b").topology, slices.network_profile) == ("4x4", "")
    assert (tpu["capacity"], tpu["max_nodes"]) == ("queuedFlexStart", 4)


def test_pools_of_fixed_size_or_unknown_machines_keep_their_nodes_and_it_is_said() -> None:
    unknown = {**SPOT, "name": "odd", "config": {"machineType": "z9-standard-1"}}
    fixed = {**SPOT, "name": "fixed", "autoscaling": {}}
    node = {"metadata": {"name": "n", "labels": {"cloud.google.com/gke-nodepool": "gone"}}}
    assert "z9-standard-1" not in MACHINES
    assert records(snapshot(pools=[unknown, fixed], objects={"Node": [node]})) == (
        [],
        [
            "The catalog lacks z9-standard-1, so the rehearsal adds and removes no nodes in odd.",
            "The snapshot has nodes of other pools, which keep their nodes: gone.",
        ],
    )
    recorded, (note,) = records(snapshot())
    assert recorded == []
    assert "Add them to the snapshot with --pools" in note


def test_gclouds_list_of_pools_is_read_and_other_files_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "pools.json"
    file.write_text(json.dumps([SPOT, TPU]))
    assert [pool.name for pool in read_pool_file(file)] == ["spot", "tpu"]
    file.write_text(json.dumps([{**SPOT, "name": "../../etc"}]))
    with pytest.raises(Stop, match=r"pools\.json: 0\.name: .*gcloud container node-pools list"):
        read_pool_file(file)
    for read_file in (read_pool_file, command.read_text):  # node pools and a kubeconfig
        with pytest.raises(Stop, match="cannot be read"):
            read_file(tmp_path / "none")


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ({"pools": [{**SPOT, "name": "a/b"}]}, "pools.0.name"),
        ({"pools": [{**TPU, "placementPolicy": {"tpuTopology": "9" * 99}}]}, "pools.0.placementPolicy.tpuTopology"),
        ({"pools": [{**SPOT, "autoscaling": {"maxNodeCount": 10**9}}]}, "pools.0.autoscaling.maxNodeCount"),
        ({"pools": [SPOT] * 1001}, "pools"),
        ({"kueueVersion": "../../bin/sh"}, "kueueVersion"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_hostile_pools_and_versions_are_refused_with_their_path(more: dict[str, Any], path: str) -> None:
    content = {"version": 3, "takenAt": "2026-11-22T10:00:00Z", "stack": "prod", "objects": {}, **more}
    with pytest.raises(InvalidSnapshot, match=f"This is no snapshot: {path}: "):
        read(json.dumps(content))


def test_pools_survive_a_snapshot_without_their_unlisted_fields() -> None:
    again = read(snapshot(pools=[SPOT, TPU]).to_json())
    assert again.pools == [NodePool.model_validate(SPOT), NodePool.model_validate(TPU)]
    assert "serviceAccount" not in again.to_json()


def test_labels_of_pools_are_hashed_like_those_of_nodes() -> None:
    hashed = hash_names(snapshot(pools=[SPOT]), [], b"k" * 32)
    assert hashed.pools
    config = hashed.pools[0].config
    assert config.labels["team"] == config.taints[0].value != "a"
    assert (hashed.pools[0].name, config.machine_type) == ("spot", "g2-standard-24")


def test_recorded_pools_are_replaced_and_nodes_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emulator.machine.paths.CLUSTERS", tmp_path)
    monkeypatch.setattr(Folder, "ready", True)
    for names in (["a", "b"], ["c"]):
        paused.set_pools("queues", [PoolRecord(name, "e2-standard-4", ["us-central1-a"]) for name in names])
    assert [pool.name for pool in read_pools(Folder("queues").pools)] == ["c"]


def deployment(image: str, *arguments: str) -> dict[str, Any]:
    container = {"name": "manager", "image": image, "args": ["--config=/x.yaml", *arguments]}
    return {"spec": {"template": {"spec": {"containers": [{"name": "proxy", "image": "proxy:v1.2.3"}, container]}}}}


FLAG = "--feature-gates=TopologyAwareScheduling=true,PartialAdmission=false"
GATES = {"TopologyAwareScheduling": True, "PartialAdmission": False}


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("registry.k8s.io/kueue/kueue:v0.18.4", "0.18.4"),
        ("mirror.example.com:5000/kueue:v0.18.4@sha256:00", "0.18.4"),
        ("example.com/kueue/kueueviz-backend:v0.18.4", None),
        ("example.com/kueue:main", None),
    ],
)
def test_the_version_and_feature_gates_of_kueue_are_those_of_its_manager(image: str, version: str | None) -> None:
    found = live_kueue.manager([deployment("web:v1.0.0"), deployment(image, FLAG)])
    assert (found and (found.version, found.gates)) == (version and (version, GATES))


DEFAULT = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "webhook": {"port": 9443}, "integrations": {"a": ["b"]}}


def test_the_scratch_cluster_has_the_settings_of_the_snapshot() -> None:
    stated = {"fairSharing": {"preemptionStrategies": ["LessThanInitialShare"]}, "featureGates": {"X": True}}
    assert overlaid(DEFAULT, stated) == {"apiVersion": DEFAULT["apiVersion"], "webhook": {"port": 9443}, **stated}
    assert overlaid(DEFAULT, None) == DEFAULT
    assert overlaid(DEFAULT, {"fairSharing": {"enable": True}})["apiVersion"] == "config.kueue.x-k8s.io/v1beta1"


def test_jobset_is_installed_if_the_cluster_has_it() -> None:
    assert not has_jobset(snapshot())
    assert has_jobset(snapshot(objects={"JobSet": [named("train", "research")]}))
    assert has_jobset(snapshot(objects={"Deployment": [named("jobset-controller-manager", "jobset-system")]}))


def owned(name: str, kind: str, owner: str, **more: Any) -> dict[str, Any]:
    """An object with a controller of its own."""
    reference = {"kind": kind, "name": owner, "uid": owner, "controller": True}
    return {"metadata": {"name": name, "namespace": "a", "uid": name, "ownerReferences": [reference]}, **more}


def test_workloads_of_other_kinds_are_counted() -> None:
    items = [owned(name, kind, name) for name, kind in (("a", "RayJob"), ("b", "RayJob"), ("c", "Job"))]
    (note,) = unowned(snapshot(objects={"Workload": items}))
    assert "it restores only their Workloads and pods: 2 of RayJob." in note


def test_pods_or_a_jobset_of_a_kind_without_a_controller_belong_to_its_workload() -> None:
    pods = [
        owned("head", "RayCluster", "train-raycluster-x7k2p"),
        owned("worker", "PyTorchJob", "train"),
        owned("other", "RayCluster", "training-raycluster-x7k2p"),
        owned("job", "Job", "train-raycluster-x7k2p"),
        owned("node", "Job", "tune-node-0"),
    ]
    workloads = [owned("rayjob-train", "RayJob", "train"), owned("job-train", "Job", "train")]
    workloads.append(owned("trainjob-tune", "TrainJob", "tune"))
    jobsets = [owned("tune", "TrainJob", "tune"), owned("other", "TrainJob", "another")]
    assert evicted.absent(snapshot(objects={"Workload": workloads, "Pod": pods, "JobSet": jobsets})) == {
        "rayjob-train": ["/api/v1/namespaces/a/pods/head", "/api/v1/namespaces/a/pods/worker"],
        "trainjob-tune": ["/apis/jobset.x-k8s.io/v1alpha2/namespaces/a/jobsets/tune"],
    }


def test_an_evicted_workload_without_a_controller_loses_pods_and_admission(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[str, str, Any]] = []
    monkeypatch.setattr(evicted, "send", lambda _, method, path, **more: sent.append((method, path, more.get("body"))))
    runs = {"conditions": [{"type": kind, "status": "True", "reason": kind} for kind in ("QuotaReserved", "Admitted")]}
    preempted = {"type": "Evicted", "status": "True", "reason": "Preempted", "message": "for another"}
    workload = owned("rayjob-train", "RayJob", "train", status=runs)
    pods = [owned("head", "RayCluster", "train-x7k2p")]
    evictions = evicted.Evictions(None, snapshot(objects={"Workload": [workload], "Pod": pods}))  # type: ignore[arg-type]
    evictions.look([workload])
    assert sent == []
    evictions.look([{**workload, "status": {"conditions": [*runs["conditions"], preempted]}}])
    (_, pod, _), (_, path, body) = sent
    assert (pod.rpartition("/")[2], path.rpartition("/workloads/")[2]) == ("head", "rayjob-train/status")
    conditions = {entry["type"]: (entry["status"], entry["reason"]) for entry in body["status"]["conditions"]}
    lost = {"QuotaReserved": ("False", "Pending"), "Admitted": ("False", "NoReservation")}
    assert conditions == {"Evicted": ("True", "Preempted"), "Requeued": ("True", "Preempted")} | lost
    assert body["status"]["admission"] is None


def manager(node: str) -> dict[str, Any]:
    return named("manager", "kueue-system", spec={"nodeName": node})


@pytest.mark.parametrize(
    ("nodes", "theirs", "home"),
    [
        ([("gpu", ["nvidia.com/gpu"]), ("system", [])], "gpu", "gpu"),
        ([("gpu", ["nvidia.com/gpu"]), ("system", [])], "deleted", "system"),
        ([("gpu", ["nvidia.com/gpu"])], "deleted", "gpu"),
        ([], "deleted", "scratch"),
    ],
)
def test_scratch_managers_run_on_a_snapshots_node(nodes: list[tuple[str, list[str]]], theirs: str, home: str) -> None:
    items = [named(name, spec={"taints": [{"key": key} for key in taints]}) for name, taints in nodes]
    own = snapshot(objects={"Pod": [manager("scratch"), named("other", "default")], "Node": [named("scratch")]})
    adopted = adopt(snapshot(objects={"Pod": [manager(theirs), named("web", "research")], "Node": items}), own)
    pods = [(pod["metadata"]["name"], pod.get("spec")) for pod in adopted.of("Pod")]
    assert pods == [("web", None), ("manager", {"nodeName": home})]
    assert [node["metadata"]["name"] for node in adopted.of("Node")] == ([name for name, _ in nodes] or ["scratch"])
    assert adopted.objects.keys() == kinds().keys()


def test_a_snapshot_of_a_kubeconfig_needs_no_stack_and_keeps_the_names_of_manifests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "queue.yaml").write_text(yaml.safe_dump({"metadata": {"name": "team-a"}}))
    queues = [{**named(name, "default"), "spec": {}} for name in ("team-a", "team-b")]
    taken = snapshot(objects={"LocalQueue": queues})
    monkeypatch.setattr(command, "take", lambda *_: taken)
    cluster: Any = object()
    pools = [NodePool.model_validate(POOLS[0])]
    command.show(Stack("none"), hashed=True, cluster=cluster, pools=pools, manifests=tmp_path)
    shown = read(capsys.readouterr().out)
    kept, hashed = (queue["metadata"]["name"] for queue in shown.of("LocalQueue"))
    assert kept == "team-a"
    assert hashed != "team-b"
    assert shown.pools == pools


def test_words_in_manifests_are_names() -> None:
    names = file_names(ROOT / "examples" / "manifests" / "cluster")
    assert {"research", "user-queue", "cluster-queue", "train", "default-flavor"} <= names
