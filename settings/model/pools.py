"""GPU and TPU node pools, their capacity modes, and TPU slices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from catalog.capacity import MAX_RUN_SECONDS, MIN_RUN_SECONDS
from settings.model.base import GkeName, Labels, Section


class Autoscaling(Section):
    """Minimum and maximum size of an autoscaled pool."""

    noun: ClassVar[str] = "the autoscaling of a pool"

    min_nodes: int = Field(default=0, ge=0, description="Minimum number of nodes, in all zones together.")
    max_nodes: int = Field(ge=1, description="Maximum number of nodes, in all zones together.")


class OnDemand(Section):
    """Standard capacity: nodes stay until they are deleted."""

    noun: ClassVar[str] = "onDemand capacity"

    mode: Literal["onDemand"] = Field(default="onDemand", description="Standard capacity.")


class Spot(Section):
    """Spot capacity: cheap, and Google takes it back with 30 seconds' notice."""

    noun: ClassVar[str] = "spot capacity"

    mode: Literal["spot"] = Field(description="Spot capacity.")


class Reservation(Section):
    """Capacity of a reservation."""

    noun: ClassVar[str] = "reservation capacity"

    mode: Literal["reservation"] = Field(description="Capacity of a reservation.")
    reservation: str = Field(description="Name of the reservation.", examples=["h100-march"])


class FlexStart(Section):
    """Flex-start of Dynamic Workload Scheduler: nodes start when capacity is free, for a limited time."""

    noun: ClassVar[str] = "flexStart capacity"

    mode: Literal["flexStart"] = Field(description="Flex-start capacity: nodes start when capacity is free.")
    max_run_duration_seconds: int = Field(
        default=MAX_RUN_SECONDS,
        ge=MIN_RUN_SECONDS,
        le=MAX_RUN_SECONDS,
        description="Maximum lifetime of a node, in seconds.",
    )


class QueuedFlexStart(Section):
    """Flex-start with queued provisioning: all nodes of a request start together, through Kueue."""

    noun: ClassVar[str] = "queuedFlexStart capacity"

    mode: Literal["queuedFlexStart"] = Field(description="Queued provisioning: all nodes of a request start together.")
    max_run_duration_seconds: int = Field(
        default=MAX_RUN_SECONDS,
        ge=MIN_RUN_SECONDS,
        le=MAX_RUN_SECONDS,
        description="Maximum lifetime of a node, in seconds.",
    )


Capacity = Annotated[OnDemand | Spot | Reservation | FlexStart | QueuedFlexStart, Field(discriminator="mode")]


class GpuPool(Section):
    """A node pool with NVIDIA GPUs in a Standard cluster."""

    noun: ClassVar[str] = "a GPU pool"

    renamed_keys: ClassVar[Mapping[str, str]] = {"createFirst": "createBeforeDelete"}  # 0.4.0

    name: GkeName = Field(description="Name of the pool.")
    machine_type: str = Field(description="Machine type of the nodes.")
    accelerator: str | None = Field(default=None, description="GPU type. Default: the GPU type of the machine type.")
    gpus_per_node: int | None = Field(
        default=None, ge=1, description="GPUs per node. Default: all GPUs of the machine type."
    )
    driver: Literal["default", "latest", "disabled"] = Field(
        default="default", description="NVIDIA driver that GKE installs."
    )
    zones: list[str] = Field(default=[], description="Zones of the pool. Default: the zones of the cluster.")
    nodes_per_zone: int | None = Field(
        default=None,
        ge=0,
        le=1000,
        description="Nodes in each zone, for a pool of fixed size. Cannot be set with `autoscaling`.",
    )
    autoscaling: Autoscaling | None = Field(default=None, description="Minimum and maximum size of an autoscaled pool.")
    capacity: Capacity = Field(default=OnDemand(), description="How Google provides the machines.")
    disk_size_gb: int = Field(default=200, ge=10, le=65536, description="Boot disk of each node, in GB.")
    disk_type: str | None = Field(
        default=None,
        description="Type of the boot disk. Default: the type that suits the machine family.",
        examples=["pd-ssd"],
    )
    labels: Labels = Field(default={}, description="Kubernetes labels of the nodes.", examples=[{"team": "research"}])
    create_before_delete: bool = Field(
        default=False,
        description="Create the replacement pool before deleting the old one. The name gets a hash suffix; "
        "you pay for both meanwhile.",
    )
    protect: bool = Field(
        default=False, description="Refuse to delete the pool. To delete it, set this to false and apply that first."
    )


class TpuPool(Section):
    """A TPU node pool in a Standard cluster: nodes with single-host slices, or one multi-host slice."""

    noun: ClassVar[str] = "a TPU pool"

    name: GkeName = Field(description="Name of the pool.")
    version: str = Field(description="TPU version: v5e, v5p, v6e or tpu7x.")
    topology: str = Field(description="Chips of a slice along each side, for example 2x4.")
    machine_type: str | None = Field(
        default=None,
        description="Machine type of the nodes. Default: the machine that holds the whole slice, or else the machine "
        "with 4 chips.",
    )
    zones: list[str] = Field(default=[], description="Zones of the pool. Default: the zones of the cluster.")
    nodes_per_zone: int | None = Field(
        default=None,
        ge=0,
        le=1000,
        description="Nodes in each zone of a single-host pool of fixed size. A multi-host pool has the nodes of its "
        "slice.",
    )
    autoscaling: Autoscaling | None = Field(
        default=None,
        description="Minimum and maximum size of an autoscaled pool. A multi-host pool has no node or the whole slice.",
    )
    capacity: Capacity = Field(default=OnDemand(), description="How Google provides the machines.")
    auto_repair: bool | None = Field(
        default=None,
        description="Let GKE repair nodes. Default: false with flex-start, where a repair ends the run; else true.",
        examples=[True],
    )
    workload_policy: str | None = Field(
        default=None,
        description="Name of the workload policy that places the slice. A multi-host slice of tpu7x needs one.",
        examples=["tpu7x-4x4x4"],
    )
    disk_size_gb: int = Field(default=100, ge=10, le=65536, description="Boot disk of each node, in GB.")
    disk_type: str | None = Field(
        default=None,
        description="Type of the boot disk. Default: the type that suits the machine family.",
        examples=["hyperdisk-balanced"],
    )
    labels: Labels = Field(default={}, description="Kubernetes labels of the nodes.", examples=[{"team": "research"}])
    protect: bool = Field(
        default=False, description="Refuse to delete the pool. To delete it, set this to false and apply that first."
    )


class TpuSlice(Section):
    """A TPU slice outside the pools of this stack: on Autopilot, or in an existing cluster."""

    noun: ClassVar[str] = "a TPU slice"

    version: str = Field(description="TPU version: v5e, v5p, v6e or tpu7x.")
    topology: str = Field(description="Chips of the slice along each side, for example 2x4.")
    machine_type: str | None = Field(
        default=None,
        description="Machine type of the nodes. Default: the machine that holds the whole slice, or else the machine "
        "with 4 chips.",
    )
    capacity: Literal["onDemand", "spot", "flexStart"] = Field(
        default="onDemand", description="How Google provides the machines."
    )
