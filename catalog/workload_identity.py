"""Names of Workload Identity Federation for GKE.

Source: https://cloud.google.com/kubernetes-engine/docs/concepts/workload-identity#identity_format
"""

from __future__ import annotations

# Reads the value of a secret, and nothing else: https://cloud.google.com/secret-manager/docs/access-control
SECRET_ACCESSOR = "roles/secretmanager.secretAccessor"


def pool_name(project_id: str) -> str:
    """The identity pool of every cluster of a project. It exists once the project has had a cluster that uses it."""
    return f"{project_id}.svc.id.goog"


def principal(project_number: str, project_id: str, namespace: str, service_account: str) -> str:
    """The IAM member of a Kubernetes service account. The project is its number in the path and its id in the pool."""
    return (
        f"principal://iam.googleapis.com/projects/{project_number}/locations/global/workloadIdentityPools/"
        f"{pool_name(project_id)}/subject/ns/{namespace}/sa/{service_account}"
    )
