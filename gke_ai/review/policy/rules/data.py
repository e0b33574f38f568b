"""Secrets and buckets: confidentiality, public access, recovery of data."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gke_ai.catalog.project import credentials
from gke_ai.kube.values import Hidden, items, list_at, number, texts, value
from gke_ai.registered.registration import RegisteredStack, Resource, pods_of
from gke_ai.registered.types import BUCKET, SECRET_VERSION, SERVICE_ACCOUNT_KEY
from gke_ai.review.policy.base import of_resources, of_stacks

# Names of variables that hold a secret. A value that is a path (/var/run/…) is not a secret.
SECRET_NAME = re.compile(r"(^|_)(TOKEN|PASSWORD|PASSWD|SECRET|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|CREDENTIALS?)$", re.I)
# https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables#hftoken
HUB_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
READABLE = "It is readable by everyone who can"
EVERYONE = {"allUsers", "allAuthenticatedUsers"}


@of_resources(
    "Revoke the value and create a new one. Pass it as a Pulumi secret to a Kubernetes Secret, and refer to that in "
    "the pod (valueFrom.secretKeyRef)"
)
def no_plain_text_secrets(resource: Resource) -> Iterator[str]:
    """Tokens and passwords are secrets in the state and in the cluster.

    Messages name the location of a secret, never its value.
    """
    if resource.is_kubernetes and resource.kind == "Secret":
        for field in ("data", "stringData"):
            keys = sorted({at.partition(".")[0] for at, text in texts(resource.props.get(field)) if text})
            if keys:
                yield f"{field} ({', '.join(keys)}) is not a Pulumi secret. The state holds it in plain text"
        return
    if resource.type == SECRET_VERSION and isinstance(value(resource.props, "secretData"), str):
        yield "secretData is not a Pulumi secret. The state holds it in plain text"
        return
    reported: set[str] = set()
    for pod in pods_of(resource):
        for container in pod.containers:
            for variable in items(container, "env"):
                name, stated = str(variable.get("name")), variable.get("value")
                if isinstance(stated, str) and SECRET_NAME.search(name) and stated and not stated.startswith("/"):
                    reported.add(stated)
                    where = f"{pod.at(container)}: variable {name}"
                    yield f"{where} has its value in the pod's spec. {READABLE} read the pod or the state"
    for at, text in texts(resource.props):
        if text not in reported and credentials.find(text):
            yield f"{at} looks like a token. {READABLE} read the object or the state"


@of_resources("Remove the token from the container. It reads its model from the bucket")
def offline_servers_have_no_token(resource: Resource) -> Iterator[str]:
    """A server whose model comes from a bucket has no Hugging Face token.

    https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables#hfhuboffline
    """
    for pod in pods_of(resource):
        for container in pod.containers:
            variables = {str(variable.get("name")): variable for variable in items(container, "env")}
            token = next((name for name in HUB_TOKENS if name in variables), None)
            if token and str(variables.get("HF_HUB_OFFLINE", {}).get("value")).lower() in ("1", "true", "yes", "on"):
                yield f"{pod.at(container)} is offline and has {token}. It cannot use the token, and can only leak it"


@of_stacks("Revoke the token, create a new one, and run pulumi config set --secret KEY")
def no_secrets_in_configuration(stack: RegisteredStack) -> Iterator[tuple[None, str]]:
    """The configuration of the stack holds no token in plain text."""
    for key, text in stack.configuration.items():
        if isinstance(text, str) and credentials.find(text):
            yield None, f"configuration {key} looks like a token. {READABLE} read the repository"


@of_resources("Use Workload Identity Federation: principal://… for pods, an identity pool for others (docs/github.md)")
def no_service_account_keys(resource: Resource) -> Iterator[str]:
    """No service account has a key file."""
    if resource.type == SERVICE_ACCOUNT_KEY:
        yield "this is a service account key. It never expires, and anyone who copies it can use it"


@of_resources("Set uniformBucketLevelAccess: true and publicAccessPrevention: enforced")
def buckets_are_private(resource: Resource) -> Iterator[str]:
    """Buckets are never public, and IAM alone controls access to them.

    https://cloud.google.com/storage/docs/public-access-prevention
    """
    if resource.type != BUCKET:
        return
    if value(resource.props, "uniformBucketLevelAccess") not in (True, Hidden.UNKNOWN):
        yield "access is not uniform. Each object can have its own ACL, which IAM does not show"
    if value(resource.props, "publicAccessPrevention") not in ("enforced", Hidden.UNKNOWN):
        yield "public access is not prevented. One grant to allUsers publishes its models and checkpoints"


@of_resources("Grant the role to specific members: principal://…, group:…, serviceAccount:…")
def no_public_grants(resource: Resource) -> Iterator[str]:
    """No role is granted to the whole Internet."""
    if not resource.type.startswith("gcp:"):
        return
    for member in (value(resource.props, "member"), *list_at(resource.props, "members")):
        if member in EVERYONE:
            yield f"{value(resource.props, 'role') or 'a role'} is granted to {member}. Anyone can use it"


@of_resources(
    "Set forceDestroy: false (gke-ai: onDestroy: keep), and keep deleted objects for at least 7 days (softDeleteDays)",
    only_mandatory=True,
)
def data_can_be_restored(resource: Resource) -> Iterator[str]:
    """Deleted buckets and objects can be restored.

    https://cloud.google.com/storage/docs/soft-delete
    """
    if resource.type != BUCKET:
        return
    if value(resource.props, "forceDestroy") is True:
        yield "it is deleted together with its objects. One destroy deletes all models and checkpoints"
    kept = number(value(resource.props, "softDeletePolicy", "retentionDurationSeconds"))
    if kept == 0 and value(resource.props, "versioning", "enabled") is not True:
        yield "soft delete and versioning are off. Objects that are deleted by mistake cannot be restored"
