"""A bucket for models and checkpoints, and who may use it."""

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
    """Globally unique."""
    project: str
    """Id of the Google Cloud project."""
    location: str
    """Region or multi-region."""
    workload_pool: pulumi.Input[str]
    """The project's identity pool, from the cluster that brings it: grants wait for it, the bucket doesn't."""
    grants: NotRequired[list[GrantArgs]]
    delete_after_days: NotRequired[int]
    """Age at which objects are deleted, in days."""
    soft_delete_days: NotRequired[int]
    """Days for which deleted objects can be restored; 0 turns that off."""
    versioning: NotRequired[bool]
    on_destroy: NotRequired[str]
    """`keep`: the bucket outlives the stack; `delete`: it goes, with its data."""
    adopt: NotRequired[bool]
    """Take over the bucket of this name that exists, such as one an earlier stack kept."""
    protect: NotRequired[bool]
    """Refuse to delete the bucket until this is false and applied."""


class ModelBucket(Component):
    """A Cloud Storage bucket: uniform access, never public, soft delete, and grants to workload identity principals.

    With `on_destroy: keep` a destroy leaves bucket and data alone, and `adopt` lets a later stack take it over. With
    `delete` it goes with its data, and soft-deleted objects can be restored for their days.

    Refused: RunError for grants in a project that can't be read; by Pulumi, the deletion of a protected bucket; by
    Google, a grant before the project has had a cluster with Workload Identity ("Identity Pool does not exist"), which
    is why grants take the pool from the cluster.

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
        goes = spec.on_destroy == "delete"

        bucket = gcp.storage.Bucket(
            spec.name,
            name=spec.name,
            project=project,
            location=args["location"].upper(),  # as Google writes it back: no difference at every refresh
            uniform_bucket_level_access=True,
            public_access_prevention="enforced",
            versioning={"enabled": spec.versioning},
            soft_delete_policy={"retention_duration_seconds": spec.soft_delete_days * DAY_SECONDS},
            lifecycle_rules=[{"action": {"type": "Delete"}, "condition": {"age": spec.delete_after_days}}]
            if spec.delete_after_days
            else None,
            force_destroy=goes,
            opts=pulumi.ResourceOptions(
                parent=self,
                protect=spec.protect,
                retain_on_delete=not goes,
                import_=spec.name if spec.adopt else None,  # once it is in the state, this says nothing new
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
