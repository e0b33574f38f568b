"""The cluster: its network, system pool and maintenance."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from gke_ai.catalog.machines.zones import region_of
from gke_ai.settings.model.base import Cidr, DnsLabel, GkeName, Labels, Moment, Section


class SystemPool(Section):
    """The node pool of a Standard cluster that runs controllers."""

    noun: ClassVar[str] = "the system pool"

    name: GkeName = "default-pool"
    """Name of the pool."""
    machine_type: str = "e2-standard-4"
    """Machine type of the nodes."""
    nodes_per_zone: int = Field(default=1, ge=1, le=1000)
    """Nodes in each zone of the pool."""
    zones: list[str] = Field(default=[], examples=[["us-central1-a"]])
    """Zones of the pool. Default: all default zones of the region."""


class Vpc(Section):
    """A VPC network of the cluster's own: one subnetwork, ranges for pods and Services, and Cloud NAT."""

    noun: ClassVar[str] = "the VPC"

    name: GkeName | None = Field(default=None, examples=["ai-prod"])
    """Name of the network and its parts. Default: the cluster's name."""
    nodes_cidr: Cidr = "10.0.0.0/20"
    """IPv4 range of the nodes."""
    pods_cidr: Cidr = "10.4.0.0/14"
    """IPv4 range of the pods. GKE gives each node a /24 of it."""
    services_cidr: Cidr = "10.8.0.0/20"
    """IPv4 range of the Services."""
    proxy_cidr: Cidr = "10.9.0.0/23"
    """IPv4 range of the proxies of the gateway's load balancer. Used only with `gateway`."""
    nat: bool = True
    """Create Cloud NAT, through which private nodes reach the Internet."""


class MaintenanceWindow(Section):
    """The window in which GKE may upgrade the cluster and its nodes, and how it recurs."""

    noun: ClassVar[str] = "the maintenance window"

    start_time: Moment = Field(examples=["2026-01-03T00:00:00Z"])
    """Start of the first window, in UTC."""
    end_time: Moment = Field(examples=["2026-01-03T08:00:00Z"])
    """End of the first window, in UTC, at least 4 hours after the start."""
    recurrence: str = Field(examples=["FREQ=WEEKLY;BYDAY=SA,SU"])
    """Recurrence of the window, as an RRULE of RFC 5545, with at least 48 hours in any 32 days."""


class MaintenanceExclusion(Section):
    """A period without upgrades by GKE, for example during a long run."""

    noun: ClassVar[str] = "a maintenance exclusion"

    name: GkeName = Field(examples=["pretraining"])
    """Name of the exclusion."""
    start_time: Moment = Field(examples=["2026-03-01T00:00:00Z"])
    """Start of the exclusion, in UTC."""
    end_time: Moment = Field(examples=["2026-03-21T00:00:00Z"])
    """End of the exclusion, in UTC."""
    scope: Literal["NO_UPGRADES", "NO_MINOR_UPGRADES", "NO_MINOR_OR_NODE_UPGRADES"] = "NO_UPGRADES"
    """Upgrades that are excluded. NO_UPGRADES excludes all of them, for up to 30 days, in up to three exclusions."""


class Maintenance(Section):
    """The times at which GKE upgrades the cluster and its nodes. Maintenance of hosts bypasses them, and GPUs and TPUs
    do not migrate live: GKE terminates their nodes."""

    # https://docs.cloud.google.com/ai-hypercomputer/docs/manage/manage-gke-clusters

    noun: ClassVar[str] = "the maintenance"

    window: MaintenanceWindow
    """Recurring maintenance window. Google's provider refuses a cluster with exclusions and no window."""
    exclusions: list[MaintenanceExclusion] = Field(default=[])
    """Periods without upgrades. Empty the list before you remove `maintenance`, or GKE keeps them."""


class Cluster(Section):
    """The GKE cluster that everything runs in."""

    noun: ClassVar[str] = "the cluster"

    name: GkeName = "llm-cluster"
    """Name of the cluster."""
    mode: Literal["standard", "autopilot", "existing"] = "autopilot"
    """Mode of the cluster. autopilot: GKE manages the nodes; standard: the stack manages them; existing: the stack uses
    a cluster that already exists."""
    existing_mode: Literal["standard", "autopilot"] = "standard"
    """Mode of the existing cluster. Read only with mode: existing."""
    existing_namespaces: list[DnsLabel] = Field(default=[], examples=[["research"]])
    """Namespaces that the existing cluster has. The stack puts its objects there, and neither creates, changes nor
    deletes the namespaces themselves. Default: the stack creates its namespaces."""
    location: str = "us-central1"
    """Region of the cluster, or a zone for a zonal Standard cluster."""
    release_channel: Literal["rapid", "regular", "stable"] = "regular"
    """GKE release channel, which decides how soon new versions arrive."""
    system_pool: SystemPool = SystemPool()
    """Node pool of a Standard cluster that runs controllers."""
    network: str | None = Field(default=None, examples=["shared-vpc"])
    """VPC network of the cluster, by its name or path. Writing one instead of the other replaces the cluster. Default:
    the project's default network."""
    subnetwork: str | None = Field(default=None, examples=["gke-us-central1"])
    """Subnetwork of the network. Default: the default subnetwork of the region."""
    pods_range: str | None = Field(default=None, examples=["pods"])
    """Secondary range of the subnetwork for pods. Default: GKE creates one."""
    services_range: str | None = Field(default=None, examples=["services"])
    """Secondary range of the subnetwork for Services. Default: GKE creates one."""
    vpc: Vpc | None = None
    """VPC network that the stack creates for the cluster, instead of `network` and `subnetwork`."""
    multi_networking: bool = False
    """Let nodes have NICs in several VPC networks, which runs over several nodes of A3 High and A3 Mega need. It needs
    `vpc`. A change updates the cluster; whether GKE then recreates nodes is not documented."""
    shielded_nodes: bool = True
    """Verify the identity and integrity of nodes, with GKE's shielded nodes. Bare-metal machines (A4X Max) need a
    Standard cluster without them."""
    private_nodes: bool = False
    """Give the nodes no external IP addresses."""
    public_endpoint: bool = True
    """Give the control plane an IP address on the Internet."""
    authorized_networks: list[Cidr] = Field(default=[], examples=[["8.8.8.0/24"]])
    """IPv4 ranges that can reach the control plane by its IP address. Google's provider cannot remove them: if you
    empty the list, the cloud keeps the last ranges until you run `gcloud container clusters update NAME --location
    LOCATION --no-enable-master-authorized-networks`. Default: all addresses."""
    dns_endpoint: bool = False
    """Give the control plane a DNS name. IAM decides who can reach it."""
    node_service_account: str | None = Field(default=None, examples=["gke-nodes"])
    """Google service account of the nodes. If you set a name, the stack creates the account with the roles that nodes
    need and no others. If you set an e-mail address, the account must exist. A change replaces every node pool of the
    stack before the old account is deleted. Nodes that GKE created itself (Autopilot, compute classes) keep the old
    account: delete them after the update. Default: the default account of Compute Engine."""
    maintenance: Maintenance | None = None
    """Times at which GKE upgrades the cluster and its nodes. Default: at any time."""
    # https://cloud.google.com/kubernetes-engine/docs/how-to/cost-allocations
    cost_allocation: bool = True
    """Let Google's detailed billing export name the namespace of each cost of a new cluster. It can add to the costs of
    the export in BigQuery, and to no others."""
    labels: Labels = Field(default={})
    """Google Cloud resource labels of the cluster."""
    protect: bool = False
    """Refuse to delete the cluster. To delete it, set this to false and apply that first."""

    @property
    def region(self) -> str:
        """The region of the cluster."""
        return region_of(self.location)

    @property
    def is_autopilot(self) -> bool:
        """Whether GKE manages the nodes: a new or an existing Autopilot cluster."""
        return self.mode == "autopilot" or (self.mode == "existing" and self.existing_mode == "autopilot")
