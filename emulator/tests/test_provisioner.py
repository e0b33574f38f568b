"""The nodes that the emulator creates for waiting pods, and the reasons why it creates none."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, replace
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

TERM = {"matchExpressions": [{"key": ZONE, "operator": "NotIn", "values": ZONES}]}
ELSEWHERE = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM]}}}


def class_pod(uid: str, **spec: Any) -> Object:
    # The toleration that the emulator's admission policy adds.
    toleration = {"key": COMPUTE_CLASS, "operator": "Equal", "value": "cheap", "effect": "NoSchedule"}
    return pod(uid, 2, nodeSelector={COMPUTE_CLASS: "cheap"}, tolerations=[GPU_TOLERATION, toleration], **spec)


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


LABELED = replace(COMPACT, network_profile="auto", labels={DRIVER_LABEL: "true"})


def published_by(pool: PoolRecord) -> tuple[Object, Object, list[Any]]:
    """A node of a pool, its slice, and the attributes of the devices of the slice."""
    (node,) = nodes_of(pool, 1)
    node["metadata"]["uid"] = "u"
    published = devices.resource_slice(node)
    return node, published, [device["attributes"] for device in published["spec"]["devices"]]


def test_nodes_with_a_network_profile_publish_eight_nics_with_rdma_and_one_without() -> None:
    node, published, attributes = published_by(LABELED)
    assert (devices.has_driver(node), devices.has_driver(nodes_of(COMPACT, 1)[0])) == (True, False)
    assert Counter(item["dra.net/rdma"]["bool"] for item in attributes) == {True: 8, False: 1}
    assert {item["gce.dra.net/block"]["string"] for item in attributes} == {nodes.label(node, nodes.BLOCK)}
    assert published["spec"]["pool"]["name"] == f"{node['metadata']['name']}-dra.net"
    assert published["metadata"]["ownerReferences"][0]["kind"] == "Node"


def test_bare_metal_nodes_publish_eight_nics_of_another_kind() -> None:
    metal = replace(LABELED, machine_type="a4x-maxgpu-4g-metal", gpu="nvidia-gb300", gpus=4, capacity="reservation")
    _, _, (plain, *others) = published_by(replace(metal, compact=False))
    names = [item["dra.net/ifName"]["string"] for item in others]
    assert (len(names), names[0], names[3]) == (8, "gpu0ipvlan0", "gpu1ipvlan1")
    assert plain["dra.net/pciVendor"] == {"string": "Intel Corporation"}


@pytest.mark.parametrize("is_listed", [True, False], ids=["pool of the stack", "pool that GKE created"])
@pytest.mark.parametrize(("owner", "is_created"), [("u", False), ("of-a-deleted-node", True), (None, True)])
def test_a_node_that_has_a_slice_gets_no_second_one_and_classes_stay(
    owner: str | None, is_created: bool, is_listed: bool
) -> None:
    node, *_ = published_by(LABELED)
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
                await published.publish([LABELED] if is_listed else [], [node])

    asyncio.run(publish())
    assert created == ["DeviceClass", "DeviceClass", *(["ResourceSlice"] if is_created else [])]


def test_a_new_node_takes_the_place_of_a_lost_one_if_its_pool_has_places() -> None:
    present = nodes_of(RESERVED, 10)
    lost = present.pop(3)
    (again,) = nodes.new_nodes(STANDARD, RESERVED, present, 1)
    assert again["metadata"]["name"] != lost["metadata"]["name"]
    assert nodes.place_of(again) == nodes.place_of(lost) != {}
    spot, l4 = replace(COMPACT, compact=False), replace(GPU_POOL, compact=True)  # machines without levels
    assert [nodes.place_of(node) for pool in (spot, l4) for node in nodes_of(pool, 1)] == [{}, {}]


def test_new_nodes_are_spread_over_the_zones_of_the_pool() -> None:
    present = nodes_of(GPU_POOL, 1)
    pods = [l4_pod("old", on=present[0]["metadata"]["name"]), l4_pod("p0"), l4_pod("p1")]
    plan = planner.plan(STANDARD, [GPU_POOL], present, pods)
    zones = [nodes.label(node, ZONE) for node in (*present, *(new_node.node for new_node in plan.new_nodes))]
    assert sorted(zones) == [ZONES[0], *ZONES]


def test_a_node_is_shared_while_it_starts_but_not_while_it_is_cordoned() -> None:
    plan = planner.plan(STANDARD, [GPU_POOL], [], [l4_pod("p0", gpus=1), l4_pod("p1", gpus=1)])
    assert len(plan.new_nodes) == 1
    (node,) = nodes_of(GPU_POOL, 1)
    node["spec"]["taints"].append({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"})
    plan = planner.plan(STANDARD, [GPU_POOL], [node], [l4_pod("p0")])
    assert (plan.new_nodes, plan.refused, plan.needed) == ([], {}, {node["metadata"]["name"]})
    node["spec"]["unschedulable"] = True
    assert len(planner.plan(STANDARD, [GPU_POOL], [node], [l4_pod("p0")]).new_nodes) == 1


H100 = {GKE_ACCELERATOR: "nvidia-h100-80gb"}
ON_GPU_POOL = {GKE_NODEPOOL: "gpu"}
UNTOLERATED = "doesn't tolerate its taint nvidia.com/gpu=present:NoSchedule"
DWS_TAINT = MODES["queuedFlexStart"].taints[0]
DWS_TOLERATIONS = [GPU_TOLERATION, {"key": DWS_TAINT.key, "operator": "Exists"}]


@pytest.mark.parametrize(
    ("cluster", "pool", "waiting", "reason"),
    [
        (STANDARD, GPU_POOL, l4_pod("p", gpus=3), "too little nvidia.com/gpu (3 requested, 2 free)"),
        (STANDARD, GPU_POOL, pod("p", 2, nodeSelector=H100), f"no label {GKE_ACCELERATOR}=nvidia-h100-80gb"),
        (STANDARD, GPU_POOL, pod("p", nodeSelector=ON_GPU_POOL), UNTOLERATED),
        (STANDARD, GPU_POOL, l4_pod("p", nodeSelector={ZONE: "us-central1-f"}), "no nodes in the pod's zone"),
        (STANDARD, GPU_POOL, l4_pod("p", affinity=ELSEWHERE), "doesn't match the pod's node affinity"),
        (STANDARD, SYSTEM_POOL, pod("p"), "system: it has a fixed size and is full"),
        (STANDARD, QUEUED, l4_pod("p", tolerations=DWS_TOLERATIONS), "only a ProvisioningRequest creates its nodes"),
        (STANDARD, GPU_POOL, class_pod("p"), "compute class cheap doesn't exist"),
        (AUTOPILOT, None, pod("p", 1), f"no node selector {GKE_ACCELERATOR}"),
        (AUTOPILOT, None, pod("p", 1, nodeSelector={GKE_ACCELERATOR: "nvidia-l5"}), "nvidia-l5"),
        (AUTOPILOT, None, l4_pod("p", gpus=9), "9 nvidia-l4"),
        (AUTOPILOT, None, l4_pod("p", nodeSelector={"team": "red"}), "no label team=red"),
    ],
)
def test_a_pod_that_gets_no_node_waits_with_the_reason(
    cluster: ClusterRecord, pool: PoolRecord | None, waiting: Object, reason: str
) -> None:
    plan = planner.plan(cluster, [pool] if pool else [], [], [waiting])
    assert plan.new_nodes == []
    assert reason in plan.refused["p"]


def test_a_gated_pod_gets_no_node() -> None:
    gated = l4_pod("p")
    gated["status"]["conditions"][0]["reason"] = "SchedulingGated"
    assert planner.plan(STANDARD, [GPU_POOL], [], [gated]) == planner.PlannedNodes()


def test_autopilot_creates_the_smallest_machine_that_fits() -> None:
    spot = {"cloud.google.com/gke-spot": "true"}
    pods = [l4_pod("one", gpus=1), l4_pod("two"), pod("cpu"), l4_pod("spot", nodeSelector=spot)]
    new_nodes = {new.pod: new.node for new in planner.plan(AUTOPILOT, [], [], pods).new_nodes}
    assert nodes.label(new_nodes["two"], INSTANCE_TYPE) == "g2-standard-24"
    assert nodes.label(new_nodes["cpu"], INSTANCE_TYPE).startswith("e2-")
    # The first pod gets its node before the second one is planned.
    assert nodes.label(new_nodes["one"], INSTANCE_TYPE) == "g2-standard-4"
    assert nodes.label(new_nodes["spot"], GKE_PROVISIONING) == "spot"


def test_on_autopilot_a_pod_gets_no_node_with_more_gpus_than_it_requests() -> None:
    """Autopilot places exactly one GPU pod on each GPU node."""
    (large,) = planner.plan(AUTOPILOT, [], [], [l4_pod("two")]).new_nodes
    small = l4_pod("one", gpus=1)
    (new,) = planner.plan(AUTOPILOT, [], [large.node], [small]).new_nodes
    assert nodes.label(new.node, INSTANCE_TYPE) == "g2-standard-4"
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
    standard = of_class(pods)
    assert (standard.new_nodes, "ephemeral-storage" in standard.refused["p"]) == ([], True)


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
    assert fit.tolerates({"spec": {"tolerations": [toleration]}}, asdict(GPU_TAINT)) is covers


def test_a_node_name_fits_its_hostname_label_and_identifies_the_machine() -> None:
    long = PoolRecord("p" * 40, "g2-standard-24", ZONES, gpu="nvidia-l4", gpus=2, nodes_per_zone=1)
    node = nodes.new_nodes(ClusterRecord("c" * 40, "p", "r", "standard", ZONES, "1"), long, [], 1)[0]
    assert len(node["metadata"]["name"]) <= 63
    assert nodes.is_current(node, long)
    assert not nodes.is_current(node, replace(long, machine_type="g2-standard-48", gpus=4))
    assert nodes.is_current(node, replace(long, labels={"team": "red"}))


def test_a_declared_taint_that_gke_adds_is_not_duplicated() -> None:
    taints = [asdict(GPU_TAINT), {"key": "a", "value": "b", "effect": "NoSchedule"}]
    (node,) = nodes_of(replace(GPU_POOL, taints=taints), 1)
    assert node["spec"]["taints"] == taints


G2 = {"machineType": "g2-standard-24"}
PRIORITIES: list[dict[str, Any]] = [G2 | {"spot": True}, G2 | {"flexStart": {"enabled": True}}]
CREATION = {"whenUnsatisfiable": "DoNotScaleUp", "nodePoolAutoCreation": {"enabled": True}}
CLASS: dict[str, Any] = {"spec": {"priorities": PRIORITIES, **CREATION}}


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


def test_without_capacity_the_next_priority_is_used_and_at_last_the_pod_waits_with_all_reasons() -> None:
    assert provisioning(of_class([class_pod("p")], out=["spot"])) == ["flex-start"]
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


CLASS_TAINT = {"key": COMPUTE_CLASS, "value": "cheap", "effect": "NoSchedule"}
OWN_SPOT = replace(GPU_POOL, name="own", capacity="spot", labels={COMPUTE_CLASS: "cheap"}, taints=[CLASS_TAINT])


def planned(pools: list[PoolRecord], pods: int, **changes: Any) -> planner.PlannedNodes:
    """The nodes that pods of the class get in a cluster with these pools."""
    classes = {"cheap": {"spec": CLASS["spec"] | changes}}
    return planner.plan(STANDARD, pools, [], [class_pod(f"p{n}") for n in range(pods)], classes)


def pools_of_class(pools: list[PoolRecord], pods: int, **changes: Any) -> Counter[str]:
    """The pools of the nodes that pods of the class get."""
    plan = planned(pools, pods, **changes)
    assert plan.refused == {}
    names = (nodes.pool_of(new.node) for new in plan.new_nodes)
    return Counter("created" if name.startswith("nap-") else name for name in names)


def test_a_class_without_pool_creation_uses_existing_pools() -> None:
    manual = {"nodePoolAutoCreation": {"enabled": False}}
    assert "no label cloud.google.com/compute-class=cheap" in of_class([class_pod("p")], changes=manual).refused["p"]
    assert pools_of_class([replace(OWN_SPOT, capacity="onDemand")], 1, **manual) == {"own": 1}


def test_a_pool_of_the_class_grows_before_gke_creates_one() -> None:
    assert pools_of_class([OWN_SPOT], 4) == {"own": 3, "created": 1}


@pytest.mark.parametrize(
    "change",
    [{"machine_type": "g2-standard-48", "gpus": 4}, {"capacity": "onDemand"}, {"labels": {}}, {"nodes_per_zone": 0}],
)
def test_a_pool_that_no_priority_describes_does_not_grow(change: dict[str, Any]) -> None:
    assert pools_of_class([replace(OWN_SPOT, **change)], 1) == {"created": 1}


def test_a_priority_of_pools_prefers_them_and_creates_none() -> None:
    named: dict[str, Any] = {"nodepools": ["own"]}
    assert pools_of_class([OWN_SPOT], 4, priorities=[named, *PRIORITIES]) == {"own": 3, "created": 1}
    waiting = planned([], 1, priorities=[named])
    assert waiting.refused["p0"] == "no pool of the cluster belongs to compute class cheap"


def test_a_priority_that_the_emulator_does_not_know_leaves_the_others() -> None:
    family: dict[str, Any] = {"machineFamily": "g2"}
    assert pools_of_class([], 1, priorities=[family, *PRIORITIES]) == {"created": 1}
    waiting = planned([], 1, priorities=[family])
    assert "priority 1 of compute class cheap has no machineType" in waiting.refused["p0"]


def test_a_priority_with_zones_gets_nodes_in_them_only_and_each_replica_its_own() -> None:
    zoned = [{"machineType": "g2-standard-24", "location": {"zones": [ZONES[1]]}}]
    plan = of_class([class_pod("p0"), class_pod("p1")], changes={"priorities": zoned})
    assert [nodes.label(new.node, ZONE) for new in plan.new_nodes] == [ZONES[1]] * 2
    assert len({new.node["metadata"]["name"] for new in plan.new_nodes}) == 2
    assert len({nodes.pool_of(new.node) for new in plan.new_nodes}) == 1
    elsewhere = replace(OWN_SPOT, capacity="onDemand")
    assert pools_of_class([elsewhere], 1, priorities=zoned) == {"created": 1}
    assert pools_of_class([replace(elsewhere, zones=[ZONES[1]])], 1, priorities=zoned) == {"own": 1}


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


def test_no_slice_is_created_in_a_smaller_pool_or_one_that_is_in_use() -> None:
    plan = planner.plan(STANDARD, [replace(MULTI_HOST, max_nodes=3)], [], slice_pods(4))
    assert plan.refused["job-0"] == "multi: max node group size reached (3)"
    present = nodes_of(MULTI_HOST, 4)
    running = [tpu_pod(f"r{n}", "4x4", on=node["metadata"]["name"]) for n, node in enumerate(present)]
    plan = planner.plan(STANDARD, [MULTI_HOST], present, [*running, *slice_pods(4)])
    assert (plan.new_nodes, plan.refused["job-0"]) == ([], "multi: its slice exists and is in use")


def test_two_jobs_get_two_slices() -> None:
    pools = [MULTI_HOST, replace(MULTI_HOST, name="other")]
    plan = planner.plan(STANDARD, pools, [], [*slice_pods(4, "a"), *slice_pods(4, "b")])
    assert Counter(nodes.pool_of(new_node.node) for new_node in plan.new_nodes) == {"multi": 4, "other": 4}


def test_a_pool_without_available_capacity_does_not_grow() -> None:
    plan = planner.plan(STANDARD, [GPU_POOL], [], [l4_pod("p")], out=["onDemand"])
    assert plan.refused["p"] == "gpu: no onDemand capacity (GCE_STOCKOUT)"
    assert "onDemand capacity" in planner.plan(AUTOPILOT, [], [], [l4_pod("p")], out=["onDemand"]).refused["p"]
    plan = planner.plan(STANDARD, [MULTI_HOST], [], slice_pods(4), out=["flexStart"])
    assert (plan.new_nodes, plan.refused["job-0"]) == ([], "multi: no flexStart capacity (GCE_STOCKOUT)")


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
    sizes = [{nodes.slice_size(node) for node in nodes_of(pool, 1)} for pool in (MULTI_HOST, SINGLE_HOST, GPU_POOL)]
    assert sizes == [{4}, {1}, {1}]


def test_an_idle_slice_is_deleted_as_a_whole_and_a_busy_one_stays() -> None:
    present = [*nodes_of(MULTI_HOST, 4), *nodes_of(SINGLE_HOST, 1)]
    names = [node["metadata"]["name"] for node in present]
    pools = {pool.name: pool for pool in (MULTI_HOST, SINGLE_HOST)}
    assert planner.idle(present, pools, set(names)) == [names[:4], names[4:]]
    assert planner.idle(present, pools, set(names[1:])) == [names[4:]]
    assert planner.idle(present, pools | {"multi": replace(MULTI_HOST, min_nodes=4)}, set(names)) == [names[4:]]


def test_a_pod_that_consumes_a_request_uses_its_nodes_and_creates_none() -> None:
    waiting = l4_pod("p")
    waiting["metadata"]["annotations"] = {"autoscaling.x-k8s.io/consume-provisioning-request": "r"}
    plan = planner.plan(STANDARD, [GPU_POOL], [], [waiting])
    assert (plan.new_nodes, plan.refused["p"]) == ([], "only its ProvisioningRequest r creates nodes for it")
    there = nodes_of(GPU_POOL, 1)
    assert planner.plan(STANDARD, [GPU_POOL], there, [waiting]).needed == {there[0]["metadata"]["name"]}
