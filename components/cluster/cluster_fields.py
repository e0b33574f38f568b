"""Fields of the cluster resource and of its Kubernetes provider, from the cluster's section."""

from collections.abc import Sequence

import pulumi
import pulumi_gcp as gcp
from pulumi.runtime.mocks import MockMonitor
from pulumi.runtime.settings import get_monitor

from gke_ai.catalog.engines.dashboards import PACKAGES, SYSTEM_PACKAGES
from gke_ai.catalog.machines.types import is_bare_metal
from gke_ai.catalog.machines.zones import chooses_zones, node_zones
from gke_ai.catalog.project.cluster_updates import disable_google_groups, remove_exclusion
from gke_ai.settings.model import Cluster, Maintenance


def maintenance(settings: Maintenance | None) -> "gcp.container.ClusterMaintenancePolicyArgsDict | None":
    """The maintenance policy: when GKE upgrades, and when it does not."""
    if settings is None:
        return None
    return {
        "recurring_window": {
            "start_time": settings.window.start_time,
            "end_time": settings.window.end_time,
            "recurrence": settings.window.recurrence,
        },
        "maintenance_exclusions": [
            {
                "exclusion_name": exclusion.name,
                "start_time": exclusion.start_time,
                "end_time": exclusion.end_time,
                "exclusion_options": {"scope": exclusion.scope},
            }
            for exclusion in settings.exclusions
        ],
    }


def endpoints(cluster: Cluster) -> "gcp.container.ClusterControlPlaneEndpointsConfigArgsDict":
    """Endpoints of the control plane: its DNS name and its public address."""
    return {
        "dns_endpoint_config": {"allow_external_traffic": cluster.dns_endpoint},
        "ip_endpoints_config": {"enabled": cluster.public_endpoint},
    }


def authorized(cluster: Cluster) -> "gcp.container.ClusterMasterAuthorizedNetworksConfigArgsDict | None":
    """IP ranges that may reach the control plane, without the public addresses of Google Cloud that GKE adds."""
    if not cluster.authorized_networks:
        return None
    return {
        "cidr_blocks": [{"cidr_block": cidr} for cidr in cluster.authorized_networks],
        "gcp_public_cidrs_access_enabled": False,
    }


def warn_of_kept_networks(
    resource: "gcp.container.Cluster",
    kept: "gcp.container.outputs.ClusterMasterAuthorizedNetworksConfig | None",
    cluster: Cluster,
    project: str,
) -> None:
    """Warn of authorized networks that the cloud keeps and the configuration no longer has."""
    if kept is None or not kept.cidr_blocks:
        return
    networks = ", ".join(block.cidr_block for block in kept.cidr_blocks)
    pulumi.log.warn(
        f"{cluster.at('authorizedNetworks')} is empty, but only {networks} can still reach the control plane's public "
        "address. Google's provider cannot remove authorized networks. Run: gcloud container clusters update "
        f"{cluster.name} --location {cluster.location} --project {project} --no-enable-master-authorized-networks, "
        "then pulumi refresh.",
        resource=resource,
    )


def warn_of_kept_exclusions(
    resource: "gcp.container.Cluster",
    kept: "gcp.container.outputs.ClusterMaintenancePolicy | None",
    cluster: Cluster,
    project: str,
) -> None:
    """Warn of maintenance exclusions that the cloud keeps after `maintenance` was removed."""
    # The provider sends the cloud's exclusions back (expandMaintenancePolicy), and then plans to remove them each time.
    names = [exclusion.exclusion_name for exclusion in (kept.maintenance_exclusions if kept else None) or []]
    if not names:
        return
    commands = " and ".join(remove_exclusion(cluster.name, cluster.location, project, name) for name in names)
    pulumi.log.warn(
        f"{cluster.at('maintenance')} is not set, but GKE still has its exclusions ({', '.join(names)}) and upgrades "
        f"nothing meanwhile. Google's provider cannot remove exclusions without a window. Run: {commands}, then pulumi "
        "refresh.",
        resource=resource,
    )


def refuse_kept_group(
    kept: "gcp.container.outputs.ClusterAuthenticatorGroupsConfig | None", cluster: Cluster, project: str
) -> None:
    """Refuse a cluster that keeps a security group which the configuration no longer has. Raises RunError."""
    if kept is None or not kept.security_group:
        return
    raise pulumi.RunError(
        f"No group is a member of a tenant any more, and cluster {cluster.name} still uses {kept.security_group} "
        "for Google Groups in RBAC. Google's provider would keep it. Let a group be a member of a tenant again, or "
        f"run: {disable_google_groups(cluster.name, cluster.location, project)}, then pulumi refresh."
    )


def refuse_before_pools(cluster: Cluster, project: pulumi.Input[str], title: str) -> pulumi.ResourceHookBinding | None:
    """A hook that refuses to take from a cluster what nodes of its pools need, in a preview too.

    Pulumi updates the cluster before it deletes or replaces a pool. Whether GKE refuses that is not documented.
    """

    async def check(args: pulumi.ResourceHookArgs) -> None:
        old, new = args.old_inputs or {}, args.new_inputs or {}
        networks = old.get("enableMultiNetworking") and not new.get("enableMultiNetworking")
        shielded = old.get("enableShieldedNodes") is False and new.get("enableShieldedNodes") is not False
        if not (networks or shielded):
            return
        current = gcp.container.get_cluster_output(name=cluster.name, location=cluster.location, project=project)
        for pool in await current.apply(lambda found: found.node_pools).future() or []:
            bare_metal = shielded and any(is_bare_metal(node.machine_type) for node in pool.node_configs)
            # The networks of a profile are GKE's own, and need no multi-networking.
            own = [nics for nics in pool.network_configs if networks and not nics.accelerator_network_profile]
            if bare_metal or any(nics.additional_node_network_configs for nics in own):
                needed = "shieldedNodes: false" if bare_metal else "multiNetworking: true"
                raise pulumi.RunError(
                    f"Cluster {cluster.name}: node pool {pool.name} still exists and needs {needed}. Pulumi would "
                    f"update the cluster before it deletes or replaces the pool. Keep {needed} for an up without such "
                    "a pool, then remove it"
                )

    if isinstance(get_monitor(), MockMonitor):  # of tests: it has no hooks, and says that it has
        return None
    hook = pulumi.ResourceHook(f"{title}: before its pools", check, pulumi.ResourceHookOptions(on_dry_run=True))
    return pulumi.ResourceHookBinding(before_update=[hook])


def addons(autopilot: bool, calico: bool, ray: bool) -> "gcp.container.ClusterAddonsConfigArgsDict":
    """Add-ons of a cluster. Autopilot has the others built in, but for Ray's.

    GKE returns Ray's as disabled for a cluster that never had it, so stating it changes no cluster.
    """
    config: gcp.container.ClusterAddonsConfigArgsDict = {"ray_operator_configs": [{"enabled": ray}]}
    if not autopilot:
        config["gcs_fuse_csi_driver_config"] = {"enabled": True}
    if calico:
        config["network_policy_config"] = {"disabled": False}
    return config


def monitoring(packages: bool) -> "gcp.container.ClusterMonitoringConfigArgsDict":
    """Metrics that a Standard cluster collects: GKE's system metrics, and those of `PACKAGES` for monitoring."""
    return {
        "managed_prometheus": {"enabled": True},
        "enable_components": list(PACKAGES if packages else SYSTEM_PACKAGES),
    }


def vpc_name(cluster: Cluster) -> str:
    """Name of the cluster's own network."""
    return (cluster.vpc.name if cluster.vpc else None) or cluster.name


def identifier(cluster: Cluster, known: Sequence[str | None], network_policy: str | None) -> str:
    """Identifies the cluster: everything whose change replaces it, and nothing that changes in place.

    An unset setting adds nothing, so a setting of a later release changes no existing cluster. `known` are the project,
    the network, the subnetwork and its ranges for pods and Services, which may have been outputs.
    """
    project, network, subnetwork, pods, services = known
    parts = [project, cluster.location, cluster.name, cluster.mode, vpc_name(cluster) if cluster.vpc else network]
    parts.append(subnetwork)
    further = {"pods": pods, "services": services, "dataplane": "v2" if network_policy == "dataplaneV2" else None}
    if cluster.vpc is not None:
        vpc = cluster.vpc
        further["vpc"] = f"{vpc.nodes_cidr},{vpc.pods_cidr},{vpc.services_cidr}"
    return "/".join(
        [*(part or "default" for part in parts), *(f"{key}={text}" for key, text in further.items() if text)]
    )


def unique_name(dns_name: str | None, cluster: Cluster) -> str:
    """Text that differs if the cluster is created again under its name, and is known without asking the cluster.

    GKE gives each control plane a DNS name, also where clients may not use it. It has the id of the cluster, which is
    random: of `gke-94fc1769e0c844e99793ee485d88c68c0b39.…`, the first 32 digits are a UUID of version 4. Rotated
    credentials and a new IP address leave it. The provider returns neither the API's `id` of a cluster nor its
    `createTime`, and the certificate of its authority changes with each rotation.

    https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/projects.locations.clusters#dnsendpointconfig,
    https://github.com/GoogleCloudPlatform/gcpdiag/issues/115
    """
    return dns_name or f"{cluster.location}/{cluster.name}"


def default_zones(location: str, cluster: "gcp.container.Cluster") -> pulumi.Output[list[str]]:
    """Zones of a pool without `zones`: known at plan time, unless GKE chooses among more than three."""
    if chooses_zones(location):
        return cluster.node_locations.apply(list)
    return pulumi.Output.from_input(list(node_zones(location)))
