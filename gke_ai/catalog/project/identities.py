"""Service accounts of Google Cloud and of Kubernetes: their names, and the roles of node service accounts."""

from __future__ import annotations

import re

# Compute Engine's default account, as GKE's API names it:
# https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/NodeConfig
DEFAULT_ACCOUNT = "default"
# Minimum role of GKE nodes: https://cloud.google.com/kubernetes-engine/docs/how-to/hardening-your-cluster#use_least_privilege_sa
NODE_ROLE = "roles/container.defaultNodeServiceAccount"
# Sets of roles that include its permissions. The basic ones are those that a project's default account often has.
ENOUGH_FOR_NODES = (
    {NODE_ROLE},
    {"roles/editor"},
    {"roles/owner"},
    {"roles/logging.logWriter", "roles/monitoring.metricWriter"},
)
# Role to pull private images: https://cloud.google.com/artifact-registry/docs/access-control#roles
REGISTRY_ROLE = "roles/artifactregistry.reader"

# https://cloud.google.com/iam/docs/reference/rest/v1/projects.serviceAccounts/create
_ACCOUNT_ID = re.compile(r"[a-z][-a-z0-9]{4,28}[a-z0-9]")
# Accounts of a project, and default accounts that Google creates: https://cloud.google.com/iam/docs/service-account-types
_ACCOUNT_EMAIL = re.compile(r"[-a-z0-9]+@([-a-z0-9.]+\.iam|developer|appspot)\.gserviceaccount\.com")


def is_account_id(text: str) -> bool:
    """Whether this is a valid ID for a new service account."""
    return _ACCOUNT_ID.fullmatch(text) is not None


def is_account_email(text: str) -> bool:
    """Whether this is the email address of a service account, not of a person or a group."""
    return _ACCOUNT_EMAIL.fullmatch(text) is not None


def account_email(name: str, project: str) -> str:
    """Returns the email address of a service account, from its ID or its address."""
    return name if "@" in name else f"{name}@{project}.iam.gserviceaccount.com"


# Workload Identity Federation: https://cloud.google.com/kubernetes-engine/docs/concepts/workload-identity#identity_format
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
