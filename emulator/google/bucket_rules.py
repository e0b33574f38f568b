"""Rules of Cloud Storage beyond types: buckets and the roles on them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from emulator.google.principals import member_problems
from emulator.google.refusals import Problem, Values, one_of, resource_labels, value_at
from gke_ai.catalog.machines import zones

# https://cloud.google.com/storage/docs/access-control/iam-roles
BUCKET_ROLES = frozenset(
    f"roles/storage.{role}"
    for role in (
        *("admin", "bucketViewer", "expressModeServiceInput", "expressModeServiceOutput", "folderAdmin"),
        *("insightsCollectorService", "legacyBucketOwner", "legacyBucketReader", "legacyBucketWriter"),
        *("legacyObjectOwner", "legacyObjectReader", "objectAdmin", "objectCreator", "objectUser", "objectViewer"),
    )
)
_STORAGE_CLASSES = (
    *("STANDARD", "NEARLINE", "COLDLINE", "ARCHIVE", "MULTI_REGIONAL", "REGIONAL", "DURABLE_REDUCED_AVAILABILITY"),
)
_LIFECYCLE_ACTIONS = ("Delete", "SetStorageClass", "AbortIncompleteMultipartUpload")


def bucket(inputs: Values, body: Values) -> Iterator[Problem]:
    """Checks a bucket: https://cloud.google.com/storage/docs/buckets#naming, …/docs/soft-delete, …/docs/lifecycle"""
    name = body.get("name", "")
    parts = name.split(".")
    fits = re.fullmatch(r"[a-z0-9][-_.a-z0-9]*[a-z0-9]", name) and 3 <= len(name) <= (222 if parts[1:] else 63)
    if not fits or any(not 1 <= len(part) <= 63 for part in parts) or re.fullmatch(r"\d+(\.\d+){3}", name):
        yield "name", f"googleapi: Error 400: Invalid bucket name: '{name}', invalid"
    elif name.startswith("goog") or "google" in name:
        yield "name", f"googleapi: Error 400: Invalid bucket name: '{name}' (no goog prefix, no google in it), invalid"
    location = str(body.get("location", ""))
    if location.lower() not in zones.ZONES and location.upper() not in zones.BUCKET_MULTI_REGIONS:
        yield "location", f"googleapi: Error 400: The specified location constraint is not valid: {location}, invalid"
    yield from one_of(body.get("storageClass"), _STORAGE_CLASSES, "storageClass")
    prevention = value_at(body, "iamConfiguration.publicAccessPrevention")
    yield from one_of(prevention, ("inherited", "enforced"), "publicAccessPrevention")
    seconds = int(value_at(body, "softDeletePolicy.retentionDurationSeconds") or 0)
    if seconds != 0 and not 7 * 86400 <= seconds <= 90 * 86400:
        text = f"The soft delete retention duration must be 0 or from 7 to 90 days, not {seconds} s"
        yield "softDeletePolicy.retentionDurationSeconds", f"googleapi: Error 400: {text}, invalid"
    for index, rule in enumerate(value_at(body, "lifecycle.rule") or []):
        path = f"lifecycleRules[{index}]"
        yield from one_of(value_at(rule, "action.type") or "", _LIFECYCLE_ACTIONS, f"{path}.action.type")
        if not rule.get("condition"):
            yield f"{path}.condition", "googleapi: Error 400: A lifecycle rule needs at least one condition, invalid"
    for index, rule in enumerate(inputs.get("lifecycleRules") or []):
        state = value_at(rule, "condition.withState")
        yield from one_of(state, ("LIVE", "ARCHIVED", "ANY"), f"lifecycleRules[{index}].condition.withState")
    yield from resource_labels(body.get("labels", {}), "labels")


def bucket_member(inputs: Values) -> Iterator[Problem]:
    """Checks a member's role on a bucket."""
    role = inputs["role"]
    custom = re.fullmatch(r"(projects|organizations)/[^/]+/roles/[\w.]+", role)
    if role not in BUCKET_ROLES and not custom:
        yield "role", f"googleapi: Error 400: Role {role} is not supported for this resource., invalid"
    yield from member_problems(inputs["member"])
