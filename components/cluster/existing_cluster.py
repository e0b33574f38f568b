"""An existing cluster: looks it up, and refuses one that lacks features or content that the stack needs."""

from typing import Any

import pulumi
import pulumi_gcp as gcp

from gke_ai.catalog.fabric.rdma import since
from gke_ai.catalog.kueue.existing import Expected
from gke_ai.catalog.machines.features import MINIMUM, SCALE_TO_ZERO, ordered
from gke_ai.catalog.project.cluster_features import ClusterFeatures, ClusterState, missing
from gke_ai.components.base import look_up
from gke_ai.components.support.cluster_client import connection
from gke_ai.kube.existing import read, refusals
from gke_ai.settings.model import Cluster


def look_up_cluster(
    cluster: Cluster, project: str, features: ClusterFeatures, parent: pulumi.Resource
) -> "gcp.container.GetClusterResult":
    """The existing cluster. Raises RunError if it doesn't exist, or with all of `features` that it lacks."""
    existing = look_up(
        lambda: gcp.container.get_cluster(
            name=cluster.name, location=cluster.location, project=project, opts=pulumi.InvokeOptions(parent=parent)
        ),
        f"There must be a cluster {cluster.name} in {cluster.location} of project {project}, and you must be "
        "allowed to see it. Check its name, its location and the project. To create the cluster, remove "
        "`mode: existing`.",
    )
    refused = [*map(str, missing(features, state_of(existing), cluster.name, cluster.location, project))]
    refused += older(cluster, existing.master_version, existing.enable_autopilot, project, features)
    if refused:
        raise pulumi.RunError("\n".join(refused))
    return existing


def older(cluster: Cluster, version: str, autopilot: bool, project: str, features: ClusterFeatures) -> list[str]:
    """Why the version of a cluster is too old for `features`, each with the remedy."""
    newer = [
        (features.rdma, "RDMA networks between nodes need", since(autopilot), "GKE would create no such nodes"),
        (
            features.scale_to_zero,
            "minReplicas: 0 needs",
            MINIMUM[SCALE_TO_ZERO],
            "Its API server would refuse the autoscaler",
        ),
    ]
    return [
        f"Cluster {cluster.name} has GKE {version}, and {user} {needed}. {consequence}. Run: gcloud "
        f"container clusters upgrade {cluster.name} --master --location {cluster.location} --project {project}"
        for wanted, user, needed, consequence in newer
        if wanted and ordered(version) < ordered(needed)
    ]


def refuse_older(
    cluster: Cluster, created: "gcp.container.Cluster", project: pulumi.Input[str], features: ClusterFeatures
) -> None:
    """Refuse a cluster of the stack that is too old, by its release channel or its age. An output raises RunError.

    Google is asked once the cluster exists: the state has the version of the last refresh.
    """
    if not (features.rdma or features.scale_to_zero):
        return
    found = gcp.container.get_cluster_output(
        name=created.id.apply(lambda _: cluster.name),
        location=cluster.location,
        project=project,
        opts=pulumi.InvokeOutputOptions(parent=created),
    )

    def check(known: list[Any]) -> None:
        if refused := older(cluster, known[0], cluster.is_autopilot, known[1], features):
            raise pulumi.RunError("\n".join(refused))

    pulumi.Output.all(found.master_version, project).apply(check)


def dns_names(
    existing: "gcp.container.GetClusterResult",
) -> "list[gcp.container.outputs.GetClusterControlPlaneEndpointsConfigDnsEndpointConfigResult]":
    """DNS endpoints of the control plane."""
    return [name for config in existing.control_plane_endpoints_configs for name in config.dns_endpoint_configs]


def state_of(existing: "gcp.container.GetClusterResult") -> ClusterState:
    """What a cluster has, as the provider returns it. It makes a list of each object, and leaves some lists out."""
    addons = existing.addons_configs or []
    return ClusterState(
        autopilot=existing.enable_autopilot,
        workload_pool=any(config.workload_pool for config in existing.workload_identity_configs or []),
        bucket_driver=any(driver.enabled for config in addons for driver in config.gcs_fuse_csi_driver_configs or []),
        gateway_channel=next((config.channel for config in existing.gateway_api_configs or []), None),
        ray_operator=any(ray.enabled for config in addons for ray in config.ray_operator_configs or []),
        datapath=existing.datapath_provider,
        multi_networking=existing.enable_multi_networking,
        shielded_nodes=existing.enable_shielded_nodes,
        managed_prometheus=any(
            prometheus.enabled
            for config in existing.monitoring_configs or []
            for prometheus in config.managed_prometheuses
        ),
        security_group=next((config.security_group for config in existing.authenticator_groups_configs or []), None),
        calico=any(policy.enabled for policy in existing.network_policies or []),
        secret_sync=any(config.enabled for config in existing.secret_sync_configs or []),
        dns_access=any(name.allow_external_traffic for name in dns_names(existing)),
    )


def check_content(expected: Expected, kubeconfig: str) -> None:
    """Raise RunError with all that a cluster lacks, before anything in it is registered, in a preview too.

    A cluster that does not answer is no reason to stop.
    """
    try:
        content = connection(kubeconfig).call(read)
    except Exception as error:  # noqa: BLE001  whatever the API or the plugin says, the update may go on
        pulumi.log.warn(f"What the cluster has of what this stack expects was not checked: {str(error)[:300]}")
        return
    if refused := [*refusals(expected, content)]:
        raise pulumi.RunError("\n".join(map(str, refused)))
