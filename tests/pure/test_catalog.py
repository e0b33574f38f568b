"""The catalog: figures that must agree with each other, and with those known from Google's documents."""

import re
from dataclasses import replace
from fractions import Fraction
from itertools import product

import pytest

from gke_ai.catalog import versions
from gke_ai.catalog.engines.engine import ENGINES
from gke_ai.catalog.engines.vllm import ARCHITECTURES, WITHOUT_LORA
from gke_ai.catalog.machines import zones
from gke_ai.catalog.machines.capacity import MAX_RUN_SECONDS, MIN_RUN_SECONDS, MODES, Taint
from gke_ai.catalog.machines.disks import boot_disk_type
from gke_ai.catalog.machines.types import ATTACHABLE, GPUS, MACHINES, UnknownMachine, machine, machines_with, with_gpus
from gke_ai.catalog.nodes import quota
from gke_ai.catalog.nodes.daemonsets import NODE_AGENTS, agent_requests
from gke_ai.catalog.nodes.shape import (
    GKE_ACCELERATOR,
    GKE_METADATA_SERVER,
    GPU_TAINT,
    NVIDIA_GPU,
    NodeShape,
    allocatable,
    autopilot_machine,
    capacity_of,
    free,
    node_labels,
    node_taints,
    smallest_machine,
)
from gke_ai.catalog.project.identities import pool_name, principal
from gke_ai.catalog.quantities import GI, KI, MI, format_bytes, format_cpu, format_quantity, parse_quantity

GPU_MACHINES = [machine_type for gpu in GPUS for machine_type in machines_with(gpu)]


def shape_of(machine_type: str, gpu: str | None = None, gpus: int = 0, **changes: object) -> NodeShape:
    shape = NodeShape("p", machine_type, gpu, gpus, "latest", "onDemand", "us-central1-a", 100, {}, True)
    return replace(shape, **changes)  # type: ignore[arg-type]


L4 = shape_of("g2-standard-24", "nvidia-l4", 2, disk_gb=200)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("4", 4), ("+4", 4), ("-1", -1), ("0.5", Fraction(1, 2)), (".5", Fraction(1, 2)), ("5.", 5)),
        *(("500m", Fraction(1, 2)), ("1n", Fraction(1, 10**9)), ("1u", Fraction(1, 10**6)), ("2k", 2000)),
        *(("2M", 2 * 10**6), ("2G", 2 * 10**9), ("2T", 2 * 10**12), ("2P", 2 * 10**15), ("2E", 2 * 10**18)),
        *(("1Ki", 2**10), ("1Mi", 2**20), ("1.5Gi", 3 * 2**29), ("1Ti", 2**40), ("1Pi", 2**50), ("1Ei", 2**60)),
        *(("1e3", 1000), ("1E3", 1000), ("12e-1", Fraction(6, 5)), ("1E+2", 100)),
    ],
)
def test_quantity_is_read_as_kubernetes_reads_it(text: str, value: Fraction | int) -> None:
    assert parse_quantity(text) == value


@pytest.mark.parametrize(
    "text",
    ["", " ", "4GB", "4 Gi", "4gi", "4ki", "4K", "m", ".", "1.2.3", "1e", "--1", "1ee3", "1Kim", "4Gi ", "four", "٤"],
)
def test_text_that_kubernetes_refuses_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="is not a Kubernetes quantity"):
        parse_quantity(text)


def test_amounts_survive_writing_and_reading_and_are_rounded_down() -> None:
    for base, unit in product([1, 3, 999, 1000, 1023, 1024, 123456789], [KI, MI, GI]):
        assert parse_quantity(format_bytes(Fraction(base * unit))) == base * unit
    for milli in (0, 1, 940, 1000, 1500, 23870, 224000):
        assert parse_quantity(format_cpu(Fraction(milli, 1000))) == Fraction(milli, 1000)
    assert format_cpu(Fraction(10009, 10000)) == "1"
    assert format_bytes(Fraction(2 * KI - 1)) == "1Ki"
    assert format_quantity(NVIDIA_GPU, Fraction(6)) == "6"


def test_every_machine_is_found_under_its_own_name_and_family() -> None:
    for name, machine_type in MACHINES.items():
        assert (machine_type.name, machine(name)) == (name, machine_type)
        assert name.startswith(f"{machine_type.family}-")
        assert (machine_type.gpu is None) == (machine_type.gpus == 0)


def test_unknown_machine_lists_similar_names() -> None:
    nearest = r"g2-standart-24 is not a machine type .* nearest: g2-standard-24"
    with pytest.raises(UnknownMachine, match=nearest) as caught:
        machine("g2-standart-24")
    assert isinstance(caught.value, KeyError)


def test_gpus_are_attached_only_in_possible_counts() -> None:
    with pytest.raises(ValueError, match="g2-standard-24 cannot have 3 nvidia-l4"):
        allocatable(shape_of("g2-standard-24", "nvidia-l4", 3))
    assert "n1-standard-8" in ATTACHABLE
    assert "e2-standard-8" not in ATTACHABLE
    assert with_gpus(machine("n1-standard-4"), "nvidia-tesla-t4", 2).gpus == 2
    with pytest.raises(ValueError, match="3 nvidia-tesla-t4 cannot be attached to n1-standard-4"):
        with_gpus(machine("n1-standard-4"), "nvidia-tesla-t4", 3)
    with pytest.raises(ValueError, match="cannot be attached to e2-standard-4"):
        with_gpus(machine("e2-standard-4"), "nvidia-tesla-t4", 1)


def test_boot_disk_is_one_that_the_family_boots_from() -> None:
    for name in ("g2-standard-24", "a2-highgpu-1g", "a3-highgpu-8g"):
        assert boot_disk_type(name) == "pd-balanced"
    for name in ("a3-ultragpu-8g", "a4-highgpu-8g", "g4-standard-48", "ct6e-standard-4t"):
        assert boot_disk_type(name) == "hyperdisk-balanced"


def test_g2_standard_24_gives_pods_the_known_amounts() -> None:
    free = allocatable(L4)
    assert free["cpu"] == Fraction("23.87")
    assert abs(float(free["memory"] / GI) - 86.8) < 0.05
    assert abs(float(free["ephemeral-storage"] / GI) - 97.4) < 0.05
    assert free[NVIDIA_GPU] == 2
    assert free["pods"] == 110


def test_no_node_gives_pods_more_than_it_has() -> None:
    for listed in (*GPU_MACHINES, *MACHINES.values()):
        shape = shape_of(listed.name, listed.gpu, listed.gpus)
        have, free = capacity_of(shape), allocatable(shape)
        assert have.keys() == free.keys(), listed
        for resource, amount in free.items():
            assert 0 < amount <= have[resource], listed
            if resource in ("cpu", "memory", "ephemeral-storage"):
                assert amount < have[resource], listed
        assert have.get(NVIDIA_GPU, 0) == free.get(NVIDIA_GPU, 0) == listed.gpus, listed


def test_a_disk_of_100_gb_has_the_capacity_that_nodes_of_gke_show() -> None:
    """https://cloud.google.com/kubernetes-engine/docs/concepts/plan-node-sizes"""
    shape = shape_of("e2-standard-4", disk_gb=100)
    assert capacity_of(shape)["ephemeral-storage"] == 98831908 * KI
    assert allocatable(shape)["ephemeral-storage"] == 47_060_071_478 // KI * KI


@pytest.mark.parametrize(("name", "gi"), [("a3-highgpu-8g", 5254), ("a3-highgpu-1g", 588), ("a2-ultragpu-1g", 281)])
def test_local_ssds_that_come_with_a_machine_are_its_scratch_space(name: str, gi: int) -> None:
    """The boot disk no longer counts, whatever its size."""
    gpus = machine(name).gpu, machine(name).gpus
    amounts = {allocatable(shape_of(name, *gpus, disk_gb=disk))["ephemeral-storage"] for disk in (100, 900)}
    assert [int(amount / GI) for amount in amounts] == [gi]


@pytest.mark.parametrize("machine_type", GPU_MACHINES, ids=lambda machine: f"{machine.name}-{machine.gpus}")
def test_gpu_node_carries_the_labels_and_the_taint_of_gke(machine_type: object) -> None:
    name, gpu, gpus, arch = (getattr(machine_type, key) for key in ("name", "gpu", "gpus", "arch"))
    shape = shape_of(name, gpu, gpus)
    labels = node_labels(shape)
    assert labels[GKE_ACCELERATOR] == gpu
    assert labels["cloud.google.com/gke-gpu-driver-version"] == "latest"
    assert labels["cloud.google.com/machine-family"] == name.split("-")[0]
    assert labels["node.kubernetes.io/instance-type"] == name
    assert labels["kubernetes.io/arch"] == arch
    assert GPU_TAINT in node_taints(shape)


def test_node_carries_the_labels_that_every_node_of_gke_has() -> None:
    shape = shape_of("e2-standard-4", labels={"team": "ml", "topology.kubernetes.io/zone": "nowhere"})
    assert node_labels(shape) == {
        "team": "ml",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "e2-standard-4",
        "topology.kubernetes.io/region": "us-central1",
        "topology.kubernetes.io/zone": "us-central1-a",
        "cloud.google.com/gke-nodepool": "p",
        "cloud.google.com/machine-family": "e2",
        "cloud.google.com/gke-os-distribution": "cos",
        "cloud.google.com/gke-max-pods-per-node": "110",
        "cloud.google.com/gke-provisioning": "standard",
        "iam.gke.io/gke-metadata-server-enabled": "true",
    }
    assert node_taints(shape) == []
    assert GKE_METADATA_SERVER not in node_labels(shape_of("e2-standard-4", workload_identity=False))


SPOT, FLEX_START = "cloud.google.com/gke-spot", "cloud.google.com/gke-flex-start"
QUEUED = Taint("cloud.google.com/gke-queued", "true", "NoSchedule")


@pytest.mark.parametrize(
    ("capacity", "provisioning", "label", "taints"),
    [
        ("onDemand", "standard", set(), []),
        ("reservation", "standard", set(), []),
        ("spot", "spot", {SPOT}, []),
        ("flexStart", "flex-start", {FLEX_START}, []),
        ("queuedFlexStart", "flex-start", {FLEX_START}, [QUEUED]),
    ],
)
def test_capacity_mode_shows_in_labels_and_taints(
    capacity: str, provisioning: str, label: set[str], taints: list[Taint]
) -> None:
    shape = shape_of("g2-standard-24", "nvidia-l4", 2, capacity=capacity)
    labels = node_labels(shape)
    assert labels["cloud.google.com/gke-provisioning"] == provisioning
    assert {SPOT, FLEX_START} & labels.keys() == label
    assert node_taints(shape) == [GPU_TAINT, *taints]


def test_only_flex_start_is_elastic_and_its_runs_last_ten_minutes_to_a_week() -> None:
    assert {name for name, mode in MODES.items() if mode.elastic} == {"flexStart", "queuedFlexStart"}
    assert (MIN_RUN_SECONDS, MAX_RUN_SECONDS) == (10 * 60, 7 * 24 * 3600)


@pytest.mark.parametrize(
    ("gpu", "gpus", "cpu", "memory", "name"),
    [
        ("nvidia-l4", 2, "4", "30Gi", "g2-standard-24"),
        ("nvidia-l4", 1, "1", "1Gi", "g2-standard-4"),
        ("nvidia-l4", 1, "4", "1Gi", "g2-standard-8"),  # four cores are more than a machine of four gives
        ("nvidia-tesla-t4", 2, "1", "1Gi", "n1-standard-2"),
        ("nvidia-tesla-a100", 1, "11", "74Gi", "a2-highgpu-1g"),
        (None, 0, "1", "1Gi", "e2-standard-2"),
    ],
)
def test_autopilot_takes_the_smallest_machine(gpu: str | None, gpus: int, cpu: str, memory: str, name: str) -> None:
    assert autopilot_machine(gpu, gpus, parse_quantity(cpu), parse_quantity(memory)).name == name


@pytest.mark.parametrize(
    ("gpu", "gpus", "cpu", "memory", "text"),
    [
        # A pod gets all GPUs of its node.
        ("nvidia-l4", 3, "1", "1Gi", "no node has 3 nvidia-l4, but 1, 2, 4, 8"),
        # One GPU and more than its largest machine has is no reason for a machine with two.
        ("nvidia-tesla-a100", 1, "20", "1Gi", "no machine has 1 nvidia-tesla-a100"),
        # https://github.com/argoproj/argo-workflows/issues/13073
        ("nvidia-tesla-a100", 1, "11100m", "60Gi", "a pod with 1 nvidia-tesla-a100 is 11 CPU and 74Gi of memory"),
        ("nvidia-tesla-a100", 1, "10", "74.5Gi", r"this one requests 10 CPU and 74\.5Gi"),
        ("nvidia-l4", 16, "1", "1Gi", "no machine has 16 nvidia-l4, .* the largest, g2-standard-96, has 8 nvidia-l4"),
        ("nvidia-l40", 1, "1", "1Gi", "no machine has nvidia-l40"),
    ],
)
def test_autopilot_refuses_what_no_machine_has(gpu: str, gpus: int, cpu: str, memory: str, text: str) -> None:
    with pytest.raises(LookupError, match=text):
        autopilot_machine(gpu, gpus, parse_quantity(cpu), parse_quantity(memory))
    assert smallest_machine("nvidia-l4", 3, Fraction(1), Fraction(GI)).name == "g2-standard-48", "a node may have more"


@pytest.mark.parametrize(
    ("gpu", "gpus", "cpu", "memory", "text"),
    [
        ("nvidia-a100-80gb", 8, "94", "1264Gi", ""),
        ("nvidia-a100-80gb", 8, "94500m", "1000Gi", "with 8 nvidia-a100-80gb is 94 CPU and 1264Gi"),
        ("nvidia-a100-80gb", 8, "90", "1265Gi", "with 8 nvidia-a100-80gb is 94 CPU and 1264Gi"),
        ("nvidia-tesla-a100", 16, "94500m", "1000Gi", "with 16 nvidia-tesla-a100 is 94 CPU and 1264Gi"),
        ("nvidia-h100-80gb", 8, "200", "1700Gi", ""),
    ],
)
def test_autopilots_maximum_is_below_the_largest_node(gpu: str, gpus: int, cpu: str, memory: str, text: str) -> None:
    """https://github.com/GoogleCloudPlatform/autopilot-cost-calculator/blob/main/config.ini"""
    request = (parse_quantity(cpu), parse_quantity(memory))
    assert smallest_machine(gpu, gpus, *request).gpus == gpus
    if not text:
        assert autopilot_machine(gpu, gpus, *request).gpus == gpus
        return
    with pytest.raises(LookupError, match=text):
        autopilot_machine(gpu, gpus, *request)


def test_gpus_of_a_pod_on_autopilot_are_the_quantities_that_google_supports() -> None:
    """https://cloud.google.com/kubernetes-engine/docs/how-to/autopilot-gpus, "Supported GPU quantities", 2026-04-10."""
    supported = {
        (8,): ("nvidia-b200", "nvidia-h200-141gb", "nvidia-h100-mega-80gb"),
        (1, 2, 4, 8): ("nvidia-h100-80gb", "nvidia-a100-80gb", "nvidia-rtx-pro-6000", "nvidia-l4"),
        (1, 2, 4, 8, 16): ("nvidia-tesla-a100",),
        (1, 2, 4): ("nvidia-tesla-t4",),
    }
    for quantities, gpus in supported.items():
        for gpu in gpus:
            assert sorted({machine.gpus for machine in machines_with(gpu)}) == [*quantities], gpu


def test_derived_quota_is_the_sum_over_nodes_of_different_pools() -> None:
    big = shape_of("g2-standard-48", "nvidia-l4", 4)
    total = quota.derive([(L4, 3), (big, 1)])
    assert list(total) == ["cpu", "memory", NVIDIA_GPU, "ephemeral-storage"]
    for resource in total:
        assert total[resource] == 3 * free(L4)[resource] + free(big)[resource]
    assert total[NVIDIA_GPU] == 10
    assert quota.derive([]) == {}


@pytest.mark.parametrize(
    ("name", "agents"), [("e2-standard-4", "all"), ("g2-standard-24", "gpu"), ("ct5lp-hightpu-4t", "tpu")]
)
def test_workloads_get_the_rest_of_a_node_after_gkes_agents(name: str, agents: str) -> None:
    shape = shape_of(name, machine(name).gpu, machine(name).gpus)
    there = [agent for agent in NODE_AGENTS if agent.nodes in ("all", agents)]
    left, have = free(shape), allocatable(shape)
    for resource in ("cpu", "memory"):
        taken = sum(parse_quantity(getattr(agent, resource)) for agent in there)
        assert abs(have[resource] - left[resource] - taken) < KI
    assert all(left[resource] == have[resource] for resource in have.keys() - {"cpu", "memory"})


def test_agents_of_a_gpu_node_take_under_a_core_and_two_gib() -> None:
    requests = agent_requests(gpu=True, tpu=False)
    assert (1 / 2 < requests["cpu"] < 1, GI < requests["memory"] < 2 * GI) == (True, True)


def test_zones_are_of_their_region_and_a_cluster_spreads_over_three_or_stays_in_its_zone() -> None:
    for region, names in zones.ZONES.items():
        assert not zones.is_zone(region)
        assert len(names) >= 3
        assert all(zones.is_zone(zone) and zone.startswith(f"{region}-") for zone in names), region
    assert zones.ZONES["us-central1"][-1] == "us-central1-f"
    assert "us-east1-a" not in zones.ZONES["us-east1"]
    assert "europe-west1-a" not in zones.ZONES["europe-west1"]
    assert zones.node_zones("us-central1") == ("us-central1-a", "us-central1-b", "us-central1-c")
    assert zones.node_zones("us-east1-b") == ("us-east1-b",)


def test_principal_has_the_number_in_the_path_and_the_id_in_the_pool() -> None:
    assert pool_name("my-project") == "my-project.svc.id.goog"
    assert principal("123456789012", "my-project", "llm", "default") == (
        "principal://iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/"
        "my-project.svc.id.goog/subject/ns/llm/sa/default"
    )


def test_images_are_pinned() -> None:
    for image in (ENGINES["tgi"].image, versions.FINE_TUNE_IMAGE, f"{versions.KUEUE_IMAGE}:v{versions.KUEUE_VERSION}"):
        assert image.rpartition("/")[2].partition(":")[2] not in ("", "latest")
    assert re.fullmatch(r"vllm/vllm-openai:v[0-9.]+(-cu[0-9]+)?@sha256:[0-9a-f]{64}", ENGINES["vllm"].image)


def test_architectures_without_lora_are_those_of_the_pinned_release() -> None:
    assert WITHOUT_LORA < ARCHITECTURES
    assert "GemmaForCausalLM" not in WITHOUT_LORA
