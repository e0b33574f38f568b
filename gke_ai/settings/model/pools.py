"""GPU and TPU node pools, and TPU slices."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal

from pydantic import Field

from gke_ai.catalog.fabric.fabrics import DEFAULT_NETWORK, Fabric, fabric_of
from gke_ai.catalog.fabric.nvlink import has_domain
from gke_ai.catalog.fabric.topology import has_labels
from gke_ai.catalog.machines.metal import LABELS
from gke_ai.catalog.machines.tpus import GOOGLE_TPU, Slice, slice_of
from gke_ai.catalog.machines.types import is_bare_metal, machine
from gke_ai.catalog.machines.zones import node_zones
from gke_ai.catalog.nodes.shape import GKE_ACCELERATOR, GKE_NODEPOOL, NVIDIA_GPU, POOL, NodeShape
from gke_ai.settings.model.base import GkeName, Labels, Section
from gke_ai.settings.model.capacity import Autoscaling, Capacity, OnDemand
from gke_ai.settings.model.cluster import Cluster
from gke_ai.settings.model.slices import slice_labels


class Pool(Section):
    """A node pool in a Standard cluster: its size, zones and capacity."""

    # Key of the stack that lists pools of this kind.
    stack_key: ClassVar[str]
    # Key by which a workload names the same hardware without a pool. Empty if it needs none.
    workload_key: ClassVar[str] = ""
    # Name of the accelerator as a Kubernetes resource. Empty for nodes without accelerators.
    accelerator_resource: ClassVar[str] = ""

    name: GkeName
    """Name of the pool."""
    zones: list[str] = Field(default=[])
    """Zones of the pool. Default: the zones of the cluster."""
    nodes_per_zone: int | None = Field(default=None, ge=0, le=1000)
    """Nodes in each zone, for a pool of fixed size. Cannot be set with `autoscaling`."""
    autoscaling: Autoscaling | None = None
    """Minimum and maximum size of an autoscaled pool."""
    capacity: Capacity = OnDemand()
    """How Google provides the machines."""
    disk_size_gb: int = Field(default=200, ge=10, le=65536)
    """Boot disk of each node, in GB."""
    disk_type: str | None = Field(default=None, examples=["pd-ssd"])
    """Type of the boot disk. Default: the type that suits the machine family."""
    labels: Labels = Field(default={}, examples=[{"team": "research"}])
    """Kubernetes labels of the nodes."""
    image_streaming: bool | None = Field(default=None, examples=[True])
    """Start containers before their images are downloaded, with Image streaming. It needs images in Artifact Registry,
    in the region of the nodes. Default: `false` in a new pool; an existing one keeps its value."""
    protect: bool = False
    """Refuse to delete the pool. To delete it, set this to false and apply that first."""

    @property
    @abstractmethod
    def node_machine_type(self) -> str:
        """Machine type of the nodes."""

    @property
    def accelerator_type(self) -> str:
        """Accelerator of the nodes, as Google's quotas name it: GPU type or TPU version."""
        return ""

    @property
    def accelerators_per_node(self) -> int:
        """Accelerators of one node."""
        return 0

    @property
    def accelerator_labels(self) -> dict[str, str]:
        """Labels that GKE gives the nodes of every pool with the same accelerators."""
        return {}

    @property
    def hardware(self) -> object:
        """What a workload without a pool of its own asks for: equal for pools that can replace each other."""
        return self.accelerator_type

    @property
    def hardware_name(self) -> str:
        """The accelerator in messages."""
        return " ".join(self.accelerator_labels.values())

    @property
    def slice(self) -> Slice | None:
        """The TPU slice of the pool; None without TPUs."""
        return None

    @property
    def is_one_slice(self) -> bool:
        """Whether all nodes together are one multi-host slice, created and upgraded as a unit."""
        return self.slice is not None and self.slice.multi_host

    @property
    def in_one_zone(self) -> bool:
        """Whether all nodes must be in the same zone: here, of a multi-host slice or of a block of a reservation."""
        return self.is_one_slice or "/reservationBlocks/" in (self.capacity.reservation_name or "")

    @property
    def has_topology(self) -> bool:
        """Whether all nodes exist and have the labels of `gke_ai.catalog.fabric.topology.LEVELS`."""
        return False

    @property
    def drains_old_nodes(self) -> bool:
        """Whether the program itself drains the nodes of a replaced pool."""
        return False

    @property
    def preloads_images(self) -> bool:
        """Whether nodes have container images from their creation on."""
        return False

    @property
    def fabric(self) -> Fabric:
        """The network between the nodes."""
        return DEFAULT_NETWORK

    @property
    def node_labels(self) -> dict[str, str]:
        """Node labels that the pool sets, without GKE's own.

        Never empty: the provider removes the last label with an empty update, which GKE refuses.
        https://github.com/hashicorp/terraform-provider-google/issues/15848
        """
        return {**self.labels, **self.capacity.labels, POOL: self.name}

    @property
    def selector(self) -> dict[str, str]:
        """The label that selects the pool's nodes, including those of its replacement."""
        return {POOL if self.drains_old_nodes else GKE_NODEPOOL: self.name}

    @property
    def elastic(self) -> bool:
        """Whether the capacity mode starts nodes from zero, so that only the autoscaler sizes the pool."""
        return self.capacity.elastic

    @property
    def grows(self) -> bool:
        """Whether the cluster autoscaler sizes the pool."""
        return self.autoscaling is not None or self.elastic

    @property
    def has_size(self) -> bool:
        """Whether the section says how many nodes the pool has."""
        return self.autoscaling is not None or self.nodes_per_zone is not None

    @property
    def fixed_nodes_per_zone(self) -> int | None:
        """Nodes in each zone of a pool that does not grow."""
        return self.nodes_per_zone

    @property
    def bounds(self) -> tuple[int, int]:
        """Minimum and maximum nodes of an autoscaled pool."""
        assert self.autoscaling is not None
        return self.autoscaling.min_nodes, self.autoscaling.max_nodes

    @property
    def repaired(self) -> bool:
        """Whether GKE repairs nodes. With flex-start, a repair would delete a paid node before its run ends."""
        return not self.elastic

    def zones_in(self, cluster: Cluster) -> tuple[str, ...]:
        """Zones of the pool: its own, else those of the cluster's nodes."""
        return tuple(self.zones or cluster.system_pool.zones or node_zones(cluster.location))

    def max_nodes(self, cluster: Cluster) -> int:
        """Maximum number of nodes, in all zones together."""
        if self.autoscaling is not None:
            return self.autoscaling.max_nodes
        return (self.nodes_per_zone or 0) * len(self.zones_in(cluster))

    def shape(self, zone: str) -> NodeShape:
        """Shape of the pool's nodes in that zone."""
        return NodeShape(
            pool=self.name,
            machine_type=self.node_machine_type,
            capacity=self.capacity.mode,
            zone=zone,
            disk_gb=self.disk_size_gb,
            labels=self.node_labels,
        )


class GpuPool(Pool):
    """A node pool with NVIDIA GPUs in a Standard cluster."""

    noun: ClassVar[str] = "a GPU pool"
    stack_key: ClassVar[str] = "gpuPools"
    workload_key: ClassVar[str] = "accelerator"
    accelerator_resource: ClassVar[str] = NVIDIA_GPU

    renamed_keys: ClassVar[Mapping[str, str]] = {"createFirst": "createBeforeDelete"}  # 0.4.0

    machine_type: str
    """Machine type of the nodes."""
    accelerator: str | None = None
    """GPU type. Default: the GPU type of the machine type."""
    gpus_per_node: int | None = Field(default=None, ge=1)
    """GPUs per node. Default: all GPUs of the machine type."""
    driver: Literal["default", "latest", "disabled"] = "default"
    """NVIDIA driver that GKE installs."""
    secondary_boot_disk: str | None = Field(default=None, examples=["projects/my-project/global/images/vllm-0-31-0"])
    """Compute Engine image with unpacked container images. Each node gets a disk of it, and starts these containers
    without a pull. It needs `imageStreaming`. Default: no such disk."""
    compact_placement: bool = False
    """Place the nodes close together, in one zone, by a compact placement policy. A reservation needs none: its
    machines are where it has them. A change replaces the pool."""
    rdma: bool | None = Field(default=None, examples=[True])
    """Give the nodes of A3 Ultra, A4, A4X or A4X Max an RDMA network between them. A change replaces the pool. Default:
    `true` if a run of the stack over several nodes uses the pool."""
    gpu_direct: bool | None = Field(default=None, examples=[True])
    """Give the nodes of A3 High or A3 Mega the VPC networks of GPUDirect-TCPX or TCPXO. A change replaces the pool.
    Default: `true` if a run of the stack over several nodes uses the pool."""
    create_before_delete: bool = False
    """Create the replacement pool before deleting the old one. The name gets a hash suffix; you pay for both
    meanwhile."""

    @property
    def gpus(self) -> tuple[str, int]:
        """GPU type and number of GPUs per node: those of the section, else those of the machine type.

        Raises ValueError if neither has GPUs; `gke_ai.settings.rules` refuses such a pool.
        """
        machine_type = machine(self.machine_type)
        accelerator, count = self.accelerator or machine_type.gpu, self.gpus_per_node or machine_type.gpus
        if accelerator is None or not count:
            raise ValueError(f"pool {self.name} has no GPU")
        return accelerator, count

    @property
    def node_machine_type(self) -> str:
        return self.machine_type

    @property
    def accelerator_type(self) -> str:
        return self.gpus[0]

    @property
    def accelerators_per_node(self) -> int:
        return self.gpus[1]

    @property
    def accelerator_labels(self) -> dict[str, str]:
        return {GKE_ACCELERATOR: self.gpus[0]}

    @property
    def in_one_zone(self) -> bool:
        return super().in_one_zone or self.compact_placement or bool(self.fabric.nics) or has_domain(self.machine_type)

    @property
    def has_topology(self) -> bool:
        # Kueue places only on nodes that exist: the pods for which a pool would grow are never created.
        return not self.grows and has_labels(self.machine_type, self.capacity.mode, self.compact_placement)

    @property
    def drains_old_nodes(self) -> bool:
        return self.create_before_delete

    @property
    def preloads_images(self) -> bool:
        return self.secondary_boot_disk is not None

    @property
    def fabric(self) -> Fabric:
        of_machine = fabric_of(self.machine_type)
        return of_machine if (self.rdma if of_machine.nics else self.gpu_direct) else DEFAULT_NETWORK

    @property
    def node_labels(self) -> dict[str, str]:
        return {
            **super().node_labels,
            **self.fabric.node_labels,
            **(LABELS if is_bare_metal(self.machine_type) else {}),
        }

    def shape(self, zone: str) -> NodeShape:
        accelerator, count = self.gpus
        return replace(super().shape(zone), gpu=accelerator, gpus=count, driver=self.driver)


class TpuPool(Pool):
    """A TPU node pool in a Standard cluster: nodes with single-host slices, or one multi-host slice."""

    noun: ClassVar[str] = "a TPU pool"
    stack_key: ClassVar[str] = "tpuPools"
    workload_key: ClassVar[str] = "tpu"
    accelerator_resource: ClassVar[str] = GOOGLE_TPU

    version: str
    """TPU version: v5e, v5p, v6e or tpu7x."""
    topology: str
    """Chips of a slice along each side, for example 2x4."""
    machine_type: str | None = None
    """Machine type of the nodes. Default: the machine that holds the whole slice, or else the machine with 4 chips."""
    nodes_per_zone: int | None = Field(default=None, ge=0, le=1000)
    """Nodes in each zone of a single-host pool of fixed size. A multi-host pool has the nodes of its slice."""
    autoscaling: Autoscaling | None = None
    """Minimum and maximum size of an autoscaled pool. A multi-host pool has no node or the whole slice."""
    auto_repair: bool | None = Field(default=None, examples=[False])
    """Let GKE repair nodes. With flex-start, a repair would end the run. Default: `true`, or `false` with
    flex-start."""
    workload_policy: str | None = Field(default=None, examples=["tpu7x-4x4x4"])
    """Name of the workload policy that places the slice. A multi-host slice of tpu7x needs one, one of v6e can have
    one."""
    disk_size_gb: int = Field(default=100, ge=10, le=65536)
    """Boot disk of each node, in GB."""
    disk_type: str | None = Field(default=None, examples=["hyperdisk-balanced"])
    """Type of the boot disk. Default: the type that suits the machine family."""

    @property
    def slice(self) -> Slice:
        """The slice of the pool. Raises NoSuchSlice; `gke_ai.settings.rules` refuses such a pool."""
        return slice_of(self.version, self.topology, self.machine_type)

    @property
    def node_machine_type(self) -> str:
        return self.slice.machine_type

    @property
    def accelerator_type(self) -> str:
        return self.version

    @property
    def accelerators_per_node(self) -> int:
        return self.slice.chips_per_host

    @property
    def accelerator_labels(self) -> dict[str, str]:
        return slice_labels(self.slice)

    @property
    def hardware(self) -> object:
        return self.slice

    @property
    def has_size(self) -> bool:
        return super().has_size or self.grows or self.slice.multi_host

    @property
    def fixed_nodes_per_zone(self) -> int | None:
        return self.slice.hosts if self.slice.multi_host else self.nodes_per_zone

    @property
    def bounds(self) -> tuple[int, int]:
        """Minimum and maximum nodes of an autoscaled pool. Default: zero to one slice."""
        return (0, self.slice.hosts) if self.autoscaling is None else super().bounds

    @property
    def repaired(self) -> bool:
        return super().repaired if self.auto_repair is None else self.auto_repair

    def max_nodes(self, cluster: Cluster) -> int:
        if self.slice.multi_host:
            return self.slice.hosts
        return self.bounds[1] if self.grows else super().max_nodes(cluster)

    def shape(self, zone: str) -> NodeShape:
        return replace(super().shape(zone), topology=self.topology)
