"""The cluster that everything else runs in."""

from typing import NotRequired, TypedDict

import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as k8s
import yaml

from catalog.workload_identity import pool_name
from components.base import Component, look_up, read
from settings.model import Cluster, SystemPool

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
    subnetwork: NotRequired[str]
    dns_endpoint: NotRequired[bool]
    """Reach the control plane by its DNS name, with IAM."""
    labels: NotRequired[dict[str, str]]
    protect: NotRequired[bool]
    """Refuse to delete the cluster until this is false and applied."""


class GkeCluster(Component):
    """A GKE cluster, its system pool, and a Kubernetes provider that reaches it.

    Standard: Workload Identity, the Cloud Storage FUSE driver and managed Prometheus are on, and controllers have a
    pool of their own; GPU pools are `GpuNodePool`s. Autopilot has all of that and no pools. An existing cluster is only
    read.

    `provider` authenticates by the `gke-gcloud-auth-plugin` exec plugin, so no credential is in the state. It takes the
    cluster for another one only when what would replace the cluster changes; then its objects are made anew.

    Refused: RunError for an existing cluster that is not there; by Pulumi and by the provider, the deletion of a
    protected cluster.

    Sources: https://cloud.google.com/kubernetes-engine/docs/how-to/workload-identity,
    https://cloud.google.com/kubernetes-engine/docs/how-to/cloud-storage-fuse-csi-driver-setup,
    https://cloud.google.com/stackdriver/docs/managed-prometheus/setup-managed,
    https://cloud.google.com/kubernetes-engine/docs/how-to/latest/network-isolation#dns-based-endpoint
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

    def __init__(self, name: str, args: GkeClusterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        cluster = read(Cluster, name, args)
        project = args["project"]

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
            self.cluster_name = pulumi.Output.from_input(found.name)
            ca_certificate = pulumi.Output.from_input(found.master_auths[0].cluster_ca_certificate)
            endpoints = found.control_plane_endpoints_configs
            host = endpoints[0].dns_endpoint_configs[0].endpoint if cluster.dns_endpoint else found.endpoint
            self.endpoint = pulumi.Output.from_input(host)
        else:
            made = self._make(cluster, project)
            self.cluster_name = made.name
            ca_certificate = made.master_auth.cluster_ca_certificate.apply(lambda certificate: certificate or "")
            self.endpoint = made.endpoint
            if cluster.dns_endpoint:
                endpoint = made.control_plane_endpoints_config.dns_endpoint_config.endpoint
                self.endpoint = endpoint.apply(lambda host: host or "")

        self.location = self.cluster_name.apply(lambda _: cluster.location)
        self.workload_pool = self.cluster_name.apply(lambda _: pool_name(project))
        context = f"gke_{project}_{cluster.location}_{cluster.name}"
        # The provider marks all of masterAuth a secret, for the client key that a cluster no longer has.
        self.kubeconfig = pulumi.Output.all(self.endpoint, pulumi.Output.unsecret(ca_certificate)).apply(
            # The DNS name has a certificate that every machine trusts; the address has the cluster's own.
            lambda known: kubeconfig(context, known[0], None if cluster.dns_endpoint else known[1])
        )
        # Plan-time values only, and of those all that replace a cluster: an unknown or changed kubeconfig (an upgrade,
        # a new endpoint) must not plan to replace every object in it (pulumi/pulumi-kubernetes#1148).
        identity = [project, cluster.location, cluster.name, cluster.mode, cluster.network, cluster.subnetwork]
        self.provider: k8s.Provider = k8s.Provider(
            name,
            kubeconfig=self.kubeconfig,
            cluster_identifier="/".join(part or "default" for part in identity),
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

    def _make(self, cluster: Cluster, project: str) -> gcp.container.Cluster:
        endpoints: gcp.container.ClusterControlPlaneEndpointsConfigArgsDict = {
            "dns_endpoint_config": {"allow_external_traffic": True}
        }
        autopilot = cluster.mode == "autopilot"
        made = gcp.container.Cluster(
            cluster.name,
            name=cluster.name,
            project=project,
            location=cluster.location,
            network=cluster.network,
            subnetwork=cluster.subnetwork,
            release_channel={"channel": cluster.release_channel.upper()},
            resource_labels=cluster.labels,
            control_plane_endpoints_config=endpoints if cluster.dns_endpoint else None,
            deletion_protection=cluster.protect,
            enable_autopilot=True if autopilot else None,
            # Autopilot has these built in, and refuses them as settings.
            remove_default_node_pool=None if autopilot else True,
            initial_node_count=None if autopilot else 1,
            workload_identity_config=None if autopilot else {"workload_pool": pool_name(project)},
            addons_config=None if autopilot else {"gcs_fuse_csi_driver_config": {"enabled": True}},
            monitoring_config=None if autopilot else {"managed_prometheus": {"enabled": True}},
            opts=pulumi.ResourceOptions(
                parent=self,
                # deletion_protection is asked only when everything in the cluster has gone; this before anything does.
                protect=cluster.protect,
                # Its name is taken until it has gone.
                delete_before_replace=True,
                ignore_changes=OWNED_BY_OTHERS,
            ),
        )
        if not autopilot:
            self._make_system_pool(cluster.system_pool, made, cluster, project)
        return made

    def _make_system_pool(self, pool: SystemPool, made: gcp.container.Cluster, cluster: Cluster, project: str) -> None:
        gcp.container.NodePool(
            pool.name,
            name=pool.name,
            cluster=made.name,
            project=project,
            location=cluster.location,
            node_locations=pool.zones or None,
            node_count=pool.nodes_per_zone,
            node_config={
                "machine_type": pool.machine_type,
                "oauth_scopes": NODE_SCOPES,
                "workload_metadata_config": {"mode": "GKE_METADATA"},
            },
            management={"auto_repair": True, "auto_upgrade": True},
            opts=pulumi.ResourceOptions(
                parent=self,
                delete_before_replace=True,  # its name is taken until it has gone
                # What GKE records of the first size; a change would replace the pool (pulumi/pulumi-gcp#412).
                ignore_changes=["initialNodeCount"],
            ),
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
