"""Secrets and buckets: what must not be read by all, and what must not be lost."""

from __future__ import annotations

import re
from collections.abc import Iterator

from policy.base import Policy, of_resources, of_stacks
from policy.resources import (
    BUCKET,
    SECRET_VERSION,
    SERVICE_ACCOUNT_KEY,
    Hidden,
    Resource,
    Stack,
    items,
    list_at,
    number,
    pods_of,
    texts,
    value,
)

# Names of variables that hold a secret; a path to one (/var/run/…) is none.
SECRET_NAME = re.compile(r"(^|_)(TOKEN|PASSWORD|PASSWD|SECRET|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|CREDENTIALS?)$", re.I)
# What tokens look like: Hugging Face, GitHub, Google (API key, OAuth), AWS, OpenAI, Slack, private keys.
TOKEN = re.compile(
    r"\bhf_[A-Za-z0-9]{20,}|\bgh[pousr]_[A-Za-z0-9]{30,}|\bgithub_pat_\w{30,}|\bAIza[\w-]{35}|\bya29\.[\w-]{20,}"
    r"|\bAKIA[A-Z0-9]{16}\b|\bsk-[A-Za-z0-9_-]{32,}|\bxox[abpr]-[\w-]{20,}|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
EVERYONE = {"allUsers", "allAuthenticatedUsers"}


@of_resources(
    "no-plain-text-secrets",
    "Tokens and passwords are secret, in the state and in the cluster",
    "Revoke it, make another, and pass it as a Pulumi secret to a Kubernetes Secret that the pod refers to "
    "(valueFrom.secretKeyRef)",
)
def no_plain_text_secrets(resource: Resource) -> Iterator[str]:
    """Messages name the place, never the value."""
    if resource.is_kubernetes and resource.kind == "Secret":
        for field in ("data", "stringData"):
            keys = sorted({at.partition(".")[0] for at, text in texts(resource.props.get(field)) if text})
            if keys:
                yield f"{field} ({', '.join(keys)}) is no Pulumi secret — it stands in the state in plain text"
        return
    if resource.type == SECRET_VERSION and isinstance(value(resource.props, "secretData"), str):
        yield "secretData is no Pulumi secret — it stands in the state in plain text"
        return
    reported: set[str] = set()
    for pod in pods_of(resource):
        for container in pod.containers:
            for variable in items(container, "env"):
                name, stated = str(variable.get("name")), variable.get("value")
                if isinstance(stated, str) and SECRET_NAME.search(name) and stated and not stated.startswith("/"):
                    reported.add(stated)
                    yield (
                        f"{pod.at(container)}: variable {name} has its value in the pod's spec — everyone who may see "
                        "the pod, or the state, has it"
                    )
    for at, text in texts(resource.props):
        if TOKEN.search(text) and text not in reported:
            yield f"{at} looks like a token — everyone who may see the object, or the state, has it"


@of_stacks(
    "no-secrets-in-configuration",
    "The stack's configuration holds no token in plain text",
    "Revoke it, make another, and run pulumi config set --secret KEY",
)
def no_secrets_in_configuration(stack: Stack) -> Iterator[tuple[None, str]]:
    for key, text in stack.configuration.items():
        if isinstance(text, str) and TOKEN.search(text):
            yield None, f"configuration {key} looks like a token — everyone who may read the repository has it"


@of_resources(
    "no-service-account-keys",
    "Nobody signs in to Google Cloud with a key in a file",
    "Use Workload Identity Federation: principal://… for pods, an identity pool for others (docs/github.md)",
)
def no_service_account_keys(resource: Resource) -> Iterator[str]:
    if resource.type == SERVICE_ACCOUNT_KEY:
        yield "this is a service account's key — it never expires, and works for whoever copies it"


@of_resources(
    "buckets-are-private",
    "Buckets are never public, and IAM alone says who may use them",
    "Set uniformBucketLevelAccess: true and publicAccessPrevention: enforced",
)
def buckets_are_private(resource: Resource) -> Iterator[str]:
    """https://cloud.google.com/storage/docs/public-access-prevention"""
    if resource.type != BUCKET:
        return
    if value(resource.props, "uniformBucketLevelAccess") not in (True, Hidden.UNKNOWN):
        yield "access is not uniform — each object can have rights of its own, which nobody sees"
    if value(resource.props, "publicAccessPrevention") not in ("enforced", Hidden.UNKNOWN):
        yield "public access is not prevented — one grant to allUsers publishes models and checkpoints"


@of_resources(
    "no-public-grants",
    "No role is granted to everyone on the Internet",
    "Grant it to those who need it: principal://…, group:…, serviceAccount:…",
)
def no_public_grants(resource: Resource) -> Iterator[str]:
    if not resource.type.startswith("gcp:"):
        return
    for member in (value(resource.props, "member"), *list_at(resource.props, "members")):
        if member in EVERYONE:
            yield f"{value(resource.props, 'role') or 'a role'} is granted to {member} — anyone can use it"


@of_resources(
    "data-can-be-restored",
    "A deleted bucket or object can be had back",
    "Set forceDestroy: false (gke-ai: onDestroy: keep) and keep deleted objects for 7 days at least (softDeleteDays)",
    only_mandatory=True,
)
def data_can_be_restored(resource: Resource) -> Iterator[str]:
    """https://cloud.google.com/storage/docs/soft-delete"""
    if resource.type != BUCKET:
        return
    if value(resource.props, "forceDestroy") is True:
        yield "it is deleted with all that is in it — one destroy takes models and checkpoints with it"
    kept = number(value(resource.props, "softDeletePolicy", "retentionDurationSeconds"))
    if kept == 0 and value(resource.props, "versioning", "enabled") is not True:
        yield "soft delete and versioning are off — what is deleted by mistake is gone"


POLICIES: tuple[Policy, ...] = (
    no_plain_text_secrets,
    no_secrets_in_configuration,
    no_service_account_keys,
    buckets_are_private,
    no_public_grants,
    data_can_be_restored,
)
