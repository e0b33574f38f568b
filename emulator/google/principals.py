"""Members that can have roles: their forms, and the principals of Kubernetes service accounts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from emulator.google.refusals import Problem


def member_problems(member: str) -> Iterator[Problem]:
    """Checks the form of a member: https://cloud.google.com/iam/docs/principal-identifiers"""
    forms = (
        r"principal(Set)?://iam\.googleapis\.com/.+",
        r"(user|serviceAccount|group|domain|projectOwner|projectEditor|projectViewer):.+",
        r"allUsers|allAuthenticatedUsers",
    )
    if member.startswith("deleted:"):
        yield "member", "invalid value for member: the provider does not support deleted principals"
    elif not any(re.fullmatch(form, member) for form in forms):
        yield "member", f"googleapi: Error 400: Invalid argument: the member {member} is of an unknown type., invalid"
    elif "/workloadIdentityPools/" in member and workload_principal(member) is None:
        yield (
            "member",
            f"googleapi: Error 400: The principal {member} is malformed: principal://iam.googleapis.com/projects/NUMBER/"
            "locations/global/workloadIdentityPools/PROJECT.svc.id.goog/subject/ns/NAMESPACE/sa/ACCOUNT, with the "
            "project's number first and its id in the pool, invalid",
        )


def workload_principal(member: str) -> tuple[str, str] | None:
    """Returns (project number, pool) of the principal of a Kubernetes service account, or None for other members."""
    match = re.fullmatch(
        r"principal://iam\.googleapis\.com/projects/(\d+)/locations/global/workloadIdentityPools/"
        r"([^/]+\.svc\.id\.goog)/subject/ns/[-a-z0-9]+/sa/[-.a-z0-9]+",
        member,
    )
    return (match[1], match[2]) if match else None
