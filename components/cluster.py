"""The cluster that everything else runs in."""

from typing import NotRequired, TypedDict

import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as k8s
import yaml

from catalog.cluster_updates import enable_bucket_volumes, enable_workload_identity, update
from catalog.dashboards import PACKAGES, SYSTEM_PACKAGES
from catalog.identities import DEFAULT_ACCOUNT, account_email
from catalog.workload_identity import pool_name
from catalog.zones import chooses_zones, is_zone, node_zones, region_of
from components.base import Component, look_up, read
from components.control_plane import wait_for_control_plane
from components.network import PODS_RANGE, SERVICES_RANGE, ClusterNetwork, ClusterNetworkArgs, VpcArgs
from components.node_account import NodeAccount
from settings.model import Cluster, Maintenance, SystemPool

# What GKE recommends for nodes: IAM decides, not the scope.
# https://cloud.google.com/kubernetes-engine/docs/how-to/access-scopes
NODE_SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]

# Fields of the cluster that this program writes once, or never, and that something else changes later.
OWNED_BY_OTHERS = [
    # Sizes the pool that is removed as soon as the cluster stands; a change would replace the cluster.
    "initialNodeCount",
    # Acts at creation. Seen as a change later (after an import), it would delete whatever pool is called default-pool.
    "removeDefaultNodePool",
    # Read back from another pool, or from Autopilot's own nodes, and taken for a replacement: pulumi/pulumi-gcp#2247.
    "nodeConfig",
    # Pools are resources of their own here; read back into the cluster they would look like a change of it.
    "nodePools",
    # Autopilot sets Cloud DNS by itself, and its removal would replace the cluster: pulumi/pulumi-gcp#1170.
    "dnsConfig",
]


class MaintenanceWindowArgs(TypedDict):
    """When GKE may upgrade: a first window in UTC, and how it recurs."""

    start_time: str
    end_time: str
    recurrence: str
    """RRULE of RFC 5545."""


class MaintenanceExclusionArgs(TypedDict):
    """A time, in UTC, in which GKE does not upgrade."""

    name: str
    start_time: str
    end_time: str
    scope: NotRequired[str]
    """`NO_UPGRADES`, `NO_MINOR_UPGRADES` or `NO_MINOR_OR_NODE_UPGRADES`."""


class MaintenanceArgs(TypedDict, total=False):
    """When GKE upgrades the cluster and its nodes by itself."""

    window: MaintenanceWindowArgs
    exclusions: list[MaintenanceExclusionArgs]


class SystemPoolArgs(TypedDict, total=False):
    """The pool of a Standard cluster that controllers run on."""

    name: str
    machine_type: str
    nodes_per_zone: int
    """Nodes in each zone of the pool."""
    zones: list[str]


class GkeClusterArgs(TypedDict):
    """Arguments of a `GkeCluster`; all but `name` and `project` have defaults."""

    name: str
    project: str
    """Id of the Google Cloud project."""
    mode: NotRequired[str]
    """`autopilot` (the default), `standard`, or `existing`: look the cluster up by name."""
    existing_mode: NotRequired[str]
    """What an existing cluster is: `standard` or `autopilot`."""
    location: NotRequired[str]
    """Region, or a zone for a zonal Standard cluster."""
    release_channel: NotRequired[str]
    """`rapid`, `regular` or `stable`."""
    system_pool: NotRequired[SystemPoolArgs]
    network: NotRequired[str]
    """VPC network that is there; none: the project's default network."""
    subnetwork: NotRequired[str]
    """Subnetwork of the network; none: the region's default."""
    pods_range: NotRequired[str]
    """Name of the subnetwork's secondary range for pods; none: GKE makes one."""
    services_range: NotRequired[str]
    """Name of the subnetwork's secondary range for Services; none: GKE makes one."""
    vpc: NotRequired[VpcArgs]
    """A VPC of the cluster's own, instead of `network` and `subnetwork`."""
    private_nodes: NotRequired[bool]
    """Nodes without external addresses."""
    public_endpoint: NotRequired[bool]
    """The control plane has an address on the Internet; without, it is reached by its DNS name alone."""
    authorized_networks: NotRequired[list[str]]
    """Ranges of addresses that reach the control plane by its address; none: everyone on the Internet. Emptied later,
    the cloud keeps the last ones."""
    dns_endpoint: NotRequired[bool]
    """Reach the control plane by its DNS name, with IAM."""
    node_service_account: NotRequired[str]
    """Account that nodes run as: a name, and it is made; an e-mail address, and it is there."""
    registry_reader: NotRequired[bool]
    """Nodes pull images from Artifact Registry of the project itself, so the account that is made may."""
    network_policy: NotRequired[str]
    """How a Standard cluster enforces NetworkPolicies: `dataplaneV2`, `calico`, or `existing`, as the existing cluster
    does. Default: not at all. Autopilot always has Dataplane V2."""
    managed_prometheus: NotRequired[bool]
    """Collect the metrics that dashboards and alerts need, with Managed Service for Prometheus."""
    security_group: NotRequired[str]
    """Google Group whose groups count in RBAC, `gke-security-groups@DOMAIN`; none: no group does."""
    secret_sync: NotRequired[bool]
    """Secrets of Secret Manager are brought into the cluster, which takes GKE 1.34 or newer."""
    workload_identity: NotRequired[bool]
    """Pods of the stack act as their Kubernetes service accounts; an existing cluster must have that on."""
    bucket_volumes: NotRequired[bool]
    """Runs mount buckets; an existing cluster must have the Cloud Storage FUSE driver."""
    maintenance: NotRequired[MaintenanceArgs]
    labels: NotRequired[dict[str, str]]
    protect: NotRequired[bool]
    """Refuse to delete the cluster until this is false and applied."""


class GkeCluster(Component):
    """A GKE cluster, its system pool, and a Kubernetes provider that reaches it.

    Standard: Workload Identity, the Cloud Storage FUSE driver and managed Prometheus are on, and controllers have a
    pool of their own; GPU pools are `GpuNodePool`s. Autopilot has all of that and no pools. An existing cluster is only
    read.

    `vpc` makes a network of its own (`ClusterNetwork`). A control plane is reached by an address on the Internet, for
    everyone or for `authorized_networks`; by its DNS name, for whoever has IAM's permission, within the VPC too; or by
    either. The API has deprecated most of `privateClusterConfig`; the provider keeps its names and writes
    `networkConfig.defaultEnablePrivateNodes` for `enable_private_nodes`, and the authorized networks and the missing
    address into `controlPlaneEndpointsConfig.ipEndpointsConfig`.

    Nodes run as `node_service_account`: made here (`NodeAccount`) if it is a name. Pools that are made elsewhere take
    its address, the attribute of that name, and wait for `node_account`.

    NetworkPolicies are enforced by Dataplane V2 or by Calico. The former can't be changed on a cluster that is there:
    it would be replaced. The latter can be turned on, and GKE then makes the nodes of each pool anew, one by one.
    Shielded nodes are GKE's default.

    The provider keeps the current value of a property that is no longer stated. So every setting is stated in its off
    form too. Authorized networks have none: the component warns while the cloud keeps some that are no longer asked
    for, and says how to remove them.

    `provider` authenticates by the `gke-gcloud-auth-plugin` exec plugin, so no credential is in the state. Its
    `clusterIdentifier` is also what replaces the cluster when it changes, so that a cluster and its objects are
    replaced together or not at all.

    Refused: ValueError for a control plane without any way in; RunError for an existing cluster that is not there, or
    has not what the stack needs of it; by Pulumi and by the provider, the deletion of a protected cluster.

    Sources: https://cloud.google.com/kubernetes-engine/docs/how-to/workload-identity,
    https://cloud.google.com/kubernetes-engine/docs/how-to/cloud-storage-fuse-csi-driver-setup,
    https://cloud.google.com/stackdriver/docs/managed-prometheus/setup-managed,
    https://cloud.google.com/kubernetes-engine/docs/how-to/latest/network-isolation#dns-based-endpoint,
    https://cloud.google.com/kubernetes-engine/docs/concepts/network-isolation,
    https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/projects.locations.clusters#controlplaneendpointsconfig,
    https://cloud.google.com/kubernetes-engine/docs/how-to/dataplane-v2,
    https://cloud.google.com/kubernetes-engine/docs/how-to/network-policy,
    https://cloud.google.com/secret-manager/docs/sync-k8-secrets,
    https://github.com/hashicorp/terraform-provider-google (expandControlPlaneEndpointsConfig)
    """

    cluster_name: pulumi.Output[str]
    """Known with the cluster: what needs a cluster that exists takes this."""
    location: pulumi.Output[str]
    endpoint: pulumi.Output[str]
    """Host of the control plane, without a scheme."""
    workload_pool: pulumi.Output[str]
    """The project's identity pool, which exists once the cluster does."""
    kubeconfig: pulumi.Output[str]
    """For kubectl and other clients; holds no credential."""
    node_zones: pulumi.Output[list[str]]
    """Zones of a pool that names none."""

    def __init__(self, name: str, args: GkeClusterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        cluster = read(Cluster, name, args)
        project = args["project"]
        if not cluster.public_endpoint and not cluster.dns_endpoint:
            raise ValueError(
                f"{name}: without public_endpoint and without dns_endpoint nobody reaches the control plane"
            )

        self.node_service_account: str | None = None
        self.node_account: NodeAccount | None = None
        if cluster.node_service_account:
            self.node_service_account = account_email(cluster.node_service_account, project)
            if self.node_service_account != cluster.node_service_account:
                self.node_account = NodeAccount(
                    cluster.node_service_account,
                    {
                        "name": cluster.node_service_account,
                        "project": project,
                        "registry_reader": args.get("registry_reader", False),
                    },
                    pulumi.ResourceOptions(parent=self),
                )

        if cluster.mode == "existing":
            found = look_up(
                lambda: gcp.container.get_cluster(
                    name=cluster.name,
                    location=cluster.location,
                    project=project,
                    opts=pulumi.InvokeOptions(parent=self),
                ),
                f"There must be a cluster {cluster.name} in {cluster.location} of project {project}, and you must be "
                "allowed to see it. Check `name` and `location` in gke-ai:cluster and gcp:project, or leave "
                "`mode: existing` out to have the cluster made.",
            )
            where = (cluster.name, cluster.location, project)
            if args.get("workload_identity") and not identifies(found):
                raise pulumi.RunError(
                    f"Cluster {cluster.name} has no Workload Identity, so its pools would be refused, and grants on "
                    "buckets would fail: the project may have no identity pool yet. Turn it on for the cluster and its "
                    f"node pools: {enable_workload_identity(*where)}"
                )
            if args.get("bucket_volumes") and not mounts_buckets(found):
                raise pulumi.RunError(
                    f"Cluster {cluster.name} has no Cloud Storage FUSE driver, so the pods of runs with a volume would "
                    f"wait for it for ever. Run: {enable_bucket_volumes(*where)}"
                )
            if args.get("managed_prometheus") and not collects(found):
                raise pulumi.RunError(
                    f"Cluster {cluster.name} does not collect metrics with Managed Service for Prometheus, of which "
                    "dashboards and alerts are made. Leave gke-ai:monitoring out, or run: gcloud container clusters "
                    f"update {cluster.name} --location {cluster.location} --project {project} "
                    "--enable-managed-prometheus"
                )
            group = args.get("security_group")
            if group and not any(one.security_group == group for one in found.authenticator_groups_configs or []):
                raise pulumi.RunError(
                    f"Cluster {cluster.name} does not know Google Groups by {group}, so a group among the members of "
                    "gke-ai:tenants is given nothing. Name users instead, or run: gcloud container clusters update "
                    f"{cluster.name} --location {cluster.location} --project {project} --security-group={group}"
                )
            if args.get("network_policy") == "existing" and not enforces(found):
                raise pulumi.RunError(
                    f"Cluster {cluster.name} enforces no NetworkPolicy, so pods of one of gke-ai:tenants would reach "
                    "those of another. Leave gke-ai:tenants out, or run, which makes every node anew: "
                    f"{update(*where)} --update-addons=NetworkPolicy=ENABLED && "
                    f"{update(*where)} --enable-network-policy"
                )
            if args.get("secret_sync") and not any(one.enabled for one in found.secret_sync_configs or []):
                raise pulumi.RunError(
                    f"Cluster {cluster.name} does not synchronize secrets, by which gke-ai:hfTokenSecret comes into "
                    f"it. Use gke-ai:hfToken, or run: gcloud container clusters update {cluster.name} --location "
                    f"{cluster.location} --project {project} --enable-secret-sync --enable-secret-sync-rotation"
                )
            by_name = [name for ways in found.control_plane_endpoints_configs for name in ways.dns_endpoint_configs]
            if cluster.dns_endpoint and not any(name.allow_external_traffic for name in by_name):
                raise pulumi.RunError(
                    f"Cluster {cluster.name} lets nobody in by its DNS name. Leave dnsEndpoint out of gke-ai:cluster, "
                    f"or run: gcloud container clusters update {cluster.name} --location {cluster.location} --project "
                    f"{project} --enable-dns-access"
                )
            self.cluster_name = pulumi.Output.from_input(found.name)
            ca_certificate = pulumi.Output.from_input(found.master_auths[0].cluster_ca_certificate)
            self.endpoint = pulumi.Output.from_input(by_name[0].endpoint if cluster.dns_endpoint else found.endpoint)
            # A zonal cluster's list has only the zones beside its own.
            own = [cluster.location] if is_zone(cluster.location) else []
            self.node_zones = pulumi.Output.from_input([*own, *found.node_locations])
        else:
            made = self._make(cluster, args)
            self.cluster_name = made.name
            if cluster.public_endpoint and not cluster.authorized_networks:
                made.master_authorized_networks_config.apply(
                    lambda kept: warn_of_kept_networks(made, kept, cluster, project)
                )
            ca_certificate = made.master_auth.cluster_ca_certificate.apply(lambda certificate: certificate or "")
            self.endpoint = made.endpoint
            if cluster.dns_endpoint:
                endpoint = made.control_plane_endpoints_config.dns_endpoint_config.endpoint
                self.endpoint = endpoint.apply(lambda host: host or "")

        self.location = self.cluster_name.apply(lambda _: cluster.location)
        self.workload_pool = self.cluster_name.apply(lambda _: pool_name(project))
        context = f"gke_{project}_{cluster.location}_{cluster.name}"

        async def once_it_answers(known: list[str]) -> str:
            # The DNS name has a certificate that every machine trusts; the address has the cluster's own.
            host, authority = known[0], None if cluster.dns_endpoint else known[1]
            if not pulumi.runtime.is_dry_run():
                await wait_for_control_plane(host, authority)
            return kubeconfig(context, host, authority)

        # The provider marks all of masterAuth a secret, for the client key that a cluster no longer has.
        certificate = pulumi.Output.unsecret(ca_certificate)
        self.kubeconfig = pulumi.Output.all(self.endpoint, certificate).apply(once_it_answers)
        # Plan-time values only, and of those all that replace a cluster: an unknown or changed kubeconfig (an upgrade,
        # a new endpoint) must not plan to replace every object in it (pulumi/pulumi-kubernetes#1148).
        self.provider: k8s.Provider = k8s.Provider(
            name,
            kubeconfig=self.kubeconfig,
            cluster_identifier=identifier(cluster, project, args.get("network_policy")),
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs(
            {
                "clusterName": self.cluster_name,
                "location": self.location,
                "endpoint": self.endpoint,
                "workloadPool": self.workload_pool,
                "kubeconfig": self.kubeconfig,
            }
        )

    def _make(self, cluster: Cluster, args: GkeClusterArgs) -> gcp.container.Cluster:
        project, autopilot = args["project"], cluster.mode == "autopilot"
        before: list[pulumi.Resource] = [self.node_account] if self.node_account else []
        network: pulumi.Input[str] | None = cluster.network
        subnetwork: pulumi.Input[str] | None = cluster.subnetwork
        pods, services = cluster.pods_range, cluster.services_range
        if cluster.vpc is not None:
            vpc: ClusterNetworkArgs = {
                "name": vpc_name(cluster),
                "project": project,
                "region": region_of(cluster.location),
                "nodes_cidr": cluster.vpc.nodes_cidr,
                "pods_cidr": cluster.vpc.pods_cidr,
                "services_cidr": cluster.vpc.services_cidr,
                "nat": cluster.vpc.nat,
            }
            made_network = ClusterNetwork(vpc["name"], vpc, pulumi.ResourceOptions(parent=self))
            network, subnetwork = made_network.network, made_network.subnetwork
            pods, services = PODS_RANGE, SERVICES_RANGE
            before.append(made_network)  # the NAT too: what runs in the cluster needs it to the end
        calico = args.get("network_policy") == "calico"
        made = gcp.container.Cluster(
            cluster.name,
            name=cluster.name,
            project=project,
            location=cluster.location,
            network=network,
            subnetwork=subnetwork,
            ip_allocation_policy={"cluster_secondary_range_name": pods, "services_secondary_range_name": services}
            if pods or services
            else None,
            private_cluster_config={"enable_private_nodes": cluster.private_nodes},
            control_plane_endpoints_config=endpoints(cluster),
            master_authorized_networks_config=authorized(cluster),
            datapath_provider="ADVANCED_DATAPATH" if args.get("network_policy") == "dataplaneV2" else None,
            network_policy={"enabled": True, "provider": "CALICO"} if calico else None,
            release_channel={"channel": cluster.release_channel.upper()},
            maintenance_policy=maintenance(cluster.maintenance),
            resource_labels=cluster.labels,
            # An empty name turns Google Groups off.
            authenticator_groups_config={"security_group": args.get("security_group", "")},
            # Rotation: a new version of a secret is brought in within two minutes.
            secret_sync_config={"enabled": True, "rotation_config": {"enabled": True}}
            if args.get("secret_sync")
            else None,
            deletion_protection=cluster.protect,
            enable_autopilot=True if autopilot else None,
            cluster_autoscaling=self._autopilot_nodes() if autopilot else None,
            # Autopilot has these built in, and refuses them as settings.
            remove_default_node_pool=None if autopilot else True,
            initial_node_count=None if autopilot else 1,
            node_config=None if autopilot else self._first_nodes(),
            workload_identity_config=None if autopilot else {"workload_pool": pool_name(project)},
            addons_config=None if autopilot else addons(calico),
            monitoring_config=None if autopilot else monitoring(args.get("managed_prometheus", False)),
            opts=pulumi.ResourceOptions(
                parent=self,
                # deletion_protection is asked only when everything in the cluster has gone; this before anything does.
                protect=cluster.protect,
                # Its name is taken until it has gone.
                delete_before_replace=True,
                ignore_changes=OWNED_BY_OTHERS,
                # The provider plans nothing for a range or a subnetwork that is no longer stated; its objects' provider
                # would take the cluster for another one.
                replacement_trigger=identifier(cluster, project, args.get("network_policy")),
                depends_on=before,
            ),
        )
        self.node_zones = default_zones(cluster.location, made)
        if not autopilot:
            self._make_system_pool(cluster.system_pool, made, cluster, project)
        return made

    def _autopilot_nodes(self) -> gcp.container.ClusterClusterAutoscalingArgsDict:
        """Whom the nodes that Google makes run as."""
        account = self.node_service_account or DEFAULT_ACCOUNT
        return {"auto_provisioning_defaults": {"service_account": account, "oauth_scopes": NODE_SCOPES}}

    def _first_nodes(self) -> gcp.container.ClusterNodeConfigArgsDict | None:
        """The pool that is removed at once needs an account too, and the project may have no default one."""
        if self.node_service_account is None:
            return None
        return {"service_account": self.node_service_account, "oauth_scopes": NODE_SCOPES}

    def _make_system_pool(self, pool: SystemPool, made: gcp.container.Cluster, cluster: Cluster, project: str) -> None:
        gcp.container.NodePool(
            pool.name,
            name=pool.name,
            cluster=made.name,
            project=project,
            location=cluster.location,
            node_locations=pool.zones or self.node_zones,
            node_count=pool.nodes_per_zone,
            # A pool follows its cluster only when it is created.
            # https://cloud.google.com/kubernetes-engine/docs/how-to/latest/network-isolation#configure-cluster-networking
            network_config={"enable_private_nodes": cluster.private_nodes},
            node_config={
                "machine_type": pool.machine_type,
                "service_account": self.node_service_account or DEFAULT_ACCOUNT,
                "oauth_scopes": NODE_SCOPES,
                "workload_metadata_config": {"mode": "GKE_METADATA"},
            },
            management={"auto_repair": True, "auto_upgrade": True},
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=[self.node_account] if self.node_account else [],
                delete_before_replace=True,  # its name is taken until it has gone
                # What GKE records of the first size; a change would replace the pool (pulumi/pulumi-gcp#412).
                ignore_changes=["initialNodeCount"],
            ),
        )


def maintenance(wanted: Maintenance | None) -> gcp.container.ClusterMaintenancePolicyArgsDict | None:
    """The windows in which GKE upgrades, and the times in which it does not."""
    if wanted is None:
        return None
    policy: gcp.container.ClusterMaintenancePolicyArgsDict = {
        "maintenance_exclusions": [
            {
                "exclusion_name": one.name,
                "start_time": one.start_time,
                "end_time": one.end_time,
                "exclusion_options": {"scope": one.scope},
            }
            for one in wanted.exclusions
        ]
    }
    if wanted.window is not None:
        policy["recurring_window"] = {
            "start_time": wanted.window.start_time,
            "end_time": wanted.window.end_time,
            "recurrence": wanted.window.recurrence,
        }
    return policy


def enforces(found: "gcp.container.GetClusterResult") -> bool:
    """Whether NetworkPolicies hold in a cluster that is there."""
    calico = any(one.enabled for one in found.network_policies or [])
    return calico or found.datapath_provider == "ADVANCED_DATAPATH"


def identifies(found: "gcp.container.GetClusterResult") -> bool:
    """Whether a cluster that is there has Workload Identity; one of Autopilot always does."""
    return found.enable_autopilot or any(one.workload_pool for one in found.workload_identity_configs or [])


def mounts_buckets(found: "gcp.container.GetClusterResult") -> bool:
    """Whether a cluster that is there has the Cloud Storage FUSE driver; one of Autopilot always does."""
    drivers = [one for addons in found.addons_configs or [] for one in addons.gcs_fuse_csi_driver_configs or []]
    return found.enable_autopilot or any(one.enabled for one in drivers)


def vpc_name(cluster: Cluster) -> str:
    """Name of the cluster's own network."""
    return (cluster.vpc.name if cluster.vpc else None) or cluster.name


def identifier(cluster: Cluster, project: str, network_policy: str | None) -> str:
    """What makes it another cluster if it changes: all that replaces one, and nothing that is changed in place.

    What is not set adds nothing, so that a setting of a later release changes no cluster that is there.
    """
    network = vpc_name(cluster) if cluster.vpc else cluster.network
    parts = [project, cluster.location, cluster.name, cluster.mode, network, cluster.subnetwork]
    further = {
        "pods": cluster.pods_range,
        "services": cluster.services_range,
        "dataplane": "v2" if network_policy == "dataplaneV2" else None,
    }
    if cluster.vpc is not None:
        own = cluster.vpc
        further["vpc"] = f"{own.nodes_cidr},{own.pods_cidr},{own.services_cidr}"
    return "/".join(
        [*(part or "default" for part in parts), *(f"{key}={text}" for key, text in further.items() if text)]
    )


def default_zones(location: str, cluster: gcp.container.Cluster) -> pulumi.Output[list[str]]:
    """The zones of a pool that names none: known beforehand, or from the cluster where GKE chooses among more than
    three."""
    if chooses_zones(location):
        return cluster.node_locations.apply(list)
    return pulumi.Output.from_input(list(node_zones(location)))


def endpoints(cluster: Cluster) -> gcp.container.ClusterControlPlaneEndpointsConfigArgsDict:
    """The ways to the control plane: its DNS name, and its address on the Internet."""
    return {
        "dns_endpoint_config": {"allow_external_traffic": cluster.dns_endpoint},
        "ip_endpoints_config": {"enabled": cluster.public_endpoint},
    }


def authorized(cluster: Cluster) -> gcp.container.ClusterMasterAuthorizedNetworksConfigArgsDict | None:
    """Who reaches the control plane's address; else GKE lets every machine of Google Cloud in with them."""
    if not cluster.authorized_networks:
        return None
    return {
        "cidr_blocks": [{"cidr_block": cidr} for cidr in cluster.authorized_networks],
        "gcp_public_cidrs_access_enabled": False,
    }


def warn_of_kept_networks(
    made: gcp.container.Cluster,
    kept: "gcp.container.outputs.ClusterMasterAuthorizedNetworksConfig | None",
    cluster: Cluster,
    project: str,
) -> None:
    """Warns of authorized networks that the configuration no longer has, and that the cloud keeps."""
    if kept is None or not kept.cidr_blocks:
        return
    networks = ", ".join(block.cidr_block for block in kept.cidr_blocks)
    pulumi.log.warn(
        f"gke-ai:cluster.authorizedNetworks: it is empty, but only {networks} can still reach the control plane by its "
        "address. Google's provider cannot remove authorized networks. Run: gcloud container clusters update "
        f"{cluster.name} --location {cluster.location} --project {project} --no-enable-master-authorized-networks, "
        "then pulumi refresh.",
        resource=made,
    )


def addons(calico: bool) -> gcp.container.ClusterAddonsConfigArgsDict:
    """Add-ons of a Standard cluster."""
    wanted: gcp.container.ClusterAddonsConfigArgsDict = {"gcs_fuse_csi_driver_config": {"enabled": True}}
    if calico:
        wanted["network_policy_config"] = {"disabled": False}
    return wanted


def monitoring(packages: bool) -> "gcp.container.ClusterMonitoringConfigArgsDict":
    """What is collected of a Standard cluster: without dashboards and alerts, GKE's own system metrics alone."""
    return {
        "managed_prometheus": {"enabled": True},
        "enable_components": list(PACKAGES if packages else SYSTEM_PACKAGES),
    }


def collects(found: "gcp.container.GetClusterResult") -> bool:
    """Whether Managed Service for Prometheus runs in a cluster; in one of Autopilot it always does."""
    return found.enable_autopilot or any(
        prometheus.enabled for config in found.monitoring_configs for prometheus in config.managed_prometheuses
    )


def kubeconfig(context: str, host: str, ca_certificate: str | None) -> str:
    """A kubeconfig whose user is whoever `gke-gcloud-auth-plugin` says.

    `host` without a scheme; `ca_certificate` in base64, or none where the host's certificate is publicly trusted.
    https://cloud.google.com/kubernetes-engine/docs/how-to/cluster-access-for-kubectl
    """
    cluster = {"server": f"https://{host}"}
    if ca_certificate:
        cluster["certificate-authority-data"] = ca_certificate
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1beta1",
            "command": "gke-gcloud-auth-plugin",
            "installHint": "https://cloud.google.com/kubernetes-engine/docs/how-to/cluster-access-for-kubectl",
            "interactiveMode": "Never",
            "provideClusterInfo": True,
        }
    }
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": context,
            "clusters": [{"name": context, "cluster": cluster}],
            "contexts": [{"name": context, "context": {"cluster": context, "user": context}}],
            "users": [{"name": context, "user": user}],
        },
        sort_keys=False,
    )
