"""A bucket for models and checkpoints, with the grants on it."""

import pulumi
import pulumi_gcp as gcp

from gke_ai.catalog.project.identities import principal
from gke_ai.components.base import Component
from gke_ai.components.support.identity import after_workload_pool, project_number
from gke_ai.settings.model import Bucket

DAY_SECONDS = 86400


class ModelBucket(Component):
    """A Cloud Storage bucket: uniform access, never public, soft delete, and grants to workload identity principals.

    With `on_destroy: keep` a destroy keeps the bucket and its data, and a later stack can import it with `adopt`. With
    `delete` a destroy deletes the bucket with its data. Deleted objects can be restored for `soft_delete_days`.

    Refused: ValueError for a bucket without a location; RunError for grants in a project that can't be read; by Pulumi,
    the deletion of a protected bucket; by Google, a grant before the project has had a cluster with Workload Identity
    ("Identity Pool does not exist"). That is why grants wait for the cluster's workload pool.

    Sources: https://cloud.google.com/storage/docs/uniform-bucket-level-access,
    https://cloud.google.com/storage/docs/public-access-prevention, https://cloud.google.com/storage/docs/soft-delete,
    https://cloud.google.com/kubernetes-engine/docs/how-to/workload-identity
    """

    bucket_name: pulumi.Output[str]
    url: pulumi.Output[str]
    """`gs://…`"""

    def __init__(
        self,
        name: str,
        args: Bucket,
        opts: pulumi.ResourceOptions | None = None,
        *,
        project: str,
        workload_pool: pulumi.Input[str],
    ) -> None:
        """Create the bucket and its grants.

        Args:
            project: Id of the Google Cloud project.
            workload_pool: The project's workload identity pool, an output of the cluster. Grants wait for it; the
                bucket does not.
        """
        super().__init__(name, opts)
        if args.location is None:
            raise ValueError(f"bucket {args.name}: a ModelBucket needs a location. Set it to a region or multi-region")
        deletes = args.on_destroy == "delete"

        bucket = gcp.storage.Bucket(
            *self.main_child(
                args.name,
                # False would go before what the component's own options say.
                protect=args.protect or None,
                retain_on_delete=None if deletes else True,
                import_=args.name if args.adopt else None,  # no effect once the bucket is in the state
            ),
            name=args.name,
            project=project,
            location=args.location.upper(),  # as Google returns it: else every refresh shows a difference
            uniform_bucket_level_access=True,
            public_access_prevention="enforced",
            versioning={"enabled": args.versioning},
            soft_delete_policy={"retention_duration_seconds": args.soft_delete_days * DAY_SECONDS},
            lifecycle_rules=[{"action": {"type": "Delete"}, "condition": {"age": args.delete_after_days}}]
            if args.delete_after_days
            else None,
            force_destroy=deletes,
        )
        if args.grants:
            number = project_number(project, f"The grants of bucket {args.name} need", self)
            for grant in args.grants:
                gcp.storage.BucketIAMMember(
                    *self.child(
                        f"{args.name}/{grant.namespace}/{grant.service_account}/{grant.role.removeprefix('roles/')}"
                    ),
                    bucket=bucket.name,
                    role=grant.role,
                    member=after_workload_pool(
                        principal(number, project, grant.namespace, grant.service_account), workload_pool
                    ),
                )

        self.bucket_name = bucket.name
        self.url = bucket.url
        self.register_outputs({"bucketName": self.bucket_name, "url": self.url})
