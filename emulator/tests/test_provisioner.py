"""The nodes that the emulator creates for waiting pods, and the reasons why it creates none."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import httpx
import pytest

from emulator.cloud.records import ClusterRecord, PoolRecord
from emulator.nodes import devices, fit, planner
from emulator.nodes import objects as nodes
from emulator.tests.pods import (
    GPU_POOL,
    GPU_TOLERATION,
    MULTI_HOST,
    QUEUED,
    STANDARD,
    ZONES,
    Object,
    l4_pod,
    nodes_of,
    pod,
    tpu_pod,
)
from gke_ai.catalog.fabric.rdma import DRIVER_LABEL
from gke_ai.catalog.machines.capacity import MODES
from gke_ai.catalog.nodes.shape import (
    COMPUTE_CLASS,
    GKE_ACCELERATOR,
    GKE_NODEPOOL,
    GKE_PROVISIONING,
    GKE_TPU_TOPOLOGY,
    GPU_TAINT,
    INSTANCE_TYPE,
    NVIDIA_GPU,
    ZONE,
)
from gke_ai.catalog.quantities import parse_quantity

AUTOPILOT = ClusterRecord("c", "p", "us-central1", "autopilot", ZONES, "1.36.1-gke.1")
SYSTEM_POOL = PoolRecord("system", "e2-standard-4", ZONES[:1], nodes_per_zone=1)

ELSEWHERE = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "NotIn", "values": ZONES}]}]
        }
    }
}


def test_a_pool_grows_for_its_waiting_pods_up_to_its_maximum() -> None:
    plan = planner.plan(STANDARD, [SYSTEM_POOL, GPU_POOL], [], [l4_pod(f"p{n}") for n in range(4)])
    assert [nodes.pool_of(new_node.node) for new_node in plan.new_nodes] == ["gpu"] * 3
    assert [new_node.pod for new_node in plan.new_nodes] == ["p0", "p1", "p2"]
    assert "gpu: max node group size reached (3)" in plan.refused["p3"]


A4_POOL = PoolRecord("b200", "a4-highgpu-8g", ZONES[1:], gpu="nvidia-b200", gpus=8, nodes_per_zone=10)
RESERVED = replace(A4_POOL, capacity="reservation")
COMPACT = replace(A4_POOL, capacity="spot", compact=True)


def places(present: Iterable[Object]) -> Counter[str]:
    return Counter(nodes.label(node, nodes.BLOCK) for node in present)


def test_nodes_of_a_reservation_fill_blocks_and_those_of_one_block_or_a_compact_pool_have_one() -> None:
    assert places(nodes_of(RESERVED, 10)) == {"b200-b1": 8, "b200-b2": 2}
    assert places(nodes_of(COMPACT, 10)) == {"b200-b1": 10}
    one = [*nodes_of(replace(RESERVED, block="one"), 9), *nodes_of(replace(RESERVED, name="more", block="one"), 1)]
    assert places(one) == {"one": 10}
    assert len({nodes.label(node, nodes.HOST) for node in one}) == 10
    subblocks = Counter(nodes.label(node, nodes.SUBBLOCK) for node in nodes_of(COMPACT, 10))
    assert subblocks == {"b200-b1-1": 4, "b200-b1-2": 4, "b200-b1-3": 2}


def test_nodes_with_a_network_profile_publish_eight_nics_with_rdma_and_one_without() -> None:
    labeled = replace(COMPACT, network_profile="auto", labels={DRIVER_LABEL: "true"})
    (node,) = nodes_of(labeled, 1)
    node["metadata"]["uid"] = "u"
    (plain,) = nodes_of(COMPACT, 1)
    assert (devices.has_driver(node), devices.has_driver(plain)) == (True, False)
    published = devices.resource_slice(node)
    attributes = [device["attributes"] for device in published["spec"]["devices"]]
    assert Counter(item["dra.net/rdma"]["bool"] for item in attributes) == {True: 8, False: 1}
    assert {item["gce.dra.net/block"]["string"] for item in attributes} == {nodes.label(node, nodes.BLOCK)}
    assert published["spec"]["pool"]["name"] == f"{node['metadata']['name']}-dra.net"
    assert published["metadata"]["ownerReferences"][0]["kind"] == "Node"


def test_bare_metal_nodes_publish_eight_nics_of_another_kind() -> None:
    metal = replace(A4_POOL, machine_type="a4x-maxgpu-4g-metal", gpu="nvidia-gb300", gpus=4, capacity="reservation")
    (node,) = nodes_of(replace(metal, network_profile="auto", labels={DRIVER_LABEL: "true"}), 1)
    node["metadata"]["uid"] = "u"
    plain, *others = (device["attributes"] for device in devices.resource_slice(node)["spec"]["devices"])
    names = [item["dra.net/ifName"]["string"] for item in others]
    assert (len(names), names[0], names[3]) == (8, "gpu0ipvlan0", "gpu1ipvlan1")
    assert plain["dra.net/pciVendor"] == {"string": "Intel Corporation"}


@pytest.mark.parametrize("is_listed", [True, False], ids=["pool of the stack", "pool that GKE created"])
@pytest.mark.parametrize(("owner", "is_created"), [("u", False), ("of-a-deleted-node", True), (None, True)])
def test_a_node_that_has_a_slice_gets_no_second_one_and_classes_stay(
    owner: str | None, is_created: bool, is_listed: bool
) -> None:
    labeled = replace(COMPACT, network_profile="auto", labels={DRIVER_LABEL: "true"})
    (node,) = nodes_of(labeled, 1)
    node["metadata"]["uid"] = "u"
    created: list[str] = []

    def api(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            assert f"spec.nodeName={node['metadata']['name']}" in request.url.params["fieldSelector"]
            items = [{"metadata": {"name": "restored", "ownerReferences": [{"uid": owner}]}}] if owner else []
            return httpx.Response(200, json={"items": items})
        item = json.loads(request.content)
        created.append(item["kind"])
        return httpx.Response(409 if item["kind"] == "DeviceClass" else 201, json=item)

    async def publish() -> None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(api), base_url="http://c") as client:
            published = devices.Devices(client)
            for _ in range(2):
                await published.publish([labeled] if is_listed else [], [node])

    asyncio.run(publish())
    assert created == ["DeviceClass", "DeviceClass", *(["ResourceSlice"] if is_created else [])]


def test_a_new_node_takes_the_place_of_a_lost_one() -> None:
    present = nodes_of(RESERVED, 10)
    lost = present.pop(3)
    (again,) = nodes.new_nodes(STANDARD, RESERVED, present, 1)
    assert again["metadata"]["name"] != lost["metadata"]["name"]
    assert nodes.place_of(again) == nodes.place_of(lost) != {}


def test_nodes_have_no_place_without_compact_placement_or_a_reservation_or_levels() -> None:
    spot = replace(COMPACT, compact=False)
    l4 = replace(GPU_POOL, compact=True)
    assert [nodes.place_of(node) for pool in (spot, l4) for node in nodes_of(pool, 1)] == [{}, {}]


def test_new_nodes_are_spread_over_the_zones_of_the_pool() -> None:
    present = nodes_of(GPU_POOL, 1)
    pods = [l4_pod("old", on=present[0]["metadata"]["name"]), l4_pod("p0"), l4_pod("p1")]
    plan = planner.plan(STANDARD, [GPU_POOL], present, pods)
    assert sorted(nodes.label(n, ZONE) for n in [*present, *(new_node.node for new_node in plan.new_nodes)]) == [
        ZONES[0],
        *ZONES,
    ]


def test_pods_share_a_node_with_enough_resources() -> None:
    plan = planner.plan(STANDARD, [GPU_POOL], [], [l4_pod("p0", gpus=1), l4_pod("p1", gpus=1)])
    assert len(plan.new_nodes) == 1


def test_a_starting_node_is_not_created_twice() -> None:
    coming = nodes_of(GPU_POOL, 1)
    coming[0]["spec"]["taints"].append({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"})
    plan = planner.plan(STANDARD, [GPU_POOL], coming, [l4_pod("p0")])
    assert (plan.new_nodes, plan.refused, plan.needed) == ([], {}, {coming[0]["metadata"]["name"]})


def test_a_cordoned_node_gets_no_pod() -> None:
    closing = nodes_of(GPU_POOL, 1)
    closing[0]["spec"]["unschedulable"] = True
    assert len(planner.plan(STANDARD, [GPU_POOL], closing, [l4_pod("p0")]).new_nodes) == 1


@pytest.mark.parametrize(
    ("waiting", "reason"),
    [
        (l4_pod("p", gpus=3), "too little nvidia.com/gpu (3 requested, 2 free)"),
        (
            pod("p", 2, nodeSelector={GKE_ACCELERATOR: "nvidia-h100-80gb"}),
            f"no label {GKE_ACCELERATOR}=nvidia-h100-80gb",
        ),
        (pod("p", nodeSelector={GKE_NODEPOOL: "gpu"}), "doesn't tolerate its taint nvidia.com/gpu=present:NoSchedule"),
        (l4_pod("p", nodeSelector={ZONE: "us-central1-f"}), "no nodes in the pod's zone"),
        (l4_pod("p", affinity=ELSEWHERE), "doesn't match the pod's node affinity"),
    ],
)
def test_no_node_is_created_for_a_pod_that_can_not_run_on_it(waiting: Object, reason: str) -> None:
    plan = planner.plan(STANDARD, [GPU_POOL], [], [waiting])
    assert plan.new_nodes == []
    assert reason in plan.refused["p"]


def test_a_pool_of_fixed_size_never_grows() -> None:
    present = nodes_of(SYSTEM_POOL, 1)
    plan = planner.plan(STANDARD, [SYSTEM_POOL], present, [pod(f"p{n}") for n in range(5)])
    assert plan.new_nodes == []
    assert set(plan.refused.values()) == {"system: it has a fixed size and is full"}


def test_a_gated_pod_gets_no_node() -> None:
    gated = l4_pod("p")
    gated["status"]["conditions"][0]["reason"] = "SchedulingGated"
    assert planner.plan(STANDARD, [GPU_POOL], [], [gated]) == planner.PlannedNodes()


def test_autopilot_creates_the_smallest_machine_that_fits() -> None:
    new_nodes = planner.plan(AUTOPILOT, [], [], [l4_pod("one", gpus=1), l4_pod("two"), pod("cpu")]).new_nodes
    machines = {new.pod: nodes.label(new.node, "node.kubernetes.io/instance-type") for new in new_nodes}
    assert machines["two"] == "g2-standard-24"
    assert machines["cpu"].startswith("e2-")
    # The first pod gets its node before the second one is planned.
    assert machines["one"] == "g2-standard-4"


def test_on_autopilot_a_pod_gets_no_node_with_more_gpus_than_it_requests() -> None:
    """Autopilot places exactly one GPU pod on each GPU node."""
    (large,) = planner.plan(AUTOPILOT, [], [], [l4_pod("two")]).new_nodes
    small = l4_pod("one", gpus=1)
    (new,) = planner.plan(AUTOPILOT, [], [large.node], [small]).new_nodes
    assert nodes.label(new.node, "node.kubernetes.io/instance-type") == "g2-standard-4"
    assert planner.plan(AUTOPILOT, [], [large.node], [l4_pod("next")]).new_nodes == []
    assert planner.plan(STANDARD, [GPU_POOL], nodes_of(GPU_POOL, 1), [small]).new_nodes == []


def with_storage(waiting: Object, amount: str) -> Object:
    """The pod with a request of ephemeral storage."""
    waiting["spec"]["containers"][0]["resources"]["requests"]["ephemeral-storage"] = amount
    return waiting


@pytest.mark.parametrize(("amount", "disk_gb"), [("40Gi", 100), ("60Gi", 136), ("120Gi", 254)])
def test_autopilot_gives_a_node_a_boot_disk_with_room_for_its_pod(amount: str, disk_gb: int) -> None:
    pods = [with_storage(l4_pod("p", gpus=1), amount), with_storage(l4_pod("next", gpus=1), amount)]
    (first, second) = planner.plan(AUTOPILOT, [], [], pods).new_nodes
    assert nodes.pool_of(first.node) == nodes.pool_of(second.node)
    assert nodes.pool_of(first.node).endswith("standard" if disk_gb == 100 else f"-disk{disk_gb}")
    assert parse_quantity(first.node["status"]["allocatable"]["ephemeral-storage"]) >= parse_quantity(amount)


def test_a_class_chooses_a_boot_disk_for_its_pods_on_autopilot_only() -> None:
    pods = [with_storage(class_pod("p"), "60Gi")]
    assert len(of_class(pods, cluster=AUTOPILOT).new_nodes) == 1
    assert len(of_class(pods, changes={"autopilot": {"enabled": True}}).new_nodes) == 1
    refused = of_class(pods)
    assert refused.new_nodes == []
    assert "ephemeral-storage" in refused.refused["p"]


def test_autopilot_creates_a_spot_node_for_a_pod_that_selects_one() -> None:
    new_nodes = planner.plan(
        AUTOPILOT, [], [], [l4_pod("p", nodeSelector={"cloud.google.com/gke-spot": "true"})]
    ).new_nodes
    assert nodes.label(new_nodes[0].node, "cloud.google.com/gke-provisioning") == "spot"


@pytest.mark.parametrize(
    ("waiting", "reason"),
    [
        (pod("p", 1), f"no node selector {GKE_ACCELERATOR}"),
        (pod("p", 1, nodeSelector={GKE_ACCELERATOR: "nvidia-l5"}), "nvidia-l5"),
        (l4_pod("p", gpus=9), "9 nvidia-l4"),
        (l4_pod("p", nodeSelector={"team": "red"}), "no label team=red"),
    ],
)
def test_autopilot_reports_why_a_pod_gets_no_node(waiting: Object, reason: str) -> None:
    plan = planner.plan(AUTOPILOT, [], [], [waiting])
    assert plan.new_nodes == []
    assert reason in plan.refused["p"]


def test_requests_add_sidecars_and_take_the_maximum_with_init_containers() -> None:
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
def test_tolerations_match_as_in_the_scheduler(toleration: dict[str, str], covers: bool) -> None:
    taint = {"key": GPU_TAINT.key, "value": GPU_TAINT.value, "effect": GPU_TAINT.effect}
    assert fit.tolerates({"spec": {"tolerations": [toleration]}}, taint) is covers


def test_a_node_name_fits_its_hostname_label_and_identifies_the_machine() -> None:
    long = PoolRecord("p" * 40, "g2-standard-24", ZONES, gpu="nvidia-l4", gpus=2, nodes_per_zone=1)
    node = nodes.new_nodes(ClusterRecord("c" * 40, "p", "r", "standard", ZONES, "1"), long, [], 1)[0]
    assert len(node["metadata"]["name"]) <= 63
    assert nodes.is_current(node, long)
    bigger = PoolRecord(**{**vars(long), "machine_type": "g2-standard-48", "gpus": 4})
    assert not nodes.is_current(node, bigger)
    relabelled = PoolRecord(**{**vars(long), "labels": {"team": "red"}})
    assert nodes.is_current(node, relabelled)


def test_a_declared_taint_that_gke_adds_is_not_duplicated() -> None:
    own = {"key": GPU_TAINT.key, "value": GPU_TAINT.value, "effect": GPU_TAINT.effect}
    declared = PoolRecord(**{**vars(GPU_POOL), "taints": [own, {"key": "a", "value": "b", "effect": "NoSchedule"}]})
    node = nodes_of(declared, 1)[0]
    assert node["spec"]["taints"] == [own, {"key": "a", "value": "b", "effect": "NoSchedule"}]


# ------------------------------------------------------------------------------------------------- compute classes
CLASS: dict[str, Any] = {
    "spec": {
        "priorities": [
            {"machineType": "g2-standard-24", "spot": True},
            {"machineType": "g2-standard-24", "flexStart": {"enabled": True}},
        ],
        "whenUnsatisfiable": "DoNotScaleUp",
        "nodePoolAutoCreation": {"enabled": True},
    }
}


def class_pod(uid: str, **spec: Any) -> Object:
    # The toleration that the emulator's admission policy adds.
    toleration = {"key": COMPUTE_CLASS, "operator": "Equal", "value": "cheap", "effect": "NoSchedule"}
    return pod(uid, 2, nodeSelector={COMPUTE_CLASS: "cheap"}, tolerations=[GPU_TOLERATION, toleration], **spec)


def of_class(
    pods: list[Object], out: Iterable[str] = (), cluster: ClusterRecord = STANDARD, changes: Object | None = None
) -> planner.PlannedNodes:
    classes = {"cheap": {"spec": CLASS["spec"] | (changes or {})}}
    return planner.plan(cluster, [SYSTEM_POOL], nodes_of(SYSTEM_POOL, 1), pods, classes, frozenset(out))


def provisioning(plan: planner.PlannedNodes) -> list[str]:
    return [nodes.label(new_node.node, GKE_PROVISIONING) for new_node in plan.new_nodes]


@pytest.mark.parametrize("cluster", [STANDARD, AUTOPILOT])
def test_a_node_of_a_class_has_its_first_priority_and_its_label(cluster: ClusterRecord) -> None:
    plan = of_class([class_pod("p")], cluster=cluster)
    (new_node,) = plan.new_nodes
    assert provisioning(plan) == ["spot"]
    assert nodes.pool_of(new_node.node).startswith("nap-g2-standard-24-spot-gpu2-")
    assert nodes.label(new_node.node, COMPUTE_CLASS) == "cheap"
    assert {"key": COMPUTE_CLASS, "value": "cheap", "effect": "NoSchedule"} in new_node.node["spec"]["taints"]


def test_a_node_of_a_class_with_a_network_profile_publishes_nics_in_its_zone() -> None:
    priority = {"machineType": "a4-highgpu-8g", "acceleratorNetworkProfile": "auto", "spot": True}
    priority["location"] = {"zones": ["us-central1-b"]}
    changes = {"priorities": [priority], "nodePoolConfig": {"dra": {"networking": {"enabled": True}}}}
    (new_node,) = of_class([class_pod("p")], changes=changes).new_nodes
    new_node.node["metadata"]["uid"] = "u"
    assert nodes.label(new_node.node, ZONE) == "us-central1-b"
    assert devices.has_driver(new_node.node)
    (without,) = of_class([class_pod("p")], changes={"priorities": [priority]}).new_nodes
    assert not devices.has_driver(without.node), "the class does not enable the driver"


def test_each_replica_gets_its_own_node() -> None:
    plan = of_class([class_pod("p0"), class_pod("p1")])
    assert len({new_node.node["metadata"]["name"] for new_node in plan.new_nodes}) == 2
    assert len({nodes.pool_of(new_node.node) for new_node in plan.new_nodes}) == 1


def test_without_spot_capacity_the_next_priority_is_used() -> None:
    assert provisioning(of_class([class_pod("p")], out=["spot"])) == ["flex-start"]


def test_a_pod_waits_with_all_reasons_if_no_priority_has_capacity() -> None:
    plan = of_class([class_pod("p")], out=["spot", "flexStart"])
    assert plan.new_nodes == []
    assert plan.refused["p"] == (
        "priority 1 of cheap (spot g2-standard-24): no spot capacity (GCE_STOCKOUT); "
        "priority 2 of cheap (flexStart g2-standard-24): no flexStart capacity (GCE_STOCKOUT)"
    )


def test_scale_up_anyway_uses_any_available_machine() -> None:
    anyway = {"whenUnsatisfiable": "ScaleUpAnyway"}
    plan = of_class([class_pod("p")], out=["spot", "flexStart"], changes=anyway)
    assert provisioning(plan) == ["standard"]
    assert nodes.label(plan.new_nodes[0].node, COMPUTE_CLASS) == "cheap"
    refused = of_class([class_pod("p")], out=["spot", "flexStart", "onDemand"], changes=anyway).refused["p"]
    assert "any machine for cheap (g2-standard-24): no onDemand capacity (GCE_STOCKOUT)" in refused


def test_a_class_without_pool_creation_uses_existing_pools() -> None:
    manual = {"nodePoolAutoCreation": {"enabled": False}}
    assert "no label cloud.google.com/compute-class=cheap" in of_class([class_pod("p")], changes=manual).refused["p"]
    taint = {"key": COMPUTE_CLASS, "value": "cheap", "effect": "NoSchedule"}
    own = PoolRecord(**{**vars(GPU_POOL), "labels": {COMPUTE_CLASS: "cheap"}, "taints": [taint]})
    plan = planner.plan(STANDARD, [own], [], [class_pod("p")], {"cheap": {"spec": CLASS["spec"] | manual}})
    assert [nodes.pool_of(new_node.node) for new_node in plan.new_nodes] == ["gpu"]


CLASS_TAINT = {"key": COMPUTE_CLASS, "value": "cheap", "effect": "NoSchedule"}
OWN_SPOT = PoolRecord(
    **{**vars(GPU_POOL), "name": "own", "capacity": "spot", "labels": {COMPUTE_CLASS: "cheap"}, "taints": [CLASS_TAINT]}
)


def pools_of_class(pools: list[PoolRecord], pods: int, priorities: list[Object] | None = None) -> Counter[str]:
    """The pools of the nodes that pods of the class get."""
    spec = CLASS["spec"] | ({"priorities": priorities} if priorities else {})
    waiting = [class_pod(f"p{n}") for n in range(pods)]
    plan = planner.plan(STANDARD, pools, [], waiting, {"cheap": {"spec": spec}})
    assert plan.refused == {}
    return Counter(
        "created" if nodes.pool_of(new.node).startswith("nap-") else nodes.pool_of(new.node) for new in plan.new_nodes
    )


def test_a_pool_of_the_class_grows_before_gke_creates_one() -> None:
    assert pools_of_class([OWN_SPOT], 4) == {"own": 3, "created": 1}


@pytest.mark.parametrize(
    "change",
    [{"machine_type": "g2-standard-48", "gpus": 4}, {"capacity": "onDemand"}, {"labels": {}}, {"nodes_per_zone": 0}],
)
def test_a_pool_that_no_priority_describes_does_not_grow(change: dict[str, Any]) -> None:
    assert pools_of_class([PoolRecord(**{**vars(OWN_SPOT), **change})], 1) == {"created": 1}


def test_a_priority_of_pools_prefers_them_and_creates_none() -> None:
    named: dict[str, Any] = {"nodepools": ["own"]}
    assert pools_of_class([OWN_SPOT], 4, [named, *CLASS["spec"]["priorities"]]) == {"own": 3, "created": 1}
    waiting = planner.plan(
        STANDARD, [], [], [class_pod("p")], {"cheap": {"spec": CLASS["spec"] | {"priorities": [named]}}}
    )
    assert waiting.refused["p"] == "no pool of the cluster belongs to compute class cheap"


def test_a_priority_that_the_emulator_does_not_know_leaves_the_others() -> None:
    family: dict[str, Any] = {"machineFamily": "g2"}
    assert pools_of_class([], 1, [family, *CLASS["spec"]["priorities"]]) == {"created": 1}
    waiting = planner.plan(
        STANDARD, [], [], [class_pod("p")], {"cheap": {"spec": CLASS["spec"] | {"priorities": [family]}}}
    )
    assert "priority 1 of compute class cheap has no machineType" in waiting.refused["p"]


def test_a_priority_with_zones_gets_nodes_in_them_only() -> None:
    zoned = [{"machineType": "g2-standard-24", "location": {"zones": [ZONES[1]]}}]
    plan = of_class([class_pod("p0"), class_pod("p1")], changes={"priorities": zoned})
    assert [nodes.label(new.node, ZONE) for new in plan.new_nodes] == [ZONES[1]] * 2
    elsewhere = PoolRecord(**{**vars(OWN_SPOT), "capacity": "onDemand"})
    assert pools_of_class([elsewhere], 1, zoned) == {"created": 1}
    there = PoolRecord(**{**vars(elsewhere), "zones": [ZONES[1]]})
    assert pools_of_class([there], 1, zoned) == {"own": 1}


def test_a_pod_of_a_missing_class_waits_with_the_reason() -> None:
    assert planner.plan(STANDARD, [GPU_POOL], [], [class_pod("p")]).refused["p"] == "compute class cheap doesn't exist"


def test_a_pool_without_available_capacity_does_not_grow() -> None:
    plan = planner.plan(STANDARD, [GPU_POOL], [], [l4_pod("p")], out=["onDemand"])
    assert plan.refused["p"] == "gpu: no onDemand capacity (GCE_STOCKOUT)"
    assert "onDemand capacity" in planner.plan(AUTOPILOT, [], [], [l4_pod("p")], out=["onDemand"]).refused["p"]


# ------------------------------------------------------------------------------------------------------ TPU slices
SINGLE_HOST = PoolRecord("single", "ct6e-standard-4t", ZONES[:1], capacity="flexStart", max_nodes=1)


def leader(job: str, on: str | None = None) -> Object:
    """The first pod of a Job under JobSet's exclusive placement, as JobSet's webhook writes it."""
    keys = [{"key": "job-key", "operator": "Exists"}, {"key": "job-key", "operator": "NotIn", "values": [job]}]
    term = {"labelSelector": {"matchExpressions": keys}, "topologyKey": GKE_NODEPOOL}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    tpu = tpu_pod(f"{job}-0", "4x4", on, flex=False, affinity=apart)
    tpu["metadata"]["labels"] = {"job-key": job}
    return tpu


def slice_pods(count: int, job: str = "job") -> list[Object]:
    return [tpu_pod(f"{job}-{index}", "4x4") for index in range(count)]


def test_a_single_host_tpu_pool_grows_within_its_bounds() -> None:
    plan = planner.plan(STANDARD, [SINGLE_HOST], [], [tpu_pod("a", "2x2"), tpu_pod("b", "2x2")])
    assert [nodes.label(new_node.node, GKE_TPU_TOPOLOGY) for new_node in plan.new_nodes] == ["2x2"]
    assert plan.refused["b"] == "single: max node group size reached (1)"


def test_a_slice_is_created_as_a_whole_when_its_pods_fill_it() -> None:
    plan = planner.plan(STANDARD, [SINGLE_HOST, MULTI_HOST], [], slice_pods(4))
    assert [nodes.pool_of(new_node.node) for new_node in plan.new_nodes] == ["multi"] * 4
    assert plan.refused == {}


@pytest.mark.parametrize("count", [1, 3])
def test_a_slice_is_created_as_a_whole_for_fewer_pods_than_it_has_nodes(count: int) -> None:
    """So the first pod of a Job under exclusive placement, which the others follow, gets its slice."""
    plan = planner.plan(STANDARD, [MULTI_HOST], [], slice_pods(count))
    assert [(nodes.pool_of(new.node), new.pod) for new in plan.new_nodes] == [("multi", "job-0")] * 4
    assert plan.refused == {}


def test_no_slice_is_created_in_a_pool_that_is_smaller() -> None:
    small = PoolRecord(**{**vars(MULTI_HOST), "max_nodes": 3})
    assert (
        planner.plan(STANDARD, [small], [], slice_pods(4)).refused["job-0"] == "multi: max node group size reached (3)"
    )


def test_a_slice_that_is_in_use_does_not_grow() -> None:
    present = nodes_of(MULTI_HOST, 4)
    running = [tpu_pod(f"r{n}", "4x4", on=node["metadata"]["name"]) for n, node in enumerate(present)]
    plan = planner.plan(STANDARD, [MULTI_HOST], present, [*running, *slice_pods(4)])
    assert plan.new_nodes == []
    assert plan.refused["job-0"] == "multi: its slice exists and is in use"


def test_two_jobs_get_two_slices() -> None:
    other = PoolRecord(**{**vars(MULTI_HOST), "name": "other"})
    plan = planner.plan(STANDARD, [MULTI_HOST, other], [], [*slice_pods(4, "a"), *slice_pods(4, "b")])
    assert Counter(nodes.pool_of(new_node.node) for new_node in plan.new_nodes) == {"multi": 4, "other": 4}


def test_no_slice_is_created_without_available_capacity() -> None:
    plan = planner.plan(STANDARD, [MULTI_HOST], [], slice_pods(4), out=["flexStart"])
    assert plan.new_nodes == []
    assert plan.refused["job-0"] == "multi: no flexStart capacity (GCE_STOCKOUT)"


def test_autopilot_creates_a_slice_for_the_first_pod_of_each_job() -> None:
    plan = planner.plan(AUTOPILOT, [], [], [leader("a"), leader("b")])
    slices = Counter(nodes.pool_of(new_node.node) for new_node in plan.new_nodes)
    assert sorted(slices.values()) == [4, 4]
    # The other pods of Job a select its pool, which has nodes for them.
    there = [new_node.node for new_node in plan.new_nodes]
    first = nodes.pool_of(there[0])
    followers = [tpu_pod(f"a-{n}", "4x4", flex=False, nodeSelector={GKE_NODEPOOL: first}) for n in (1, 2, 3)]
    placed = [leader("a", on=there[0]["metadata"]["name"]), leader("b", on=there[4]["metadata"]["name"])]
    after = planner.plan(AUTOPILOT, [], there, [*placed, *followers])
    assert (after.new_nodes, after.refused) == ([], {})
    assert after.needed == {node["metadata"]["name"] for node in there[1:4]}


def test_autopilot_selects_the_machine_by_topology_and_chips() -> None:
    pods = [tpu_pod("wrong", "2x4", chips=1), tpu_pod("one", "2x4", chips=8), tpu_pod("two", "2x4", chips=4)]
    plan = planner.plan(AUTOPILOT, [], [], pods)
    machines = Counter((new_node.pod, nodes.label(new_node.node, INSTANCE_TYPE)) for new_node in plan.new_nodes)
    assert machines == {("one", "ct6e-standard-8t"): 1, ("two", "ct6e-standard-4t"): 2}
    assert plan.refused["wrong"] == "no 2x4 slice of tpu-v6e-slice has machines of 1 chips, which the pod requests"
    assert set(provisioning(plan)) == {"flex-start"}


def test_the_size_of_a_slice_follows_from_its_nodes_labels() -> None:
    assert {nodes.slice_size(node) for node in nodes_of(MULTI_HOST, 4)} == {4}
    assert nodes.slice_size(nodes_of(SINGLE_HOST, 1)[0]) == 1
    assert nodes.slice_size(nodes_of(GPU_POOL, 1)[0]) == 1


def test_an_idle_slice_is_deleted_as_a_whole_and_a_busy_one_stays() -> None:
    present = [*nodes_of(MULTI_HOST, 4), *nodes_of(SINGLE_HOST, 1)]
    names = [node["metadata"]["name"] for node in present]
    pools = {pool.name: pool for pool in (MULTI_HOST, SINGLE_HOST)}
    assert planner.idle(present, pools, set(names)) == [names[:4], names[4:]]
    assert planner.idle(present, pools, set(names[1:])) == [names[4:]]
    kept = PoolRecord(**{**vars(MULTI_HOST), "min_nodes": 4})
    assert planner.idle(present, pools | {"multi": kept}, set(names)) == [names[4:]]


# --------------------------------------------------------------------------------------------- queued provisioning


def test_only_a_request_creates_queued_nodes() -> None:
    taint = MODES["queuedFlexStart"].taints[0]
    tolerations = [GPU_TOLERATION, {"key": taint.key, "operator": "Exists"}]
    plan = planner.plan(STANDARD, [QUEUED], [], [l4_pod("p", tolerations=tolerations)])
    assert plan.new_nodes == []
    assert plan.refused["p"] == "queued: only a ProvisioningRequest creates its nodes"


def test_a_pod_that_consumes_a_request_uses_its_nodes_and_creates_none() -> None:
    waiting = l4_pod("p")
    waiting["metadata"]["annotations"] = {"autoscaling.x-k8s.io/consume-provisioning-request": "r"}
    plan = planner.plan(STANDARD, [GPU_POOL], [], [waiting])
    assert plan.new_nodes == []
    assert plan.refused["p"] == "only its ProvisioningRequest r creates nodes for it"
    there = nodes_of(GPU_POOL, 1)
    assert planner.plan(STANDARD, [GPU_POOL], there, [waiting]).needed == {there[0]["metadata"]["name"]}
