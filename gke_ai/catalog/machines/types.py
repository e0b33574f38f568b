"""Machine types of Compute Engine for node pools: vCPUs, memory (GiB), GPUs and TPU chips. `machines.yaml` lists them.

Sources, by family:
- g2, g4, a2, a3, a4, a4x, a4x-max: https://cloud.google.com/compute/docs/accelerator-optimized-machines
- GPU type names (`nvidia-l4`): https://cloud.google.com/compute/docs/gpus
- the other families: https://cloud.google.com/compute/docs/general-purpose-machines
- T4 on N1: https://cloud.google.com/compute/docs/gpus#t4-gpus
- TPU machines (vCPUs, GiB, chips): https://cloud.google.com/kubernetes-engine/docs/concepts/tpus
- capacity modes:
  https://cloud.google.com/compute/docs/accelerator-optimized-machines#consumption_option_availability_by_machine_type,
  https://cloud.google.com/ai-hypercomputer/docs/consumption-models
- Local SSD: https://cloud.google.com/compute/docs/disks/local-ssd#choose_number_local_ssds
- parts of a G4 GPU, machines without Local SSD, and a check of all rows (`tests/pure/test_gke_tables.py`):
  pkg/cloudprovider/gke/machinetypes of https://github.com/GoogleCloudPlatform/cluster-autoscaler at 7d25050
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from gke_ai.catalog.machines.capacity import MODES
from gke_ai.catalog.tables import table


@dataclass(frozen=True)
class Machine:
    """A machine type of Compute Engine.

    - `memory_gb` is in GiB, the unit of Google's tables.
    - `gpu` is the accelerator type, `tpu` the value of the node label `cloud.google.com/gke-tpu-accelerator`, and
      `chips` the number of TPU chips.
    - `modes` has the names of the capacity modes that Google offers.
    - `fabric` is the network that GPUs of several nodes need for full speed; empty if the default network suffices.
    - `nics` is the number of NICs for the fabric, if it is not one for each GPU.
    - `bare_metal` is whether the node is the machine itself: `gke_ai.catalog.machines.metal`.
    - `local_ssds` is the number of Local SSD disks that always come with the machine, each of `local_ssd_gib`.
    - `gpu_parts` is 8 if a pod gets an eighth of the memory of a GPU, which Kubernetes counts as one GPU.
    - `only_if_named` is whether GKE creates such nodes only for a pool or a compute class that names the machine.
    - `has_topology` is whether GKE can label its nodes with `gke_ai.catalog.fabric.topology.LEVELS`.
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
    nics: int = 0
    bare_metal: bool = False
    local_ssds: int = 0
    local_ssd_gib: int = 375
    gpu_parts: int = 1
    only_if_named: bool = False
    has_topology: bool = False


class UnknownMachine(KeyError):
    """The catalog has no machine type of this name. `nearest` has similar names."""

    def __init__(self, name: str, nearest: list[str]) -> None:
        super().__init__(name)
        self.name = name
        self.nearest = nearest

    def __str__(self) -> str:
        near = f"; nearest: {', '.join(self.nearest)}" if self.nearest else ""
        return f"{self.name} is not a machine type of the catalog{near}"


_WITHOUT_LOCAL_SSD = "-nolssd"
_TABLE = table("machines/machines.yaml")
# Grace CPUs of A4X and A4X Max: https://cloud.google.com/compute/docs/accelerator-optimized-machines. C4A: Axion.
_ARM = ("a4x", "c4a")
# GPUs that GKE can attach to a machine type without GPUs: the type and its possible counts. Up to 48 vCPUs with one or
# two T4, and up to 96 with four.
ATTACHABLE: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    f"n1-standard-{size}": {"nvidia-tesla-t4": (1, 2, 4) if size <= 48 else (4,)}
    for size in _TABLE["series"]["n1-standard"]["vcpus"]
}


def _machines() -> Iterable[Machine]:
    for gpu, rows in _TABLE["gpus"].items():
        for name, row in rows.items():
            modes = frozenset(row.pop("modes", MODES))
            with_gpu = Machine(name, _family(name), gpu=gpu, arch=_arch(name), modes=modes, **row)
            yield replace(with_gpu, only_if_named=with_gpu.gpu_parts > 1)
            # GKE's autoscaler knows no bare-metal machine without Local SSDs.
            if with_gpu.local_ssds and not with_gpu.bare_metal:
                yield replace(with_gpu, name=f"{name}{_WITHOUT_LOCAL_SSD}", local_ssds=0, only_if_named=True)
    for tpu, rows in _TABLE["tpus"].items():
        for name, row in rows.items():
            yield Machine(name, _family(name), tpu=tpu, **row)
    for series, row in _TABLE["series"].items():
        for size in row["vcpus"]:
            memory_gb = size * row["memory_per_vcpu"]
            whole = memory_gb if _family(series) == "n1" else int(memory_gb)
            yield Machine(f"{series}-{size}", _family(series), size, whole, arch=_arch(series))


def _family(name: str) -> str:
    return name.partition("-")[0]


def _arch(name: str) -> str:
    return "arm64" if _family(name) in _ARM else "amd64"


MACHINES: dict[str, Machine] = {machine.name: machine for machine in _machines()}
# Machines that this program creates only in its own node pools, with a workload policy:
# gke_ai/catalog/fabric/nvlink.py.
ONLY_IN_POOLS: frozenset[str] = frozenset(machine.name for machine in MACHINES.values() if machine.family == "a4x")
# All GPU types of the catalog.
GPUS: tuple[str, ...] = (*_TABLE["gpus"], "nvidia-tesla-t4")


def machine(name: str) -> Machine:
    """Returns the machine type of this name. Raises UnknownMachine with similar names if there is none."""
    try:
        return MACHINES[name]
    except KeyError:
        raise UnknownMachine(name, difflib.get_close_matches(name, MACHINES, n=3)) from None


def is_bare_metal(name: str) -> bool:
    """Whether a machine type is known as bare metal."""
    return name in MACHINES and MACHINES[name].bare_metal


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
