"""A bucket for models and checkpoints, with the grants on it."""

from typing import Any

import pulumi
import pulumi_gcp as gcp
from pydantic import PrivateAttr

from gke_ai.components.arguments import Arguments, Input, Refused, project_of, takes
from gke_ai.components.base import Component
from gke_ai.components.support.alone import check_alone
from gke_ai.components.support.identity import member_of, project_number
from gke_ai.settings.model import Bucket, FolderGrant, FuseVolume
from gke_ai.settings.problems import Problem

DAY_SECONDS = 86400


class ModelBucketArguments(Arguments, Bucket):
    name: str | None = None  # type: ignore[assignment]
    """Name of the bucket, globally unique. Default: the project's id, a hyphen and the component's name."""
    project: Input[str] | None = None
    """Id of the Google Cloud project. Default: that of the provider."""
    workload_pool: Input[str] | None = None
    """The project's workload identity pool, an output of the cluster. Grants wait for it; the bucket does not. Default:
    the project has had a cluster."""


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

    Example:
        ModelBucket("checkpoints", location="us-central1", delete_after_days=90)
    """

    bucket_name: pulumi.Output[str]
    url: pulumi.Output[str]
    """`gs://…`"""

    @takes(ModelBucketArguments)
    def __init__(self, name: str, args: ModelBucketArguments) -> None:
        super().__init__(name, args)
        project = self._project = project_of(args.project, f"ModelBucket {name}")
        spec = self.section = named_bucket(args.section(Bucket), name, project)
        if not args.is_checked:
            check_alone(f"ModelBucket {name}", spec, None)
        if spec.location is None:
            cause = "is missing, and a bucket needs one"
            raise Refused(f"ModelBucket {name}", Problem("location", cause, "Pass a region or multi-region"))
        deletes = spec.on_destroy == "delete"

        bucket = gcp.storage.Bucket(
            *self.main_child(
                spec.name,
                # False would go before what the component's own options say.
                protect=spec.protect or None,
                retain_on_delete=None if deletes else True,
                import_=spec.name if spec.adopt else None,  # no effect once the bucket is in the state
            ),
            name=spec.name,
            project=project,
            location=spec.location.upper(),  # as Google returns it: else every refresh shows a difference
            uniform_bucket_level_access=True,
            public_access_prevention="enforced",
            versioning={"enabled": spec.versioning},
            soft_delete_policy={"retention_duration_seconds": spec.soft_delete_days * DAY_SECONDS},
            lifecycle_rules=[{"action": {"type": "Delete"}, "condition": {"age": spec.delete_after_days}}]
            if spec.delete_after_days
            else None,
            force_destroy=deletes,
        )
        if spec.grants:
            number = project_number(project, f"The grants of bucket {spec.name} need", self)
            pool = args.workload_pool or ""
            for grant in spec.grants:
                of_folder = grant if isinstance(grant, FolderGrant) else None
                parts = (spec.name, grant.namespace, grant.service_account, grant.role.removeprefix("roles/"))
                gcp.storage.BucketIAMMember(
                    *self.child("/".join((*parts, of_folder.folder) if of_folder else parts)),
                    bucket=bucket.name,
                    role=grant.role,
                    member=member_of(number, project, grant.namespace, grant.service_account, pool),
                    condition={"title": "folder", "expression": of_folder.condition(spec.name)} if of_folder else None,
                )

        self.bucket_name = bucket.name
        self.url = bucket.url
        self.register_outputs({"bucketName": self.bucket_name, "url": self.url})

    @property
    def called(self) -> str:
        return self.section.name

    def volume(self, mount_path: str, **options: Any) -> FuseVolume:
        """The bucket as a folder of a run, with further keys of a `FuseVolume`."""
        volume = BucketFolder(bucket=self.section.name, mount_path=mount_path, **options)
        volume._component = self
        return volume


class BucketFolder(FuseVolume):
    """A bucket of the program as a folder."""

    _component: ModelBucket | None = PrivateAttr(default=None)

    @property
    def component(self) -> ModelBucket | None:
        """The bucket."""
        return self._component


def named_bucket(section: Bucket, name: str, project: pulumi.Input[str]) -> Bucket:
    """The section with the name of the bucket: its own, else one that begins with the project's, which are unique."""
    if section.name:
        return section
    if not isinstance(project, str):
        cause = "is missing, and the project that the default begins with is known only during an update"
        raise Refused(f"ModelBucket {name}", Problem("name", cause, "Pass the name of the bucket"))
    return section.model_copy(update={"name": f"{project}-{name}"})
