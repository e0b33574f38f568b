"""Buckets: who may use them, and how a pod mounts one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from gke_ai.catalog.engines import fuse
from gke_ai.settings.model.base import DnsLabel, Request, Section


class Grant(Section):
    """A role on a bucket for a Kubernetes service account, through Workload Identity Federation."""

    noun: ClassVar[str] = "a grant"

    namespace: DnsLabel
    """Namespace of the service account."""
    service_account: DnsLabel = "default"
    """Kubernetes service account that gets the role."""
    role: str = "roles/storage.objectUser"
    """IAM role on the bucket."""


class FolderGrant(Grant):
    """A role on the objects in one folder of a bucket."""

    folder: str
    """Path of the folder, without a slash at its ends."""

    def condition(self, bucket: str) -> str:
        """The condition of the role: https://cloud.google.com/iam/docs/conditions-resource-attributes#resource-name"""
        return f"resource.name.startsWith('projects/_/buckets/{bucket}/objects/{self.folder}/')"


class Bucket(Section):
    """A Cloud Storage bucket for models and checkpoints."""

    noun: ClassVar[str] = "a bucket"

    name: str
    """Name of the bucket, globally unique. `{project}` is replaced by the project's id."""
    location: str | None = Field(default=None, examples=["europe-west4"])
    """Region or multi-region of the bucket. Default: the cluster's region."""
    grants: list[Grant] = Field(default=[])
    """Roles on the bucket for Kubernetes service accounts."""
    delete_after_days: int | None = Field(default=None, ge=1)
    """Age at which objects are deleted, in days. Default: never."""
    soft_delete_days: int = Field(default=7, ge=0, le=90)
    """Days for which deleted objects can be restored: 7 to 90, or 0 to turn soft delete off."""
    versioning: bool = False
    """Keep overwritten and deleted objects as older versions."""
    on_destroy: Literal["keep", "delete"] = "keep"
    """Effect of the deletion of the stack on the bucket. keep: it stays; delete: it is deleted with its data."""
    adopt: bool = False
    """Take over an existing bucket of this name, for example one that an earlier stack kept."""
    protect: bool = False
    """Refuse to delete the bucket. To delete it, set this to false and apply that first."""


class FuseVolume(Section):
    """A bucket mounted as a folder through the Cloud Storage FUSE CSI driver."""

    noun: ClassVar[str] = "a volume"

    bucket: str
    """Bucket of this stack, as named in `buckets`."""
    mount_path: str = "/model-data"
    """Mount path in the container."""
    mount_options: str = fuse.MOUNT_OPTIONS
    """Mount options of the driver, separated by commas."""
    logging_severity: Literal["trace", "debug", "info", "warning", "error"] = "warning"
    """Minimum severity of the driver's log entries."""
    sidecar_memory_limit: Request | None = "35Gi"
    """Memory limit of the FUSE sidecar, in bytes."""
    sidecar_cpu: Request | None = None
    """CPU request and limit of the FUSE sidecar, in cores. Default: the driver's own."""


@dataclass(frozen=True)
class BucketMount:
    """A bucket that the pods of a workload mount as a folder."""

    bucket: str
    path: str
    # Key of the workload that names the bucket, for messages.
    key: str
    # Whether the pods write checkpoints there.
    for_checkpoints: bool = False
