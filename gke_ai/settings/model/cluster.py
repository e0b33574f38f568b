"""The cluster: its network, system pool and maintenance."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints, WithJsonSchema

from gke_ai.catalog.zones import region_of
from gke_ai.settings.model.base import Cidr, GkeName, Labels, Section


class SystemPool(Section):
    """The node pool of a Standard cluster that runs controllers."""

    noun: ClassVar[str] = "the system pool"

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

    noun: ClassVar[str] = "the VPC"

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
    proxy_cidr: Cidr = Field(
        default="10.9.0.0/23",
        description="IPv4 range of the proxies of the gateway's load balancer. Used only with `gateway`.",
    )
    nat: bool = Field(default=True, description="Create Cloud NAT, through which private nodes reach the Internet.")


# A time in UTC. GKE returns other time zones as UTC, so each preview would show a change.
Moment = Annotated[
    str,
    StringConstraints(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]


class MaintenanceWindow(Section):
    """The window in which GKE may upgrade the cluster and its nodes, and how it recurs."""

    noun: ClassVar[str] = "the maintenance window"

    start_time: Moment = Field(description="Start of the first window, in UTC.", examples=["2026-01-03T00:00:00Z"])
    end_time: Moment = Field(
        description="End of the first window, in UTC, at least 4 hours after the start.",
        examples=["2026-01-03T08:00:00Z"],
    )
    recurrence: str = Field(
        description="Recurrence of the window, as an RRULE of RFC 5545, with at least 48 hours in any 32 days.",
        examples=["FREQ=WEEKLY;BYDAY=SA,SU"],
    )


class MaintenanceExclusion(Section):
    """A period without upgrades by GKE, for example during a long run."""

    noun: ClassVar[str] = "a maintenance exclusion"

    name: GkeName = Field(description="Name of the exclusion.", examples=["pretraining"])
    start_time: Moment = Field(description="Start of the exclusion, in UTC.", examples=["2026-03-01T00:00:00Z"])
    end_time: Moment = Field(description="End of the exclusion, in UTC.", examples=["2026-03-21T00:00:00Z"])
    scope: Literal["NO_UPGRADES", "NO_MINOR_UPGRADES", "NO_MINOR_OR_NODE_UPGRADES"] = Field(
        default="NO_UPGRADES",
        description="Upgrades that are excluded. NO_UPGRADES excludes all of them, for up to 30 days, in up to three "
        "exclusions.",
    )


class Maintenance(Section):
    """The times at which GKE upgrades the cluster and its nodes."""

    noun: ClassVar[str] = "the maintenance"

    window: MaintenanceWindow = Field(
        description="Recurring maintenance window. Google's provider refuses a cluster with exclusions and no window."
    )
    exclusions: list[MaintenanceExclusion] = Field(
        default=[],
        description="Periods without upgrades. Empty the list before you remove `maintenance`, or GKE keeps them.",
    )


class Cluster(Section):
    """The GKE cluster that everything runs in."""

    noun: ClassVar[str] = "the cluster"

    name: GkeName = Field(default="llm-cluster", description="Name of the cluster.")
    mode: Literal["standard", "autopilot", "existing"] = Field(
        default="autopilot",
        description="Mode of the cluster. autopilot: GKE manages the nodes; standard: the stack manages them; "
        "existing: the stack uses a cluster that already exists.",
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
        description="VPC network of the cluster, by its name or path. Writing one instead of the other replaces the "
        "cluster. Default: the project's default network.",
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
        description="IPv4 ranges that can reach the control plane by its IP address. Google's provider cannot remove "
        "them: if you empty the list, the cloud keeps the last ranges until you run `gcloud container clusters update "
        "NAME --location LOCATION --no-enable-master-authorized-networks`. Default: all addresses.",
        examples=[["8.8.8.0/24"]],
    )
    dns_endpoint: bool = Field(
        default=False, description="Give the control plane a DNS name. IAM decides who can reach it."
    )
    node_service_account: str | None = Field(
        default=None,
        description="Google service account of the nodes. If you set a name, the stack creates the account with the "
        "roles that nodes need and no others. If you set an e-mail address, the account must exist. A change "
        "replaces every node pool of the stack before the old account is deleted. Nodes that GKE created itself "
        "(Autopilot, compute classes) keep the old account: delete them after the update. Default: the default "
        "account of Compute Engine.",
        examples=["gke-nodes"],
    )
    maintenance: Maintenance | None = Field(
        default=None, description="Times at which GKE upgrades the cluster and its nodes. Default: at any time."
    )
    labels: Labels = Field(default={}, description="Google Cloud resource labels of the cluster.")
    protect: bool = Field(
        default=False, description="Refuse to delete the cluster. To delete it, set this to false and apply that first."
    )

    @property
    def region(self) -> str:
        """The region of the cluster."""
        return region_of(self.location)

    @property
    def is_autopilot(self) -> bool:
        """Whether GKE manages the nodes: a new or an existing Autopilot cluster."""
        return self.mode == "autopilot" or (self.mode == "existing" and self.existing_mode == "autopilot")
