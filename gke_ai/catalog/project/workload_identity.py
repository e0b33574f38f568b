"""Names of Workload Identity Federation for GKE.

Source: https://cloud.google.com/kubernetes-engine/docs/concepts/workload-identity#identity_format
"""

from __future__ import annotations

# Permission to read the values of a secret: https://cloud.google.com/secret-manager/docs/access-control
SECRET_ACCESSOR = "roles/secretmanager.secretAccessor"


def pool_name(project_id: str) -> str:
    """Returns the identity pool of all clusters of a project. It is created with the project's first cluster that uses
    it."""
    return f"{project_id}.svc.id.goog"


def principal(project_number: str, project_id: str, namespace: str, service_account: str) -> str:
    """Returns the IAM member of a Kubernetes service account. The path has the project's number, the pool its ID."""
    return (
        f"principal://iam.googleapis.com/projects/{project_number}/locations/global/workloadIdentityPools/"
        f"{pool_name(project_id)}/subject/ns/{namespace}/sa/{service_account}"
    )
