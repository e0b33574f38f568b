"""TPU slices that workloads name by their hardware."""

from __future__ import annotations

from typing import ClassVar, Literal

from gke_ai.catalog.machines.tpus import Slice, slice_of
from gke_ai.catalog.nodes.shape import GKE_TPU_ACCELERATOR, GKE_TPU_TOPOLOGY
from gke_ai.settings.model.base import Section


class TpuSlice(Section):
    """A TPU slice outside the pools of this stack: on Autopilot, or in an existing cluster."""

    noun: ClassVar[str] = "a TPU slice"

    version: str
    """TPU version: v5e, v5p, v6e or tpu7x."""
    topology: str
    """Chips of the slice along each side, for example 2x4."""
    machine_type: str | None = None
    """Machine type of the nodes. Default: the machine that holds the whole slice, or else the machine with 4 chips."""
    capacity: Literal["onDemand", "spot", "flexStart"] = "onDemand"
    """How Google provides the machines."""

    @property
    def slice(self) -> Slice:
        """The slice in the catalog. Raises NoSuchSlice; `gke_ai.settings.rules` refuses such a slice."""
        return slice_of(self.version, self.topology, self.machine_type)

    @property
    def labels(self) -> dict[str, str]:
        """Labels of the nodes of such slices."""
        return slice_labels(self.slice)


def slice_labels(tpu_slice: Slice) -> dict[str, str]:
    """Labels that GKE gives the nodes of such a slice."""
    return {GKE_TPU_ACCELERATOR: tpu_slice.accelerator, GKE_TPU_TOPOLOGY: tpu_slice.topology}
