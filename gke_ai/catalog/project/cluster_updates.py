"""Commands that change a feature of a cluster where the stack does not: it never changes an existing cluster."""

from __future__ import annotations

from gke_ai.catalog.project.identities import pool_name


def update(cluster: str, location: str, project: str) -> str:
    """Returns the beginning of a command that updates a cluster in place."""
    return f"gcloud container clusters update {cluster} --location {location} --project {project}"


def enable_workload_identity(cluster: str, location: str, project: str) -> str:
    """Returns the command that enables Workload Identity Federation.

    https://cloud.google.com/kubernetes-engine/docs/how-to/workload-identity#enable-existing-cluster
    """
    return f"{update(cluster, location, project)} --workload-pool={pool_name(project)}"


def enable_google_groups(cluster: str, location: str, project: str, group: str) -> str:
    """Returns the command that enables Google Groups for RBAC.

    https://cloud.google.com/kubernetes-engine/docs/how-to/google-groups-rbac#existing-cluster
    """
    return f"{update(cluster, location, project)} --security-group={group}"


def disable_google_groups(cluster: str, location: str, project: str) -> str:
    """Returns the command that disables Google Groups for RBAC: an empty group.

    https://cloud.google.com/sdk/gcloud/reference/container/clusters/update#--security-group
    """
    return enable_google_groups(cluster, location, project, '""')


def remove_exclusion(cluster: str, location: str, project: str, exclusion: str) -> str:
    """Returns the command that removes a maintenance exclusion.

    https://cloud.google.com/sdk/gcloud/reference/container/clusters/update#--remove-maintenance-exclusion
    """
    return f"{update(cluster, location, project)} --remove-maintenance-exclusion={exclusion}"


def enable_gateway_api(cluster: str, location: str, project: str) -> str:
    """Returns the command that enables the Gateway API.

    https://cloud.google.com/kubernetes-engine/docs/how-to/deploying-gateways#enable-gateway
    """
    return f"{update(cluster, location, project)} --gateway-api=standard"


def enable_bucket_volumes(cluster: str, location: str, project: str) -> str:
    """Returns the command that enables the Cloud Storage FUSE CSI driver.

    https://cloud.google.com/kubernetes-engine/docs/how-to/cloud-storage-fuse-csi-driver-setup#enable
    """
    return f"{update(cluster, location, project)} --update-addons=GcsFuseCsiDriver=ENABLED"


def enable_ray(cluster: str, location: str, project: str) -> str:
    """Returns the command that enables the Ray operator.

    https://cloud.google.com/kubernetes-engine/docs/add-on/ray-on-gke/how-to/enable-ray-on-gke
    """
    return f"{update(cluster, location, project)} --update-addons=RayOperator=ENABLED"
