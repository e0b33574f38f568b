"""Nodes of a pool in Kubernetes: their labels, taints, capacity and allocatable.

The program derives node selectors and quotas from them, and the emulator its simulated nodes. Sources:
- labels and taints: https://cloud.google.com/kubernetes-engine/docs/concepts/gpus,
  https://cloud.google.com/kubernetes-engine/docs/concepts/tpus,
  https://cloud.google.com/kubernetes-engine/docs/concepts/about-custom-compute-classes,
  https://cloud.google.com/kubernetes-engine/docs/how-to/creating-managing-labels#automatically-applied-labels
- what GKE reserves: https://cloud.google.com/kubernetes-engine/docs/concepts/plan-node-sizes
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache

from gke_ai.catalog.fabric.gpudirect import GPUDIRECT_LABEL
from gke_ai.catalog.machines.capacity import MODES, Taint
from gke_ai.catalog.machines.metal import HUGE_PAGES_BYTES, HUGE_PAGES_RESOURCE
from gke_ai.catalog.machines.tpus import GOOGLE_TPU
from gke_ai.catalog.machines.types import ATTACHABLE, MACHINES, Machine, machine, machines_with, size
from gke_ai.catalog.machines.zones import region_of
from gke_ai.catalog.nodes.daemonsets import agent_requests
from gke_ai.catalog.quantities import GI, KI, MI, readable, round_down

GKE_NODEPOOL = "cloud.google.com/gke-nodepool"
# A label of this program on the nodes of each pool. The name of a pool in Google Cloud can change with a replacement.
POOL = "gke-ai/pool"
# An annotation of this program, on the ConfigMap that records a training job: the nodes of the job.
RECORDED_NODES = "gke-ai/nodes"
# An annotation of this program, on the ConfigMap with which the runs of a namespace are deleted.
RUN_OWNER = "gke-ai/owner"
# What its name begins with.
RUNS_OF = "runs-of-"
GKE_ACCELERATOR = "cloud.google.com/gke-accelerator"
GKE_GPU_DRIVER_VERSION = "cloud.google.com/gke-gpu-driver-version"
GKE_TPU_ACCELERATOR = "cloud.google.com/gke-tpu-accelerator"
GKE_TPU_TOPOLOGY = "cloud.google.com/gke-tpu-topology"
GKE_ACCELERATOR_COUNT = "cloud.google.com/gke-accelerator-count"
COMPUTE_CLASS = "cloud.google.com/compute-class"
GKE_PROVISIONING = "cloud.google.com/gke-provisioning"
RESERVATION_NAME = "cloud.google.com/reservation-name"
GKE_MAX_PODS_PER_NODE = "cloud.google.com/gke-max-pods-per-node"
GKE_OS_DISTRIBUTION = "cloud.google.com/gke-os-distribution"
GKE_METADATA_SERVER = "iam.gke.io/gke-metadata-server-enabled"
MACHINE_FAMILY = "cloud.google.com/machine-family"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
ARCH = "kubernetes.io/arch"
OS = "kubernetes.io/os"
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"

NVIDIA_GPU = "nvidia.com/gpu"
ACCELERATORS = (NVIDIA_GPU, GOOGLE_TPU)
GPU_TAINT = Taint(NVIDIA_GPU, "present", "NoSchedule")
TPU_TAINT = Taint(GOOGLE_TPU, "present", "NoSchedule")
# https://cloud.google.com/kubernetes-engine/docs/how-to/prepare-arm-workloads-for-deployment
ARM_TAINT = Taint(ARCH, "arm64", "NoSchedule")

# Default of a Standard cluster: https://cloud.google.com/kubernetes-engine/docs/how-to/flexible-pod-cidr
MAX_PODS = 110

# What GKE reserves of a node, as GKE's autoscaler computes it for Container-Optimized OS of 1.36.0-gke.3712000, which
# reserves the most since 1.32: reserved.go and templates.go of pkg/cloudprovider/gke, and config/os-reserved.yaml, of
# https://github.com/GoogleCloudPlatform/cluster-autoscaler at 7d25050. Three nodes that others measured have exactly
# these reservations: https://github.com/2i2c-org/infrastructure
# (deployer/commands/generate/resource_allocation/node-capacity-info.json).
# (above, share that GKE reserves), in cores and in MiB of installed memory. The multiples of 1,000 MiB are GKE's.
_CPU_RESERVED = ((0, Fraction(6, 100)), (1, Fraction(1, 100)), (2, Fraction(5, 1000)), (4, Fraction(25, 10000)))
_MEMORY_RESERVED = (
    (0, Fraction(25, 100)),
    (4000, Fraction(20, 100)),
    (8000, Fraction(10, 100)),
    (16000, Fraction(6, 100)),
    (128000, Fraction(2, 100)),
)
_EVICTION_MEMORY = 100 * MI
# Bytes that the operating system takes of the installed memory, and of a boot disk: points of (GiB, bytes), by
# architecture. Between them, and above the last, the amount is linear.
_KERNEL: Mapping[str, tuple[tuple[float, int], ...]] = {
    "amd64": (
        (0, 0),
        (1, 76906496),
        (2, 81379328),
        (3, 181510144),
        (4, 185987072),
        (8, 259383296),
        (16, 406728704),
        (32, 701440000),
        (64, 1290866688),
        (128, 2369056768),
        (256, 4427124736),
        (1922, 32385806336),
    ),
    "arm64": ((0, 0), (4, 186417152), (16, 432238592), (64, 1415553024), (192, 3939426304)),
}
_BOOT_DISK: Mapping[str, tuple[tuple[float, int], ...]] = {
    "amd64": ((0, 0), (15, 4731506688), (100, 6170308608), (1000, 21279993856), (10000, 172290314240)),
    "arm64": ((0, 0), (15, 4798615552), (100, 6237417472), (1000, 21347102720), (10000, 172357423104)),
}
# The kubelet computes 10 % as a 32-bit float: k8s.io/kubernetes, pkg/kubelet/eviction/helpers.go.
_EVICTION_DISK = Fraction(13421773, 2**27)
# KiB of the file system by number of Local SSDs, from
# https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/cloudprovider/gce/gce_reserved.go, where more
# than 24 count as 24.
_LOCAL_SSD_FILE_SYSTEM = {1: 7289472, 2: 13725224, 4: 26332924, 8: 51556096, 16: 52837800, 32: 78686620}
# GiB that GKE reserves of one and of two Local SSDs; 100 GiB of more.
# https://cloud.google.com/kubernetes-engine/docs/concepts/plan-node-sizes#eph_storage
_LOCAL_SSD_RESERVED = {1: 50, 2: 75}


@dataclass(frozen=True)
class NodeShape:
    """Everything that decides the labels, taints and size of a pool's nodes.

    `disk_gb` is the size of the boot disk in GiB. `topology` is that of the node's TPU slice. `compute_class` is the
    class that GKE created the pool for.
    """

    pool: str
    machine_type: str
    gpu: str | None = None
    gpus: int = 0
    driver: str = "default"
    capacity: str = "onDemand"
    zone: str = ""
    disk_gb: int = 100
    labels: Mapping[str, str] = field(default_factory=dict)
    workload_identity: bool = True
    topology: str | None = None
    compute_class: str | None = None


def node_labels(shape: NodeShape) -> dict[str, str]:
    """Returns the labels that GKE sets on such a node, including those of the user, without the hostname."""
    machine_type = machine(shape.machine_type)
    mode = MODES[shape.capacity]
    labels = {
        **shape.labels,
        ARCH: machine_type.arch,
        OS: "linux",
        INSTANCE_TYPE: machine_type.name,
        REGION: region_of(shape.zone),
        ZONE: shape.zone,
        GKE_NODEPOOL: shape.pool,
        MACHINE_FAMILY: machine_type.family,
        GKE_OS_DISTRIBUTION: "cos",
        GKE_MAX_PODS_PER_NODE: str(MAX_PODS),
        GKE_PROVISIONING: mode.provisioning,
        **mode.labels,
    }
    if shape.gpu is not None:
        labels |= {GKE_ACCELERATOR: shape.gpu, GKE_GPU_DRIVER_VERSION: shape.driver}
    if machine_type.tpu is not None and shape.topology is not None:
        labels |= {
            GKE_TPU_ACCELERATOR: machine_type.tpu,
            GKE_TPU_TOPOLOGY: shape.topology,
            GKE_ACCELERATOR_COUNT: str(machine_type.chips),
        }
    if shape.compute_class is not None:
        labels[COMPUTE_CLASS] = shape.compute_class
    if shape.workload_identity:
        labels[GKE_METADATA_SERVER] = "true"
    return labels


def node_taints(shape: NodeShape) -> list[Taint]:
    """Returns the taints of such a node, in a cluster that also has a pool without GPUs."""
    taints = list(MODES[shape.capacity].taints)
    if shape.gpu is not None:
        taints.insert(0, GPU_TAINT)
    if machine(shape.machine_type).tpu is not None:
        taints.insert(0, TPU_TAINT)
    if shape.compute_class is not None:
        taints.append(Taint(COMPUTE_CLASS, shape.compute_class, "NoSchedule"))
    if machine(shape.machine_type).arch == "arm64":
        taints.append(ARM_TAINT)
    return taints


def capacity_of(shape: NodeShape) -> dict[str, Fraction]:
    """Returns the capacity of such a node, by resource."""
    return _capacity(shape.machine_type, shape.gpu, shape.gpus, shape.disk_gb)


def allocatable(shape: NodeShape) -> dict[str, Fraction]:
    """Returns the allocatable resources of such a node: its capacity less what GKE reserves.

    The formulas are those of GKE before 1.37; later versions may reserve less. Pods of GKE's DaemonSets use a part of
    the result: `gke_ai.catalog.nodes.daemonsets`. Ephemeral storage is that of the Local SSDs if the machine has them,
    else that of the boot disk.
    """
    return dict(_allocatable(shape.machine_type, shape.gpu, shape.gpus, shape.disk_gb))


def free(shape: NodeShape) -> dict[str, Fraction]:
    """Returns what such a node has for pods of workloads: its allocatable less the requests of DaemonSets."""
    return dict(_free(shape.machine_type, shape.gpu, shape.gpus, shape.disk_gb, GPUDIRECT_LABEL in shape.labels))


@cache
def _free(machine_type: str, gpu: str | None, gpus: int, disk_gb: int, gpudirect: bool) -> dict[str, Fraction]:
    amounts = dict(_allocatable(machine_type, gpu, gpus, disk_gb))
    amounts.pop(HUGE_PAGES_RESOURCE, None)  # the agent of bare-metal nodes takes them
    spec = machine(machine_type)
    agents = agent_requests(gpu=gpu is not None, tpu=spec.tpu is not None, gpudirect=gpudirect, metal=spec.bare_metal)
    return _quantities(amounts | {resource: amounts[resource] - amount for resource, amount in agents.items()})


@cache
def _allocatable(machine_type: str, gpu: str | None, gpus: int, disk_gb: int) -> dict[str, Fraction]:
    have = _capacity(machine_type, gpu, gpus, disk_gb)
    disk, spec = have["ephemeral-storage"], machine(machine_type)
    installed = Fraction(spec.memory_gb) * (GI // MI)
    return _quantities(
        {
            **have,
            "cpu": have["cpu"] - _reserved(have["cpu"], _CPU_RESERVED),
            "memory": have["memory"]
            - _reserved(installed, _MEMORY_RESERVED) // 1 * MI
            - _EVICTION_MEMORY
            - have.get(HUGE_PAGES_RESOURCE, 0),
            "ephemeral-storage": disk - int(disk * _EVICTION_DISK) - _disk_reserved(spec, disk_gb) * GI,
        }
    )


def _disk_reserved(spec: Machine, disk_gb: int) -> int:
    """Returns the GiB of ephemeral storage that GKE reserves, by the Local SSDs, else by the size of the boot disk."""
    if spec.local_ssds:
        return _LOCAL_SSD_RESERVED.get(spec.local_ssds, 100)
    return min(disk_gb // 2, 6 + disk_gb * 35 // 100, 100)


def smallest_machine(gpu: str | None, gpus: int, cpu: Fraction, memory: Fraction) -> Machine:
    """Returns the smallest machine for one pod with `gpus` GPUs of type `gpu`, `cpu` cores and `memory` bytes.

    Raises LookupError, with a message for the user, if no machine is large enough.
    """
    return _first_with_room(_candidates(gpu), gpu, gpus, cpu, memory)


class NotOffered(LookupError):
    """Google offers the machine of a pod only in other capacity modes."""

    def __init__(self, machine_type: Machine, mode: str) -> None:
        super().__init__(f"Google does not offer {machine_type.name} with capacity mode {mode}")
        self.machine_type = machine_type


def autopilot_machine(gpu: str | None, gpus: int, cpu: Fraction, memory: Fraction, mode: str = "onDemand") -> Machine:
    """Returns the machine of one pod on Autopilot. The pod gets all GPUs of the node, and no other GPU pod runs there.

    Google does not document the machine that it chooses; this is the cheapest one that is large enough. Raises
    LookupError, with a message for the user, if no machine has exactly these GPUs, or if CPU or memory exceed
    Autopilot's maximum, and NotOffered if Google lacks the capacity mode. If the maximum is unknown, what is free on
    the node counts, which is unproven: for H100, H100 Mega, H200, B200 and RTX PRO 6000, and by count for all but one
    A100. No request is below Autopilot's minimum: see `AUTOPILOT_MAXIMUM`.
    https://cloud.google.com/kubernetes-engine/docs/how-to/autopilot-gpus (one pod per node; supported GPU quantities)
    """
    candidates = _candidates(gpu)
    counts = sorted({candidate.gpus for candidate in candidates})
    if gpu is not None and candidates and gpus not in counts and gpus < counts[-1]:
        raise LookupError(
            f"on Autopilot a pod gets all GPUs of its node, and no node has {gpus} {gpu}, "
            f"but {', '.join(map(str, counts))}"
        )
    exact = [candidate for candidate in candidates if gpu is None or candidate.gpus == gpus]
    machine_type = _first_with_room(exact or candidates, gpu, gpus, cpu, memory)
    highest = AUTOPILOT_MAXIMUM.get((gpu, gpus)) or AUTOPILOT_MAXIMUM.get((gpu, ANY))
    if highest is not None and (cpu > highest[0] or memory > highest[1] * GI):
        raise LookupError(
            f"Autopilot's maximum for a pod with {gpus} {gpu} is {highest[0]} CPU and "
            f"{readable('memory', Fraction(highest[1] * GI))} of memory; "
            f"this one requests {readable('cpu', cpu)} CPU and {readable('memory', memory)}"
        )
    if mode not in machine_type.modes:
        raise NotOffered(machine_type, mode)
    return machine_type


# Autopilot's request of ephemeral storage, in bytes, for a container that states none.
# https://cloud.google.com/kubernetes-engine/docs/concepts/autopilot-resource-requests
AUTOPILOT_STORAGE = Fraction(GI)
# Any number of GPUs of a type.
ANY = None
# Maximum cores and GiB that a pod can request on Autopilot, by type and number of GPUs. Google's table, at
# https://cloud.google.com/kubernetes-engine/docs/concepts/autopilot-resource-requests#min-max-requests, was not read.
# - One A100: a refusal by Autopilot, https://github.com/argoproj/argo-workflows/issues/13073.
# - Any number: the highest of a type, https://github.com/GoogleCloudPlatform/autopilot-cost-calculator (config.ini).
#   Its 94 CPU and 1264 GiB for H100 are left out: they are those of A100, less than half of the machine.
# That file has a minimum of one thousandth of a core and one MiB in the Accelerator compute class, which all pods with
# GPUs have since GKE 1.29.4 (https://cloud.google.com/kubernetes-engine/docs/how-to/autopilot-gpus). No container
# requests less. Before, the minimum was 0.5 CPU and 0.5 GiB for T4, 2 and 7 for L4, 9 and 60 for A100, and Autopilot
# raised lower requests to it.
AUTOPILOT_MAXIMUM: Mapping[tuple[str | None, int | None], tuple[float, float]] = {
    ("nvidia-tesla-t4", ANY): (94, 587.5),
    ("nvidia-l4", ANY): (95, 363),
    ("nvidia-tesla-a100", 1): (11, 74),
    ("nvidia-tesla-a100", ANY): (94, 1264),
    ("nvidia-a100-80gb", ANY): (94, 1264),
}


def _candidates(gpu: str | None) -> list[Machine]:
    if gpu is not None:
        return machines_with(gpu)
    # Google does not document the machines of pods without accelerators either; these have the usual shape.
    return sorted((machine for machine in MACHINES.values() if machine.name.startswith("e2-standard-")), key=size)


def _first_with_room(
    machine_types: list[Machine], gpu: str | None, gpus: int, cpu: Fraction, memory: Fraction
) -> Machine:
    for machine_type in machine_types:
        left = free(bare_shape(machine_type))
        if machine_type.gpus >= gpus and left["cpu"] >= cpu and left["memory"] >= memory:
            return machine_type
    wanted = f"{gpus} {gpu}, " if gpu is not None else ""
    wanted += f"{readable('cpu', cpu)} CPU and {readable('memory', memory)} of memory"
    if not machine_types:
        raise LookupError(f"no machine has {gpu}")
    raise LookupError(
        f"no machine has {wanted}; the largest, {machine_types[-1].name}, has {_size_of(machine_types[-1])}"
    )


def _size_of(machine_type: Machine) -> str:
    left = {resource: readable(resource, amount) for resource, amount in free(bare_shape(machine_type)).items()}
    gpus = f"{machine_type.gpus} {machine_type.gpu}, " if machine_type.gpu else ""
    return f"{gpus}{left['cpu']} CPU and {left['memory']} of memory"


def bare_shape(machine_type: Machine) -> NodeShape:
    """Returns the shape of a node of this machine type in no particular pool."""
    return NodeShape("", machine_type.name, machine_type.gpu, machine_type.gpus)


def _capacity(machine_type: str, gpu: str | None, gpus: int, disk_gb: int) -> dict[str, Fraction]:
    spec = machine(machine_type)
    if (gpu, gpus) != (spec.gpu, spec.gpus) and gpus not in ATTACHABLE.get(spec.name, {}).get(gpu or "", ()):
        raise ValueError(f"{spec.name} cannot have {gpus} {gpu}")
    memory = Fraction(spec.memory_gb) * GI - _interpolated(_KERNEL[spec.arch], Fraction(spec.memory_gb))
    if spec.local_ssds:
        disk = Fraction(spec.local_ssds * spec.local_ssd_gib * GI - _LOCAL_SSD_FILE_SYSTEM[spec.local_ssds] * KI)
    else:
        disk = disk_gb * GI - _interpolated(_BOOT_DISK[spec.arch], Fraction(disk_gb))
    have = {
        "cpu": Fraction(spec.vcpus),
        "memory": memory // KI * Fraction(KI),
        "ephemeral-storage": disk // KI * Fraction(KI),
        "pods": Fraction(MAX_PODS),
    }
    if gpus:
        have[NVIDIA_GPU] = Fraction(gpus)
    if spec.bare_metal:
        have[HUGE_PAGES_RESOURCE] = Fraction(HUGE_PAGES_BYTES)
    if spec.chips:
        have[GOOGLE_TPU] = Fraction(spec.chips)
    return have


def _interpolated(points: tuple[tuple[float, int], ...], at: Fraction) -> Fraction:
    """Returns the amount on the line between the two points around `at`, or through the last two."""
    upper = next((index for index, (x, _) in enumerate(points) if x >= at), len(points) - 1) or 1
    (x1, y1), (x2, y2) = points[upper - 1 : upper + 1]
    return y1 + (y2 - y1) * (at - Fraction(x1)) / (Fraction(x2) - Fraction(x1))


def _reserved(amount: Fraction, steps: tuple[tuple[int, Fraction], ...]) -> Fraction:
    ends = [*(Fraction(above) for above, _ in steps[1:]), amount]
    return sum(
        (max(min(amount, end) - above, Fraction(0)) * share for (above, share), end in zip(steps, ends, strict=True)),
        Fraction(0),
    )


def _quantities(amounts: Mapping[str, Fraction]) -> dict[str, Fraction]:
    """The amounts as Kubernetes's objects can state them."""
    return {resource: round_down(resource, amount) for resource, amount in amounts.items()}


# Boot disks of nodes that GKE creates by itself: https://github.com/GoogleCloudPlatform/cluster-autoscaler, at
# 7d250507339b. The sizes are in pkg/cloudprovider/gke/machinetypes/disks.go, and what a pod needs is in
# pkg/estimator/disk_size.go.
DEFAULT_GB, MAX_GB = 100, 64 * 1024


def autopilot_disk(shape: NodeShape, storage: Fraction) -> int:
    """Returns the GB of the boot disk of a node that Autopilot creates for a pod, by its ephemeral storage in bytes.

    The smallest disk with room for it, plus a margin, but the default at least. Local SSDs replace the boot disk's
    storage. So no request is too large for a boot disk: Google's Gemma 2 27B requests 80Gi on L4
    (https://github.com/GoogleCloudPlatform/kubernetes-engine-samples, ai-ml/llm-serving-gemma/vllm/vllm-2-27b-it.yaml).
    """
    if machine(shape.machine_type).local_ssds:
        return DEFAULT_GB

    def left(disk_gb: int) -> Fraction:
        return free(replace(shape, disk_gb=disk_gb))["ephemeral-storage"]

    size = DEFAULT_GB + bisect_left(range(DEFAULT_GB, MAX_GB), storage, key=left)
    return size if size == DEFAULT_GB else size + min(size // 20, 100)
