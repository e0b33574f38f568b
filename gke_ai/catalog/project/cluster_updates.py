"""Commands that change a cluster where the stack does not."""

from __future__ import annotations


def update(cluster: str, location: str, project: str) -> str:
    """Returns the beginning of a command that updates a cluster in place."""
    return f"gcloud container clusters update {cluster} --location {location} --project {project}"


def disable_google_groups(cluster: str, location: str, project: str) -> str:
    """Returns the command that disables Google Groups for RBAC: an empty group.

    https://cloud.google.com/sdk/gcloud/reference/container/clusters/update#--security-group
    """
    return f'{update(cluster, location, project)} --security-group=""'


def remove_exclusion(cluster: str, location: str, project: str, exclusion: str) -> str:
    """Returns the command that removes a maintenance exclusion.

    https://cloud.google.com/sdk/gcloud/reference/container/clusters/update#--remove-maintenance-exclusion
    """
    return f"{update(cluster, location, project)} --remove-maintenance-exclusion={exclusion}"
