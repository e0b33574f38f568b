"""The GKE cluster that everything else runs in."""

from collections.abc import Mapping
from typing import Any, Self

import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as k8s

from gke_ai.catalog.engines.gateways import GATEWAY_API_CHANNEL
from gke_ai.catalog.fabric.rdma import AGENT_ROLE, agent
from gke_ai.catalog.machines.disks import boot_disk_type
from gke_ai.catalog.machines.zones import is_zone, region_of
from gke_ai.catalog.project.cluster_features import ClusterFeatures
from gke_ai.catalog.project.identities import DEFAULT_ACCOUNT, account_email, is_account_email, pool_name
from gke_ai.components.arguments import Arguments, Input, Refused, on, project_of, takes
from gke_ai.components.cluster import cluster_fields
from gke_ai.components.cluster.connection import AnyCluster
from gke_ai.components.cluster.control_plane import wait_for_control_plane
from gke_ai.components.cluster.existing_cluster import dns_names, look_up_cluster, refuse_older
from gke_ai.components.cluster.network import PODS_RANGE, SERVICES_RANGE, ClusterNetwork
from gke_ai.components.cluster.node_account import NodeAccount
from gke_ai.components.support.alone import check_alone
from gke_ai.components.support.identity import project_number
from gke_ai.kube.kubeconfig import kubeconfig
from gke_ai.settings.model import Cluster, SystemPool
from gke_ai.settings.model.base import GkeName
from gke_ai.settings.problems import Problem

# GKE recommends this scope for nodes: IAM then decides what they may do.
# https://cloud.google.com/kubernetes-engine/docs/how-to/access-scopes
NODE_SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]

# Fields of the cluster that this program writes once or never, and that GKE or the provider changes later.
OWNED_BY_OTHERS = [
    # Sizes the pool that is removed once the cluster exists. A change would replace the cluster.
    "initialNodeCount",
    # Read back from another pool or from Autopilot's nodes, and planned as a replacement: pulumi/pulumi-gcp#2247.
    "nodeConfig",
    # Pools are separate resources. Read back into the cluster, they would look like a change of it.
    "nodePools",
    # Autopilot sets Cloud DNS. Removing it would replace the cluster: pulumi/pulumi-gcp#1170.
    "dnsConfig",
]


# Acts at creation. Read as a change later (after an import), it would delete any pool named default-pool. Autopilot
# refuses it, also with the value of the Standard cluster that it replaces.
OWNED_BY_OTHERS_IN_STANDARD = [*OWNED_BY_OTHERS, "removeDefaultNodePool"]


class GkeClusterArguments(Arguments, Cluster):
    name: GkeName = ""
    """Name of the cluster. Default: the component's name."""
    project: Input[str] | None = None
    """Id of the Google Cloud project. Default: that of the provider."""
    network: Input[str] | None = None  # type: ignore[assignment]
    subnetwork: Input[str] | None = None  # type: ignore[assignment]
    pods_range: Input[str] | None = None  # type: ignore[assignment]
    services_range: Input[str] | None = None  # type: ignore[assignment]
    node_service_account: Input[str] | None = None  # type: ignore[assignment]
    labels: Mapping[str, Input[str]] = {}  # type: ignore[assignment]
    network_policy: str | None = None
    """How a Standard cluster enforces NetworkPolicies: `dataplaneV2`, `calico`, or `existing` for whatever the existing
    cluster uses. Default: no enforcement. Autopilot always has Dataplane V2."""
    managed_prometheus: bool = False
    """Collect the metrics that dashboards and alerts need, with Managed Service for Prometheus."""
    security_group: str | None = None
    """Google Group for RBAC, `gke-security-groups@DOMAIN`. Default: RBAC knows no groups."""
    secret_sync: bool = False
    """Sync secrets of Secret Manager into the cluster. Needs GKE 1.34 or newer."""
    workload_identity: bool = False
    """Workloads use Workload Identity, which an existing cluster must have."""
    bucket_volumes: bool = False
    """Runs mount buckets, so an existing cluster must have the Cloud Storage FUSE driver."""
    gateway_api: bool = False
    """Serve the Gateway API, and create the proxy-only subnetwork of `vpc`."""
    ray_operator: bool = False
    """Run GKE's Ray operator."""
    rdma: bool = False
    """Let GKE's service agent create the RDMA networks of pools. An existing cluster must have Dataplane V2."""
    gpudirect: bool = False
    """Pools have networks of GPUDirect, for which an existing cluster must have multi-networking."""
    bare_metal: bool = False
    """Pools have bare-metal machines, for which an existing cluster must have no shielded nodes."""
    scale_to_zero: bool = False
    """Autoscalers have no minimum, which needs GKE 1.37."""
    registry_reader: bool = False
    """Let the created node account pull images from the project's own Artifact Registry."""


class GkeCluster(AnyCluster):
    """A GKE cluster, its system pool, and a Kubernetes provider for it.

    A Standard cluster has Workload Identity, the Cloud Storage FUSE driver, managed Prometheus, and a node pool for
    controllers; create GPU pools as `GpuNodePool`. Autopilot has all of these and no pools. An existing cluster is only
    read.

    `vpc` creates a network for the cluster (`ClusterNetwork`). Clients reach the control plane through a public
    address, open to everyone or to `authorized_networks`; through its DNS name, with IAM permission, also from within
    the VPC; or through both. The API has deprecated most of `privateClusterConfig`. The provider keeps the names, and
    writes `enable_private_nodes` to `networkConfig.defaultEnablePrivateNodes`, and the authorized networks and the
    disabled public address to `controlPlaneEndpointsConfig.ipEndpointsConfig`.

    Nodes run as `node_service_account`. If it is a name, the component creates the account (`NodeAccount`). Pools that
    are created elsewhere take its address from the attribute of that name, and wait for `node_account`.

    Dataplane V2 or Calico enforces NetworkPolicies. Changing Dataplane V2 replaces the cluster. Calico can be turned on
    later; GKE then recreates the nodes of each pool, one by one. Shielded nodes are GKE's default; `shielded_nodes`
    turns them off.

    The provider keeps the current value of an omitted property, so the component states every disabled setting, but
    for two. If the cloud keeps authorized networks that are no longer configured, the component logs a warning that
    says how to remove them. If it keeps a `security_group`, the component refuses the change.

    `provider` authenticates through the `gke-gcloud-auth-plugin` exec plugin, so the state holds no credential. A
    change of its `clusterIdentifier` also replaces the cluster, so a cluster and its objects are replaced together or
    not at all.

    Refused: wrong arguments, such as a control plane that no client can reach; RunError for an existing cluster that
    doesn't exist or lacks features that the stack needs, for a cluster whose GKE is too old for RDMA or
    `scale_to_zero`, and for one that keeps a removed `security_group`; by Pulumi and by the provider, the deletion of a
    protected cluster.

    Sources: https://cloud.google.com/kubernetes-engine/docs/how-to/workload-identity,
    https://cloud.google.com/kubernetes-engine/docs/how-to/cloud-storage-fuse-csi-driver-setup,
    https://cloud.google.com/stackdriver/docs/managed-prometheus/setup-managed,
    https://cloud.google.com/kubernetes-engine/docs/how-to/latest/network-isolation#dns-based-endpoint,
    https://cloud.google.com/kubernetes-engine/docs/concepts/network-isolation,
    https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/projects.locations.clusters#controlplaneendpointsconfig,
    https://cloud.google.com/kubernetes-engine/docs/how-to/dataplane-v2,
    https://cloud.google.com/kubernetes-engine/docs/how-to/network-policy,
    https://cloud.google.com/secret-manager/docs/sync-k8-secrets,
    https://cloud.google.com/kubernetes-engine/docs/add-on/ray-on-gke/how-to/enable-ray-on-gke,
    https://github.com/hashicorp/terraform-provider-google (expandControlPlaneEndpointsConfig)

    Example:
        GkeCluster("prod", location="europe-west4", mode="standard", vpc=Vpc(), private_nodes=True)
    """

    cluster_name: pulumi.Output[str]
    """Known once the cluster exists. Resources that need the cluster take it from here."""
    cluster_identifier: pulumi.Output[str]
    """Text that changes only when the cluster is created again, for `clusterIdentifier` of a Kubernetes provider."""
    location: pulumi.Output[str]
    endpoint: pulumi.Output[str]
    """Host of the control plane, without a scheme."""
    workload_pool: pulumi.Output[str]
    """The project's workload identity pool, which exists once the cluster does."""
    kubeconfig: pulumi.Output[str]
    """For kubectl and other clients. Holds no credential."""
    kubeconfig_at_once: str = ""
    """The same of an existing cluster, which is known before anything is registered; empty for a new one."""
    node_zones: pulumi.Output[list[str]]
    """Zones of a pool without `zones`."""

    @takes(GkeClusterArguments)
    def __init__(self, name: str, args: GkeClusterArguments) -> None:
        super().__init__(name, args)
        self.section: Cluster = args.section(Cluster)
        self.project: pulumi.Input[str] = project_of(args.project, f"GkeCluster {name}")
        cluster, project = self.section, self.project
        self._features = ClusterFeatures(
            args.network_policy,
            args.managed_prometheus,
            args.security_group,
            args.secret_sync,
            args.workload_identity,
            args.bucket_volumes,
            args.gateway_api,
            args.ray_operator,
            args.rdma,
            args.gpudirect,
            args.bare_metal,
            cluster.dns_endpoint,
            args.scale_to_zero,
        )
        if not args.is_checked:
            check_alone(f"GkeCluster {name}", cluster, cluster)

        self.node_service_account: pulumi.Input[str] | None = None
        self.node_account: NodeAccount | None = None
        account: Any = cluster.node_service_account
        if isinstance(account, pulumi.Output):  # an address: a name would be that of a resource to create
            self.node_service_account = account
        elif account:
            self.node_service_account = on(project, lambda project: account_email(account, project))
            if not is_account_email(account):
                account_name, inside = self.child(account)
                self.node_account = NodeAccount(
                    account_name, opts=inside, name=account, project=project, registry_reader=args.registry_reader
                )

        if cluster.mode == "existing":
            if not isinstance(project, str):
                cause = "is known only during an update, and an existing cluster is looked up beforehand"
                raise Refused(f"GkeCluster {name}", Problem("project", cause, "Pass the project's id as text"))
            existing = look_up_cluster(cluster, project, self._features, self)
            by_name = dns_names(existing)
            self.cluster_name = pulumi.Output.from_input(existing.name)
            unique = next((name.endpoint for name in by_name), None)
            self.cluster_identifier = pulumi.Output.from_input(cluster_fields.unique_name(unique, cluster))
            known = existing.master_auths[0].cluster_ca_certificate
            host = by_name[0].endpoint if cluster.dns_endpoint else existing.endpoint
            self.kubeconfig_at_once = kubeconfig(
                context(cluster, project), host, None if cluster.dns_endpoint else known
            )
            ca_certificate, self.endpoint = pulumi.Output.from_input(known), pulumi.Output.from_input(host)
            # The list of a zonal cluster lacks its own zone.
            own = [cluster.location] if is_zone(cluster.location) else []
            self.node_zones = pulumi.Output.from_input([*own, *existing.node_locations])
        else:
            created = self._create(cluster)
            self.cluster_name = created.name
            self.cluster_identifier = created.control_plane_endpoints_config.apply(
                lambda config: cluster_fields.unique_name(dns_name(config), cluster)
            )
            if cluster.public_endpoint and not cluster.authorized_networks:
                created.master_authorized_networks_config.apply(
                    lambda kept: on(
                        project, lambda known: cluster_fields.warn_of_kept_networks(created, kept, cluster, known)
                    )
                )
            if cluster.maintenance is None:
                created.maintenance_policy.apply(
                    lambda kept: on(
                        project, lambda known: cluster_fields.warn_of_kept_exclusions(created, kept, cluster, known)
                    )
                )
            ca_certificate = created.master_auth.cluster_ca_certificate.apply(lambda certificate: certificate or "")
            self.endpoint = created.endpoint
            if cluster.dns_endpoint:
                endpoint = created.control_plane_endpoints_config.dns_endpoint_config.endpoint
                self.endpoint = endpoint.apply(lambda host: host or "")
            refuse_older(cluster, created, project, self._features)
            if not args.security_group:
                created.authenticator_groups_config.apply(
                    lambda kept: on(project, lambda known: cluster_fields.refuse_kept_group(kept, cluster, known))
                )

        self.location = self.cluster_name.apply(lambda _: cluster.location)
        self.workload_pool = pulumi.Output.all(self.cluster_name, project).apply(lambda known: pool_name(known[1]))
        self.network_grant = self._grant_networks(project) if args.rdma else None

        async def kubeconfig_after_wait(values: list[str]) -> str:
            # Every machine trusts the certificate of the DNS name. The address has one of the cluster's own CA.
            host, authority = values[0], None if cluster.dns_endpoint else values[1]
            if not pulumi.runtime.is_dry_run():
                await wait_for_control_plane(host, authority)
            return kubeconfig(context(cluster, values[2]), host, authority)

        # The provider marks all of masterAuth secret, for a client key that clusters no longer have.
        certificate = pulumi.Output.unsecret(ca_certificate)
        self.kubeconfig = pulumi.Output.all(self.endpoint, certificate, project).apply(kubeconfig_after_wait)
        # Only values known at plan time that replace the cluster: an unknown or changed kubeconfig (an upgrade, a new
        # endpoint) must not plan to replace every object in it (pulumi/pulumi-kubernetes#1148).
        self.provider: k8s.Provider = k8s.Provider(
            *self.child(name), kubeconfig=self.kubeconfig, cluster_identifier=self._identifier
        )
        self.register_outputs(
            {
                "clusterName": self.cluster_name,
                "clusterIdentifier": self.cluster_identifier,
                "location": self.location,
                "endpoint": self.endpoint,
                "workloadPool": self.workload_pool,
                "kubeconfig": self.kubeconfig,
            }
        )

    @classmethod
    def existing(cls, name: str, /, *, location: str, **further: Any) -> Self:
        """A cluster that exists, by its name and location. It is only read."""
        construct: Any = cls
        found: Self = construct(name, mode="existing", location=location, **further)
        return found

    @property
    def called(self) -> str:
        return self.section.name

    def need(self, component: str, feature: str, otherwise: str, value: str = "True") -> None:
        built_in = self.section.is_autopilot and feature in ("gateway_api", "network_policy")
        if self.section.mode != "existing" and not built_in and not getattr(self._features, feature):
            cause = f"{self.called} has no {feature.replace('_', ' ')}. {otherwise}"
            raise Refused(component, Problem("cluster", cause, f"Pass {feature}={value} to the GkeCluster"))

    @property
    def _identifier(self) -> pulumi.Input[str]:
        """Text that changes only if the cluster is replaced."""
        policy, section = self._features.network_policy, self.section
        parts: list[Any] = [
            self.project,
            section.network,
            section.subnetwork,
            section.pods_range,
            section.services_range,
        ]
        if not any(isinstance(part, pulumi.Output) for part in parts):
            return cluster_fields.identifier(section, parts, policy)
        return pulumi.Output.all(*parts).apply(lambda known: cluster_fields.identifier(section, known, policy))

    def _create(self, cluster: Cluster) -> "gcp.container.Cluster":
        project, features, autopilot = self.project, self._features, cluster.mode == "autopilot"
        before: list[pulumi.Resource] = [self.node_account] if self.node_account else []
        network: pulumi.Input[str] | None = cluster.network
        subnetwork: pulumi.Input[str] | None = cluster.subnetwork
        pods, services = cluster.pods_range, cluster.services_range
        if cluster.vpc is not None:
            network_name, inside = self.child(cluster_fields.vpc_name(cluster))
            cluster_network = ClusterNetwork.of(
                network_name,
                inside,
                section=cluster.vpc,
                project=project,
                region=region_of(cluster.location),
                proxy_subnetwork=features.gateway_api,
            )
            network, subnetwork = cluster_network.network, cluster_network.subnetwork
            pods, services = PODS_RANGE, SERVICES_RANGE
            before.append(cluster_network)  # the NAT too: pods in the cluster need it until the end
        calico = features.network_policy == "calico"
        resource = gcp.container.Cluster(
            *self.main_child(
                cluster.name,
                # deletion_protection acts only once everything in the cluster is deleted. This acts before.
                protect=cluster.protect or None,
                # Its name is taken until it is deleted.
                delete_before_replace=True,
                ignore_changes=OWNED_BY_OTHERS if autopilot else OWNED_BY_OTHERS_IN_STANDARD,
                # The provider plans nothing for a range or subnetwork that is omitted later, but the Kubernetes
                # provider would then see another cluster.
                replacement_trigger=self._identifier,
                hooks=cluster_fields.refuse_before_pools(cluster, project, f"cluster {self._name}"),
                depends_on=before,
            ),
            name=cluster.name,
            project=project,
            location=cluster.location,
            network=network,
            subnetwork=subnetwork,
            ip_allocation_policy={"cluster_secondary_range_name": pods, "services_secondary_range_name": services}
            if pods or services
            else None,
            private_cluster_config={"enable_private_nodes": cluster.private_nodes},
            control_plane_endpoints_config=cluster_fields.endpoints(cluster),
            master_authorized_networks_config=cluster_fields.authorized(cluster),
            datapath_provider="ADVANCED_DATAPATH" if features.network_policy == "dataplaneV2" else None,
            enable_multi_networking=True if cluster.multi_networking else None,
            enable_shielded_nodes=None if cluster.shielded_nodes else False,
            network_policy={"enabled": True, "provider": "CALICO"} if calico else None,
            release_channel={"channel": cluster.release_channel.upper()},
            maintenance_policy=cluster_fields.maintenance(cluster.maintenance),
            resource_labels=cluster.labels,
            # Stated when off, too: the provider keeps the cloud's value of an omitted block. A change is in place.
            cost_management_config={"enabled": cluster.cost_allocation},
            # An empty group turns Google Groups off in an update, but the provider crashes if it creates or replaces a
            # cluster with one: https://github.com/hashicorp/terraform-provider-google/issues/11144
            authenticator_groups_config={"security_group": features.security_group}
            if features.security_group
            else None,
            # Rotation syncs a new version of a secret within two minutes.
            secret_sync_config={"enabled": True, "rotation_config": {"enabled": True}}
            if features.secret_sync
            else None,
            deletion_protection=cluster.protect,
            enable_autopilot=True if autopilot else None,
            cluster_autoscaling=self._autopilot_nodes() if autopilot else None,
            # Autopilot has these built in and refuses them as settings.
            remove_default_node_pool=None if autopilot else True,
            initial_node_count=None if autopilot else 1,
            node_config=None if autopilot else self._first_nodes(),
            workload_identity_config=None if autopilot else {"workload_pool": on(project, pool_name)},
            addons_config=cluster_fields.addons(autopilot, calico, features.ray_operator),
            monitoring_config=None if autopilot else cluster_fields.monitoring(features.managed_prometheus),
            # Stays on if it is omitted later: then it only serves kinds that nobody uses.
            gateway_api_config={"channel": GATEWAY_API_CHANNEL} if features.gateway_api and not autopilot else None,
        )
        self.node_zones = cluster_fields.default_zones(cluster.location, resource)
        if not autopilot:
            self._create_system_pool(cluster.system_pool, resource, cluster, project)
        return resource

    def _grant_networks(self, project: pulumi.Input[str]) -> pulumi.Resource:
        """Lets GKE's service agent create networks. Other clusters of the project may need it too, so it stays."""
        number = project_number(project, "The grant to GKE's service agent needs", self)
        return gcp.projects.IAMMember(
            *self.child("gke-networks", retain_on_delete=True),
            project=project,
            role=AGENT_ROLE,
            # A cluster's project has the agent.
            member=pulumi.Output.all(number, self.cluster_name).apply(lambda known: agent(known[0])),
        )

    def _autopilot_nodes(self) -> "gcp.container.ClusterClusterAutoscalingArgsDict":
        """The service account of the nodes that Autopilot creates."""
        account = self.node_service_account or DEFAULT_ACCOUNT
        return {"auto_provisioning_defaults": {"service_account": account, "oauth_scopes": NODE_SCOPES}}

    def _first_nodes(self) -> "gcp.container.ClusterNodeConfigArgsDict | None":
        """Node settings of the pool that is removed at once: the project may have no default service account."""
        if self.node_service_account is None:
            return None
        return {"service_account": self.node_service_account, "oauth_scopes": NODE_SCOPES}

    def _create_system_pool(
        self, pool: SystemPool, resource: "gcp.container.Cluster", cluster: Cluster, project: pulumi.Input[str]
    ) -> None:
        gcp.container.NodePool(
            *self.child(
                pool.name,
                depends_on=[self.node_account] if self.node_account else [],
                delete_before_replace=True,  # its name is taken until it is deleted
                # GKE records the first size. A change would replace the pool (pulumi/pulumi-gcp#412).
                ignore_changes=["initialNodeCount"],
            ),
            name=pool.name,
            cluster=resource.name,
            project=project,
            location=cluster.location,
            node_locations=pool.zones or self.node_zones,
            node_count=pool.nodes_per_zone,
            # A pool takes the cluster's setting only at creation.
            # https://cloud.google.com/kubernetes-engine/docs/how-to/latest/network-isolation#configure-cluster-networking
            network_config={"enable_private_nodes": cluster.private_nodes},
            node_config={
                "machine_type": pool.machine_type,
                # Always set: the provider keeps the type of the former machine, which the new one may not boot from.
                "disk_type": boot_disk_type(pool.machine_type),
                "service_account": self.node_service_account or DEFAULT_ACCOUNT,
                "oauth_scopes": NODE_SCOPES,
                "workload_metadata_config": {"mode": "GKE_METADATA"},
            },
            management={"auto_repair": True, "auto_upgrade": True},
        )


def dns_name(config: "gcp.container.outputs.ClusterControlPlaneEndpointsConfig | None") -> str | None:
    """The DNS name of a control plane."""
    return config.dns_endpoint_config.endpoint if config and config.dns_endpoint_config else None


def context(cluster: Cluster, project: str) -> str:
    """Name of the cluster in a kubeconfig, as gcloud writes it."""
    return f"gke_{project}_{cluster.location}_{cluster.name}"
