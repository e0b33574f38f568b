"""A bucket for models and checkpoints, with the grants on it."""

from typing import NotRequired, TypedDict

import pulumi
import pulumi_gcp as gcp

from catalog.workload_identity import principal
from components.base import Component, read
from components.identity import after_workload_pool, project_number
from settings.model import Bucket

DAY_SECONDS = 86400


class GrantArgs(TypedDict):
    """A role on the bucket for a Kubernetes service account."""

    namespace: str
    service_account: NotRequired[str]
    role: NotRequired[str]


class ModelBucketArgs(TypedDict):
    """Arguments of a `ModelBucket`."""

    name: str
    """Name of the bucket, globally unique."""
    project: str
    """Id of the Google Cloud project."""
    location: str
    """Region or multi-region."""
    workload_pool: pulumi.Input[str]
    """The project's workload identity pool, an output of the cluster. Grants wait for it; the bucket does not."""
    grants: NotRequired[list[GrantArgs]]
    delete_after_days: NotRequired[int]
    """Age at which objects are deleted, in days."""
    soft_delete_days: NotRequired[int]
    """Days for which deleted objects can be restored; 0 turns that off."""
    versioning: NotRequired[bool]
    on_destroy: NotRequired[str]
    """`keep`: the bucket outlives the stack. `delete`: Pulumi deletes the bucket with its data."""
    adopt: NotRequired[bool]
    """Import the existing bucket of this name, such as one that an earlier stack kept."""
    protect: NotRequired[bool]
    """Refuse to delete the bucket until this is false and applied."""


class ModelBucket(Component):
    """A Cloud Storage bucket: uniform access, never public, soft delete, and grants to workload identity principals.

    With `on_destroy: keep` a destroy keeps the bucket and its data, and a later stack can import it with `adopt`. With
    `delete` a destroy deletes the bucket with its data. Deleted objects can be restored for `soft_delete_days`.

    Refused: RunError for grants in a project that can't be read; by Pulumi, the deletion of a protected bucket; by
    Google, a grant before the project has had a cluster with Workload Identity ("Identity Pool does not exist"). That
    is why grants wait for the cluster's workload pool.

    Sources: https://cloud.google.com/storage/docs/uniform-bucket-level-access,
    https://cloud.google.com/storage/docs/public-access-prevention, https://cloud.google.com/storage/docs/soft-delete,
    https://cloud.google.com/kubernetes-engine/docs/how-to/workload-identity
    """

    bucket_name: pulumi.Output[str]
    url: pulumi.Output[str]
    """`gs://…`"""

    def __init__(self, name: str, args: ModelBucketArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        spec = read(Bucket, name, args)
        project = args["project"]
        deletes = spec.on_destroy == "delete"

        bucket = gcp.storage.Bucket(
            spec.name,
            name=spec.name,
            project=project,
            location=args["location"].upper(),  # as Google returns it: else every refresh shows a difference
            uniform_bucket_level_access=True,
            public_access_prevention="enforced",
            versioning={"enabled": spec.versioning},
            soft_delete_policy={"retention_duration_seconds": spec.soft_delete_days * DAY_SECONDS},
            lifecycle_rules=[{"action": {"type": "Delete"}, "condition": {"age": spec.delete_after_days}}]
            if spec.delete_after_days
            else None,
            force_destroy=deletes,
            opts=pulumi.ResourceOptions(
                parent=self,
                protect=spec.protect,
                retain_on_delete=not deletes,
                import_=spec.name if spec.adopt else None,  # no effect once the bucket is in the state
            ),
        )
        if spec.grants:
            number = project_number(project, f"The grants of bucket {spec.name} need", self)
            for grant in spec.grants:
                gcp.storage.BucketIAMMember(
                    f"{spec.name}/{grant.namespace}/{grant.service_account}/{grant.role.removeprefix('roles/')}",
                    bucket=bucket.name,
                    role=grant.role,
                    member=after_workload_pool(
                        principal(number, project, grant.namespace, grant.service_account), args["workload_pool"]
                    ),
                    opts=pulumi.ResourceOptions(parent=self),
                )

        self.bucket_name = bucket.name
        self.url = bucket.url
        self.register_outputs({"bucketName": self.bucket_name, "url": self.url})
