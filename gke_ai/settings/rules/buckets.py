"""Rules of buckets and of the roles on them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gke_ai.catalog.engines.model_cache import CANNOT_WRITE
from gke_ai.catalog.machines.zones import BUCKET_MULTI_REGIONS, ZONES, is_zone, region_of
from gke_ai.settings.model import Bucket
from gke_ai.settings.problems import Problem, nearest
from gke_ai.settings.resolved import ResolvedStack
from gke_ai.settings.rules.common import BUCKETS, each, needs, repeated, rule

# https://cloud.google.com/storage/docs/buckets#naming
_NAME = re.compile(r"[a-z0-9][-_.a-z0-9]{1,61}[a-z0-9]")
_ADDRESS = re.compile(r"[0-9]+(\.[0-9]+){3}")
_ROLE = re.compile(r"(roles|(projects|organizations)/[^/\s]+/roles)/[A-Za-z0-9_.]+")


@rule
def names_follow_the_rules_of_cloud_storage(stack: ResolvedStack) -> Iterator[Problem]:
    """Bucket names are unique in the stack and valid in Cloud Storage."""
    yield from repeated(
        ((b, "name", b.name) for b in stack.settings.buckets), "bucket", "Cloud Storage would refuse the second"
    )
    for bucket in stack.settings.buckets:
        name = bucket.name
        if "{" in name:
            cause = f"{name} contains braces, and only {{project}} is replaced. Cloud Storage would refuse it"
            yield Problem(bucket.at("name"), cause, "Write {project} for the project's id")
        elif not _NAME.fullmatch(name) or _ADDRESS.fullmatch(name):
            cause = f'"{name}" is not a valid bucket name. Cloud Storage would refuse it'
            remedy = "Use 3 to 63 lowercase letters, digits, '-', '_' and '.'. Begin and end with a letter or digit"
            yield Problem(bucket.at("name"), cause, remedy)
        elif name.startswith("goog") or "google" in name or "g00gle" in name:
            cause = f"{name} begins with goog or contains google. Cloud Storage reserves such names"
            yield Problem(bucket.at("name"), cause, "Choose another name")


@each(lambda stack: stack.settings.buckets)
def locations_exist(bucket: Bucket) -> Iterator[Problem]:
    """A bucket's location is a region or a multi-region, not a zone."""
    location = bucket.location
    if location is None or location.lower() in ZONES or location.upper() in BUCKET_MULTI_REGIONS:
        return
    path = bucket.at("location")
    if is_zone(location):
        cause = f"{location} is a zone, and a bucket needs a region. Cloud Storage would refuse it"
        yield Problem(path, cause, f"Write {region_of(location)}")
    else:
        cause = f"{location} is not a location of Cloud Storage. It would refuse the bucket"
        yield Problem(path, cause, nearest(location, [*ZONES, *BUCKET_MULTI_REGIONS]))


@each(lambda stack: stack.settings.buckets)
def soft_delete_is_off_or_a_week(bucket: Bucket) -> Iterator[Problem]:
    """Soft delete keeps objects for 7 to 90 days, or is off: https://cloud.google.com/storage/docs/soft-delete"""
    if 0 < bucket.soft_delete_days < 7:
        cause = f"soft delete keeps objects for 7 to 90 days, not {bucket.soft_delete_days}. Cloud Storage would "
        cause += "refuse the bucket"
        yield Problem(bucket.at("softDeleteDays"), cause, "Set it to 7, or to 0 to turn soft delete off")


@each(lambda stack: stack.settings.buckets)
def grants_are_roles(bucket: Bucket) -> Iterator[Problem]:
    """A grant names a valid role, and no grant repeats another."""
    seen = set()
    for index, grant in enumerate(bucket.grants):
        path = bucket.at(f"grants[{index}].role")
        if not _ROLE.fullmatch(grant.role):
            cause = f'"{grant.role}" is not a valid role name. IAM would refuse the grant'
            yield Problem(path, cause, "Write for example roles/storage.objectUser")
        if (key := (grant.namespace, grant.service_account, grant.role)) in seen:
            cause = f"{grant.role} is granted twice to {grant.namespace}/{grant.service_account}"
            yield Problem(path, cause, "Remove one of the grants")
        seen.add(key)


@rule
def buckets_of_runs_exist(stack: ResolvedStack) -> Iterator[Problem]:
    """A run mounts a bucket of this stack."""
    for run, mount in stack.bucket_mounts:
        consequence = f"the pods of the {run.object_kind} could not mount it"
        yield from BUCKETS.unknown(stack, run.at(f"{mount.key}.bucket"), mount.bucket, consequence)


@needs("gke-ai:buckets", "gke-ai:tenants")
def runs_may_use_their_bucket(stack: ResolvedStack) -> Iterator[Problem]:
    """The service account of a run has a role on its bucket.

    If the run writes checkpoints to the bucket, the role must allow it. A run on TPUs may only read.
    """
    for run, mount in stack.bucket_mounts:
        granted = next((bucket for bucket in stack.granted_buckets if bucket.section.name == mount.bucket), None)
        if granted is None:
            continue  # buckets_of_runs_exist reports it
        bucket = granted.section
        account = (run.namespace, run.service_account)
        roles = [g.role for g in granted.grants if (g.namespace, g.service_account) == account]
        writes = mount.for_checkpoints
        if any(role not in CANNOT_WRITE or not writes for role in roles):
            continue
        have = f"has only {', '.join(roles)}" if roles else "has no role"
        yield Problem(
            run.at(f"{mount.key}.bucket"),
            f"service account {run.namespace}/{run.service_account} {have} on bucket {bucket.name}. "
            + ("The Job could not write its checkpoints" if writes else "Its pods could not mount the bucket"),
            f"Add to {bucket.at('grants')}: {{namespace: {run.namespace}, "
            f"serviceAccount: {run.service_account}, role: roles/storage.objectUser}}",
        )


@each(lambda stack: stack.settings.buckets)
def an_adopted_bucket_is_kept(bucket: Bucket) -> Iterator[Problem]:
    """An adopted bucket has onDestroy: keep. To delete it with the stack is a later, separate decision."""
    if bucket.adopt and bucket.on_destroy == "delete":
        cause = "an adopted bucket cannot have onDestroy: delete. Pulumi would refuse to take it over"
        yield Problem(bucket.at("onDestroy"), cause, "Set it to keep. After the next up you can change it to delete")
