"""TPU slices that GKE offers: machine type, nodes and chips by version and topology.

The topology decides the number of chips: `2x4` is 8 chips. If one machine has them all, the slice is single-host: its
nodes are independent, and a pool can have any number of them. Otherwise it is multi-host: one pool is one slice, and
GKE creates and deletes its nodes together. Their number is the chips of the topology divided by those of a machine.

Sources: https://cloud.google.com/kubernetes-engine/docs/concepts/tpus (versions, machines, topologies),
https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus (single-host and multi-host),
https://cloud.google.com/tpu/docs/system-architecture-tpu-vm (memory of a chip),
https://github.com/AI-Hypercomputer/xpk/blob/main/src/xpk/core/system_characteristics.py (largest slices)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations_with_replacement
from math import prod

from gke_ai.catalog.machines.types import MACHINES, Machine

GOOGLE_TPU = "google.com/tpu"


@dataclass(frozen=True)
class TpuVersion:
    """A generation of TPUs.

    - `accelerator` is the value of the node label `cloud.google.com/gke-tpu-accelerator`.
    - `memory_gib` is the high-bandwidth memory of one chip.
    - `usable_gib` is what XLA reports as usable of it.
    - `flex_start_zones` has the zones of Dynamic Workload Scheduler; empty if Google names no zones.
    - `workload_policy` is whether a multi-host slice needs a workload policy for its topology. Otherwise GKE places it.
    - `takes_workload_policy` is whether a workload policy can place a multi-host slice.
      https://github.com/GoogleCloudPlatform/cluster-autoscaler/blob/7d250507339b/pkg/cloudprovider/gke/gkeclient/autoscaling_gke_client_v1beta1.go#L872
    - `devices_per_chip` is the number of devices that JAX sees on a chip. They share its memory evenly.
    - `max_chips` is the number of chips of the largest slice.
    """

    name: str
    accelerator: str
    memory_gib: int
    usable_gib: float
    flex_start_zones: tuple[str, ...]
    workload_policy: bool = False
    devices_per_chip: int = 1
    max_chips: int = 256
    takes_workload_policy: bool = False


VERSIONS: Mapping[str, TpuVersion] = {
    version.name: version
    for version in (
        # Zones: https://cloud.google.com/kubernetes-engine/docs/concepts/dws#requirements. Usable memory: public
        # out-of-memory messages of XLA, such as https://github.com/GoogleCloudPlatform/kubernetes-engine-samples/pull/1467
        TpuVersion("v5e", "tpu-v5-lite-podslice", 16, 15.75, ("us-west4-a",)),
        TpuVersion("v5p", "tpu-v5p-slice", 95, 95, ("us-east5-a",), max_chips=6144),
        TpuVersion(
            "v6e",
            "tpu-v6e-slice",
            32,
            31.25,
            ("asia-northeast1-b", "us-east5-a", "us-east5-b"),
            takes_workload_policy=True,
        ),
        # https://cloud.google.com/kubernetes-engine/docs/concepts/tpu-ironwood. Flex-start:
        # https://github.com/GoogleCloudPlatform/cluster-toolkit/pull/5111, whose example is in us-central1-c.
        # Two devices per chip: https://docs.cloud.google.com/tpu/docs/tpu7x#system-architecture
        TpuVersion(
            "tpu7x",
            "tpu7x",
            192,
            189.5,
            (),
            workload_policy=True,
            devices_per_chip=2,
            max_chips=9216,
            takes_workload_policy=True,
        ),
    )
}
# Topology of a single-host slice, by chips per machine.
_SINGLE_HOST_2D = {1: "1x1", 4: "2x2", 8: "2x4"}
_MULTI_HOST_2D = ("2x4", "4x4", "4x8", "8x8", "8x16", "16x16")
_SINGLE_HOST_3D = {1: "1x1x1", 4: "2x2x1"}
# The small topologies; each side of a larger one is a multiple of 4, in ascending order.
_MULTI_HOST_3D = ("2x2x2", "2x2x4", "2x4x4")
_CHIPS_OF_A_MULTI_HOST_MACHINE = 4


@dataclass(frozen=True)
class Slice:
    """A slice of `hosts` machines with `chips_per_host` chips each. A single-host slice has one."""

    version: str
    accelerator: str
    topology: str
    machine_type: str
    chips_per_host: int
    hosts: int

    @property
    def chips(self) -> int:
        """Chips of the whole slice."""
        return self.chips_per_host * self.hosts

    @property
    def devices(self) -> int:
        """Devices that JAX sees on the whole slice."""
        return self.chips * VERSIONS[self.version].devices_per_chip

    @property
    def multi_host(self) -> bool:
        """Whether the slice has several nodes, which GKE creates and deletes together."""
        return self.hosts > 1


class NoSuchSlice(LookupError):
    """There is no such slice. `choices` are the valid values of `argument`: `version`, `topology` or `machine_type`."""

    def __init__(self, message: str, argument: str, choices: list[str]) -> None:
        super().__init__(message)
        self.argument = argument
        self.choices = choices


@cache
def slices(version: str) -> tuple[Slice, ...]:
    """Returns all slices of a version, smallest first, single-host before multi-host. Raises NoSuchSlice."""
    if version not in VERSIONS:
        raise NoSuchSlice(f"{version} is not a TPU version of the catalog", "version", list(VERSIONS))
    accelerator = VERSIONS[version].accelerator
    machines = [machine for machine in MACHINES.values() if machine.tpu == accelerator]
    unsorted = [
        Slice(version, accelerator, topology, machine.name, machine.chips, _chips(topology) // machine.chips)
        for machine in machines
        for topology in _topologies(machine)
    ]
    return tuple(sorted(unsorted, key=lambda candidate: (candidate.chips, candidate.hosts, candidate.topology)))


def slice_of(version: str, topology: str, machine_type: str | None = None) -> Slice:
    """Returns the slice of a version and a topology, on this machine type or by default single-host if possible.

    Raises NoSuchSlice if version, topology and machine type do not go together.
    """
    every = slices(version)
    of_topology = [candidate for candidate in every if candidate.topology == topology]
    if not of_topology:
        choices = list(dict.fromkeys(candidate.topology for candidate in every))
        raise NoSuchSlice(f"{topology} is not a topology of TPU {version}", "topology", choices)
    if machine_type is None:
        return of_topology[0]
    for candidate in of_topology:
        if candidate.machine_type == machine_type:
            return candidate
    message = f"TPU {version} has no {topology} slice of {machine_type}"
    raise NoSuchSlice(message, "machine_type", [candidate.machine_type for candidate in of_topology])


def slice_on(machine_type: str, topology: str | None = None) -> Slice:
    """Returns the slice of a topology on a machine type. Default: the single-host slice of the machine type.

    Raises NoSuchSlice for a machine type without TPUs, or without this topology.
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
        f"{topology} is not a topology of {machine_type}", "topology", [candidate.topology for candidate in every]
    )


def _topologies(machine: Machine) -> Iterator[str]:
    if machine.tpu in ("tpu-v5-lite-podslice", "tpu-v6e-slice"):
        yield _SINGLE_HOST_2D[machine.chips]
        if machine.chips == _CHIPS_OF_A_MULTI_HOST_MACHINE:
            yield from _MULTI_HOST_2D
        return
    yield _SINGLE_HOST_3D[machine.chips]
    if machine.chips != _CHIPS_OF_A_MULTI_HOST_MACHINE:
        return
    yield from _MULTI_HOST_3D
    most = next(version.max_chips for version in VERSIONS.values() if version.accelerator == machine.tpu)
    sides = range(4, most // 16 + 1, 4)
    for a, b, c in combinations_with_replacement(sides, 3):
        if a * b * c <= most:
            yield f"{a}x{b}x{c}"


def _chips(topology: str) -> int:
    return prod(int(side) for side in topology.split("x"))
