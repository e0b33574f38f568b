"""What a stack may ask for, as typed data: one class a section of the configuration, one field a key.

Keys are written in camelCase in YAML (`gpuPools[0].machineType`) and read in snake_case here. A section says what the
user wants; what Google Cloud offers stands in `catalog`, and what fits together is checked in `settings.rules`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

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
)
from pydantic.alias_generators import to_camel

from catalog import versions
from catalog.capacity import MAX_RUN_SECONDS, MIN_RUN_SECONDS
from catalog.quantities import parse_quantity

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


# A Kubernetes resource quantity, as text: "4", "500m", "30Gi".
Quantity = Annotated[str, AfterValidator(_not_negative), BeforeValidator(_number_as_text)]
# One that a container asks for: nothing at all is written by leaving the key out.
Request = Annotated[str, AfterValidator(_positive), BeforeValidator(_number_as_text)]
Labels = dict[str, str]


class Section(BaseModel):
    """Base of every section: camelCase keys, unknown keys refused, immutable once read."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)

    # Where this section stands in the configuration; settings.reading sets it on what it reads.
    _path: str = PrivateAttr(default="")

    def at(self, key: str) -> str:
        """The path of one of this section's keys in the configuration: `gke-ai:gpuPools[0].machineType`."""
        return f"{self._path}.{key}" if self._path else key


class Resources(Section):
    """CPU (cores), memory and ephemeral storage (bytes, as Kubernetes quantities) of one pod; limits equal requests."""

    cpu: Request | None = None
    memory: Request | None = None
    ephemeral_storage: Request | None = None


class SystemPool(Section):
    """The pool of a Standard cluster that controllers run on."""

    name: GkeName = "default-pool"
    machine_type: str = "e2-standard-4"
    nodes_per_zone: int = Field(default=1, ge=1, le=1000, description="nodes in each zone of the cluster")
    zones: list[str] = Field(default=[], description="zones of the pool; none: every default zone of the region")


class Cluster(Section):
    """The GKE cluster that everything runs in."""

    name: GkeName = "llm-cluster"
    mode: Literal["standard", "autopilot", "existing"] = "autopilot"
    existing_mode: Literal["standard", "autopilot"] = Field(
        default="standard", description="what an existing cluster is; only read with mode: existing"
    )
    location: str = Field(default="us-central1", description="region, or a zone for a zonal Standard cluster")
    release_channel: Literal["rapid", "regular", "stable"] = "regular"
    system_pool: SystemPool = SystemPool()
    network: str | None = Field(default=None, description="VPC network; none: the project's default network")
    subnetwork: str | None = None
    dns_endpoint: bool = Field(default=False, description="reach the control plane by its DNS name, with IAM")
    labels: Labels = Field(default={}, description="resource labels of the cluster")
    protect: bool = Field(default=False, description="refuse to delete the cluster until this is false and applied")


class Grant(Section):
    """A role on a bucket for the Kubernetes service account of a namespace, through Workload Identity Federation."""

    namespace: DnsLabel
    service_account: DnsLabel = "default"
    role: str = "roles/storage.objectUser"


class Bucket(Section):
    """A Cloud Storage bucket for models and checkpoints."""

    name: str = Field(description="globally unique; {project} stands for the project's id")
    location: str | None = Field(default=None, description="region of the bucket; none: the cluster's region")
    grants: list[Grant] = []
    delete_after_days: int | None = Field(default=None, ge=1, description="age at which objects are deleted, in days")
    soft_delete_days: int = Field(default=7, ge=0, le=90, description="0 turns soft delete off; else 7 to 90 days")
    versioning: bool = False
    on_destroy: Literal["keep", "delete"] = Field(
        default="keep", description="keep: the bucket outlives the stack; delete: it goes, with its data"
    )
    adopt: bool = Field(
        default=False, description="take over the bucket of this name that exists, such as one an earlier stack kept"
    )
    protect: bool = Field(default=False, description="refuse to delete the bucket until this is false and applied")


class Autoscaling(Section):
    """Bounds of a pool that grows and shrinks: nodes in the whole pool."""

    min_nodes: int = Field(default=0, ge=0)
    max_nodes: int = Field(ge=1)


class OnDemand(Section):
    """Standard capacity: there until it is deleted."""

    mode: Literal["onDemand"] = "onDemand"


class Spot(Section):
    """Surplus capacity: cheap, taken back with 30 seconds' notice."""

    mode: Literal["spot"]


class Reservation(Section):
    """Capacity of a named reservation."""

    mode: Literal["reservation"]
    reservation: str


class FlexStart(Section):
    """Dynamic Workload Scheduler, nodes as soon as there are any; they live for at most `max_run_duration_seconds`."""

    mode: Literal["flexStart"]
    max_run_duration_seconds: int = Field(default=MAX_RUN_SECONDS, ge=MIN_RUN_SECONDS, le=MAX_RUN_SECONDS)


class QueuedFlexStart(Section):
    """Dynamic Workload Scheduler with queued provisioning: all nodes of a request at once, through Kueue."""

    mode: Literal["queuedFlexStart"]
    max_run_duration_seconds: int = Field(default=MAX_RUN_SECONDS, ge=MIN_RUN_SECONDS, le=MAX_RUN_SECONDS)


Capacity = Annotated[OnDemand | Spot | Reservation | FlexStart | QueuedFlexStart, Field(discriminator="mode")]


class GpuPool(Section):
    """A node pool with NVIDIA GPUs in a Standard cluster."""

    name: GkeName
    machine_type: str
    accelerator: str | None = Field(default=None, description="GPU type; none: the one that the machine type has")
    gpus_per_node: int | None = Field(default=None, ge=1, description="none: as many as the machine type has")
    driver: Literal["default", "latest", "disabled"] = "default"
    zones: list[str] = Field(default=[], description="zones of the pool; none: the zones of the cluster")
    nodes_per_zone: int | None = Field(default=None, ge=0, le=1000, description="fixed size; not with autoscaling")
    autoscaling: Autoscaling | None = None
    capacity: Capacity = OnDemand()
    disk_size_gb: int = Field(default=200, ge=10, le=65536)
    disk_type: str | None = Field(default=None, description="boot disk; none: what the machine family wants")
    labels: Labels = Field(default={}, description="Kubernetes labels of the nodes")
    protect: bool = False


class PriorityClass(Section):
    """A Kubernetes PriorityClass; Kueue orders and preempts by it."""

    name: DnsLabel
    value: int = Field(ge=-2147483648, le=1000000000)
    preemption: Literal["Never", "PreemptLowerPriority"] = "PreemptLowerPriority"
    global_default: bool = False
    description: str = ""


class Flavor(Section):
    """A Kueue ResourceFlavor: a kind of node that quota is given for."""

    name: DnsLabel
    pools: list[str] = Field(default=[], description="pools whose nodes this is; none: any node")


def _quota_form(value: Any) -> str:
    return "resources" if isinstance(value, dict) else "derive"


class FlavorQuota(Section):
    """What a cluster queue may use of one flavor."""

    flavor: str
    quota: Annotated[
        Annotated[dict[str, Quantity], Tag("resources")] | Annotated[Literal["derive"], Tag("derive")],
        Discriminator(_quota_form),
    ] = Field(
        description="resource: nominal quota; derive: allocatable capacity of the flavor's pools at their largest"
    )


class Preemption(Section):
    """Whom a workload of the queue may evict to start."""

    within_cluster_queue: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = "LowerPriority"
    reclaim_within_cohort: Literal["Never", "LowerPriority", "Any"] = "LowerPriority"


class ClusterQueue(Section):
    """A Kueue ClusterQueue: quota by flavor and resource, open to every namespace that has a local queue to it."""

    name: DnsLabel
    cohort: DnsLabel | None = None
    flavors: list[FlavorQuota] = Field(min_length=1)
    preemption: Preemption = Preemption()


class LocalQueue(Section):
    """A Kueue LocalQueue: the door of a namespace to a cluster queue."""

    name: DnsLabel
    namespace: DnsLabel
    cluster_queue: str


class Queues(Section):
    """Kueue and its queues."""

    flavors: list[Flavor] = []
    cluster_queues: list[ClusterQueue] = []
    local_queues: list[LocalQueue] = []
    priority_classes: list[PriorityClass] = []


class TokenSecret(Section):
    """The Kubernetes Secret that holds the Hugging Face token, in the namespace of its user."""

    name: DnsLabel = "hf-secret"
    key: str = "hf_api_token"


class Workload(Section):
    """What servers and Jobs have in common: where they run and under which queue."""

    name: DnsLabel
    namespace: DnsLabel = "llm"
    queue: str | None = Field(default=None, description="local queue of the same namespace; none: not under Kueue")
    priority_class: str | None = None
    pool: str | None = Field(default=None, description="GPU pool of this stack to run on")
    accelerator: str | None = Field(
        default=None, description="GPU type to run on where the stack has no pool: Autopilot or an existing cluster"
    )
    service_account: DnsLabel = "default"
    token_secret: TokenSecret = TokenSecret()
    resources: Resources = Resources()
    labels: Labels = Field(default={}, description="further labels of the pods")
    env: dict[str, str] = Field(default={}, description="further environment variables of the container")


class Server(Workload):
    """A model server: Deployment and Service."""

    engine: Literal["tgi"] = "tgi"
    app: str | None = Field(default=None, description="value of the label `app` that the Service selects; none: name")
    image: str | None = Field(default=None, description="none: the pinned image of the engine")
    model: str = Field(description="model id on Hugging Face")
    replicas: int = Field(default=1, ge=0)
    gpus: int = Field(default=1, ge=1, description="GPUs of one replica; the model is sharded over them")
    port: int = Field(default=8000, ge=1, le=65535)
    port_variable: str = Field(default="PORT", description="environment variable that tells the image its port")
    service: DnsLabel | None = Field(default=None, description="name of the Service; none: name")
    quantize: str | None = None
    probes: bool = Field(default=True, description="readiness, liveness and startup probes on /health")
    disruption_budget: bool = Field(default=True, description="a PodDisruptionBudget of one pod at a time")
    pod_monitoring: bool = Field(default=False, description="a PodMonitoring for Managed Service for Prometheus")
    surge: bool = Field(
        default=True, description="roll out by a pod more, which needs free quota; false: by a pod less"
    )
    ready_timeout_seconds: int = Field(default=3600, ge=1, description="how long `up` waits for the first replica")


class Dataset(Section):
    """Training data on Hugging Face."""

    name: str = "b-mc2/sql-create-context"
    limit: int = Field(default=5000, ge=1, description="rows")


class FuseVolume(Section):
    """The bucket as a folder, through the Cloud Storage FUSE CSI driver."""

    bucket: str = Field(description="bucket of this stack, by the name written in `buckets`")
    mount_path: str = "/model-data"
    mount_options: str = "implicit-dirs"
    logging_severity: Literal["trace", "debug", "info", "warning", "error"] = "warning"
    sidecar_memory_limit: Request | None = Field(default="35Gi", description="of the FUSE sidecar")
    sidecar_cpu: Request | None = Field(default=None, description="request and limit of the FUSE sidecar")


class FineTune(Workload):
    """A fine-tuning run: a headless Service and an Indexed Job that Kueue starts, suspends and resumes."""

    image: str = versions.FINE_TUNE_IMAGE
    base_model: str = "google/gemma-2-2b"
    new_model: str = "gemma-ft"
    model_path: str = Field(default="/model-data/model-gemma2/experiment", description="where checkpoints are written")
    experiment: str = "finetune-experiment"
    dataset: Dataset = Dataset()
    epochs: int = Field(default=1, ge=1)
    gradient_accumulation_steps: int = Field(default=2, ge=1)
    checkpoint_steps: int = Field(default=10, ge=1, description="steps between checkpoints")
    pods: int = Field(default=2, ge=1)
    gpus_per_pod: int = Field(default=2, ge=1)
    volume: FuseVolume
    service: DnsLabel | None = Field(default=None, description="name of the headless Service; none: name")
    rendezvous_port: int = Field(default=29500, ge=1, le=65535)
    backoff_limit: int = Field(default=4, ge=0)
    termination_grace_period_seconds: int = Field(default=60, ge=0)
    fixed_name: bool = Field(
        default=False,
        description="the Job is called exactly `name`, and a changed Job needs a new name; "
        "else a hash of its content follows, so that a changed Job runs beside the old one",
    )


@dataclass(frozen=True)
class Unread:
    """What of a configuration could not be read: paths of sections and items, and the names that the items carry.

    Rules run on what could be read; this keeps them from blaming a reference to something that is only mistyped.
    """

    paths: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()

    def touches(self, section: str) -> bool:
        """Whether the section, something in it, or what it is in could not be read."""
        return any(
            path == section
            or path.startswith((f"{section}[", f"{section}."))
            or section.startswith((f"{path}[", f"{path}."))
            for path in self.paths
        )

    def may_have(self, section: str, name: str) -> bool:
        """Whether something called `name` could stand in what could not be read of the section."""
        return name in self.names or any(section == path or section.startswith(f"{path}.") for path in self.paths)


class Settings(Section):
    """A whole stack: every section of its configuration."""

    cluster: Cluster = Cluster()
    buckets: list[Bucket] = []
    gpu_pools: list[GpuPool] = []
    queues: Queues | None = None
    serving: list[Server] = []
    training: list[FineTune] = []

    _unread: Unread = PrivateAttr(default_factory=Unread)

    @property
    def unread(self) -> Unread:
        """What could not be read; empty in all settings that `load` returns."""
        return self._unread
