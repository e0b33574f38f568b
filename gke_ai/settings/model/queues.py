"""Kueue's queues: flavors, quota, preemption and priority classes."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag

from gke_ai.catalog.kueue.operators import OPERATORS
from gke_ai.catalog.versions import KUEUE_VERSION
from gke_ai.settings.model.base import DnsLabel, Quantity, Section, Version
from gke_ai.settings.model.budgets import Hours
from gke_ai.settings.model.sharing import (
    AdmissionFairSharing,
    BorrowWithinCohort,
    Cohort,
    FairSharing,
    FlavorFungibility,
    Weight,
)
from gke_ai.settings.model.slices import TpuSlice

# Whether the stack creates an object, or uses one that its cluster has.
ObjectMode = Literal["create", "existing"]


class PriorityClass(Section):
    """A Kubernetes PriorityClass. Kueue orders and preempts workloads by it."""

    noun: ClassVar[str] = "a priority class"

    name: DnsLabel
    """Name of the class."""
    mode: ObjectMode = Field(default="create", examples=["existing"])
    """existing: the cluster has this class, with the same value. The stack uses it, and neither creates, changes nor
    deletes it. create: the stack creates it."""
    value: int = Field(ge=-2147483648, le=1000000000)
    """Priority. A higher value goes first."""
    preemption: Literal["Never", "PreemptLowerPriority"] = "PreemptLowerPriority"
    """Whether pods of the class may preempt pods of lower priority."""
    global_default: bool = False
    """Use this class for pods that name none."""
    description: str = ""
    """When to use the class, for the people who choose one."""


class Flavor(Section):
    """A Kueue ResourceFlavor: a type of node with quota of its own."""

    noun: ClassVar[str] = "a flavor"

    name: DnsLabel
    """Name of the flavor."""
    mode: ObjectMode = Field(default="create", examples=["existing"])
    """existing: the cluster has this flavor, whose labels select the nodes of `pools`. The stack uses it, and neither
    creates, changes nor deletes it. Needs `kueue: existing`. create: the stack creates it."""
    pools: list[str] = Field(default=[])
    """GPU or TPU pools that belong to the flavor. Default: any node."""
    tpu: TpuSlice | None = None
    """TPU slice of the flavor, if the stack has no pools."""
    accelerator: str | None = Field(default=None, examples=["nvidia-l4"])
    """GPU type of the flavor, if the stack has no pools."""
    topology: bool | None = Field(default=None, examples=[False])
    """Let Kueue place pods by block, sub-block and host of the nodes. Kueue then allows no change of the flavor: give
    a flavor with other nodes a new name. Default: `true` if the stack installs Kueue 0.19 or later, and all nodes of
    the flavor and of the others in its cluster queues have the labels."""


def _quota_form(value: Any) -> str:
    return "resources" if isinstance(value, dict) else "derive"


class FlavorQuota(Section):
    """Quota of a cluster queue for one flavor."""

    noun: ClassVar[str] = "the quota of a flavor"

    flavor: str
    """Name of the flavor."""
    quota: Annotated[
        Annotated[dict[str, Quantity], Tag("resources")] | Annotated[Literal["derive"], Tag("derive")],
        Discriminator(_quota_form),
    ]
    """Nominal quota by resource. derive: the allocatable capacity of the flavor's pools at their maximum size."""
    borrowing_limit: dict[str, Quantity] = Field(default={}, examples=[{"nvidia.com/gpu": "4"}])
    """Maximum that this queue may borrow from its cohort, by resource. Default: all that others lend."""
    lending_limit: dict[str, Quantity] = Field(default={}, examples=[{"nvidia.com/gpu": "2"}])
    """Maximum that this queue lends to its cohort, by resource. Default: its whole quota."""


class Preemption(Section):
    """Which workloads Kueue may evict to admit a workload of the queue."""

    noun: ClassVar[str] = "the preemption of a cluster queue"

    within_cluster_queue: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = "LowerPriority"
    """Which workloads of the same cluster queue Kueue may evict."""
    reclaim_within_cohort: Literal["Never", "LowerPriority", "Any"] = "LowerPriority"
    """Which workloads of the cohort Kueue may evict to take back lent quota."""
    borrow_within_cohort: BorrowWithinCohort | None = None
    """Which workloads of the cohort Kueue may evict in order to borrow. Not with `fairSharing`. Omit it for none."""


class ClusterQueue(Section):
    """A Kueue ClusterQueue: quota by flavor and resource, for every namespace with a local queue to it."""

    noun: ClassVar[str] = "a cluster queue"

    name: DnsLabel
    """Name of the cluster queue."""
    cohort: DnsLabel | None = Field(default=None, examples=["gpus"])
    """Group of cluster queues that lend each other unused quota. Default: no cohort."""
    flavors: list[FlavorQuota] = Field(min_length=1)
    """Quota for each flavor, in order of preference."""
    preemption: Preemption = Preemption()
    """Which workloads Kueue may evict to admit a workload of this queue."""
    queueing_strategy: Literal["BestEffortFIFO", "StrictFIFO"] | None = None
    """Whether a workload that does not fit blocks later ones. Default: Kueue's, `BestEffortFIFO`."""
    fair_sharing: Weight | None = None
    """Its share beside the other members of its cohort, with `fairSharing`. Default: weight 1."""
    flavor_fungibility: FlavorFungibility | None = None
    """Whether a workload tries the next flavor before it borrows or preempts. Default: Kueue's."""
    admission_mode: Literal["UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing"] | None = None
    """UsageBasedAdmissionFairSharing: workloads of the local queue with the least past usage go first, whatever their
    priority. Needs `admissionFairSharing`. Default: order of priority, then of arrival."""


class LocalQueue(Section):
    """A Kueue LocalQueue: gives a namespace access to a cluster queue."""

    noun: ClassVar[str] = "a local queue"

    name: DnsLabel
    """Name of the local queue. Workloads select it by this name."""
    mode: ObjectMode = Field(default="create", examples=["existing"])
    """existing: the cluster has this local queue, and so its namespace. The stack uses both, and neither creates,
    changes nor deletes them. Needs `kueue: existing`. create: the stack creates it."""
    namespace: DnsLabel
    """Namespace of the local queue."""
    cluster_queue: str
    """Cluster queue that provides the quota. With `kueue: existing` it may be one that the cluster has."""
    fair_sharing: Weight | None = None
    """Its weight in the usage-based order of its cluster queue. Twice the weight counts usage half. Default: 1."""
    hours: list[Hours] = Field(default=[], examples=[[{"days": ["mon"], "start": "20:00", "end": "06:00"}]])
    """Hours of the week in which Kueue admits its work, in `timeZone`. Default: always."""


# Whether the stack installs a controller, or the cluster has it from somebody else.
Origin = Literal["install", "existing"]
# GKE's own controller is a third way.
RayOrigin = Literal["install", "existing", "addon"]


class Queues(Section):
    """Kueue and its queues."""

    noun: ClassVar[str] = "the queues"

    kueue: Origin = Field(default="install", examples=["existing"])
    """existing: the cluster has a Kueue of somebody else, such as that of Cluster Toolkit. The stack adds its flavors,
    queues and priority classes, and installs, upgrades and deletes nothing of Kueue. install: the stack installs it."""
    jobset: Origin = Field(default="install", examples=["existing"])
    """existing: the cluster has a JobSet of somebody else. install: the stack installs it where it needs it."""
    trainer: Origin | None = Field(default=None, examples=["install"])
    """Kubeflow Trainer, for TrainJobs. install: the stack installs it, with the runtime `torch-distributed`. existing:
    the cluster has it from somebody else, in the namespace `kubeflow-system`. Omit it if nobody needs TrainJobs."""
    ray: RayOrigin | None = Field(default=None, examples=["install"])
    """KubeRay, for RayJobs and RayClusters. install: the stack installs it. addon: GKE's Ray operator, which the stack
    turns on in a cluster that it creates. existing: the cluster has KubeRay from somebody else, in the namespace
    `kuberay-system`. Omit it if nobody needs Ray."""
    flavors: list[Flavor] = Field(default=[])
    """Types of nodes with quota of their own."""
    cluster_queues: list[ClusterQueue] = Field(default=[])
    """Quotas, and how cluster queues share them."""
    cohorts: list[Cohort] = Field(default=[])
    """Cohorts with a parent, a weight or quota of their own. One that only cluster queues name needs no entry."""
    fair_sharing: FairSharing | None = None
    """Share lent quota by weight, not by who comes first. Default: off."""
    admission_fair_sharing: AdmissionFairSharing | None = None
    """Order workloads by the past usage of their local queues, in cluster queues with `admissionMode`. Default: off."""
    local_queues: list[LocalQueue] = Field(default=[])
    """Local queues, which give namespaces access to cluster queues."""
    time_zone: str = Field(default="UTC", examples=["Europe/Berlin"])
    """Time zone of the `hours` of local queues: a name of the IANA database."""
    priority_classes: list[PriorityClass] = Field(default=[])
    """Kubernetes PriorityClasses."""
    kueue_version: Version | None = Field(default=None, examples=["0.16.2"])
    """Version of the Kueue chart, if you upgrade Kueue separately. Default: the pinned version."""
    manager_replicas: int = Field(default=1, ge=1, le=5)
    """Pods of Kueue's manager. While none runs, no pod starts in the namespaces that Kueue manages. 2 or more pods get
    a disruption budget and are spread over zones and nodes."""
    pods_ready_timeout_seconds: int | None = Field(default=None, ge=0, examples=[1800])
    """Time after admission in which all pods of a workload must be ready, in seconds. Kueue evicts and requeues a
    workload that takes longer, which frees its quota and nodes. The limit is the same for all workloads; 0 means no
    limit. Default: 3600, or the longest `readyTimeoutSeconds` of a server in a queue; no limit if queued pods can wait
    for flex-start nodes."""
    jobset_version: Version | None = Field(default=None, examples=["0.11.1"])
    """Version of the JobSet chart, if you upgrade JobSet separately. Default: the pinned version."""

    @property
    def installed_kueue(self) -> str | None:
        """The version of Kueue that the stack installs; None if the cluster has one of somebody else."""
        return (self.kueue_version or KUEUE_VERSION) if self.kueue == "install" else None

    @property
    def operators(self) -> dict[str, str]:
        """Where each controller of further kinds comes from, by its key."""
        return {key: origin for key in OPERATORS if (origin := getattr(self, key)) is not None}

    @property
    def further_kinds(self) -> list[str]:
        """The kinds of these controllers, which Kueue queues and tenants may create."""
        return [kind for key in self.operators for kind in OPERATORS[key].kinds]
