"""Machine types of Compute Engine for node pools: vCPUs, memory (GiB), GPUs and TPU chips.

Sources, by family:
- g2, g4, a2, a3, a4, a4x: https://cloud.google.com/compute/docs/accelerator-optimized-machines
- GPU type names (`nvidia-l4`): https://cloud.google.com/compute/docs/gpus
- the other families: https://cloud.google.com/compute/docs/general-purpose-machines
- T4 on N1: https://cloud.google.com/compute/docs/gpus#t4-gpus
- TPU machines (vCPUs, GiB, chips): https://cloud.google.com/kubernetes-engine/docs/concepts/tpus
- capacity modes:
  https://cloud.google.com/compute/docs/accelerator-optimized-machines#consumption_option_availability_by_machine_type,
  https://cloud.google.com/ai-hypercomputer/docs/consumption-models
- Local SSD: https://cloud.google.com/compute/docs/disks/local-ssd#choose_number_local_ssds
- parts of a G4 GPU, machines without Local SSD, and a check of all rows (`tests/test_gke_tables.py`):
  pkg/cloudprovider/gke/machinetypes of https://github.com/GoogleCloudPlatform/cluster-autoscaler at 7d25050
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from gke_ai.catalog.capacity import MODES


@dataclass(frozen=True)
class Machine:
    """A machine type of Compute Engine.

    - `memory_gb` is in GiB, the unit of Google's tables.
    - `gpu` is the accelerator type, `tpu` the value of the node label `cloud.google.com/gke-tpu-accelerator`, and
      `chips` the number of TPU chips.
    - `modes` has the names of the capacity modes that Google offers.
    - `fabric` is the network that GPUs of several nodes need for full speed; empty if the default network suffices.
    - `faster_fabric` is the network that would be faster between nodes than the default one, on which they also work.
    - `local_ssds` is the number of Local SSD disks (375 GiB each) that always come with the machine.
    - `gpu_parts` is 8 if a pod gets an eighth of the memory of a GPU, which Kubernetes counts as one GPU.
    - `only_if_named` is whether GKE creates such nodes only for a pool or a compute class that names the machine.
    """

    name: str
    family: str
    vcpus: float
    memory_gb: float
    gpu: str | None = None
    gpus: int = 0
    tpu: str | None = None
    chips: int = 0
    arch: str = "amd64"
    modes: frozenset[str] = frozenset(MODES)
    fabric: str = ""
    faster_fabric: str = ""
    local_ssds: int = 0
    gpu_parts: int = 1
    only_if_named: bool = False


class UnknownMachine(KeyError):
    """The catalog has no machine type of this name. `nearest` has similar names."""

    def __init__(self, name: str, nearest: list[str]) -> None:
        super().__init__(name)
        self.name = name
        self.nearest = nearest

    def __str__(self) -> str:
        near = f"; nearest: {', '.join(self.nearest)}" if self.nearest else ""
        return f"{self.name} is not a machine type of the catalog{near}"


# (vCPUs, GiB, GPUs) of each machine type, by GPU type.
_GPU_MACHINES: Mapping[str, Mapping[str, tuple[float, float, int]]] = {
    "nvidia-l4": {
        "g2-standard-4": (4, 16, 1),
        "g2-standard-8": (8, 32, 1),
        "g2-standard-12": (12, 48, 1),
        "g2-standard-16": (16, 64, 1),
        "g2-standard-24": (24, 96, 2),
        "g2-standard-32": (32, 128, 1),
        "g2-standard-48": (48, 192, 4),
        "g2-standard-96": (96, 384, 8),
    },
    "nvidia-rtx-pro-6000": {
        "g4-standard-6": (6, 22, 1),
        "g4-standard-12": (12, 45, 1),
        "g4-standard-24": (24, 90, 1),
        "g4-standard-48": (48, 180, 1),
        "g4-standard-96": (96, 360, 2),
        "g4-standard-192": (192, 720, 4),
        "g4-standard-384": (384, 1440, 8),
    },
    "nvidia-tesla-a100": {
        "a2-highgpu-1g": (12, 85, 1),
        "a2-highgpu-2g": (24, 170, 2),
        "a2-highgpu-4g": (48, 340, 4),
        "a2-highgpu-8g": (96, 680, 8),
        "a2-megagpu-16g": (96, 1360, 16),
    },
    "nvidia-a100-80gb": {
        "a2-ultragpu-1g": (12, 170, 1),
        "a2-ultragpu-2g": (24, 340, 2),
        "a2-ultragpu-4g": (48, 680, 4),
        "a2-ultragpu-8g": (96, 1360, 8),
    },
    "nvidia-h100-80gb": {
        "a3-highgpu-1g": (26, 234, 1),
        "a3-highgpu-2g": (52, 468, 2),
        "a3-highgpu-4g": (104, 936, 4),
        "a3-highgpu-8g": (208, 1872, 8),
    },
    "nvidia-h100-mega-80gb": {"a3-megagpu-8g": (208, 1872, 8)},
    "nvidia-h200-141gb": {"a3-ultragpu-8g": (224, 2952, 8)},
    "nvidia-b200": {"a4-highgpu-8g": (224, 3968, 8)},
    "nvidia-gb200": {"a4x-highgpu-4g": (140, 884, 4)},
}
_WITHOUT_ON_DEMAND = frozenset(MODES) - {"onDemand"}
_SHARED_HOST = frozenset({"spot", "flexStart", "queuedFlexStart"})
# GPU machines that Google does not offer in every mode. Unproven on a live project: A3 Ultra. The AI Hypercomputer page
# lists it for reservations, Spot and flex-start; no page lists it on demand.
_MODES: Mapping[str, frozenset[str]] = {
    "a3-highgpu-1g": _SHARED_HOST,
    "a3-highgpu-2g": _SHARED_HOST,
    "a3-highgpu-4g": _SHARED_HOST,
    "a3-ultragpu-8g": _WITHOUT_ON_DEMAND,
    "a4-highgpu-8g": _WITHOUT_ON_DEMAND,
    "a4x-highgpu-4g": frozenset({"reservation"}),
}
# https://cloud.google.com/kubernetes-engine/docs/how-to/gpu-bandwidth-gpudirect-tcpx (A3 Mega),
# https://cloud.google.com/ai-hypercomputer/docs/create/gke-ai-hypercompute-custom (A3 Ultra, A4, A4X).
_FABRIC: Mapping[str, str] = {
    "a3-megagpu-8g": "GPUDirect-TCPXO",
    "a3-ultragpu-8g": "GPUDirect-RDMA",
    "a4-highgpu-8g": "GPUDirect-RDMA",
    "a4x-highgpu-4g": "GPUDirect-RDMA and an NVLink domain",
}
# https://cloud.google.com/kubernetes-engine/docs/how-to/gpu-bandwidth-gpudirect-tcpx (A3 High)
_FASTER_FABRIC: Mapping[str, str] = {"a3-highgpu-8g": "GPUDirect-TCPX"}
# https://github.com/GoogleCloudPlatform/cluster-toolkit/blob/develop/modules/compute/gke-node-pool/disk_definitions.tf
# has the large A3 machines; the others are from the Local SSD page. Each also exists without: `NAME-nolssd`.
_LOCAL_SSDS: Mapping[str, int] = {
    "a2-ultragpu-1g": 1,
    "a2-ultragpu-2g": 2,
    "a2-ultragpu-4g": 4,
    "a2-ultragpu-8g": 8,
    "a3-highgpu-1g": 2,
    "a3-highgpu-2g": 4,
    "a3-highgpu-4g": 8,
    "a3-highgpu-8g": 16,
    "a3-megagpu-8g": 16,
    "a3-ultragpu-8g": 32,
    "a4-highgpu-8g": 32,
}
# Virtual GPUs: https://cloud.google.com/compute/docs/accelerator-optimized-machines#g4-series
_GPU_PARTS: Mapping[str, int] = {"g4-standard-6": 8, "g4-standard-12": 4, "g4-standard-24": 2}
# Machines that this program refuses, because they also need RDMA networks and a workload policy of their own.
# https://github.com/GoogleCloudPlatform/cluster-toolkit/tree/develop/examples/gke-a4x
NOT_BUILT: frozenset[str] = frozenset({"a4x-highgpu-4g"})
_WITHOUT_LOCAL_SSD = "-nolssd"
# (vCPUs, GiB, chips) of each machine type, by the label of its TPU version.
_TPU_MACHINES: Mapping[str, Mapping[str, tuple[float, float, int]]] = {
    "tpu-v5-lite-podslice": {
        "ct5lp-hightpu-1t": (24, 48, 1),
        "ct5lp-hightpu-4t": (112, 192, 4),
        "ct5lp-hightpu-8t": (224, 384, 8),
    },
    "tpu-v5p-slice": {"ct5p-hightpu-4t": (208, 448, 4)},
    "tpu-v6e-slice": {
        "ct6e-standard-1t": (44, 176, 1),
        "ct6e-standard-4t": (180, 720, 4),
        "ct6e-standard-8t": (180, 1440, 8),
    },
    "tpu7x": {"tpu7x-standard-1t": (56, 240, 1), "tpu7x-standard-4t": (224, 960, 4)},
}
_N2 = (2, 4, 8, 16, 32, 48, 64, 80, 96)
_N4 = (2, 4, 8, 16, 32, 48, 64, 80)
_C3 = (4, 8, 22, 44, 88, 176)
_C4 = (2, 4, 8, 16, 24, 32, 48, 64, 96, 144, 192, 288)
_C4A = (1, 2, 4, 8, 16, 32, 48, 64, 72)
# GiB per vCPU, and vCPUs, of each series of machines without accelerators. Memory is rounded down to GiB, but for N1.
_STANDARD_MACHINES: Mapping[str, tuple[float, tuple[int, ...]]] = {
    "e2-standard": (4, (2, 4, 8, 16, 32)),
    "e2-highmem": (8, (2, 4, 8, 16)),
    "e2-highcpu": (1, (2, 4, 8, 16, 32)),
    "n1-standard": (3.75, (1, 2, 4, 8, 16, 32, 64, 96)),
    "n2-standard": (4, (*_N2, 128)),
    "n2-highmem": (8, _N2),
    "n2-highcpu": (1, _N2),
    "n2d-standard": (4, (*_N2, 128, 224)),
    "n2d-highmem": (8, _N2),
    "n2d-highcpu": (1, (*_N2, 128, 224)),
    "n4-standard": (4, _N4),
    "n4-highmem": (8, _N4),
    "n4-highcpu": (2, _N4),
    "c3-standard": (4, _C3),
    "c3-highmem": (8, _C3),
    "c3-highcpu": (2, _C3),
    "c4-standard": (3.75, _C4),
    "c4-highmem": (7.75, _C4),
    "c4-highcpu": (2, _C4),
    "c4a-standard": (4, _C4A),
    "c4a-highmem": (8, _C4A),
    "c4a-highcpu": (2, _C4A),
}
# Grace CPUs of A4X: https://cloud.google.com/compute/docs/accelerator-optimized-machines#a4x-vms. C4A: Axion.
_ARM = ("a4x", "c4a")
# GPUs that GKE can attach to a machine type without GPUs: the type and its possible counts. Up to 48 vCPUs with one or
# two T4, and up to 96 with four.
ATTACHABLE: Mapping[str, Mapping[str, tuple[int, ...]]] = MappingProxyType(
    {
        f"n1-standard-{size}": MappingProxyType({"nvidia-tesla-t4": (1, 2, 4) if size <= 48 else (4,)})
        for size in _STANDARD_MACHINES["n1-standard"][1]
    }
)


def _machines() -> Iterable[Machine]:
    for gpu, rows in _GPU_MACHINES.items():
        for name, (vcpus, memory_gb, gpus) in rows.items():
            with_gpu = Machine(
                name,
                _family(name),
                vcpus,
                memory_gb,
                gpu,
                gpus,
                arch=_arch(name),
                modes=_MODES.get(name, frozenset(MODES)),
                fabric=_FABRIC.get(name, ""),
                faster_fabric=_FASTER_FABRIC.get(name, ""),
                local_ssds=_LOCAL_SSDS.get(name, 0),
                gpu_parts=_GPU_PARTS.get(name, 1),
                only_if_named=name in _GPU_PARTS,
            )
            yield with_gpu
            if with_gpu.local_ssds:
                yield replace(with_gpu, name=f"{name}{_WITHOUT_LOCAL_SSD}", local_ssds=0, only_if_named=True)
    for tpu, rows in _TPU_MACHINES.items():
        for name, (vcpus, memory_gb, chips) in rows.items():
            yield Machine(name, _family(name), vcpus, memory_gb, tpu=tpu, chips=chips)
    for series, (memory_per_vcpu, sizes) in _STANDARD_MACHINES.items():
        for size in sizes:
            memory_gb = size * memory_per_vcpu
            whole = memory_gb if _family(series) == "n1" else int(memory_gb)
            yield Machine(f"{series}-{size}", _family(series), size, whole, arch=_arch(series))


def _family(name: str) -> str:
    return name.partition("-")[0]


def _arch(name: str) -> str:
    return "arm64" if _family(name) in _ARM else "amd64"


MACHINES: Mapping[str, Machine] = MappingProxyType({machine.name: machine for machine in _machines()})
# All GPU types of the catalog.
GPUS: tuple[str, ...] = (*_GPU_MACHINES, "nvidia-tesla-t4")


def machine(name: str) -> Machine:
    """Returns the machine type of this name. Raises UnknownMachine with similar names if there is none."""
    try:
        return MACHINES[name]
    except KeyError:
        raise UnknownMachine(name, difflib.get_close_matches(name, MACHINES, n=3)) from None


def with_gpus(base: Machine, gpu: str, gpus: int) -> Machine:
    """Returns an N1 machine with attached GPUs. Raises ValueError for GPUs that `ATTACHABLE` does not list."""
    if gpus not in ATTACHABLE.get(base.name, {}).get(gpu, ()):
        raise ValueError(f"{gpus} {gpu} cannot be attached to {base.name}")
    return replace(base, gpu=gpu, gpus=gpus)


def machines_with(gpu: str) -> list[Machine]:
    """Returns the machines that GKE chooses from for this GPU type, smallest first (GPUs, then vCPUs, then memory)."""
    built_in = [machine for machine in MACHINES.values() if machine.gpu == gpu and not machine.only_if_named]
    attached = [
        with_gpus(MACHINES[name], gpu, count) for name, counts in ATTACHABLE.items() for count in counts.get(gpu, ())
    ]
    return sorted(built_in + attached, key=size)


def size(machine: Machine) -> tuple[float, ...]:
    """Returns the sort key of a machine: GPUs, then vCPUs, then memory."""
    return (machine.gpus, machine.vcpus, machine.memory_gb)
