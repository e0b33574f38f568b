"""TPU slices that GKE offers: from a version and a topology the machines, nodes and chips that follow.

A slice is what a topology says: `2x4` is 8 chips. Where one machine holds them all it is single-host: its nodes are
apart, and a pool may have any number of them. Else it is multi-host: one pool is one slice, whose nodes come and go
together, as many as the topology has chips divided by the chips of a machine.

Sources: https://cloud.google.com/kubernetes-engine/docs/concepts/tpus (versions, machines, topologies),
https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus (single-host and multi-host),
https://cloud.google.com/tpu/docs/system-architecture-tpu-vm (memory of a chip)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations_with_replacement
from math import prod
from types import MappingProxyType

from catalog.machines import MACHINES, Machine

GOOGLE_TPU = "google.com/tpu"


@dataclass(frozen=True)
class TpuVersion:
    """A generation of TPUs.

    `accelerator` is the value of the node label `cloud.google.com/gke-tpu-accelerator`, `memory_gib` the high-bandwidth
    memory of one chip, `flex_start_zones` where Dynamic Workload Scheduler has it (none: Google names no zones). With
    `workload_policy` a multi-host slice is placed by a policy that the user makes for its topology, else by GKE.
    """

    name: str
    accelerator: str
    memory_gib: int
    flex_start_zones: tuple[str, ...]
    workload_policy: bool = False


VERSIONS: Mapping[str, TpuVersion] = MappingProxyType(
    {
        version.name: version
        for version in (
            # Zones: https://cloud.google.com/kubernetes-engine/docs/concepts/dws#requirements
            TpuVersion("v5e", "tpu-v5-lite-podslice", 16, ("us-west4-a",)),
            TpuVersion("v5p", "tpu-v5p-slice", 95, ("us-east5-a",)),
            TpuVersion("v6e", "tpu-v6e-slice", 32, ("asia-northeast1-b", "us-east5-a", "us-east5-b")),
            # https://cloud.google.com/kubernetes-engine/docs/concepts/tpu-ironwood. Flex-start:
            # https://github.com/GoogleCloudPlatform/cluster-toolkit/pull/5111, whose example is in us-central1-c.
            TpuVersion("tpu7x", "tpu7x", 192, (), workload_policy=True),
        )
    }
)
# Chips per machine decide what a machine of two-dimensional versions holds alone.
_SINGLE_HOST_2D = {1: "1x1", 4: "2x2", 8: "2x4"}
_MULTI_HOST_2D = ("2x4", "4x4", "4x8", "8x8", "8x16", "16x16")
_SINGLE_HOST_3D = "2x2x1"
# The small ones; larger ones have multiples of 4 on each side, in ascending order.
_MULTI_HOST_3D = ("2x2x2", "2x2x4", "2x4x4")
# The most chips that one slice may train on.
MAX_CHIPS_3D = 6144
_CHIPS_OF_A_MULTI_HOST_MACHINE = 4


@dataclass(frozen=True)
class Slice:
    """One slice: `hosts` machines of `chips_per_host` chips each; `hosts` is 1 exactly where it is single-host."""

    version: str
    accelerator: str
    topology: str
    machine_type: str
    chips_per_host: int
    hosts: int

    @property
    def chips(self) -> int:
        """Chips of the whole slice: the product of its topology."""
        return self.chips_per_host * self.hosts

    @property
    def multi_host(self) -> bool:
        """Whether its nodes come and go together."""
        return self.hosts > 1


class NoSuchSlice(LookupError):
    """There is no such slice; the message says why, `choices` what there is instead.

    `argument` is what they are choices of: `version`, `topology` or `machine_type`.
    """

    def __init__(self, message: str, argument: str, choices: list[str]) -> None:
        super().__init__(message)
        self.argument = argument
        self.choices = choices


@cache
def slices(version: str) -> tuple[Slice, ...]:
    """Every slice of a version, smallest first, single-host before multi-host. Raises NoSuchSlice."""
    if version not in VERSIONS:
        raise NoSuchSlice(f"{version} is no TPU version of the catalogue", "version", list(VERSIONS))
    accelerator = VERSIONS[version].accelerator
    machines = [machine for machine in MACHINES.values() if machine.tpu == accelerator]
    unsorted = [
        Slice(version, accelerator, topology, machine.name, machine.chips, _chips(topology) // machine.chips)
        for machine in machines
        for topology in _topologies(machine)
    ]
    return tuple(sorted(unsorted, key=lambda candidate: (candidate.chips, candidate.hosts, candidate.topology)))


def slice_of(version: str, topology: str, machine_type: str | None = None) -> Slice:
    """The slice of a version and a topology: of the machine named, else of the one that holds it all, if there is one.

    Raises NoSuchSlice for a version, a topology or a machine that don't go together.
    """
    every = slices(version)
    of_topology = [candidate for candidate in every if candidate.topology == topology]
    if not of_topology:
        choices = list(dict.fromkeys(candidate.topology for candidate in every))
        raise NoSuchSlice(f"{topology} is no topology of TPU {version}", "topology", choices)
    if machine_type is None:
        return of_topology[0]
    for candidate in of_topology:
        if candidate.machine_type == machine_type:
            return candidate
    message = f"TPU {version} has no {topology} slice of {machine_type}"
    raise NoSuchSlice(message, "machine_type", [candidate.machine_type for candidate in of_topology])


def slice_on(machine_type: str, topology: str | None = None) -> Slice:
    """The slice of that topology on a machine type; without one, the slice that a machine is by itself.

    Raises NoSuchSlice for a machine without TPUs, and for a topology that it can't be part of.
    """
    every = [
        candidate for version in VERSIONS for candidate in slices(version) if candidate.machine_type == machine_type
    ]
    for candidate in every:
        if candidate.topology == topology or (topology is None and not candidate.multi_host):
            return candidate
    if not every:
        with_tpus = [machine.name for machine in MACHINES.values() if machine.tpu]
        raise NoSuchSlice(f"{machine_type} has no TPU", "machine_type", with_tpus)
    raise NoSuchSlice(
        f"{topology} is no topology of {machine_type}", "topology", [candidate.topology for candidate in every]
    )


def _topologies(machine: Machine) -> Iterator[str]:
    if machine.tpu in ("tpu-v5-lite-podslice", "tpu-v6e-slice"):
        yield _SINGLE_HOST_2D[machine.chips]
        if machine.chips == _CHIPS_OF_A_MULTI_HOST_MACHINE:
            yield from _MULTI_HOST_2D
        return
    yield _SINGLE_HOST_3D
    yield from _MULTI_HOST_3D
    sides = range(4, MAX_CHIPS_3D // 16 + 1, 4)
    for a, b, c in combinations_with_replacement(sides, 3):
        if a * b * c <= MAX_CHIPS_3D:
            yield f"{a}x{b}x{c}"


def _chips(topology: str) -> int:
    return prod(int(side) for side in topology.split("x"))
