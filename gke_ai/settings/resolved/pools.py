"""A node pool with what the cluster decides for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from gke_ai.catalog.fabric.fabrics import fabric_of
from gke_ai.catalog.machines.types import MACHINES
from gke_ai.catalog.nodes.shape import NodeShape
from gke_ai.settings.calibration import Calibration
from gke_ai.settings.model import ComputeClass, GpuPool, GpuRun, Pool, Run


@dataclass(frozen=True)
class NodePool:
    """A node pool with its zones, its largest size and its nodes."""

    section: Pool
    zones: tuple[str, ...]
    """Zones of the pool: its own, else those of the cluster's nodes."""
    max_nodes: int
    """Maximum number of nodes, in all zones together."""
    measured: Calibration

    @cached_property
    def shape(self) -> NodeShape:
        """Shape of a node. Nodes of different zones differ only in a label, so the first zone stands for all."""
        return self.section.shape(self.zones[0])

    @cached_property
    def room(self) -> Mapping[str, Fraction]:
        """Resources of a node for pods of workloads, measured or computed, by resource."""
        return self.measured.room(self.shape)


def with_networks(pools: list[Pool], runs: Sequence[Run], classes: Sequence[ComputeClass]) -> list[Pool]:
    """The pools, with the network between nodes where a run over several nodes uses them and no key decides it."""
    used = {
        pool.name
        for run in runs
        if isinstance(run, GpuRun)
        for pool in run.nodes_among(pools, classes).pools
        if (machine := MACHINES.get(pool.node_machine_type)) and run.needs_fabric(machine)
    }
    return [_with_network(pool) if isinstance(pool, GpuPool) and pool.name in used else pool for pool in pools]


def _with_network(pool: GpuPool) -> GpuPool:
    """The pool with the network of its machine, unless a key decides it."""
    fabric = fabric_of(pool.machine_type)
    if fabric.nics and pool.rdma is None:
        return pool.model_copy(update={"rdma": True})
    if fabric.technology and pool.gpu_direct is None:
        return pool.model_copy(update={"gpu_direct": True})
    return pool
