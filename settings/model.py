"""What a stack may ask for, as typed data: one class a section of the configuration, one field a key.

Keys are written in camelCase in YAML (`gpuPools[0].machineType`) and read in snake_case here. A section says what the
user wants; what Google Cloud offers stands in `catalog`, and what fits together is checked in `settings.rules`.
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
    # YAML reads `cpu: 4` as a number; Kubernetes takes it for a quantity, and so do we.
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _not_negative(text: str) -> str:
    if parse_quantity(text) < 0:
        raise ValueError("is below zero")
    return text


def _positive(text: str) -> str:
    if parse_quantity(text) <= 0:
        raise ValueError("is not above zero")
    return text


# For the schema: as `parse_quantity` reads it, without a sign.
_FORM = r"([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,3})?$"
_QUANTITY = {"type": ["string", "number"], "format": "quantity", "pattern": f"^{_FORM}", "minimum": 0}
_REQUEST = {**_QUANTITY, "pattern": f"^(?=[0-9.]*[1-9]){_FORM}", "exclusiveMinimum": 0}
# A Kubernetes resource quantity, as text: "4", "500m", "30Gi".
Quantity = Annotated[str, AfterValidator(_not_negative), BeforeValidator(_number_as_text), WithJsonSchema(_QUANTITY)]
# One that a container asks for: nothing at all is written by leaving the key out.
Request = Annotated[str, AfterValidator(_positive), BeforeValidator(_number_as_text), WithJsonSchema(_REQUEST)]
Labels = dict[str, str]
# A version of a chart.
Version = Annotated[str, StringConstraints(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")]


def _network(text: str) -> str:
    try:
        return str(IPv4Network(text))
    except ValueError:
        raise PydanticCustomError("network", "is no range of IPv4 addresses") from None


# A range of IPv4 addresses.
Cidr = Annotated[str, AfterValidator(_network), WithJsonSchema({"type": "string", "format": "ipv4-range"})]


class Section(BaseModel):
    """Base of every section: camelCase keys, unknown keys refused, immutable once read."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)

    # Former keys of this section and their new names. A former key is refused with the new name.
    renamed_keys: ClassVar[Mapping[str, str]] = {}

    # Where this section stands in the configuration; settings.reading sets it on what it reads.
    _path: str = PrivateAttr(default="")

    def at(self, key: str) -> str:
        """The path of one of this section's keys in the configuration: `gke-ai:gpuPools[0].machineType`."""
        return f"{self._path}.{key}" if self._path else key


class Resources(Section):
    """CPU (cores), memory and ephemeral storage (bytes, as Kubernetes quantities) of one pod; limits equal requests."""

    cpu: Request | None = Field(default=None, description="cores")
    memory: Request | None = Field(default=None, description="bytes")
    ephemeral_storage: Request | None = Field(default=None, description="bytes of the node's local storage")


class SystemPool(Section):
    """The pool of a Standard cluster that controllers run on."""

    name: GkeName = Field(default="default-pool", description="name of the pool")
    machine_type: str = Field(default="e2-standard-4", description="machine of its nodes")
    nodes_per_zone: int = Field(default=1, ge=1, le=1000, description="nodes in each zone of the cluster")
    zones: list[str] = Field(
        default=[],
        description="zones of the pool; none: every default zone of the region",
        examples=[["us-central1-a"]],
    )


class Vpc(Section):
    """A VPC network of the cluster's own: one subnetwork, ranges for pods and Services, and Cloud NAT."""

    name: GkeName | None = Field(
        default=None, description="of the network and its parts; none: the cluster's name", examples=["ai-prod"]
    )
    nodes_cidr: Cidr = Field(default="10.0.0.0/20", description="addresses of nodes")
    pods_cidr: Cidr = Field(default="10.4.0.0/14", description="addresses of pods; GKE gives each node a /24 of it")
    services_cidr: Cidr = Field(default="10.8.0.0/20", description="addresses of Services")
    nat: bool = Field(default=True, description="Cloud NAT, by which private nodes reach the Internet")


# A moment in UTC: GKE gives others back in UTC, and each preview would show a change.
Moment = Annotated[
    str,
    StringConstraints(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]


class MaintenanceWindow(Section):
    """When GKE may upgrade the cluster and its nodes: a first window, and how it recurs."""

    start_time: Moment = Field(description="start of the first window, in UTC", examples=["2026-01-03T00:00:00Z"])
    end_time: Moment = Field(
        description="end of the first window, in UTC, at least 4 hours later", examples=["2026-01-03T08:00:00Z"]
    )
    recurrence: str = Field(description="RRULE of RFC 5545", examples=["FREQ=WEEKLY;BYDAY=SA,SU"])


class MaintenanceExclusion(Section):
    """A time in which GKE does not upgrade, such as a long run."""

    name: GkeName = Field(description="name of the exclusion", examples=["pretraining"])
    start_time: Moment = Field(description="start, in UTC", examples=["2026-03-01T00:00:00Z"])
    end_time: Moment = Field(description="end, in UTC", examples=["2026-03-21T00:00:00Z"])
    scope: Literal["NO_UPGRADES", "NO_MINOR_UPGRADES", "NO_MINOR_OR_NODE_UPGRADES"] = Field(
        default="NO_UPGRADES", description="Upgrades that are excluded. NO_UPGRADES: all of them, for up to 30 days."
    )


class Maintenance(Section):
    """When GKE upgrades the cluster and its nodes by itself."""

    window: MaintenanceWindow | None = Field(default=None, description="Recurring window. Default: at any time.")
    exclusions: list[MaintenanceExclusion] = Field(default=[], description="times without upgrades")


class Cluster(Section):
    """The GKE cluster that everything runs in."""

    name: GkeName = Field(default="llm-cluster", description="name of the cluster")
    mode: Literal["standard", "autopilot", "existing"] = Field(
        default="autopilot",
        description="autopilot: GKE manages the nodes; standard: this stack does; existing: a cluster that is there",
    )
    existing_mode: Literal["standard", "autopilot"] = Field(
        default="standard", description="what an existing cluster is; only read with mode: existing"
    )
    location: str = Field(default="us-central1", description="region, or a zone for a zonal Standard cluster")
    release_channel: Literal["rapid", "regular", "stable"] = Field(
        default="regular", description="how soon GKE brings new versions"
    )
    system_pool: SystemPool = Field(
        default=SystemPool(), description="pool of a Standard cluster that controllers run on"
    )
    network: str | None = Field(
        default=None, description="VPC network; none: the project's default network", examples=["shared-vpc"]
    )
    subnetwork: str | None = Field(
        default=None, description="subnetwork of the network; none: the region's default", examples=["gke-us-central1"]
    )
    pods_range: str | None = Field(
        default=None, description="secondary range of the subnetwork for pods; none: GKE makes one", examples=["pods"]
    )
    services_range: str | None = Field(
        default=None,
        description="secondary range of the subnetwork for Services; none: GKE makes one",
        examples=["services"],
    )
    vpc: Vpc | None = Field(default=None, description="a VPC of the cluster's own, instead of network and subnetwork")
    private_nodes: bool = Field(default=False, description="nodes without external addresses")
    public_endpoint: bool = Field(default=True, description="the control plane has an address on the Internet")
    authorized_networks: list[Cidr] = Field(
        default=[],
        description="IPv4 ranges that can reach the control plane by its address. Default: all. "
        "Google's provider cannot remove them: if you empty the list, the cloud keeps the last ranges until you run "
        "`gcloud container clusters update NAME --location LOCATION --no-enable-master-authorized-networks`",
        examples=[["203.0.113.0/24"]],
    )
    dns_endpoint: bool = Field(default=False, description="reach the control plane by its DNS name, with IAM")
    node_service_account: str | None = Field(
        default=None,
        description="account that nodes run as: a name, and it is made with what nodes need and no more; "
        "an e-mail address, and it is there; none: Compute Engine's default account. A change replaces every node pool "
        "of the stack before the old account is deleted. Nodes that GKE created itself (Autopilot, compute classes) "
        "keep the old account: delete them after the update",
        examples=["gke-nodes"],
    )
    maintenance: Maintenance | None = Field(
        default=None, description="When GKE upgrades the cluster and its nodes. Default: at any time."
    )
    labels: Labels = Field(default={}, description="resource labels of the cluster")
    protect: bool = Field(default=False, description="refuse to delete the cluster until this is false and applied")


class Grant(Section):
    """A role on a bucket for the Kubernetes service account of a namespace, through Workload Identity Federation."""

    namespace: DnsLabel = Field(description="namespace of the service account")
    service_account: DnsLabel = Field(default="default", description="Kubernetes service account that gets the role")
    role: str = Field(default="roles/storage.objectUser", description="role on the bucket")


class Bucket(Section):
    """A Cloud Storage bucket for models and checkpoints."""

    name: str = Field(description="globally unique; {project} stands for the project's id")
    location: str | None = Field(
        default=None, description="region of the bucket; none: the cluster's region", examples=["europe-west4"]
    )
    grants: list[Grant] = Field(default=[], description="who may use the bucket")
    delete_after_days: int | None = Field(default=None, ge=1, description="age at which objects are deleted, in days")
    soft_delete_days: int = Field(default=7, ge=0, le=90, description="0 turns soft delete off; else 7 to 90 days")
    versioning: bool = Field(default=False, description="keep what is overwritten or deleted as older versions")
    on_destroy: Literal["keep", "delete"] = Field(
        default="keep", description="keep: the bucket outlives the stack; delete: it goes, with its data"
    )
    adopt: bool = Field(
        default=False, description="take over the bucket of this name that exists, such as one an earlier stack kept"
    )
    protect: bool = Field(default=False, description="refuse to delete the bucket until this is false and applied")


class Autoscaling(Section):
    """Bounds of a pool that grows and shrinks: nodes in the whole pool."""

    min_nodes: int = Field(default=0, ge=0, description="nodes at least, all zones together")
    max_nodes: int = Field(ge=1, description="nodes at most, all zones together")


class OnDemand(Section):
    """Standard capacity: there until it is deleted."""

    mode: Literal["onDemand"] = Field(default="onDemand", description="standard capacity")


class Spot(Section):
    """Surplus capacity: cheap, taken back with 30 seconds' notice."""

    mode: Literal["spot"] = Field(description="surplus capacity")


class Reservation(Section):
    """Capacity of a named reservation."""

    mode: Literal["reservation"] = Field(description="capacity of a reservation")
    reservation: str = Field(description="name of the reservation", examples=["h100-march"])


class FlexStart(Section):
    """Dynamic Workload Scheduler, nodes as soon as there are any; they live for at most `max_run_duration_seconds`."""

    mode: Literal["flexStart"] = Field(description="capacity when there is some")
    max_run_duration_seconds: int = Field(
        default=MAX_RUN_SECONDS, ge=MIN_RUN_SECONDS, le=MAX_RUN_SECONDS, description="how long a node lives at most"
    )


class QueuedFlexStart(Section):
    """Dynamic Workload Scheduler with queued provisioning: all nodes of a request at once, through Kueue."""

    mode: Literal["queuedFlexStart"] = Field(description="all nodes of a request at once")
    max_run_duration_seconds: int = Field(
        default=MAX_RUN_SECONDS, ge=MIN_RUN_SECONDS, le=MAX_RUN_SECONDS, description="how long a node lives at most"
    )


Capacity = Annotated[OnDemand | Spot | Reservation | FlexStart | QueuedFlexStart, Field(discriminator="mode")]


class GpuPool(Section):
    """A node pool with NVIDIA GPUs in a Standard cluster."""

    renamed_keys = {"createFirst": "createBeforeDelete"}  # 0.4.0

    name: GkeName = Field(description="name of the pool")
    machine_type: str = Field(description="machine of its nodes")
    accelerator: str | None = Field(default=None, description="GPU type; none: the one that the machine type has")
    gpus_per_node: int | None = Field(default=None, ge=1, description="none: as many as the machine type has")
    driver: Literal["default", "latest", "disabled"] = Field(
        default="default", description="NVIDIA driver that GKE installs"
    )
    zones: list[str] = Field(default=[], description="zones of the pool; none: the zones of the cluster")
    nodes_per_zone: int | None = Field(default=None, ge=0, le=1000, description="fixed size; not with autoscaling")
    autoscaling: Autoscaling | None = Field(default=None, description="bounds of a pool that grows and shrinks")
    capacity: Capacity = Field(default=OnDemand(), description="how its machines are had")
    disk_size_gb: int = Field(default=200, ge=10, le=65536, description="boot disk of each node")
    disk_type: str | None = Field(
        default=None, description="boot disk; none: what the machine family wants", examples=["pd-ssd"]
    )
    labels: Labels = Field(default={}, description="Kubernetes labels of the nodes", examples=[{"team": "research"}])
    create_before_delete: bool = Field(
        default=False,
        description="Create the replacement pool before deleting the old one. The name gets a hash suffix; "
        "you pay for both meanwhile.",
    )
    protect: bool = Field(default=False, description="refuse to delete the pool until this is false and applied")


class TpuPool(Section):
    """A node pool of TPUs in a Standard cluster: nodes of single-host slices, or one multi-host slice."""

    name: GkeName = Field(description="name of the pool")
    version: str = Field(description="TPU version: v5e, v5p, v6e or tpu7x")
    topology: str = Field(description="chips of a slice along each side, such as 2x4")
    machine_type: str | None = Field(
        default=None, description="none: the machine that holds the whole slice, else the one with 4 chips"
    )
    zones: list[str] = Field(default=[], description="zones of the pool; none: the zones of the cluster")
    nodes_per_zone: int | None = Field(
        default=None, ge=0, le=1000, description="fixed size of a single-host pool; a multi-host one has its slice's"
    )
    autoscaling: Autoscaling | None = Field(
        default=None, description="bounds; of a multi-host pool nothing or the whole slice"
    )
    capacity: Capacity = Field(default=OnDemand(), description="how its machines are had")
    auto_repair: bool | None = Field(
        default=None, description="none: off on flex-start, where a repair ends the run", examples=[True]
    )
    workload_policy: str | None = Field(
        default=None,
        description="name of the placement policy of the slice, which tpu7x needs",
        examples=["tpu7x-4x4x4"],
    )
    disk_size_gb: int = Field(default=100, ge=10, le=65536, description="boot disk of each node")
    disk_type: str | None = Field(
        default=None, description="boot disk; none: what the machine family wants", examples=["hyperdisk-balanced"]
    )
    labels: Labels = Field(default={}, description="Kubernetes labels of the nodes", examples=[{"team": "research"}])
    protect: bool = Field(default=False, description="refuse to delete the pool until this is false and applied")


class ClassFlexStart(Section):
    """Flex-start as a choice of a compute class; a node can be recycled before its seven days end."""

    mode: Literal["flexStart"] = Field(description="capacity when there is some")
    max_run_duration_seconds: int | None = Field(
        default=None,
        ge=MIN_RUN_SECONDS,
        le=MAX_RUN_SECONDS,
        description="how long a node lives at most; none: GKE's longest",
    )
    recycle_lead_time_seconds: int | None = Field(
        default=None, ge=1, le=MAX_RUN_SECONDS, description="how long before its end a node gets a successor"
    )


ClassCapacity = Annotated[OnDemand | Spot | Reservation | ClassFlexStart, Field(discriminator="mode")]


class Priority(Section):
    """One choice of a compute class: a machine and how it is had."""

    machine_type: str = Field(description="machine of this choice")
    capacity: ClassCapacity = Field(default=OnDemand(), description="how the machine is had")
    driver: Literal["default", "latest"] | None = Field(
        default=None, description="NVIDIA driver; none: GKE's choice", examples=["latest"]
    )


class ComputeClass(Section):
    """A GKE ComputeClass: choices in order, the first that can be had is taken."""

    name: DnsLabel = Field(description="name of the class, which pods ask for")
    priorities: list[Priority] = Field(min_length=1, description="choices, the best first")
    when_unsatisfiable: Literal["DoNotScaleUp", "ScaleUpAnyway"] = Field(
        default="DoNotScaleUp", description="wait for one of the choices, or take a machine of any kind"
    )
    auto_create_pools: bool = Field(default=True, description="GKE makes the pools; else they must be there")


class PriorityClass(Section):
    """A Kubernetes PriorityClass; Kueue orders and preempts by it."""

    name: DnsLabel = Field(description="name of the class")
    value: int = Field(ge=-2147483648, le=1000000000, description="the higher goes first")
    preemption: Literal["Never", "PreemptLowerPriority"] = Field(
        default="PreemptLowerPriority", description="whether its pods may evict those of less priority"
    )
    global_default: bool = Field(default=False, description="the class of pods that name none")
    description: str = Field(default="", description="when to use it, for those who choose")


class TpuSlice(Section):
    """A TPU slice that no pool of this stack provides: on Autopilot, or in an existing cluster."""

    version: str = Field(description="TPU version: v5e, v5p, v6e or tpu7x")
    topology: str = Field(description="chips of the slice along each side, such as 2x4")
    machine_type: str | None = Field(
        default=None, description="none: the machine that holds the whole slice, else the one with 4 chips"
    )
    capacity: Literal["onDemand", "spot", "flexStart"] = Field(
        default="onDemand", description="how its machines are had"
    )


class Flavor(Section):
    """A Kueue ResourceFlavor: a kind of node that quota is given for."""

    name: DnsLabel = Field(description="name of the flavor")
    pools: list[str] = Field(default=[], description="GPU or TPU pools whose nodes this is; none: any node")
    tpu: TpuSlice | None = Field(default=None, description="slices that this is, where the stack has no pools")
    accelerator: str | None = Field(
        default=None, description="GPU type that this is, where the stack has no pools", examples=["nvidia-l4"]
    )


def _quota_form(value: Any) -> str:
    return "resources" if isinstance(value, dict) else "derive"


class FlavorQuota(Section):
    """What a cluster queue may use of one flavor."""

    flavor: str = Field(description="name of the flavor")
    quota: Annotated[
        Annotated[dict[str, Quantity], Tag("resources")] | Annotated[Literal["derive"], Tag("derive")],
        Discriminator(_quota_form),
    ] = Field(
        description="resource: nominal quota; derive: allocatable capacity of the flavor's pools at their largest"
    )
    borrowing_limit: dict[str, Quantity] = Field(
        default={},
        description="resource: the most to borrow of the cohort; unnamed: all that others lend",
        examples=[{"nvidia.com/gpu": "4"}],
    )
    lending_limit: dict[str, Quantity] = Field(
        default={},
        description="resource: the most to lend to the cohort; unnamed: the whole quota",
        examples=[{"nvidia.com/gpu": "2"}],
    )


class Preemption(Section):
    """Whom a workload of the queue may evict to start."""

    within_cluster_queue: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = Field(
        default="LowerPriority", description="whom of the same cluster queue"
    )
    reclaim_within_cohort: Literal["Never", "LowerPriority", "Any"] = Field(
        default="LowerPriority", description="whom of the cohort, when what was lent is wanted back"
    )


class ClusterQueue(Section):
    """A Kueue ClusterQueue: quota by flavor and resource, open to every namespace that has a local queue to it."""

    name: DnsLabel = Field(description="name of the cluster queue")
    cohort: DnsLabel | None = Field(
        default=None, description="group of cluster queues that lend each other what they don't use", examples=["gpus"]
    )
    flavors: list[FlavorQuota] = Field(min_length=1, description="what it grants of each flavor, the preferred first")
    preemption: Preemption = Field(default=Preemption(), description="whom its workloads may evict to start")
    queueing_strategy: Literal["BestEffortFIFO", "StrictFIFO"] | None = Field(
        default=None, description="whether what doesn't fit holds up what came later; none: Kueue's own, BestEffortFIFO"
    )


class LocalQueue(Section):
    """A Kueue LocalQueue: the door of a namespace to a cluster queue."""

    name: DnsLabel = Field(description="name of the queue, which workloads ask for")
    namespace: DnsLabel = Field(description="namespace that it is in")
    cluster_queue: str = Field(description="cluster queue that it leads to")


class Queues(Section):
    """Kueue and its queues."""

    flavors: list[Flavor] = Field(default=[], description="kinds of nodes that quota is given for")
    cluster_queues: list[ClusterQueue] = Field(default=[], description="quotas and how they are shared")
    local_queues: list[LocalQueue] = Field(default=[], description="doors of namespaces to cluster queues")
    priority_classes: list[PriorityClass] = Field(default=[], description="Kubernetes PriorityClasses")
    kueue_version: Version | None = Field(
        default=None,
        description="version of Kueue's chart, to upgrade it at another time; none: the pinned one",
        examples=["0.16.2"],
    )
    manager_replicas: int = Field(
        default=1,
        ge=1,
        le=5,
        description="pods of Kueue's manager. While none runs, no pod starts in the namespaces that it manages. With 2 "
        "or more they have a disruption budget and are spread over zones and nodes. Default: 1",
    )
    pods_ready_timeout_seconds: int | None = Field(
        default=None,
        ge=0,
        description="seconds after its admission in which all pods of a workload must be ready; else Kueue evicts it "
        "and queues it again, so that it holds no quota and no nodes in vain. The same for all workloads; 0: no limit. "
        "Default: 3600, or the longest `readyTimeoutSeconds` of a server in a queue; no limit where pods in a queue "
        "wait for flex-start nodes",
        examples=[1800],
    )
    jobset_version: Version | None = Field(
        default=None,
        description="version of JobSet's chart, to upgrade it at another time; none: the pinned one",
        examples=["0.11.1"],
    )


class TokenSecret(Section):
    """The Kubernetes Secret that holds the Hugging Face token, in the namespace of its user."""

    name: DnsLabel = Field(default="hf-secret", description="name of the Secret")
    key: str = Field(default="hf_api_token", description="key in the Secret")


class Workload(Section):
    """What everything that runs has in common: where it is, and under which queue."""

    name: DnsLabel = Field(description="name of the workload")
    namespace: DnsLabel = Field(default="llm", description="namespace that it runs in")
    queue: str | None = Field(default=None, description="local queue of the same namespace; none: not under Kueue")
    priority_class: str | None = Field(
        default=None, description="PriorityClass of its pods; none: the global default, else 0"
    )
    service_account: DnsLabel = Field(default="default", description="Kubernetes service account of its pods")
    resources: Resources = Field(default=Resources(), description="what one pod asks for")
    labels: Labels = Field(default={}, description="further labels of the pods")
    env: dict[str, str] = Field(
        default={}, description="further environment variables of the container", examples=[{"LOG_LEVEL": "info"}]
    )


class GpuWorkload(Workload):
    """A workload on GPUs: of a pool of this stack, of a compute class, or of a type where Google has the nodes."""

    pool: str | None = Field(default=None, description="GPU pool of this stack to run on")
    accelerator: str | None = Field(
        default=None, description="GPU type to run on where the stack has no pool: Autopilot or an existing cluster"
    )
    compute_class: str | None = Field(default=None, description="compute class of this stack to get nodes by")
    token_secret: TokenSecret = Field(default=TokenSecret(), description="Secret with the Hugging Face token")


class TpuWorkload(Workload):
    """A workload on TPUs: of a pool of this stack, or of a slice where Google has the nodes."""

    pool: str | None = Field(default=None, description="TPU pool of this stack to run on")
    tpu: TpuSlice | None = Field(
        default=None, description="slice to run on where the stack has no pool: Autopilot or an existing cluster"
    )


class ScratchVolume(Section):
    """A disk that comes and goes with each pod, for what is too large for the boot disk, such as a downloaded model."""

    mount_path: str = Field(default="/tmp", description="folder in the container")
    size: Request = Field(default="100Gi", description="size of the disk")
    storage_class: DnsLabel = Field(default="premium-rwo", description="StorageClass of the disk")


class ModelShape(Section):
    """Dimensions of a model that the catalog does not have, as its `config.json` gives them."""

    parameters: int = Field(
        ge=1, description="parameters in total, every expert of an MoE model included", examples=[8030261248]
    )
    layers: int = Field(ge=1, description="hidden layers", examples=[32])
    attention_heads: int = Field(ge=1, description="attention heads of a layer", examples=[32])
    kv_heads: int = Field(ge=1, description="key-value heads of a layer", examples=[8])
    head_size: int = Field(ge=1, description="values of a head", examples=[128])
    context_length: int = Field(
        ge=1, description="longest sequence that the model supports, in tokens", examples=[131072]
    )
    sliding_window: int | None = Field(
        default=None, ge=1, description="tokens that a layer with a sliding window attends to", examples=[4096]
    )
    sliding_layers: int = Field(default=0, ge=0, description="layers with a sliding window", examples=[21])
    latent_size: int | None = Field(
        default=None,
        ge=1,
        description="with multi-head latent attention: values that a layer caches per token, `kv_lora_rank` plus "
        "`qk_rope_head_dim`",
        examples=[576],
    )
    bytes_per_parameter: float = Field(
        default=2, ge=0.25, le=4, description="average bytes of a parameter", examples=[1]
    )
    kv_bytes: float = Field(default=2, ge=0.25, le=4, description="bytes of a cached value", examples=[1])


class Server(Workload):
    """A model server, whatever its engine: Deployment and Service."""

    engine: str = Field(description="what serves the model")
    app: str | None = Field(default=None, description="value of the label `app` that the Service selects; none: name")
    container: DnsLabel = Field(default="inference-server", description="name of the container")
    image: str | None = Field(default=None, description="none: the pinned image of the engine")
    replicas: int = Field(default=1, ge=0, description="pods; not with autoscaling, which decides them")
    port: int = Field(default=8000, ge=1, le=65535, description="port of the container and of the Service")
    service: DnsLabel | None = Field(default=None, description="name of the Service; none: name")
    scratch: ScratchVolume | None = Field(
        default=None, description="a disk for what is too large for the boot disk; none: the boot disk"
    )
    probes: bool = Field(default=True, description="readiness, liveness and startup probes on the engine's health path")
    disruption_budget: bool = Field(default=True, description="a PodDisruptionBudget of one pod at a time")
    pod_monitoring: bool = Field(default=False, description="a PodMonitoring for Managed Service for Prometheus")
    surge: bool = Field(
        default=True, description="roll out by a pod more, which needs free quota; false: by a pod less"
    )
    drain_seconds: int = Field(
        default=15,
        ge=0,
        le=600,
        description="seconds that a pod which is to end goes on answering, until no more requests are sent to it; "
        "0: none. Default: 15",
    )
    termination_grace_period_seconds: int = Field(
        default=120,
        ge=1,
        description="seconds that a pod has to end, `drainSeconds` included, with the requests that it is answering; "
        "on Spot nodes GKE allows less. Default: 120",
    )
    ready_timeout_seconds: int = Field(default=3600, ge=1, description="how long `up` waits for the first replica")
    model_shape: ModelShape | None = Field(
        default=None,
        description="dimensions of the model. Default: those in the catalog",
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
    """A server of a model of Hugging Face on GPUs."""

    model: str = Field(description="model id on Hugging Face")
    gpus: int = Field(default=1, ge=1, description="GPUs of one replica; the model is sharded over them")
    quantize: str | None = Field(default=None, description="quantisation method, in the engine's own words")
    max_model_len: int | None = Field(
        default=None,
        ge=1,
        description="longest sequence, prompt and answer together, in tokens. Default: with vLLM the model's context "
        "length, with TGI what the GPU memory allows",
        examples=[16384],
    )


class Tgi(GpuServer):
    """Text Generation Inference."""

    engine: Literal["tgi"] = Field(default="tgi", description="Text Generation Inference")
    port_variable: str = Field(default="PORT", description="environment variable that tells the image its port")


class Vllm(GpuServer):
    """vLLM."""

    engine: Literal["vllm"] = Field(description="vLLM")
    arguments: list[str] = Field(
        default=[], description="further arguments of `vllm serve`", examples=[["--max-num-seqs=64"]]
    )


class JetStream(Server, TpuWorkload):
    """JetStream with MaxText on a single-host TPU slice: the model server and its HTTP front."""

    engine: Literal["jetstream"] = Field(description="JetStream with MaxText")
    container: DnsLabel = Field(default="maxengine-server", description="name of the container with the TPU")
    model: str = Field(description="model name of MaxText, such as gemma-7b")
    tokenizer: str = Field(default="assets/tokenizer.gemma", description="path of the tokenizer in the image")
    checkpoint: str = Field(description="gs:// address of the converted checkpoint")
    batch_size: int = Field(default=4, ge=1, description="decoding slots of each chip")
    max_prefill_length: int = Field(default=1024, ge=1, description="tokens")
    max_target_length: int = Field(default=2048, ge=1, description="tokens of prompt and answer together")
    http_image: str | None = Field(
        default=None,
        description="of the HTTP front; none: the pinned one",
        examples=["us-docker.pkg.dev/cloud-tpu-images/inference/jetstream-http:v0.2.2"],
    )
    metrics_port: int = Field(
        default=JETSTREAM_METRICS_PORT, ge=1, le=65535, description="port with the server's metrics"
    )
    arguments: dict[str, str] = Field(
        default={},
        description="further settings of MaxText: ici_tensor_parallelism",
        examples=[{"ici_tensor_parallelism": "1"}],
    )


class Dataset(Section):
    """Training data on Hugging Face."""

    name: str = Field(default="b-mc2/sql-create-context", description="dataset on Hugging Face")
    limit: int = Field(default=5000, ge=1, description="rows")


class FuseVolume(Section):
    """The bucket as a folder, through the Cloud Storage FUSE CSI driver."""

    bucket: str = Field(description="bucket of this stack, by the name written in `buckets`")
    mount_path: str = Field(default="/model-data", description="folder in the container")
    mount_options: str = Field(default="implicit-dirs", description="options of the driver, separated by commas")
    logging_severity: Literal["trace", "debug", "info", "warning", "error"] = Field(
        default="warning", description="what the driver logs at least"
    )
    sidecar_memory_limit: Request | None = Field(default="35Gi", description="of the FUSE sidecar")
    sidecar_cpu: Request | None = Field(default=None, description="request and limit of the FUSE sidecar")


class FineTune(GpuWorkload):
    """A fine-tuning run: a headless Service and an Indexed Job that Kueue starts, suspends and resumes."""

    kind: Literal["fineTune"] = Field(default="fineTune", description="a fine-tuning run on GPUs")
    image: str = Field(default=versions.FINE_TUNE_IMAGE, description="image of the training program")
    base_model: str = Field(default="google/gemma-2-2b", description="model on Hugging Face to start from")
    new_model: str = Field(default="gemma-ft", description="name of the tuned model")
    model_path: str | None = Field(
        default=None,
        description="folder of the run's checkpoints, from the last of which it goes on when it is started again. No "
        "two runs can have the same. Default: a folder with the name of the Job below `volume.mountPath`; with "
        "`fixedName` the folder model-gemma2/experiment there",
        examples=["/model-data/experiments/first"],
    )
    experiment: str = Field(default="finetune-experiment", description="name of the experiment, in MLflow's sense")
    dataset: Dataset = Field(default=Dataset(), description="training data")
    epochs: int = Field(default=1, ge=1, description="passes over the data")
    gradient_accumulation_steps: int = Field(default=2, ge=1, description="batches between two updates of the weights")
    checkpoint_steps: int = Field(default=10, ge=1, description="steps between checkpoints")
    pods: int = Field(default=2, ge=1, description="pods that train together")
    gpus_per_pod: int = Field(default=2, ge=1, description="GPUs of each pod")
    volume: FuseVolume = Field(description="bucket that checkpoints are written to")
    service: DnsLabel | None = Field(default=None, description="name of the headless Service; none: name")
    rendezvous_port: int = Field(default=29500, ge=1, le=65535, description="port where the pods find each other")
    backoff_limit: int | None = Field(
        default=None,
        ge=0,
        description="failed pods before the Job fails. One that fails or is disrupted takes the others with it, and "
        "these count. Default: 4 for each pod; with `fixedName` 4",
        examples=[8],
    )
    ignore_disruptions: bool | None = Field(
        default=None,
        description="node maintenance, eviction and preemption do not count as failures; a pod that fails is replaced, "
        "not restarted in place. Default: true, unless `fixedName`",
        examples=[False],
    )
    remove_incomplete_checkpoints: bool | None = Field(
        default=None,
        description="when the run starts, delete checkpoints without `trainer_state.json`: their writing was cut off, "
        "and the run could not go on from them. Default: true, unless `fixedName`",
        examples=[False],
    )
    termination_grace_period_seconds: int = Field(
        default=60,
        ge=0,
        description="seconds that a pod has to end by itself when it is preempted or evicted. The default image writes "
        "no checkpoint then: what was done since the last one is lost. Default: 60",
    )
    fixed_name: bool = Field(
        default=False,
        description="the Job is called exactly `name`, and a changed Job needs a new name; "
        "else a hash of its content follows, so that a changed Job runs beside the old one",
    )


class TpuRun(Section):
    """What the containers of a TPU Job run; mixed into Jobs and JobSets."""

    image: str = Field(default=versions.JAX_TPU_IMAGE, description="image of the container")
    container: DnsLabel = Field(default="jax-tpu", description="name of the container")
    command: list[str] = Field(default=[], description="of the container; none: the image's")
    args: list[str] = Field(default=[], description="arguments of the command")
    ports: list[int] = Field(default=[8471, 8431], description="ports that TPU workers listen on")
    privileged: bool = Field(default=False, description="a privileged container; GKE needs none since 1.28")
    volume: FuseVolume | None = Field(
        default=None,
        description="bucket to mount, for data and checkpoints. Default: none",
        examples=[{"bucket": "checkpoints"}],
    )
    shared_memory: Request | None = Field(
        default=None,
        description="size of /dev/shm, which counts as memory of the container. Default: that of the container "
        "runtime, 64 MiB",
        examples=["16Gi"],
    )
    token_secret: TokenSecret | None = Field(
        default=None,
        description="Secret with the Hugging Face token, which the container has as HF_TOKEN. Default: no token",
        examples=[{"name": "hf-secret"}],
    )
    ignore_disruptions: bool | None = Field(
        default=None,
        description="node maintenance, eviction and preemption do not count as failures; a pod that fails is replaced, "
        "not restarted in place. Default: true, unless `fixedName`",
        examples=[False],
    )
    termination_grace_period_seconds: int | None = Field(
        default=None,
        ge=0,
        description="seconds that a pod has to end by itself when it is preempted or evicted. Default: 60; with "
        "`fixedName` Kubernetes' own, 30",
        examples=[300],
    )
    fixed_name: bool = Field(
        default=False,
        description="called exactly `name`, and a changed run needs a new name; else a hash of its content follows",
    )


class Multislice(TpuRun, Workload):
    """A JobSet over several equal multi-host TPU slices: one child Job a slice, each with a node pool to itself."""

    kind: Literal["multislice"] = Field(description="a JobSet over several TPU slices")
    slices: int = Field(ge=1, description="TPU slices that train together")
    pools: list[str] = Field(default=[], description="TPU pools of this stack, one a slice at least")
    tpu: TpuSlice | None = Field(
        default=None, description="shape of each slice where the stack has no pools: Autopilot or an existing cluster"
    )
    host_network: bool = Field(default=False, description="pods on the node's network; they get no workload identity")
    max_restarts: int = Field(
        default=4, ge=0, description="restarts of the JobSet after a failed slice; disruptions do not count"
    )


class TpuBatch(TpuRun, TpuWorkload):
    """A Job on one TPU slice: one pod, or one on each node of a multi-host slice."""

    service: DnsLabel | None = Field(default=None, description="name of the headless Service of a multi-host Job")
    backoff_limit: int | None = Field(
        default=None,
        ge=0,
        description="failed pods before the Job fails. Default: on a multi-host slice 4 for each pod, as one that "
        "fails or is disrupted takes the others with it, and with `fixedName` 0; on a single-host slice Kubernetes' "
        "own, 6",
        examples=[0],
    )
    max_run_duration_seconds: int | None = Field(
        default=None,
        ge=MIN_RUN_SECONDS,
        le=MAX_RUN_SECONDS,
        description="bound of the run on queuedFlexStart capacity; none: the pool's",
    )


class ScaledMetric(Section):
    """A metric to scale by, and the value that each replica should have."""

    metric: Literal["prefillBacklog", "slotsUsed", "tpuMemory"] = Field(description="what is measured")
    target: Request = Field(
        description="requests (prefillBacklog), a fraction (slotsUsed, tpuMemory), bytes (tpuMemory on Stackdriver)"
    )


class ExistingDeployment(Section):
    """A JetStream Deployment that is in the cluster already."""

    name: DnsLabel = Field(description="name of the Deployment", examples=["maxengine-server"])
    namespace: DnsLabel = Field(default="default", description="its namespace")
    app: str = Field(description="value of the label `app` of its pods", examples=["maxengine-server"])
    metrics_port: str = Field(default="metrics", description="name of the container port with the server's metrics")


class Autoscaler(Section):
    """A HorizontalPodAutoscaler of a JetStream server on its own metrics, those of its TPUs, or several."""

    name: DnsLabel = Field(description="name of the HorizontalPodAutoscaler")
    server: str | None = Field(default=None, description="JetStream server of this stack")
    deployment: ExistingDeployment | None = Field(default=None, description="instead of server")
    adapter: Literal["stackdriver", "prometheus"] = Field(
        description="where the HorizontalPodAutoscaler gets its metrics from"
    )
    min_replicas: int = Field(default=1, ge=1, description="replicas at least")
    max_replicas: int = Field(ge=1, description="replicas at most")
    metrics: list[ScaledMetric] = Field(min_length=1, description="of several, the one that asks for most decides")
    scrape_interval_seconds: int = Field(default=15, ge=5, le=60, description="of the server's metrics")
    scale_out_window_seconds: int = Field(
        default=0, ge=0, le=3600, description="the least that was asked for within it is what is scaled out to"
    )
    scale_in_window_seconds: int = Field(
        default=300, ge=0, le=3600, description="the most that was asked for within it is what is scaled in to"
    )
    tpu_container: DnsLabel | None = Field(
        default=None,
        description="container by which TPU memory is selected; none: either of a JetStream pod",
        examples=["maxengine-server"],
    )


class Tenant(Section):
    """A team with a namespace of its own: what it may do there, what it may use, and who it is."""

    name: DnsLabel = Field(description="the namespace", examples=["team-a"])
    members: list[str] = Field(
        default=[],
        description="who may submit: user:E-MAIL, group:E-MAIL (Google Groups for RBAC) or serviceAccount:E-MAIL",
        examples=[["group:team-a@example.com"]],
    )
    service_account: DnsLabel = Field(default="workload", description="that its workloads run as, made with the tenant")
    deployer: DnsLabel = Field(default="deployer", description="service account that may submit as members may")
    priority_classes: list[str] = Field(
        default=[], description="that it may use; none: only pods without one", examples=[["training"]]
    )
    quota: dict[str, Quantity] = Field(
        default={},
        description="resource: the most of it in the namespace, such as pods or requests.cpu",
        examples=[{"pods": "50"}],
    )
    buckets: list[str] = Field(
        default=[],
        description="buckets of this stack that it reads and writes, by the name written in `buckets`",
        examples=[["team-a-data"]],
    )
    pod_security: Literal["privileged", "baseline", "restricted"] = Field(
        default="baseline", description="Pod Security level that its pods must meet"
    )
    ingress_from: list[DnsLabel] = Field(
        default=[], description="namespaces whose pods may call its pods; none: only its own", examples=[["gateway"]]
    )


class Monitoring(Section):
    """Dashboards and alerts in Cloud Monitoring, of what the stack has: queues, servers, TPUs, jobs."""

    dashboards: bool = Field(default=True, description="make dashboards")
    alerts: bool = Field(default=True, description="make alerts")
    channels: list[str] = Field(
        default=[],
        description="notification channels to alert: projects/PROJECT/notificationChannels/ID",
        examples=[["projects/my-project/notificationChannels/123"]],
    )
    queue_stuck_minutes: int = Field(
        default=60, ge=5, le=1410, description="how long a queue may have pending workloads and admit none"
    )
    preemptions_per_hour: int = Field(
        default=10, ge=1, description="preemptions of a queue in an hour that are too many"
    )
    server_down_minutes: int = Field(
        default=5, ge=1, le=1410, description="how long a server may have no replica that is ready"
    )


class Waiver(Section):
    """An exception from a policy of the policy pack; what it lets pass is told at every preview, with the reason."""

    policy: str = Field(description="name of the policy", examples=["no-privileged-pods"])
    resource: str = Field(
        description="kind and name of what it is for, `*` standing for anything", examples=["Job llm/finetune-*"]
    )
    reason: str = Field(min_length=1, description="why, and who answers for it", examples=["research, until March"])


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

    enable_apis: bool = Field(default=False, description="enable the Google Cloud APIs that the stack needs")
    policies: Literal["advisory", "mandatory"] = Field(
        default="advisory", description="whether a violation of the policy pack is told, or stops a deployment"
    )
    waivers: list[Waiver] = Field(default=[], description="exceptions from policies")
    hf_token_secret: str | None = Field(
        default=None,
        description="Secret Manager secret with the Hugging Face token, its id or projects/PROJECT/secrets/ID: "
        "GKE brings it into the cluster, past this program; none: gke-ai:hfToken",
        examples=["hf-token"],
    )
    cluster: Cluster = Field(default=Cluster(), description="the GKE cluster")
    buckets: list[Bucket] = Field(default=[], description="Cloud Storage buckets")
    gpu_pools: list[GpuPool] = Field(default=[], description="GPU node pools of a Standard cluster")
    tpu_pools: list[TpuPool] = Field(default=[], description="TPU node pools of a Standard cluster")
    compute_classes: list[ComputeClass] = Field(
        default=[], description="ComputeClasses: capacity in order of preference"
    )
    queues: Queues | None = Field(default=None, description="Kueue and its queues")
    serving: list[Tgi | Vllm | JetStream] = Field(default=[], description="model servers")
    training: list[FineTune | Multislice] = Field(
        default=[], description="training runs, in the order in which they are submitted"
    )
    batch: list[TpuBatch] = Field(default=[], description="Jobs on one TPU slice each")
    autoscaling: list[Autoscaler] = Field(default=[], description="autoscalers of JetStream servers")
    tenants: list[Tenant] = Field(default=[], description="teams with a namespace of their own")
    monitoring: Monitoring | None = Field(default=None, description="dashboards and alerts in Cloud Monitoring")
    calibration: str | None = Field(
        default=None,
        description="file with what python -m ops.verify measured on the cluster, relative to the project; its figures "
        "take the place of computed ones",
        examples=["calibration/prod.yaml"],
    )

    _unparsed: Unparsed = PrivateAttr(default_factory=Unparsed)
    _measured: Calibration = PrivateAttr(default_factory=Calibration)

    @property
    def measured(self) -> Calibration:
        """The figures of the calibration file; none where no file is named."""
        return self._measured

    @property
    def unparsed(self) -> Unparsed:
        """Parts that could not be parsed; empty in all settings that `load` returns."""
        return self._unparsed
