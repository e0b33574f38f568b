"""TPU slices: the catalog, the pools of slices, and the requests to Google."""

import json
from collections.abc import Callable
from itertools import product
from math import prod
from typing import Any, NamedTuple

import pytest

from emulator.cloud.store import RUNNING
from emulator.cloud.store import Record as Stored
from emulator.google import rest, rules
from emulator.google.cluster_records import pool_record
from emulator.pulumi.plugin import decode, encode
from gke_ai.catalog.machines.tpus import GOOGLE_TPU, VERSIONS, NoSuchSlice, Slice, slice_of, slice_on, slices
from gke_ai.catalog.machines.types import MACHINES
from gke_ai.catalog.nodes.shape import POOL, TPU_TAINT, NodeShape, allocatable, node_labels, node_taints
from gke_ai.components import FlexStartTpuPool, TpuNodePool
from gke_ai.components.arguments import Refused
from gke_ai.settings import Problem, load
from tests.support.mistakes import problems_of
from tests.support.recorder import PROJECT, ROOT, Record, Registration, construct, record, shared_record

LARGE_2D = ["2x4", "4x4", "4x8", "8x8", "8x16", "16x16"]
SMALL_3D = ["2x2x2", "2x2x4", "2x4x4"]


class Row(NamedTuple):
    """A machine type of Google's tables, with its single-host slice and its multi-host slices."""

    version: str
    accelerator: str
    machine_type: str
    chips: int
    vcpus: int
    memory_gb: int
    alone: str
    together: list[str]


# https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus
ROWS = [
    Row("v5e", "tpu-v5-lite-podslice", "ct5lp-hightpu-1t", 1, 24, 48, "1x1", []),
    Row("v5e", "tpu-v5-lite-podslice", "ct5lp-hightpu-4t", 4, 112, 192, "2x2", LARGE_2D),
    Row("v5e", "tpu-v5-lite-podslice", "ct5lp-hightpu-8t", 8, 224, 384, "2x4", []),
    Row("v6e", "tpu-v6e-slice", "ct6e-standard-1t", 1, 44, 176, "1x1", []),
    Row("v6e", "tpu-v6e-slice", "ct6e-standard-4t", 4, 180, 720, "2x2", LARGE_2D),
    Row("v6e", "tpu-v6e-slice", "ct6e-standard-8t", 8, 180, 1440, "2x4", []),
    Row("v5p", "tpu-v5p-slice", "ct5p-hightpu-4t", 4, 208, 448, "2x2x1", SMALL_3D),
    Row("tpu7x", "tpu7x", "tpu7x-standard-1t", 1, 56, 240, "1x1x1", []),
    Row("tpu7x", "tpu7x", "tpu7x-standard-4t", 4, 224, 960, "2x2x1", SMALL_3D),
]
EVERY = [candidate for version in VERSIONS for candidate in slices(version)]
of_slice = "{0.machine_type}-{0.topology}".format
THREE_SIDES = ("v5p", "tpu7x")
# A zone of a region, for each version, in which flex-start has it where flex-start has it at all.
ZONE = {"v5e": "us-west4-a", "v5p": "us-east5-a", "v6e": "us-east5-b", "tpu7x": "us-central1-c"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.machine_type)
def test_machine_is_that_of_googles_table(row: Row) -> None:
    machine_type = MACHINES[row.machine_type]
    figures = (machine_type.tpu, machine_type.chips, machine_type.vcpus, machine_type.memory_gb)
    assert figures == (row.accelerator, row.chips, row.vcpus, row.memory_gb)
    hosts = {candidate.topology: candidate.hosts for candidate in EVERY if candidate.machine_type == row.machine_type}
    assert hosts.pop(row.alone) == 1
    assert list(hosts)[: 3 if row.version in THREE_SIDES else None] == row.together
    assert slice_on(row.machine_type) == slice_of(row.version, row.alone, row.machine_type)
    assert slice_of(row.version, row.alone, row.machine_type).accelerator == row.accelerator


def test_every_machine_with_tpus_is_in_the_table() -> None:
    names = {row.machine_type for row in ROWS}
    assert names == {machine_type.name for machine_type in MACHINES.values() if machine_type.tpu}
    assert names == {candidate.machine_type for candidate in EVERY}


@pytest.mark.parametrize("version", VERSIONS)
def test_nodes_times_chips_of_a_machine_are_the_chips_of_the_topology(version: str) -> None:
    for candidate in slices(version):
        chips, of_machine = prod(map(int, candidate.topology.split("x"))), MACHINES[candidate.machine_type].chips
        assert candidate.chips == candidate.hosts * of_machine == chips
        assert candidate.multi_host == (candidate.hosts > 1) == (chips > of_machine)
        assert slice_of(version, candidate.topology, candidate.machine_type) == candidate
        assert slice_on(candidate.machine_type, candidate.topology) == candidate


@pytest.mark.parametrize("version", THREE_SIDES)
def test_large_topologies_of_three_sides_are_multiples_of_four_in_ascending_order(version: str) -> None:
    large = {candidate.topology for candidate in slices(version) if candidate.chips >= 64}
    most = {"v5p": 6144, "tpu7x": 9216}[version]
    sides = range(4, most // 16 + 1, 4)
    cubes = ((a, b, c) for a in sides for b in sides if a <= b for c in sides if b <= c and a * b * c <= most)
    assert large == {f"{a}x{b}x{c}" for a, b, c in cubes}
    assert max(candidate.chips for candidate in slices(version)) == most


def test_machine_follows_from_version_and_topology() -> None:
    """Of a topology that one machine can hold, that machine; the smaller ones together only where they are named."""
    topologies = [("v6e", "2x4"), ("v5e", "2x4"), ("v6e", "4x4"), ("v5p", "2x2x1"), ("tpu7x", "4x4x4")]
    chosen = [slice_of(version, topology) for version, topology in topologies]
    assert [(candidate.machine_type, candidate.hosts) for candidate in chosen] == [
        *(("ct6e-standard-8t", 1), ("ct5lp-hightpu-8t", 1), ("ct6e-standard-4t", 4)),
        *(("ct5p-hightpu-4t", 1), ("tpu7x-standard-4t", 16)),
    ]
    assert slice_of("v6e", "2x4", "ct6e-standard-4t").hosts == 2


@pytest.mark.parametrize(
    ("call", "argument", "choices"),
    [
        (lambda: slice_of("v4", "2x2x1"), "version", list(VERSIONS)),
        (lambda: slice_of("v6e", "4x2"), "topology", ["1x1", "2x2", *LARGE_2D]),
        (lambda: slice_of("v6e", "4x4", "ct6e-standard-8t"), "machine_type", ["ct6e-standard-4t"]),
        (lambda: slice_on("ct6e-standard-8t", "4x4"), "topology", ["2x4"]),
        (lambda: slice_on("e2-standard-4"), "machine_type", [row.machine_type for row in ROWS]),
    ],
)
def test_missing_slice_lists_the_existing_ones(call: Callable[[], Slice], argument: str, choices: list[str]) -> None:
    with pytest.raises(NoSuchSlice) as caught:
        call()
    assert caught.value.argument == argument
    assert sorted(caught.value.choices) == sorted(choices)


def test_node_has_the_labels_of_its_slice() -> None:
    place: dict[str, Any] = {"pool": "p", "machine_type": "ct6e-standard-4t", "zone": "us-east5-b", "topology": "4x4"}
    others: dict[str, Any] = {"gpu": None, "gpus": 0, "driver": "default", "disk_gb": 100, "labels": {}}
    node = NodeShape(**place, **others, capacity="flexStart", workload_identity=True)
    labels = {key.removeprefix("cloud.google.com/gke-"): text for key, text in node_labels(node).items()}
    expected = {"tpu-accelerator": "tpu-v6e-slice", "tpu-topology": "4x4", "accelerator-count": "4"}
    assert {**expected, "flex-start": "true"}.items() <= labels.items()
    assert node_taints(node) == [TPU_TAINT]
    assert allocatable(node)[GOOGLE_TPU] == 4


def stack_of(*pools: dict[str, Any], zone: str = "us-east5-b") -> dict[str, Any]:
    return {
        "cluster": {"mode": "standard", "location": zone.rpartition("-")[0]},
        "tpuPools": [{"name": f"p{index}", "zones": [zone], **pool} for index, pool in enumerate(pools)],
    }


def pool_of(candidate: Slice) -> dict[str, Any]:
    """The minimal configuration of a pool with this slice."""
    keys = {"version": "version", "topology": "topology", "machineType": "machine_type"}
    pool: dict[str, Any] = {key: getattr(candidate, attribute) for key, attribute in keys.items()}
    if not candidate.multi_host:
        pool["nodesPerZone"] = 1
    elif VERSIONS[candidate.version].workload_policy:
        pool["workloadPolicy"] = f"policy-{candidate.topology}"
    return pool


@pytest.mark.parametrize("version", VERSIONS)
def test_every_slice_of_the_catalog_can_be_a_pool(version: str) -> None:
    zone, pools = ZONE[version], [pool_of(candidate) for candidate in slices(version)]
    read = load(stack_of(*pools, zone=zone), PROJECT)
    for pool, candidate in zip(read.settings.tpu_pools, slices(version), strict=True):
        assert pool.slice == candidate
        assert pool.max_nodes(read.cluster) == candidate.hosts
    if VERSIONS[version].flex_start_zones:
        assert zone in VERSIONS[version].flex_start_zones
        flexible = [{**pool, "nodesPerZone": None, "capacity": {"mode": "flexStart"}} for pool in pools]
        tpu_pools = load(stack_of(*flexible, zone=zone), PROJECT).settings.tpu_pools
        assert [pool.bounds for pool in tpu_pools] == [(0, candidate.hosts) for candidate in slices(version)]


def refused(pool: dict[str, Any], zone: str = "us-east5-b") -> Problem:
    (problem,) = problems_of(stack_of(pool, zone=zone))
    return problem


def near_misses(version: str) -> list[str]:
    """Topologies that look like those of the version and are not."""
    sides = [1, 2, 4, 8, 12, 16] if version in THREE_SIDES else [1, 2, 3, 4, 8, 16, 32]
    legal = {candidate.topology for candidate in slices(version)}
    several = product(sides, repeat=3 if version in THREE_SIDES else 2)
    return sorted({"x".join(map(str, sides)) for sides in several} - legal | {"2x2" if "2x2" not in legal else "2x2x1"})


@pytest.mark.parametrize("version", VERSIONS)
def test_every_near_miss_is_refused_with_the_valid_topologies(version: str) -> None:
    legal = [candidate.topology for candidate in slices(version)]
    for topology in near_misses(version):
        problem = refused({"version": version, "topology": topology, "nodesPerZone": 1}, ZONE[version])
        assert problem.path == "gke-ai:tpuPools[0].topology"
        assert f"{topology} is not a topology of TPU {version}" in problem.cause
        ascending = "x".join(map(str, sorted(map(int, topology.split("x")))))
        meant = [ascending] if ascending in legal else legal[:12]
        assert all(topology_meant in problem.remedy for topology_meant in meant), problem.remedy


@pytest.mark.parametrize("version", VERSIONS)
def test_machine_type_without_the_slice_is_refused_with_those_that_have_it(version: str) -> None:
    for candidate in {candidate.topology: candidate for candidate in slices(version)}.values():
        fitting = [other.machine_type for other in slices(version) if other.topology == candidate.topology]
        for machine_type in {row.machine_type for row in ROWS} - set(fitting):
            wanted = {"version": version, "topology": candidate.topology, "machineType": machine_type}
            problem = refused({**wanted, "nodesPerZone": 1}, ZONE[version])
            assert problem.path == "gke-ai:tpuPools[0].machineType"
            assert all(name in problem.remedy for name in fitting)
        if candidate.chips > 64:
            break  # larger ones have the same machine


@pytest.mark.parametrize(
    "expected", [candidate for candidate in EVERY if candidate.multi_host and candidate.chips <= 64], ids=of_slice
)
def test_a_multi_host_pool_has_the_nodes_of_its_slice_and_no_others(expected: Slice) -> None:
    zone, pool = ZONE[expected.version], pool_of(expected)
    assert problems_of(stack_of(pool | {"nodesPerZone": expected.hosts}, zone=zone)) == []
    for min_nodes in (0, expected.hosts):
        whole = pool | {"autoscaling": {"minNodes": min_nodes, "maxNodes": expected.hosts}}
        assert problems_of(stack_of(whole, zone=zone)) == []
    for wrong in {0, 1, expected.hosts - 1, expected.hosts + 1, expected.hosts * 2}:
        problem = refused(pool | {"nodesPerZone": wrong}, zone)
        assert problem.path == "gke-ai:tpuPools[0].nodesPerZone"
        assert f"gang mode of size {expected.hosts}" in problem.cause
        assert str(expected.hosts) in problem.remedy
        if wrong > 0:
            problem = refused(pool | {"autoscaling": {"maxNodes": wrong}}, zone)
            assert problem.path == "gke-ai:tpuPools[0].autoscaling.maxNodes"
            assert f"gang mode of size {expected.hosts}" in problem.cause


def test_quota_of_tpu_flavors_is_that_of_their_pools_at_their_largest() -> None:
    values = stack_of(
        {"version": "v6e", "topology": "4x4", "capacity": {"mode": "flexStart"}},
        {"version": "v6e", "topology": "4x4"},
        {"version": "v6e", "topology": "2x2", "nodesPerZone": 3},
        {"version": "v6e", "topology": "2x2", "autoscaling": {"maxNodes": 5}},
    )
    flavors = [{"name": "slices", "pools": ["p0", "p1"]}, {"name": "hosts", "pools": ["p2", "p3"]}]
    quotas = [{"flavor": flavor["name"], "quota": "derive"} for flavor in flavors]
    values["queues"] = {"flavors": flavors, "clusterQueues": [{"name": "tpus", "flavors": quotas}]}
    stack = load(values, PROJECT)
    (queue,) = stack.cluster_queues
    assert [quota.texts[GOOGLE_TPU] for quota in queue.quotas] == ["32", "32"]
    assert [flavor.labels for flavor in stack.flavors] == [
        {"cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice", "cloud.google.com/gke-tpu-topology": topology}
        for topology in ("4x4", "2x2")
    ]


BASE: dict[str, Any] = {"project": PROJECT, "cluster": "c", "location": "us-east5", "name": "p"}
Build = Callable[..., Registration]


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Build:
    """Builds one pool and returns its registration."""

    def run(component: Any, version: str, topology: str, **more: Any) -> Registration:
        args = {**BASE, "version": version, "topology": topology, "zones": ["us-east5-b"], **more}
        return record(lambda: construct(component, "x", args), False, monkeypatch).one("NodePool")

    return run


def sent(pool: Registration) -> dict[str, Any]:
    """The inputs as the engine passes them to a plugin."""
    inputs: dict[str, Any] = decode(encode(pool.inputs))
    return inputs


def problems_at_google(pool: Registration, location: str) -> list[tuple[str, str]]:
    """The emulator's errors about a pool, in Google's words."""
    body = rest.node_pool(sent(pool))
    return body.problems("node_pool") + list(rules.node_pool(sent(pool), body.content, location))


def test_every_slice_builds_a_pool_of_its_machine_and_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(component: Any, name: str, candidate: Slice, **more: Any) -> None:
        zone, version = ZONE[candidate.version], VERSIONS[candidate.version]
        policy = {"workload_policy": "policy"} if version.workload_policy and candidate.multi_host else {}
        shape = {"version": candidate.version, "topology": candidate.topology, "machine_type": candidate.machine_type}
        place = {"location": zone.rpartition("-")[0], "zones": [zone], "name": name}
        construct(component, name, {**BASE, **place, **shape, **policy, **more})

    def program() -> None:
        for index, candidate in enumerate(EVERY):
            build(TpuNodePool, f"fixed-{index}", candidate, **({} if candidate.multi_host else {"nodes_per_zone": 3}))
            if VERSIONS[candidate.version].flex_start_zones:
                build(FlexStartTpuPool, f"flex-{index}", candidate)

    pools = {pool.object_name: pool for pool in record(program, False, monkeypatch).all("NodePool")}
    for index, candidate in enumerate(EVERY):
        fixed, flexible = pools[f"fixed-{index}"], pools.get(f"flex-{index}")
        assert fixed.inputs["nodeConfig"]["machineType"] == candidate.machine_type
        assert fixed.inputs["nodeCount"] == (candidate.hosts if candidate.multi_host else 3)
        topology = candidate.topology if candidate.multi_host else None
        assert fixed.inputs.get("placementPolicy", {}).get("tpuTopology") == topology
        assert (flexible is not None) == bool(VERSIONS[candidate.version].flex_start_zones)
        if flexible:
            scaling = {"minNodeCount": 0, "maxNodeCount": candidate.hosts, "locationPolicy": "ANY"}
            assert flexible.inputs["autoscaling"] == scaling
        for pool in filter(None, (fixed, flexible)):
            assert problems_at_google(pool, ZONE[candidate.version].rpartition("-")[0]) == [], candidate


@pytest.mark.parametrize(("version", "topology"), [("tpu7x", "2x2x2"), ("v6e", "4x4")])
def test_slice_with_a_workload_policy_is_placed_by_it_without_a_type(version: str, topology: str, build: Build) -> None:
    pool = build(TpuNodePool, version, topology, workload_policy="cube")
    assert rest.node_pool(sent(pool)).content["placementPolicy"] == {"policyName": "cube", "tpuTopology": topology}


@pytest.mark.parametrize(
    ("component", "capacity", "message"),
    [
        (TpuNodePool, {"mode": "queuedFlexStart"}, "Use a FlexStartTpuPool"),
        (FlexStartTpuPool, {"mode": "spot"}, "Use a TpuNodePool"),
        (FlexStartTpuPool, {"mode": "flexStart", "max_run_duration_seconds": 1}, r"capacity\.max_run_duration_seconds"),
    ],
)
def test_each_component_refuses_the_others_capacity(component: Any, capacity: Any, message: str, build: Build) -> None:
    with pytest.raises(Refused, match=message):
        build(component, "v6e", "4x4", capacity=capacity)


STACK = stack_of(
    {"version": "v6e", "topology": "2x2", "name": "single", "capacity": {"mode": "flexStart"}},
    {"version": "v6e", "topology": "4x4", "name": "multi", "capacity": {"mode": "queuedFlexStart"}},
    {"version": "v6e", "topology": "4x4", "name": "spot", "capacity": {"mode": "spot"}, "protect": True},
)
GPUS = {"name": "l4", "machineType": "g2-standard-8", "zones": ["us-east5-a"], "nodesPerZone": 1}


def program(values: dict[str, Any], preview: bool = False) -> Record:
    return shared_record({f"gke-ai:{key}": value for key, value in values.items()}, preview)


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "up"])
def test_program_builds_each_pool_by_its_component(preview: bool) -> None:
    built = program(STACK | {"gpuPools": [GPUS]}, preview)
    of = {pool.object_name: built.resources[pool.parent].type for pool in built.all("NodePool")}
    assert of == {
        "default-pool": "gke-ai:index:GkeCluster",
        "l4": "gke-ai:index:GpuNodePool",
        "single": "gke-ai:index:FlexStartTpuPool",
        "multi": "gke-ai:index:FlexStartTpuPool",
        "spot": "gke-ai:index:TpuNodePool",
    }
    assert built.one("NodePool", "spot").protected
    for name in ("single", "multi", "spot"):
        pool = built.one("NodePool", name)
        assert "Cluster llm-cluster" in built.waits_for(pool)
        assert "NodePool default-pool" not in built.waits_for(pool)
        assert problems_at_google(pool, "us-east5") == []


def test_pool_without_zones_is_where_the_system_pool_is() -> None:
    values = stack_of({"version": "v6e", "topology": "4x4", "zones": []})
    values["cluster"]["systemPool"] = {"zones": ["us-east5-c"]}
    assert program(values).one("NodePool", "p0").inputs["nodeLocations"] == ["us-east5-c"]


ONE_HOUR = {"mode": "flexStart", "max_run_duration_seconds": 3600}
WEST = {"machine_type": "ct5lp-hightpu-4t", "location": "us-west4", "zones": ["us-west4-a"]}


@pytest.mark.parametrize(
    ("golden", "component", "version", "topology", "more"),
    [
        ("flex_start_single_host", FlexStartTpuPool, "v6e", "2x2", {}),
        ("flex_start_multi_host", FlexStartTpuPool, "v6e", "4x4", {"capacity": ONE_HOUR}),
        ("fixed_multi_host", TpuNodePool, "v5e", "2x4", WEST),
    ],
)
def test_body_is_that_of_googles_reference(
    golden: str, component: Any, version: str, topology: str, more: Any, build: Build
) -> None:
    expected = json.loads((ROOT / f"tests/data/golden/rest_node_pool_tpu_{golden}.json").read_text())
    assert expected["reference"].startswith("https://cloud.google.com/")
    body = rest.node_pool(sent(build(component, version, topology, private_nodes=False, **more)))
    assert body.problems("node_pool") == []
    # The scopes and the label are those of all pools of this program.
    assert body.content["config"].pop("oauthScopes") == ["https://www.googleapis.com/auth/cloud-platform"]
    assert body.content["config"].pop("labels") == {POOL: "p"}
    assert body.content == expected["body"]


OWN = {"name": "c", "workloadIdentityConfig": {"workloadPool": f"{PROJECT}.svc.id.goog"}}
FACTS = {"zones": ["us-east5-a", "us-east5-b", "us-east5-c"], "location": "us-east5"}
CLUSTER = Stored("clusters/c", "Cluster", PROJECT, OWN, FACTS, RUNNING)
TWO_ZONES = {"zones": ["us-east5-a", "us-east5-b"]}


@pytest.mark.parametrize(
    ("component", "topology", "more", "sizes", "capacity"),
    [
        (TpuNodePool, "4x4", {}, (4, 4), "onDemand"),
        (TpuNodePool, "2x2", {"nodes_per_zone": 2, **TWO_ZONES}, (4, 4), "onDemand"),
        (TpuNodePool, "4x4", {"autoscaling": {"min_nodes": 4, "max_nodes": 4}}, (4, 4), "onDemand"),
        (TpuNodePool, "2x2", {"autoscaling": {"max_nodes": 3}, **TWO_ZONES}, (0, 3), "onDemand"),
        (FlexStartTpuPool, "2x2", {}, (0, 1), "flexStart"),
        (FlexStartTpuPool, "4x4", {"capacity": {"mode": "queuedFlexStart"}}, (0, 4), "queuedFlexStart"),
    ],
)
def test_emulator_creates_the_nodes_of_the_slice(
    component: Any, topology: str, more: Any, sizes: tuple[int, int], capacity: str, build: Build
) -> None:
    expected = slice_of("v6e", topology)
    pool = pool_record(CLUSTER, sent(build(component, "v6e", topology, **more)))
    assert (pool.floor, pool.ceiling) == sizes
    assert pool.autoscaled == ("autoscaling" in more or component is FlexStartTpuPool)
    assert (pool.machine_type, pool.capacity, pool.workload_identity) == (expected.machine_type, capacity, True)
    node = pool.shape("us-east5-b")
    assert (node.topology, node.gpu) == (topology, None)
    assert node_taints(node)[0] == TPU_TAINT
