"""A whole stack, with its tenants, monitoring and waivers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from gke_ai.settings.model.autoscaling import Autoscaler
from gke_ai.settings.model.base import DnsLabel, Quantity, Section
from gke_ai.settings.model.buckets import Bucket
from gke_ai.settings.model.cluster import Cluster
from gke_ai.settings.model.compute_classes import ComputeClass
from gke_ai.settings.model.gateway import Gateway
from gke_ai.settings.model.pools import GpuPool, Pool, TpuPool
from gke_ai.settings.model.queues import Queues
from gke_ai.settings.model.runs import FineTune, Multislice, TpuBatch
from gke_ai.settings.model.serving import AnyServer
from gke_ai.settings.model.training import TrainingRun


class Tenant(Section):
    """A team with a namespace of its own: its members, what they may do, and what they may use."""

    noun: ClassVar[str] = "a tenant"

    name: DnsLabel = Field(description="Name of the namespace.", examples=["team-a"])
    members: list[str] = Field(
        default=[],
        description="Identities that may submit work: user:E-MAIL, group:E-MAIL (Google Groups for RBAC) or "
        "serviceAccount:E-MAIL. Google's provider cannot turn off Google Groups: if you remove the last group, first "
        'run `gcloud container clusters update NAME --location LOCATION --security-group=""` and `pulumi refresh`.',
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
        description="Priority classes that the tenant's pods may use. A pod without a priority class is always "
        "allowed.",
        examples=[["training"]],
    )
    quota: dict[str, Quantity] = Field(
        default={},
        description="Maximum in the namespace by resource, for example pods or requests.cpu. Of accelerators, the "
        "namespace gets twice what its queues may use.",
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
        description="Namespaces whose pods may connect to the tenant's pods, except to servers that require an API "
        "key. Default: only its own.",
        examples=[["gateway"]],
    )


class Monitoring(Section):
    """Dashboards and alerts in Cloud Monitoring for the stack's queues, servers, TPUs and Jobs."""

    noun: ClassVar[str] = "the monitoring"

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

    noun: ClassVar[str] = "a waiver"

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

    enable_apis: bool = Field(default=False, description="Enable the Google Cloud APIs that the stack needs.")
    policies: Literal["advisory", "mandatory"] = Field(
        default="advisory",
        description="Effect of a violation of a policy. advisory: it is reported; mandatory: it stops the deployment.",
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
    serving: list[AnyServer] = Field(default=[], description="Model servers.")
    training: list[FineTune | Multislice | TrainingRun] = Field(
        default=[], description="Training runs, in the order in which they are submitted."
    )
    batch: list[TpuBatch] = Field(default=[], description="Jobs, each on one TPU slice.")
    autoscaling: list[Autoscaler] = Field(default=[], description="Autoscalers of model servers.")
    gateway: Gateway | None = Field(
        default=None, description="Address at which clients reach the servers. Default: no gateway."
    )
    tenants: list[Tenant] = Field(default=[], description="Teams with a namespace of their own.")
    monitoring: Monitoring | None = Field(default=None, description="Dashboards and alerts in Cloud Monitoring.")
    calibration: str | None = Field(
        default=None,
        description="File with the figures of `gke-ai verify` and `gke-ai capacity`, "
        "relative to the project. Measured figures replace computed ones.",
        examples=["calibration/prod.yaml"],
    )

    @property
    def pools(self) -> list[Pool]:
        """All node pools: GPU pools, then TPU pools."""
        return [*self.gpu_pools, *self.tpu_pools]
