"""A whole stack, with its tenants, monitoring and waivers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from gke_ai.settings.model.autoscaling import Autoscaler
from gke_ai.settings.model.base import DnsLabel, ProjectFile, Quantity, Section
from gke_ai.settings.model.buckets import Bucket
from gke_ai.settings.model.budgets import Budget
from gke_ai.settings.model.cluster import Cluster
from gke_ai.settings.model.compute_classes import ComputeClass
from gke_ai.settings.model.gateway import Gateway
from gke_ai.settings.model.pools import GpuPool, Pool, TpuPool
from gke_ai.settings.model.queues import Queues
from gke_ai.settings.model.runs import FineTune, Multislice, TpuBatch
from gke_ai.settings.model.serving import AnyServer
from gke_ai.settings.model.training import TrainingRun

# https://kubernetes.io/docs/concepts/security/pod-security-standards/
PodSecurity = Literal["privileged", "baseline", "restricted"]


class Tenant(Section):
    """A team with a namespace of its own: its members, what they may do, and what they may use."""

    noun: ClassVar[str] = "a tenant"

    name: DnsLabel = Field(examples=["team-a"])
    """Name of the namespace."""
    members: list[str] = Field(default=[], examples=[["group:team-a@example.com"]])
    """Identities that may submit work: user:E-MAIL, group:E-MAIL (Google Groups for RBAC) or serviceAccount:E-MAIL.
    Google's provider cannot turn off Google Groups: if you remove the last group, first run `gcloud container clusters
    update NAME --location LOCATION --security-group=""` and `pulumi refresh`."""
    service_account: DnsLabel = "workload"
    """Kubernetes service account of the tenant's workloads. The stack creates it with the tenant."""
    deployer: DnsLabel = "deployer"
    """Kubernetes service account that may submit work as members may."""
    priority_classes: list[str] = Field(default=[], examples=[["training"]])
    """Priority classes that the tenant's pods may use. A pod without a priority class is always allowed."""
    quota: dict[str, Quantity] = Field(default={}, examples=[{"pods": "50"}])
    """Maximum in the namespace by resource, for example pods or requests.cpu. Of accelerators, the namespace gets twice
    what its queues may use."""
    buckets: list[str] = Field(default=[], examples=[["team-a-data"]])
    """Buckets of this stack that the tenant reads and writes, as named in `buckets`."""
    pod_security: PodSecurity = "baseline"
    """Pod Security level that the pods must meet."""
    budget: Budget | None = Field(default=None, examples=[{"acceleratorHours": 500}])
    """Accelerator-hours and money of a month. Once they are used, new work in its queues waits. Default: no limit."""
    ingress_from: list[DnsLabel] = Field(default=[], examples=[["gateway"]])
    """Namespaces whose pods may connect to the tenant's pods, except to servers that require an API key. Default: only
    its own."""


class Monitoring(Section):
    """Dashboards and alerts in Cloud Monitoring for the stack's queues, servers, TPUs and Jobs."""

    noun: ClassVar[str] = "the monitoring"

    dashboards: bool = True
    """Create dashboards."""
    alerts: bool = True
    """Create alerts."""
    channels: list[str] = Field(default=[], examples=[["projects/my-project/notificationChannels/123"]])
    """Notification channels of the alerts: projects/PROJECT/notificationChannels/ID."""
    queue_stuck_minutes: int = Field(default=60, ge=5, le=1410)
    """Time for which a queue may have pending workloads and admit none, or lack quota that others use, before an alert,
    in minutes."""
    preemptions_per_hour: int = Field(default=10, ge=1)
    """Preemptions of a queue per hour that cause an alert."""
    server_down_minutes: int = Field(default=5, ge=1, le=1410)
    """Time for which a server may have no ready replica before an alert, in minutes."""


class Waiver(Section):
    """An exception from a policy of the policy pack. Each preview reports what it allows, with the reason."""

    noun: ClassVar[str] = "a waiver"

    policy: str = Field(examples=["no-privileged-pods"])
    """Name of the policy."""
    resource: str = Field(examples=["Job llm/finetune-*"])
    """Kind and name of the resource. `*` matches any text."""
    reason: str = Field(min_length=1, examples=["research, until March"])
    """Why the exception exists, and who is responsible for it."""


@dataclass(frozen=True)
class Unresolved:
    """Parts of a configuration that could not be parsed or resolved: paths of sections and items, names of items.

    Rules run on the rest. This keeps them from refusing a reference to an item that is only mistyped.
    """

    paths: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()

    def overlaps(self, section: str) -> bool:
        """Whether the section, a part of it, or a section around it is unresolved."""
        return any(
            path == section
            or path.startswith((f"{section}[", f"{section}."))
            or section.startswith((f"{path}[", f"{path}."))
            for path in self.paths
        )

    def may_contain(self, section: str, name: str) -> bool:
        """Whether the unresolved part of the section may contain an item called `name`."""
        return name in self.names or any(section == path or section.startswith(f"{path}.") for path in self.paths)


class Settings(Section):
    """A whole stack: every section of its configuration."""

    noun: ClassVar[str] = "a stack"

    enable_apis: bool = False
    """Enable the Google Cloud APIs that the stack needs."""
    policies: Literal["advisory", "mandatory"] = "advisory"
    """Effect of a violation in `gke-ai up` or `pulumi up --policy-pack policy`. advisory: it is reported; mandatory: it
    stops the deployment. A plain `pulumi up` runs no policies."""
    waivers: list[Waiver] = Field(default=[])
    """Exceptions from policies."""
    hf_token_secret: str | None = Field(default=None, examples=["hf-token"])
    """Secret Manager secret with the Hugging Face token: its id, or projects/PROJECT/secrets/ID. GKE copies the token
    into the cluster; this program never reads it. Default: the token in `gke-ai:hfToken`."""
    cluster: Cluster = Cluster()
    """The GKE cluster."""
    buckets: list[Bucket] = Field(default=[])
    """Cloud Storage buckets."""
    gpu_pools: list[GpuPool] = Field(default=[])
    """GPU node pools of a Standard cluster."""
    tpu_pools: list[TpuPool] = Field(default=[])
    """TPU node pools of a Standard cluster."""
    compute_classes: list[ComputeClass] = Field(default=[])
    """ComputeClasses: capacity in order of preference."""
    queues: Queues | None = None
    """Kueue and its queues."""
    serving: list[AnyServer] = Field(default=[])
    """Model servers."""
    training: list[FineTune | Multislice | TrainingRun] = Field(default=[])
    """Training runs, in the order in which they are submitted."""
    batch: list[TpuBatch] = Field(default=[])
    """Jobs, each on one TPU slice."""
    autoscaling: list[Autoscaler] = Field(default=[])
    """Autoscalers of model servers."""
    gateway: Gateway | None = None
    """Address at which clients reach the servers. Default: no gateway."""
    tenants: list[Tenant] = Field(default=[])
    """Teams with a namespace of their own."""
    monitoring: Monitoring | None = None
    """Dashboards and alerts in Cloud Monitoring."""
    prices: ProjectFile | None = Field(default=None, examples=["prices.yaml"])
    """Your own price table, for reports and for budgets of money, relative to the project. docs/report.md describes its
    form. What it lacks has Google's list price. Default: list prices."""
    calibration: str | None = Field(default=None, examples=["calibration/prod.yaml"])
    """File with the figures of `gke-ai verify` and `gke-ai capacity`, relative to the project. Measured figures replace
    computed ones."""

    @property
    def pools(self) -> list[Pool]:
        """All node pools: GPU pools, then TPU pools."""
        return [*self.gpu_pools, *self.tpu_pools]
