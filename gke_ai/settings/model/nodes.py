"""The nodes of this stack that a workload can run on."""

from __future__ import annotations

from dataclasses import dataclass

from gke_ai.catalog.machines.tpus import Slice
from gke_ai.settings.model.compute_classes import ComputeClass
from gke_ai.settings.model.pools import Pool


@dataclass(frozen=True)
class Nodes:
    """The nodes of a workload, found once: its pools, or its compute class.

    Empty where Google chooses the nodes by the labels that the workload selects.
    """

    pools: tuple[Pool, ...] = ()
    """Pools that the workload can run on: those it names, or all with its accelerators."""
    others: tuple[Pool, ...] = ()
    """Other pools of the stack with accelerators of the same resource."""
    compute_class: ComputeClass | None = None

    @property
    def slice(self) -> Slice | None:
        """The TPU slice of the pools."""
        return next((pool.slice for pool in self.pools if pool.slice is not None), None)

    @property
    def grow(self) -> bool:
        """Whether the cluster autoscaler sizes any of the pools."""
        return any(pool.grows for pool in self.pools)

    def alike(self, labels: dict[str, str]) -> list[Pool]:
        """Other pools whose nodes have these labels of the accelerator."""
        return [pool for pool in self.others if pool.accelerator_labels == labels]
