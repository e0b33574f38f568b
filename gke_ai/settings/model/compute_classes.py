"""Compute classes: capacity in order of preference."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from gke_ai.catalog.fabric.fabrics import DEFAULT_NETWORK, Fabric, fabric_of
from gke_ai.catalog.machines.capacity import MAX_RUN_SECONDS, MIN_RUN_SECONDS
from gke_ai.settings.model.base import DnsLabel, Section
from gke_ai.settings.model.capacity import CapacityMode, OnDemand, Reservation, Spot


class ClassFlexStart(CapacityMode):
    """Flex-start as a priority of a compute class. GKE can replace a node before its time ends."""

    noun: ClassVar[str] = "flexStart capacity"

    mode: Literal["flexStart"]
    """Flex-start capacity: nodes start when capacity is free."""
    max_run_duration_seconds: int | None = Field(default=None, ge=MIN_RUN_SECONDS, le=MAX_RUN_SECONDS)
    """Maximum lifetime of a node, in seconds. Default: GKE's maximum."""
    recycle_lead_time_seconds: int | None = Field(default=None, ge=1, le=MAX_RUN_SECONDS)
    """Time before the end of a node's life at which GKE creates its replacement, in seconds."""


ClassCapacity = Annotated[OnDemand | Spot | Reservation | ClassFlexStart, Field(discriminator="mode")]


class Priority(Section):
    """One choice of a compute class: a machine type and its capacity."""

    noun: ClassVar[str] = "a priority of a compute class"

    machine_type: str
    """Machine type of the nodes."""
    capacity: ClassCapacity = OnDemand()
    """How Google provides the machine."""
    driver: Literal["default", "latest"] | None = Field(default=None, examples=["latest"])
    """NVIDIA driver. Default: GKE chooses."""


class ComputeClass(Section):
    """A GKE ComputeClass: choices in order of preference. GKE takes the first available one."""

    noun: ClassVar[str] = "a compute class"

    name: DnsLabel
    """Name of the class. Workloads select it by this name."""
    priorities: list[Priority] = Field(min_length=1)
    """Choices, in order of preference."""
    when_unsatisfiable: Literal["DoNotScaleUp", "ScaleUpAnyway"] = "DoNotScaleUp"
    """Behavior of GKE if no choice is available. DoNotScaleUp: pods wait; ScaleUpAnyway: GKE takes any machine type."""
    auto_create_pools: bool = True
    """Let GKE create the node pools. If false, they must exist."""
    rdma_zone: str | None = Field(default=None, examples=["us-central1-b"])
    """Zone in which GKE creates nodes of A3 Ultra or A4 with an RDMA network between them. Default: the zones of the
    cluster, without such a network."""

    @property
    def fabric(self) -> Fabric:
        """The network between the nodes."""
        of_machine = fabric_of(self.priorities[0].machine_type)
        return of_machine if self.rdma_zone and of_machine.nics else DEFAULT_NETWORK
