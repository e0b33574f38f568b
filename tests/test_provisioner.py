"""Which nodes the stand-in makes for pods that wait, and which it refuses to make."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.nodes import GKE_ACCELERATOR, GKE_NODEPOOL, GPU_TAINT, NVIDIA_GPU, ZONE
from local.cluster import fit, nodes, provisioner
from local.cluster.records import ClusterRecord, PoolRecord

Object = dict[str, Any]

ZONES = ["us-central1-a", "us-central1-b"]
STANDARD = ClusterRecord("c", "p", "us-central1", "standard", ZONES, "1.35.4-gke.1")
AUTOPILOT = ClusterRecord("c", "p", "us-central1", "autopilot", ZONES, "1.35.4-gke.1")
GPU_POOL = PoolRecord("gpu", "g2-standard-24", ZONES, gpu="nvidia-l4", gpus=2, max_nodes=3)
SYSTEM_POOL = PoolRecord("system", "e2-standard-4", ZONES[:1], nodes_per_zone=1)
# What the admission plugin gives a pod that asks for GPUs.
GPU_TOLERATION = {"key": NVIDIA_GPU, "operator": "Exists", "effect": "NoSchedule"}

ELSEWHERE = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "NotIn", "values": ZONES}]}]
        }
    }
}


def pod(uid: str, gpus: int = 0, on: str | None = None, **spec: Any) -> Object:
    requests = {"cpu": "1", "memory": "1Gi"} | ({NVIDIA_GPU: str(gpus)} if gpus else {})
    conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    return {
        "metadata": {"uid": uid, "name": uid, "namespace": "n", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "containers": [{"name": "c", "resources": {"requests": requests}}],
            "tolerations": [GPU_TOLERATION] if gpus else [],
            **({"nodeName": on} if on else {}),
            **spec,
        },
        "status": {"phase": "Running"} if on else {"phase": "Pending", "conditions": conditions},
    }


def l4_pod(uid: str, gpus: int = 2, **spec: Any) -> Object:
    return pod(uid, gpus, nodeSelector={GKE_ACCELERATOR: "nvidia-l4"} | spec.pop("nodeSelector", {}), **spec)


def nodes_of(pool: PoolRecord, count: int, cluster: ClusterRecord = STANDARD) -> list[Object]:
    return nodes.new_nodes(cluster, pool, [], count)


def test_a_pool_grows_by_what_its_waiting_pods_need_and_no_further() -> None:
    plan = provisioner.plan(STANDARD, [SYSTEM_POOL, GPU_POOL], [], [l4_pod(f"p{n}") for n in range(4)])
    assert [nodes.pool_of(made.node) for made in plan.make] == ["gpu"] * 3
    assert [made.pod for made in plan.make] == ["p0", "p1", "p2"]
    assert "gpu: max node group size reached (3)" in plan.refused["p3"]


def test_new_nodes_are_spread_over_the_zones_of_the_pool() -> None:
    present = nodes_of(GPU_POOL, 1)
    pods = [l4_pod("old", on=present[0]["metadata"]["name"]), l4_pod("p0"), l4_pod("p1")]
    plan = provisioner.plan(STANDARD, [GPU_POOL], present, pods)
    assert sorted(nodes.label(n, ZONE) for n in [*present, *(made.node for made in plan.make)]) == [ZONES[0], *ZONES]


def test_pods_share_a_node_that_has_room_for_them() -> None:
    plan = provisioner.plan(STANDARD, [GPU_POOL], [], [l4_pod("p0", gpus=1), l4_pod("p1", gpus=1)])
    assert len(plan.make) == 1


def test_a_node_on_its_way_is_not_made_twice() -> None:
    coming = nodes_of(GPU_POOL, 1)
    coming[0]["spec"]["taints"].append({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"})
    plan = provisioner.plan(STANDARD, [GPU_POOL], coming, [l4_pod("p0")])
    assert (plan.make, plan.refused, plan.needed) == ([], {}, {coming[0]["metadata"]["name"]})


def test_a_node_that_is_being_closed_takes_no_pod() -> None:
    closing = nodes_of(GPU_POOL, 1)
    closing[0]["spec"]["unschedulable"] = True
    assert len(provisioner.plan(STANDARD, [GPU_POOL], closing, [l4_pod("p0")]).make) == 1


@pytest.mark.parametrize(
    ("waiting", "reason"),
    [
        (l4_pod("p", gpus=3), "too little nvidia.com/gpu (3 asked, 2 there)"),
        (
            pod("p", 2, nodeSelector={GKE_ACCELERATOR: "nvidia-h100-80gb"}),
            f"no label {GKE_ACCELERATOR}=nvidia-h100-80gb",
        ),
        (pod("p", nodeSelector={GKE_NODEPOOL: "gpu"}), "doesn't tolerate its taint nvidia.com/gpu=present:NoSchedule"),
        (l4_pod("p", nodeSelector={ZONE: "us-central1-f"}), "no nodes in the pod's zone"),
        (l4_pod("p", affinity=ELSEWHERE), "doesn't match the pod's node affinity"),
    ],
)
def test_no_node_for_a_pod_that_could_not_run_on_it(waiting: Object, reason: str) -> None:
    plan = provisioner.plan(STANDARD, [GPU_POOL], [], [waiting])
    assert plan.make == []
    assert reason in plan.refused["p"]


def test_a_pool_of_fixed_size_never_grows() -> None:
    present = nodes_of(SYSTEM_POOL, 1)
    plan = provisioner.plan(STANDARD, [SYSTEM_POOL], present, [pod(f"p{n}") for n in range(5)])
    assert plan.make == []
    assert set(plan.refused.values()) == {"system: it is of fixed size and full"}


def test_a_pod_that_a_queue_holds_back_gets_no_node() -> None:
    gated = l4_pod("p")
    gated["status"]["conditions"][0]["reason"] = "SchedulingGated"
    assert provisioner.plan(STANDARD, [GPU_POOL], [], [gated]) == provisioner.Plan()


def test_autopilot_makes_the_smallest_machine_that_fits() -> None:
    made = provisioner.plan(AUTOPILOT, [], [], [l4_pod("one", gpus=1), l4_pod("two"), pod("cpu")]).make
    machines = {new.pod: nodes.label(new.node, "node.kubernetes.io/instance-type") for new in made}
    assert machines["two"] == "g2-standard-24"
    assert machines["cpu"].startswith("e2-")
    # One after the other: the first was made before anybody asked for two.
    assert machines["one"] == "g2-standard-4"


def test_autopilot_makes_a_spot_node_for_who_asks_for_one() -> None:
    made = provisioner.plan(AUTOPILOT, [], [], [l4_pod("p", nodeSelector={"cloud.google.com/gke-spot": "true"})]).make
    assert nodes.label(made[0].node, "cloud.google.com/gke-provisioning") == "spot"


@pytest.mark.parametrize(
    ("waiting", "reason"),
    [
        (pod("p", 1), f"no node selector {GKE_ACCELERATOR}"),
        (pod("p", 1, nodeSelector={GKE_ACCELERATOR: "nvidia-l5"}), "nvidia-l5"),
        (l4_pod("p", gpus=9), "9 nvidia-l4"),
        (l4_pod("p", nodeSelector={"team": "red"}), "no label team=red"),
    ],
)
def test_autopilot_says_what_it_can_not_serve(waiting: Object, reason: str) -> None:
    plan = provisioner.plan(AUTOPILOT, [], [], [waiting])
    assert plan.make == []
    assert reason in plan.refused["p"]


def test_requests_count_sidecars_beside_and_init_containers_before_the_others() -> None:
    def container(cpu: str, **more: str) -> Object:
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    spec = {
        "initContainers": [container("250m", restartPolicy="Always"), container("5")],
        "containers": [container("1"), container("500m")],
    }
    assert fit.requests({"spec": spec})["cpu"] == pytest.approx(5.25)
    spec["initContainers"] = [container("250m", restartPolicy="Always"), container("1")]
    assert fit.requests({"spec": spec})["cpu"] == pytest.approx(1.75)


@pytest.mark.parametrize(
    ("toleration", "covers"),
    [
        ({"key": NVIDIA_GPU, "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": NVIDIA_GPU, "value": "present"}, True),
        ({"key": NVIDIA_GPU, "operator": "Equal", "value": "present", "effect": "NoSchedule"}, True),
        ({"key": NVIDIA_GPU, "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": NVIDIA_GPU, "value": "absent"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_tolerations_are_read_as_the_scheduler_reads_them(toleration: dict[str, str], covers: bool) -> None:
    taint = {"key": GPU_TAINT.key, "value": GPU_TAINT.value, "effect": GPU_TAINT.effect}
    assert fit.tolerates({"spec": {"tolerations": [toleration]}}, taint) is covers


def test_a_node_name_fits_its_hostname_label_and_tells_what_the_node_is() -> None:
    long = PoolRecord("p" * 40, "g2-standard-24", ZONES, gpu="nvidia-l4", gpus=2, nodes_per_zone=1)
    node = nodes.new_nodes(ClusterRecord("c" * 40, "p", "r", "standard", ZONES, "1"), long, [], 1)[0]
    assert len(node["metadata"]["name"]) <= 63
    assert nodes.is_current(node, long)
    bigger = PoolRecord(**{**vars(long), "machine_type": "g2-standard-48", "gpus": 4})
    assert not nodes.is_current(node, bigger)
    relabelled = PoolRecord(**{**vars(long), "labels": {"team": "red"}})
    assert nodes.is_current(node, relabelled)


def test_a_pools_own_taint_is_not_written_twice() -> None:
    own = {"key": GPU_TAINT.key, "value": GPU_TAINT.value, "effect": GPU_TAINT.effect}
    declared = PoolRecord(**{**vars(GPU_POOL), "taints": [own, {"key": "a", "value": "b", "effect": "NoSchedule"}]})
    node = nodes_of(declared, 1)[0]
    assert node["spec"]["taints"] == [own, {"key": "a", "value": "b", "effect": "NoSchedule"}]
