"""Commands that turn on what an existing cluster lacks. The stack never changes a cluster that it did not make."""

from __future__ import annotations

from catalog.workload_identity import pool_name


def update(cluster: str, location: str, project: str) -> str:
    """The beginning of a command that changes a cluster in place."""
    return f"gcloud container clusters update {cluster} --location {location} --project {project}"


def enable_workload_identity(cluster: str, location: str, project: str) -> str:
    """https://cloud.google.com/kubernetes-engine/docs/how-to/workload-identity#enable-existing-cluster"""
    return f"{update(cluster, location, project)} --workload-pool={pool_name(project)}"


def enable_bucket_volumes(cluster: str, location: str, project: str) -> str:
    """https://cloud.google.com/kubernetes-engine/docs/how-to/cloud-storage-fuse-csi-driver-setup#enable"""
    return f"{update(cluster, location, project)} --update-addons=GcsFuseCsiDriver=ENABLED"
