"""The keys of a stack's configuration: one class per section, one field per key.

Keys are camelCase in YAML (`gpuPools[0].machineType`) and snake_case here. A section holds what the user wants.
`catalog` holds what Google Cloud offers, and `settings.rules` checks that keys match each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PrivateAttr,
    StringConstraints,
    Tag,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from catalog import versions
from catalog.capacity import MAX_RUN_SECONDS, MIN_RUN_SECONDS
from catalog.engines import JETSTREAM_METRICS_PORT
from catalog.quantities import parse_quantity
from settings.calibration import Calibration

# RFC 1123 label, the form of Kubernetes object names that also become DNS labels.
DnsLabel = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]
# GKE cluster and node pool names: 40 characters at most, beginning with a letter.
GkeName = Annotated[str, StringConstraints(pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$", max_length=40)]


def _number_as_text(value: object) -> object:
    # YAML reads `cpu: 4` as a number. Kubernetes accepts it as a quantity, and so do we.
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _not_negative(text: str) -> str:
    if parse_quantity(text) < 0:
        raise ValueError("is below zero")
    return text


def _positive(text: str) -> str:
    if parse_quantity(text) <= 0:
        raise ValueError("is not above zero")
    return text


# For the schema: the syntax of `parse_quantity`, without a sign.
_FORM = r"([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,3})?$"
_QUANTITY = {"type": ["string", "number"], "format": "quantity", "pattern": f"^{_FORM}", "minimum": 0}
_REQUEST = {**_QUANTITY, "pattern": f"^(?=[0-9.]*[1-9]){_FORM}", "exclusiveMinimum": 0}
# A Kubernetes resource quantity, as text: "4", "500m", "30Gi".
Quantity = Annotated[str, AfterValidator(_not_negative), BeforeValidator(_number_as_text), WithJsonSchema(_QUANTITY)]
# A container's resource request, above zero. To request nothing, omit the key.
Request = Annotated[str, AfterValidator(_positive), BeforeValidator(_number_as_text), WithJsonSchema(_REQUEST)]
Labels = dict[str, str]
# Version of a Helm chart.
Version = Annotated[str, StringConstraints(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")]


def _network(text: str) -> str:
    try:
        return str(IPv4Network(text))
    except ValueError:
        raise PydanticCustomError("network", "is not an IPv4 range") from None


# An IPv4 range.
Cidr = Annotated[str, AfterValidator(_network), WithJsonSchema({"type": "string", "format": "ipv4-range"})]


class Section(BaseModel):
    """Base of every section: camelCase keys, no unknown keys, immutable once read."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)

    # Renamed keys of this section, with their new names. The error for an old key names the new one.
    renamed_keys: ClassVar[Mapping[str, str]] = {}

    # Path of this section in the configuration. settings.reading sets it.
    _path: str = PrivateAttr(default="")

    def at(self, key: str) -> str:
        """Path of a key of this section in the configuration: `gke-ai:gpuPools[0].machineType`."""
        return f"{self._path}.{key}" if self._path else key


class Resources(Section):
    """Resource requests of one pod; its limits equal them."""

    cpu: Request | None = Field(default=None, description="CPU cores.")
    memory: Request | None = Field(default=None, description="Memory, in bytes.")
    ephemeral_storage: Request | None = Field(default=None, description="Local storage of the node, in bytes.")


class SystemPool(Section):
    """The node pool of a Standard cluster that runs controllers."""

    name: GkeName = Field(default="default-pool", description="Name of the pool.")
    machine_type: str = Field(default="e2-standard-4", description="Machine type of the nodes.")
    nodes_per_zone: int = Field(default=1, ge=1, le=1000, description="Nodes in each zone of the pool.")
    zones: list[str] = Field(
        default=[],
        description="Zones of the pool. Default: all default zones of the region.",
        examples=[["us-central1-a"]],
    )


class Vpc(Section):
    """A VPC network of the cluster's own: one subnetwork, ranges for pods and Services, and Cloud NAT."""

    name: GkeName | None = Field(
        default=None,
        description="Name of the network and its parts. Default: the cluster's name.",
        examples=["ai-prod"],
    )
    nodes_cidr: Cidr = Field(default="10.0.0.0/20", description="IPv4 range of the nodes.")
    pods_cidr: Cidr = Field(
        default="10.4.0.0/14", description="IPv4 range of the pods. GKE gives each node a /24 of it."
    )
    services_cidr: Cidr = Field(default="10.8.0.0/20", description="IPv4 range of the Services.")
    nat: bool = Field(default=True, description="Create Cloud NAT, through which private nodes reach the Internet.")


# A time in UTC. GKE returns other time zones as UTC, so each preview would show a change.
Moment = Annotated[
    str,
    StringConstraints(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]


class MaintenanceWindow(Section):
    """The window in which GKE may upgrade the cluster and its nodes, and how it recurs."""

    start_time: Moment = Field(description="Start of the first window, in UTC.", examples=["2026-01-03T00:00:00Z"])
    end_time: Moment = Field(
        description="End of the first window, in UTC, at least 4 hours after the start.",
        examples=["2026-01-03T08:00:00Z"],
    )
    recurrence: str = Field(
        description="Recurrence of the window, as an RRULE of RFC 5545.", examples=["FREQ=WEEKLY;BYDAY=SA,SU"]
    )


class MaintenanceExclusion(Section):
    """A period without upgrades by GKE, for example during a long run."""

    name: GkeName = Field(description="Name of the exclusion.", examples=["pretraining"])
    start_time: Moment = Field(description="Start of the exclusion, in UTC.", examples=["2026-03-01T00:00:00Z"])
    end_time: Moment = Field(description="End of the exclusion, in UTC.", examples=["2026-03-21T00:00:00Z"])
    scope: Literal["NO_UPGRADES", "NO_MINOR_UPGRADES", "NO_MINOR_OR_NODE_UPGRADES"] = Field(
        default="NO_UPGRADES",
        description="Upgrades that are excluded. NO_UPGRADES excludes all of them, for up to 30 days.",
    )


class Maintenance(Section):
    """When GKE upgrades the cluster and its nodes."""

    window: MaintenanceWindow | None = Field(
        default=None, description="Recurring maintenance window. Default: GKE upgrades at any time."
    )
    exclusions: list[MaintenanceExclusion] = Field(default=[], description="Periods without upgrades.")


class Cluster(Section):
    """The GKE cluster that everything runs in."""

    name: GkeName = Field(default="llm-cluster", description="Name of the cluster.")
    mode: Literal["standard", "autopilot", "existing"] = Field(
        default="autopilot",
        description="Who manages the nodes. autopilot: GKE; standard: this stack; existing: the stack uses a cluster "
        "that already exists.",
    )
    existing_mode: Literal["standard", "autopilot"] = Field(
        default="standard", description="Mode of the existing cluster. Read only with mode: existing."
    )
    location: str = Field(
        default="us-central1", description="Region of the cluster, or a zone for a zonal Standard cluster."
    )
    release_channel: Literal["rapid", "regular", "stable"] = Field(
        default="regular", description="GKE release channel, which decides how soon new versions arrive."
    )
    system_pool: SystemPool = Field(
        default=SystemPool(), description="Node pool of a Standard cluster that runs controllers."
    )
    network: str | None = Field(
        default=None,
        description="VPC network of the cluster. Default: the project's default network.",
        examples=["shared-vpc"],
    )
    subnetwork: str | None = Field(
        default=None,
        description="Subnetwork of the network. Default: the default subnetwork of the region.",
        examples=["gke-us-central1"],
    )
    pods_range: str | None = Field(
        default=None,
        description="Secondary range of the subnetwork for pods. Default: GKE creates one.",
        examples=["pods"],
    )
    services_range: str | None = Field(
        default=None,
        description="Secondary range of the subnetwork for Services. Default: GKE creates one.",
        examples=["services"],
    )
    vpc: Vpc | None = Field(
        default=None,
        description="VPC network that the stack creates for the cluster, instead of `network` and `subnetwork`.",
    )
    private_nodes: bool = Field(default=False, description="Give the nodes no external IP addresses.")
    public_endpoint: bool = Field(default=True, description="Give the control plane an IP address on the Internet.")
    authorized_networks: list[Cidr] = Field(
        default=[],
        description="IPv4 ranges that can reach the control plane by its IP address. Default: all. Google's provider "
        "cannot remove them: if you empty the list, the cloud keeps the last ranges until you run `gcloud "
        "container clusters update NAME --location LOCATION --no-enable-master-authorized-networks`.",
        examples=[["203.0.113.0/24"]],
    )
    dns_endpoint: bool = Field(
        default=False, description="Give the control plane a DNS name. IAM decides who can reach it."
    )
    node_service_account: str | None = Field(
        default=None,
        description="Google service account of the nodes. If you set a name, the stack creates the account with the "
        "roles that nodes need and no others. If you set an e-mail address, the account must exist. "
        "Default: the default account of Compute Engine. A change replaces every node pool of the stack "
        "before the old account is deleted. Nodes that GKE created itself (Autopilot, compute classes) "
        "keep the old account: delete them after the update.",
        examples=["gke-nodes"],
    )
    maintenance: Maintenance | None = Field(
        default=None, description="When GKE upgrades the cluster and its nodes. Default: at any time."
    )
    labels: Labels = Field(default={}, description="Google Cloud resource labels of the cluster.")
    protect: bool = Field(
        default=False, description="Refuse to delete the cluster. To delete it, set this to false and apply that first."
    )


class Grant(Section):
    """A role on a bucket for a Kubernetes service account, through Workload Identity Federation."""

    namespace: DnsLabel = Field(description="Namespace of the service account.")
    service_account: DnsLabel = Field(default="default", description="Kubernetes service account that gets the role.")
    role: str = Field(default="roles/storage.objectUser", description="IAM role on the bucket.")


class Bucket(Section):
    """A Cloud Storage bucket for models and checkpoints."""

    name: str = Field(description="Name of the bucket, globally unique. `{project}` is replaced by the project's id.")
    location: str | None = Field(
        default=None,
        description="Region or multi-region of the bucket. Default: the cluster's region.",
        examples=["europe-west4"],
    )
    grants: list[Grant] = Field(default=[], description="Roles on the bucket for Kubernetes service accounts.")
    delete_after_days: int | None = Field(
        default=None, ge=1, description="Age at which objects are deleted, in days. Default: never."
    )
    soft_delete_days: int = Field(
        default=7,
        ge=0,
        le=90,
        description="Days for which deleted objects can be restored: 7 to 90, or 0 to turn soft delete off.",
    )
    versioning: bool = Field(default=False, description="Keep overwritten and deleted objects as older versions.")
    on_destroy: Literal["keep", "delete"] = Field(
        default="keep",
        description="What happens to the bucket when the stack is destroyed. keep: it stays; delete: it is deleted "
        "with its data.",
    )
    adopt: bool = Field(
        default=False,
        description="Take over an existing bucket of this name, for example one that an earlier stack kept.",
    )
    protect: bool = Field(
        default=False, description="Refuse to delete the bucket. To delete it, set this to false and apply that first."
    )


class Autoscaling(Section):
    """Minimum and maximum size of an autoscaled pool."""

    min_nodes: int = Field(default=0, ge=0, description="Minimum number of nodes, in all zones together.")
    max_nodes: int = Field(ge=1, description="Maximum number of nodes, in all zones together.")


class OnDemand(Section):
    """Standard capacity: nodes stay until they are deleted."""

    mode: Literal["onDemand"] = Field(default="onDemand", description="Standard capacity.")


class Spot(Section):
    """Spot capacity: cheap, and Google takes it back with 30 seconds' notice."""

    mode: Literal["spot"] = Field(description="Spot capacity.")


class Reservation(Section):
    """Capacity of a reservation."""

    mode: Literal["reservation"] = Field(description="Capacity of a reservation.")
    reservation: str = Field(description="Name of the reservation.", examples=["h100-march"])


class FlexStart(Section):
    """Flex-start of Dynamic Workload Scheduler: nodes start when capacity is free, for a limited time."""

    mode: Literal["flexStart"] = Field(description="Flex-start capacity: nodes start when capacity is free.")
    max_run_duration_seconds: int = Field(
        default=MAX_RUN_SECONDS,
        ge=MIN_RUN_SECONDS,
        le=MAX_RUN_SECONDS,
        description="Maximum lifetime of a node, in seconds.",
    )


class QueuedFlexStart(Section):
    """Flex-start with queued provisioning: all nodes of a request start together, through Kueue."""

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

    renamed_keys = {"createFirst": "createBeforeDelete"}  # 0.4.0

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


class ClassFlexStart(Section):
    """Flex-start as a priority of a compute class. GKE can replace a node before its time ends."""

    mode: Literal["flexStart"] = Field(description="Flex-start capacity: nodes start when capacity is free.")
    max_run_duration_seconds: int | None = Field(
        default=None,
        ge=MIN_RUN_SECONDS,
        le=MAX_RUN_SECONDS,
        description="Maximum lifetime of a node, in seconds. Default: GKE's maximum.",
    )
    recycle_lead_time_seconds: int | None = Field(
        default=None,
        ge=1,
        le=MAX_RUN_SECONDS,
        description="Time before the end of a node's life at which GKE creates its replacement, in seconds.",
    )


ClassCapacity = Annotated[OnDemand | Spot | Reservation | ClassFlexStart, Field(discriminator="mode")]


class Priority(Section):
    """One choice of a compute class: a machine type and its capacity."""

    machine_type: str = Field(description="Machine type of the nodes.")
    capacity: ClassCapacity = Field(default=OnDemand(), description="How Google provides the machine.")
    driver: Literal["default", "latest"] | None = Field(
        default=None, description="NVIDIA driver. Default: GKE chooses.", examples=["latest"]
    )


class ComputeClass(Section):
    """A GKE ComputeClass: choices in order of preference. GKE takes the first available one."""

    name: DnsLabel = Field(description="Name of the class. Workloads select it by this name.")
    priorities: list[Priority] = Field(min_length=1, description="Choices, in order of preference.")
    when_unsatisfiable: Literal["DoNotScaleUp", "ScaleUpAnyway"] = Field(
        default="DoNotScaleUp",
        description="What GKE does if no choice is available. DoNotScaleUp: pods wait; ScaleUpAnyway: GKE takes any "
        "machine type.",
    )
    auto_create_pools: bool = Field(
        default=True, description="Let GKE create the node pools. If false, they must exist."
    )


class PriorityClass(Section):
    """A Kubernetes PriorityClass. Kueue orders and preempts workloads by it."""

    name: DnsLabel = Field(description="Name of the class.")
    value: int = Field(ge=-2147483648, le=1000000000, description="Priority. A higher value goes first.")
    preemption: Literal["Never", "PreemptLowerPriority"] = Field(
        default="PreemptLowerPriority", description="Whether pods of the class may preempt pods of lower priority."
    )
    global_default: bool = Field(default=False, description="Use this class for pods that name none.")
    description: str = Field(default="", description="When to use the class, for the people who choose one.")


class TpuSlice(Section):
    """A TPU slice outside the pools of this stack: on Autopilot, or in an existing cluster."""

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


class Flavor(Section):
    """A Kueue ResourceFlavor: a type of node with quota of its own."""

    name: DnsLabel = Field(description="Name of the flavor.")
    pools: list[str] = Field(default=[], description="GPU or TPU pools that belong to the flavor. Default: any node.")
    tpu: TpuSlice | None = Field(default=None, description="TPU slice of the flavor, if the stack has no pools.")
    accelerator: str | None = Field(
        default=None, description="GPU type of the flavor, if the stack has no pools.", examples=["nvidia-l4"]
    )


def _quota_form(value: Any) -> str:
    return "resources" if isinstance(value, dict) else "derive"


class FlavorQuota(Section):
    """Quota of a cluster queue for one flavor."""

    flavor: str = Field(description="Name of the flavor.")
    quota: Annotated[
        Annotated[dict[str, Quantity], Tag("resources")] | Annotated[Literal["derive"], Tag("derive")],
        Discriminator(_quota_form),
    ] = Field(
        description="Nominal quota by resource. derive: the allocatable capacity of the flavor's pools at their "
        "maximum size."
    )
    borrowing_limit: dict[str, Quantity] = Field(
        default={},
        description="Maximum that this queue may borrow from its cohort, by resource. Default: all that others lend.",
        examples=[{"nvidia.com/gpu": "4"}],
    )
    lending_limit: dict[str, Quantity] = Field(
        default={},
        description="Maximum that this queue lends to its cohort, by resource. Default: its whole quota.",
        examples=[{"nvidia.com/gpu": "2"}],
    )


class Preemption(Section):
    """Which workloads Kueue may evict to admit a workload of the queue."""

    within_cluster_queue: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = Field(
        default="LowerPriority", description="Which workloads of the same cluster queue Kueue may evict."
    )
    reclaim_within_cohort: Literal["Never", "LowerPriority", "Any"] = Field(
        default="LowerPriority", description="Which workloads of the cohort Kueue may evict to take back lent quota."
    )


class ClusterQueue(Section):
    """A Kueue ClusterQueue: quota by flavor and resource, forevery namespace with a local queue to it."""

    name: DnsLabel = Field(description="Name of the cluster queue.")
    cohort: DnsLabel | None = Field(
        default=None,
        description="Group of cluster queues that lend each other unused quota. Default: no cohort.",
        examples=["gpus"],
    )
    flavors: list[FlavorQuota] = Field(min_length=1, description="Quota for each flavor, in order of preference.")
    preemption: Preemption = Field(
        default=Preemption(), description="Which workloads Kueue may evict to admit a workload of this queue."
    )
    queueing_strategy: Literal["BestEffortFIFO", "StrictFIFO"] | None = Field(
        default=None,
        description="Whether a workload that does not fit blocks later ones. Default: Kueue's own, BestEffortFIFO.",
    )


class LocalQueue(Section):
    """A Kueue LocalQueue: gives a namespace access to a cluster queue."""

    name: DnsLabel = Field(description="Name of the local queue. Workloads select it by this name.")
    namespace: DnsLabel = Field(description="Namespace of the local queue.")
    cluster_queue: str = Field(description="Cluster queue that provides the quota.")


class Queues(Section):
    """Kueue and its queues."""

    flavors: list[Flavor] = Field(default=[], description="Types of nodes with quota of their own.")
    cluster_queues: list[ClusterQueue] = Field(default=[], description="Quotas, and how cluster queues share them.")
    local_queues: list[LocalQueue] = Field(
        default=[], description="Local queues, which give namespaces access to cluster queues."
    )
    priority_classes: list[PriorityClass] = Field(default=[], description="Kubernetes PriorityClasses.")
    kueue_version: Version | None = Field(
        default=None,
        description="Version of the Kueue chart, if you upgrade Kueue separately. Default: the pinned version.",
        examples=["0.16.2"],
    )
    manager_replicas: int = Field(
        default=1,
        ge=1,
        le=5,
        description="Pods of Kueue's manager. While none runs, no pod starts in the namespaces that Kueue manages. 2 "
        "or more pods get a disruption budget and are spread over zones and nodes. Default: 1.",
    )
    pods_ready_timeout_seconds: int | None = Field(
        default=None,
        ge=0,
        description="Time after admission in which all pods of a workload must be ready, in seconds. Kueue evicts and "
        "requeues a workload that takes longer, which frees its quota and nodes. The limit is the same "
        "for all workloads; 0 means no limit. Default: 3600, or the longest `readyTimeoutSeconds` of a "
        "server in a queue; no limit if queued pods can wait for flex-start nodes.",
        examples=[1800],
    )
    jobset_version: Version | None = Field(
        default=None,
        description="Version of the JobSet chart, if you upgrade JobSet separately. Default: the pinned version.",
        examples=["0.11.1"],
    )


class TokenSecret(Section):
    """The Kubernetes Secret with the Hugging Face token, in the namespace of the workload."""

    name: DnsLabel = Field(default="hf-secret", description="Name of the Secret.")
    key: str = Field(default="hf_api_token", description="Key in the Secret.")


class Workload(Section):
    """Base of all servers and runs: their namespace, queue and pods."""

    # What messages call the workload.
    noun: ClassVar[str] = "training"

    name: DnsLabel = Field(description="Name of the workload.")
    namespace: DnsLabel = Field(default="llm", description="Namespace of the workload.")
    queue: str | None = Field(
        default=None, description="Local queue of the same namespace. Default: Kueue does not manage the workload."
    )
    priority_class: str | None = Field(
        default=None, description="PriorityClass of the pods. Default: the global default class, or else priority 0."
    )
    service_account: DnsLabel = Field(default="default", description="Kubernetes service account of the pods.")
    resources: Resources = Field(default=Resources(), description="Resource requests of one pod.")
    labels: Labels = Field(default={}, description="Additional labels of the pods.")
    env: dict[str, str] = Field(
        default={}, description="Additional environment variables of the container.", examples=[{"LOG_LEVEL": "info"}]
    )

    @property
    def token(self) -> TokenSecret | None:
        """The Secret with the Hugging Face token, if the workload reads one."""
        return None

    @property
    def bucket_volume(self) -> FuseVolume | None:
        """The bucket that the workload mounts, if any."""
        return None


class GpuWorkload(Workload):
    """A workload on GPUs: of a pool, of a compute class, or of a GPU type where Google manages the nodes."""

    pool: str | None = Field(default=None, description="GPU pool of this stack that the workload runs on.")
    accelerator: str | None = Field(
        default=None, description="GPU type, if the stack has no GPU pool: on Autopilot or an existing cluster."
    )
    compute_class: str | None = Field(default=None, description="Compute class of this stack that provides the nodes.")
    token_secret: TokenSecret = Field(default=TokenSecret(), description="Secret with the Hugging Face token.")

    @property
    def token(self) -> TokenSecret | None:
        return self.token_secret


class TpuWorkload(Workload):
    """A workload on TPUs: of a pool of this stack, or of a slice where Google manages the nodes."""

    pool: str | None = Field(default=None, description="TPU pool of this stack that the workload runs on.")
    tpu: TpuSlice | None = Field(
        default=None, description="TPU slice, if the stack has no TPU pool: on Autopilot or an existing cluster."
    )


class ScratchVolume(Section):
    """A disk created and deleted with each pod, for example for a model too large for the boot disk."""

    mount_path: str = Field(default="/tmp", description="Mount path in the container.")
    size: Request = Field(default="100Gi", description="Size of the disk, in bytes.")
    storage_class: DnsLabel = Field(default="premium-rwo", description="StorageClass of the disk.")


class ModelShape(Section):
    """Dimensions of a model outside the catalog, from its `config.json`."""

    parameters: int = Field(
        ge=1, description="Total number of parameters, including every expert of an MoE model.", examples=[8030261248]
    )
    layers: int = Field(ge=1, description="Number of hidden layers.", examples=[32])
    attention_heads: int = Field(ge=1, description="Attention heads per layer.", examples=[32])
    kv_heads: int = Field(ge=1, description="Key-value heads per layer.", examples=[8])
    head_size: int = Field(ge=1, description="Values per head.", examples=[128])
    context_length: int = Field(
        ge=1, description="Longest sequence that the model supports, in tokens.", examples=[131072]
    )
    sliding_window: int | None = Field(
        default=None,
        ge=1,
        description="Length of the sliding window, in tokens. Default: no layer has one.",
        examples=[4096],
    )
    sliding_layers: int = Field(default=0, ge=0, description="Number of layers with a sliding window.", examples=[21])
    latent_size: int | None = Field(
        default=None,
        ge=1,
        description="Values that a layer with multi-head latent attention caches per token: `kv_lora_rank` plus "
        "`qk_rope_head_dim`.",
        examples=[576],
    )
    bytes_per_parameter: float = Field(
        default=2, ge=0.25, le=4, description="Average size of a parameter, in bytes.", examples=[1]
    )
    kv_bytes: float = Field(default=2, ge=0.25, le=4, description="Size of a cached value, in bytes.", examples=[1])


class Server(Workload):
    """A model server of any engine: a Deployment and a Service."""

    noun: ClassVar[str] = "server"

    engine: str = Field(description="Engine that serves the model.")
    app: str | None = Field(
        default=None, description="Value of the label `app`, by which the Service selects the pods. Default: `name`."
    )
    container: DnsLabel = Field(default="inference-server", description="Name of the container.")
    image: str | None = Field(default=None, description="Container image. Default: the pinned image of the engine.")
    replicas: int = Field(default=1, ge=0, description="Number of pods. Cannot be set with an autoscaler.")
    port: int = Field(default=8000, ge=1, le=65535, description="Port of the container and of the Service.")
    service: DnsLabel | None = Field(default=None, description="Name of the Service. Default: `name`.")
    scratch: ScratchVolume | None = Field(
        default=None, description="Disk for data too large for the boot disk. Default: the boot disk."
    )
    probes: bool = Field(
        default=True, description="Create readiness, liveness and startup probes on the engine's health path."
    )
    disruption_budget: bool = Field(
        default=True, description="Create a PodDisruptionBudget that lets one pod at a time be evicted."
    )
    pod_monitoring: bool = Field(
        default=False, description="Create a PodMonitoring for Google Cloud Managed Service for Prometheus."
    )
    surge: bool = Field(
        default=True,
        description="How a rollout replaces pods. true: it first creates one more pod, which needs free quota; false: "
        "it first deletes a pod.",
    )
    drain_seconds: int = Field(
        default=15,
        ge=0,
        le=600,
        description="Time for which a terminating pod still answers requests, until no more are sent to it, in "
        "seconds. 0: not at all. Default: 15.",
    )
    termination_grace_period_seconds: int = Field(
        default=120,
        ge=1,
        description="Time in which a terminating pod can finish its requests, including `drainSeconds`, in seconds. "
        "On Spot nodes GKE allows less. Default: 120.",
    )
    ready_timeout_seconds: int = Field(
        default=3600, ge=1, description="Time that `up` waits for the first replica to be ready, in seconds."
    )
    model_shape: ModelShape | None = Field(
        default=None,
        description="Dimensions of the model. Default: those in the catalog.",
        examples=[
            {
                "parameters": 8030261248,
                "layers": 32,
                "attentionHeads": 32,
                "kvHeads": 8,
                "headSize": 128,
                "contextLength": 131072,
            }
        ],
    )


class GpuServer(Server, GpuWorkload):
    """A server on GPUs for a model from Hugging Face."""

    model: str = Field(description="Model id on Hugging Face.")
    gpus: int = Field(default=1, ge=1, description="GPUs per replica. The engine shards the model over them.")
    quantize: str | None = Field(
        default=None, description="Quantization method, as the engine names it. Default: none."
    )
    max_model_len: int | None = Field(
        default=None,
        ge=1,
        description="Longest sequence, prompt and answer together, in tokens. Default: with vLLM the model's context "
        "length, with TGI what the GPU memory allows.",
        examples=[16384],
    )


class Tgi(GpuServer):
    """Text Generation Inference."""

    engine: Literal["tgi"] = Field(default="tgi", description="Text Generation Inference.")
    port_variable: str = Field(
        default="PORT", description="Environment variable with the port that the image listens on."
    )


class Vllm(GpuServer):
    """vLLM."""

    engine: Literal["vllm"] = Field(description="vLLM.")
    arguments: list[str] = Field(
        default=[], description="Additional arguments of `vllm serve`.", examples=[["--max-num-seqs=64"]]
    )


class JetStream(Server, TpuWorkload):
    """JetStream with MaxText on a single-host TPU slice: the model server and its HTTP front end."""

    engine: Literal["jetstream"] = Field(description="JetStream with MaxText.")
    container: DnsLabel = Field(default="maxengine-server", description="Name of the container with the TPU.")
    model: str = Field(description="Model name in MaxText, for example gemma-7b.")
    tokenizer: str = Field(default="assets/tokenizer.gemma", description="Path of the tokenizer in the image.")
    checkpoint: str = Field(description="gs:// URI of the converted checkpoint.")
    batch_size: int = Field(default=4, ge=1, description="Decoding slots per chip.")
    max_prefill_length: int = Field(default=1024, ge=1, description="Maximum length of a prompt, in tokens.")
    max_target_length: int = Field(
        default=2048, ge=1, description="Maximum length of prompt and answer together, in tokens."
    )
    http_image: str | None = Field(
        default=None,
        description="Image of the HTTP front end. Default: the pinned image.",
        examples=["us-docker.pkg.dev/cloud-tpu-images/inference/jetstream-http:v0.2.2"],
    )
    metrics_port: int = Field(
        default=JETSTREAM_METRICS_PORT, ge=1, le=65535, description="Port of the server's metrics."
    )
    arguments: dict[str, str] = Field(
        default={},
        description="Additional MaxText settings by name, for example `ici_tensor_parallelism`.",
        examples=[{"ici_tensor_parallelism": "1"}],
    )


class Dataset(Section):
    """Training data on Hugging Face."""

    name: str = Field(default="b-mc2/sql-create-context", description="Dataset id on Hugging Face.")
    limit: int = Field(default=5000, ge=1, description="Maximum number of rows.")


class FuseVolume(Section):
    """A bucket mounted as a folder through the Cloud Storage FUSE CSI driver."""

    bucket: str = Field(description="Bucket of this stack, as named in `buckets`.")
    mount_path: str = Field(default="/model-data", description="Mount path in the container.")
    mount_options: str = Field(default="implicit-dirs", description="Mount options of the driver, separated by commas.")
    logging_severity: Literal["trace", "debug", "info", "warning", "error"] = Field(
        default="warning", description="Minimum severity of the driver's log entries."
    )
    sidecar_memory_limit: Request | None = Field(
        default="35Gi", description="Memory limit of the FUSE sidecar, in bytes."
    )
    sidecar_cpu: Request | None = Field(
        default=None, description="CPU request and limit of the FUSE sidecar, in cores. Default: the driver's own."
    )


class FineTune(GpuWorkload):
    """A fine-tuning run: a headless Service and an Indexed Job that Kueue starts, suspends and resumes."""

    kind: Literal["fineTune"] = Field(default="fineTune", description="A fine-tuning run on GPUs.")
    image: str = Field(default=versions.FINE_TUNE_IMAGE, description="Image of the training program.")
    base_model: str = Field(default="google/gemma-2-2b", description="Model on Hugging Face to start from.")
    new_model: str = Field(default="gemma-ft", description="Name of the tuned model.")
    model_path: str | None = Field(
        default=None,
        description="Folder for the checkpoints. A restarted run continues from the last one. Two runs cannot share a "
        "folder. Default: a folder with the name of the Job below `volume.mountPath`; with `fixedName` "
        "the folder model-gemma2/experiment there.",
        examples=["/model-data/experiments/first"],
    )
    experiment: str = Field(default="finetune-experiment", description="Name of the MLflow experiment.")
    dataset: Dataset = Field(default=Dataset(), description="Training data.")
    epochs: int = Field(default=1, ge=1, description="Passes over the data.")
    gradient_accumulation_steps: int = Field(default=2, ge=1, description="Batches between two updates of the weights.")
    checkpoint_steps: int = Field(default=10, ge=1, description="Steps between two checkpoints.")
    pods: int = Field(default=2, ge=1, description="Number of pods that train together.")
    gpus_per_pod: int = Field(default=2, ge=1, description="GPUs per pod.")
    volume: FuseVolume = Field(description="Bucket for the checkpoints.")
    service: DnsLabel | None = Field(default=None, description="Name of the headless Service. Default: `name`.")
    rendezvous_port: int = Field(default=29500, ge=1, le=65535, description="Port on which the pods find each other.")
    backoff_limit: int | None = Field(
        default=None,
        ge=0,
        description="Number of failed pods after which the Job fails. A pod that fails or is disrupted makes the "
        "others fail, and these count. Default: 4 for each pod; with `fixedName` 4.",
        examples=[8],
    )
    ignore_disruptions: bool | None = Field(
        default=None,
        description="Do not count node maintenance, eviction and preemption as failures. A failed pod is then "
        "replaced, not restarted in place. Default: true; with `fixedName` false.",
        examples=[False],
    )
    remove_incomplete_checkpoints: bool | None = Field(
        default=None,
        description="Delete checkpoints without `trainer_state.json` when the run starts. They were not written "
        "completely, and the run cannot continue from them. Default: true; with `fixedName` false.",
        examples=[False],
    )
    termination_grace_period_seconds: int = Field(
        default=60,
        ge=0,
        description="Time in which a preempted or evicted pod can finish, in seconds. The default image writes no "
        "checkpoint then: the work since the last one is lost. Default: 60.",
    )
    fixed_name: bool = Field(
        default=False,
        description="Use exactly `name` as the name of the Job. A changed Job then needs a new name. Otherwise the "
        "name ends in a hash of the content, and a changed Job runs beside the old one.",
    )

    @property
    def bucket_volume(self) -> FuseVolume | None:
        return self.volume


class TpuRun(Section):
    """The container of a TPU Job or JobSet."""

    image: str = Field(default=versions.JAX_TPU_IMAGE, description="Image of the container.")
    container: DnsLabel = Field(default="jax-tpu", description="Name of the container.")
    command: list[str] = Field(default=[], description="Command of the container. Default: the command of the image.")
    args: list[str] = Field(default=[], description="Arguments of the command.")
    ports: list[int] = Field(default=[8471, 8431], description="Ports that TPU workers listen on.")
    privileged: bool = Field(
        default=False, description="Run a privileged container. GKE has not needed one since version 1.28."
    )
    volume: FuseVolume | None = Field(
        default=None,
        description="Bucket to mount, for data and checkpoints. Default: none.",
        examples=[{"bucket": "checkpoints"}],
    )
    shared_memory: Request | None = Field(
        default=None,
        description="Size of /dev/shm, in bytes. It counts toward the memory of the container. Default: the container "
        "runtime's own, 64 MiB.",
        examples=["16Gi"],
    )
    token_secret: TokenSecret | None = Field(
        default=None,
        description="Secret with the Hugging Face token, which the container reads from HF_TOKEN. Default: no token.",
        examples=[{"name": "hf-secret"}],
    )
    ignore_disruptions: bool | None = Field(
        default=None,
        description="Do not count node maintenance, eviction and preemption as failures. A failed pod is then "
        "replaced, not restarted in place. Default: true; with `fixedName` false.",
        examples=[False],
    )
    termination_grace_period_seconds: int | None = Field(
        default=None,
        ge=0,
        description="Time in which a preempted or evicted pod can finish, in seconds. Default: 60; with `fixedName` "
        "Kubernetes' own, 30.",
        examples=[300],
    )
    fixed_name: bool = Field(
        default=False,
        description="Use exactly `name` as the name of the run. A changed run then needs a new name. Otherwise the "
        "name ends in a hash of the content, and a changed run runs beside the old one.",
    )

    @property
    def token(self) -> TokenSecret | None:
        return self.token_secret

    @property
    def bucket_volume(self) -> FuseVolume | None:
        return self.volume


class Multislice(TpuRun, Workload):
    """A JobSet over several equal multi-host TPU slices: one child Job for each slice and its node pool."""

    kind: Literal["multislice"] = Field(description="A JobSet over several TPU slices.")
    slices: int = Field(ge=1, description="Number of TPU slices that train together.")
    pools: list[str] = Field(default=[], description="TPU pools of this stack, at least one for each slice.")
    tpu: TpuSlice | None = Field(
        default=None, description="TPU slice, if the stack has no TPU pools: on Autopilot or an existing cluster."
    )
    host_network: bool = Field(
        default=False, description="Run the pods on the node's network. They then have no workload identity."
    )
    max_restarts: int = Field(
        default=4, ge=0, description="Restarts of the JobSet after a slice fails. Disruptions do not count."
    )


class TpuBatch(TpuRun, TpuWorkload):
    """A Job on one TPU slice: one pod, or one pod on each node of a multi-host slice."""

    noun: ClassVar[str] = "batch Job"

    service: DnsLabel | None = Field(
        default=None, description="Name of the headless Service of a multi-host Job. Default: the name of the Job."
    )
    backoff_limit: int | None = Field(
        default=None,
        ge=0,
        description="Number of failed pods after which the Job fails. Default: on a multi-host slice 4 for each pod, "
        "as a pod that fails or is disrupted makes the others fail, and with `fixedName` 0; on a "
        "single-host slice Kubernetes' own, 6.",
        examples=[0],
    )
    max_run_duration_seconds: int | None = Field(
        default=None,
        ge=MIN_RUN_SECONDS,
        le=MAX_RUN_SECONDS,
        description="Maximum duration of the run on queuedFlexStart capacity, in seconds. Default: that of the pool.",
    )


class ScaledMetric(Section):
    """A metric to scale by, and its target per replica."""

    metric: Literal["prefillBacklog", "slotsUsed", "tpuMemory"] = Field(description="Metric to scale by.")
    target: Request = Field(
        description="Target per replica: requests (prefillBacklog), a fraction (slotsUsed, tpuMemory) or bytes "
        "(tpuMemory with stackdriver)."
    )


class ExistingDeployment(Section):
    """A JetStream Deployment that already exists in the cluster."""

    name: DnsLabel = Field(description="Name of the Deployment.", examples=["maxengine-server"])
    namespace: DnsLabel = Field(default="default", description="Namespace of the Deployment.")
    app: str = Field(description="Value of the label `app` of its pods.", examples=["maxengine-server"])
    metrics_port: str = Field(default="metrics", description="Name of the container port with the server's metrics.")


class Autoscaler(Section):
    """A HorizontalPodAutoscaler of a JetStream server, on its own metrics, TPU metrics or both."""

    name: DnsLabel = Field(description="Name of the HorizontalPodAutoscaler.")
    server: str | None = Field(default=None, description="JetStream server of this stack that is scaled.")
    deployment: ExistingDeployment | None = Field(
        default=None, description="Existing Deployment that is scaled, instead of `server`."
    )
    adapter: Literal["stackdriver", "prometheus"] = Field(
        description="Metrics adapter that the HorizontalPodAutoscaler reads from."
    )
    min_replicas: int = Field(default=1, ge=1, description="Minimum number of replicas.")
    max_replicas: int = Field(ge=1, description="Maximum number of replicas.")
    metrics: list[ScaledMetric] = Field(
        min_length=1, description="Metrics to scale by. The metric that requests the most replicas decides."
    )
    scrape_interval_seconds: int = Field(
        default=15, ge=5, le=60, description="Time between two scrapes of the server's metrics, in seconds."
    )
    scale_out_window_seconds: int = Field(
        default=0,
        ge=0,
        le=3600,
        description="Stabilization window for scaling out, in seconds. The lowest number of replicas requested within "
        "it counts.",
    )
    scale_in_window_seconds: int = Field(
        default=300,
        ge=0,
        le=3600,
        description="Stabilization window for scaling in, in seconds. The highest number of replicas requested within "
        "it counts.",
    )
    tpu_container: DnsLabel | None = Field(
        default=None,
        description="Container whose TPU memory counts. Default: each container of a JetStream pod that can hold the "
        "TPU.",
        examples=["maxengine-server"],
    )


class Tenant(Section):
    """A team with a namespace of its own: its members, what they may do, and what they may use."""

    name: DnsLabel = Field(description="Name of the namespace.", examples=["team-a"])
    members: list[str] = Field(
        default=[],
        description="Who may submit work: user:E-MAIL, group:E-MAIL (Google Groups for RBAC) or serviceAccount:E-MAIL.",
        examples=[["group:team-a@example.com"]],
    )
    service_account: DnsLabel = Field(
        default="workload",
        description="Kubernetes service account of the tenant's workloads. The stack creates it with the tenant.",
    )
    deployer: DnsLabel = Field(
        default="deployer", description="Kubernetes service account that may submit work as members may."
    )
    priority_classes: list[str] = Field(
        default=[],
        description="Priority classes that the tenant may use. Default: only pods without one are allowed.",
        examples=[["training"]],
    )
    quota: dict[str, Quantity] = Field(
        default={},
        description="Maximum in the namespace by resource, for example pods or requests.cpu.",
        examples=[{"pods": "50"}],
    )
    buckets: list[str] = Field(
        default=[],
        description="Buckets of this stack that the tenant reads and writes, as named in `buckets`.",
        examples=[["team-a-data"]],
    )
    pod_security: Literal["privileged", "baseline", "restricted"] = Field(
        default="baseline", description="Pod Security level that the pods must meet."
    )
    ingress_from: list[DnsLabel] = Field(
        default=[],
        description="Namespaces whose pods may connect to the tenant's pods. Default: only its own.",
        examples=[["gateway"]],
    )


class Monitoring(Section):
    """Dashboards and alerts in Cloud Monitoring for the stack's queues, servers, TPUs and Jobs."""

    dashboards: bool = Field(default=True, description="Create dashboards.")
    alerts: bool = Field(default=True, description="Create alerts.")
    channels: list[str] = Field(
        default=[],
        description="Notification channels of the alerts: projects/PROJECT/notificationChannels/ID.",
        examples=[["projects/my-project/notificationChannels/123"]],
    )
    queue_stuck_minutes: int = Field(
        default=60,
        ge=5,
        le=1410,
        description="Time for which a queue may have pending workloads and admit none before an alert, in minutes.",
    )
    preemptions_per_hour: int = Field(
        default=10, ge=1, description="Preemptions of a queue per hour that cause an alert."
    )
    server_down_minutes: int = Field(
        default=5,
        ge=1,
        le=1410,
        description="Time for which a server may have no ready replica before an alert, in minutes.",
    )


class Waiver(Section):
    """An exception from a policy of the policy pack. Each preview reports what it allows, with the reason."""

    policy: str = Field(description="Name of the policy.", examples=["no-privileged-pods"])
    resource: str = Field(
        description="Kind and name of the resource. `*` matches any text.", examples=["Job llm/finetune-*"]
    )
    reason: str = Field(
        min_length=1,
        description="Why the exception exists, and who is responsible for it.",
        examples=["research, until March"],
    )


@dataclass(frozen=True)
class Unparsed:
    """Parts of a configuration that could not be parsed: paths of sections and items, and names of the items.

    Rules run on the rest. This keeps them from refusing a reference to an item that is only mistyped.
    """

    paths: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()

    def overlaps(self, section: str) -> bool:
        """Whether the section, a part of it, or a section around it could not be parsed."""
        return any(
            path == section
            or path.startswith((f"{section}[", f"{section}."))
            or section.startswith((f"{path}[", f"{path}."))
            for path in self.paths
        )

    def may_contain(self, section: str, name: str) -> bool:
        """Whether the unparsed part of the section may contain an item called `name`."""
        return name in self.names or any(section == path or section.startswith(f"{path}.") for path in self.paths)


class Settings(Section):
    """A whole stack: every section of its configuration."""

    enable_apis: bool = Field(default=False, description="Enable the Google Cloud APIs that the stack needs.")
    policies: Literal["advisory", "mandatory"] = Field(
        default="advisory",
        description="What a violation of the policy pack does. advisory: it is reported; mandatory: it stops the "
        "deployment.",
    )
    waivers: list[Waiver] = Field(default=[], description="Exceptions from policies.")
    hf_token_secret: str | None = Field(
        default=None,
        description="Secret Manager secret with the Hugging Face token: its id, or projects/PROJECT/secrets/ID. GKE "
        "copies the token into the cluster; this program never reads it. Default: the token in "
        "`gke-ai:hfToken`.",
        examples=["hf-token"],
    )
    cluster: Cluster = Field(default=Cluster(), description="The GKE cluster.")
    buckets: list[Bucket] = Field(default=[], description="Cloud Storage buckets.")
    gpu_pools: list[GpuPool] = Field(default=[], description="GPU node pools of a Standard cluster.")
    tpu_pools: list[TpuPool] = Field(default=[], description="TPU node pools of a Standard cluster.")
    compute_classes: list[ComputeClass] = Field(
        default=[], description="ComputeClasses: capacity in order of preference."
    )
    queues: Queues | None = Field(default=None, description="Kueue and its queues.")
    serving: list[Tgi | Vllm | JetStream] = Field(default=[], description="Model servers.")
    training: list[FineTune | Multislice] = Field(
        default=[], description="Training runs, in the order in which they are submitted."
    )
    batch: list[TpuBatch] = Field(default=[], description="Jobs, each on one TPU slice.")
    autoscaling: list[Autoscaler] = Field(default=[], description="Autoscalers of JetStream servers.")
    tenants: list[Tenant] = Field(default=[], description="Teams with a namespace of their own.")
    monitoring: Monitoring | None = Field(default=None, description="Dashboards and alerts in Cloud Monitoring.")
    calibration: str | None = Field(
        default=None,
        description="File with the measurements of `python -m ops.verify` on the cluster, relative to the project. "
        "Measured figures replace computed ones.",
        examples=["calibration/prod.yaml"],
    )

    _unparsed: Unparsed = PrivateAttr(default_factory=Unparsed)
    _measured: Calibration = PrivateAttr(default_factory=Calibration)

    @property
    def measured(self) -> Calibration:
        """Figures of the calibration file; empty if the configuration names no file."""
        return self._measured

    @property
    def unparsed(self) -> Unparsed:
        """Parts that could not be parsed. Empty in all settings that `load` returns."""
        return self._unparsed
