"""Buckets: who may use them, and how a pod mounts one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from gke_ai.catalog import fuse
from gke_ai.settings.model.base import DnsLabel, Request, Section


class Grant(Section):
    """A role on a bucket for a Kubernetes service account, through Workload Identity Federation."""

    noun: ClassVar[str] = "a grant"

    namespace: DnsLabel = Field(description="Namespace of the service account.")
    service_account: DnsLabel = Field(default="default", description="Kubernetes service account that gets the role.")
    role: str = Field(default="roles/storage.objectUser", description="IAM role on the bucket.")


class Bucket(Section):
    """A Cloud Storage bucket for models and checkpoints."""

    noun: ClassVar[str] = "a bucket"

    name: str = Field(description="Name of the bucket, globally unique. `{project}` is replaced by the project's id.")
    location: str | None = Field(
        default=None,
        description="Region or multi-region of the bucket. Default: the cluster's region.",
        examples=["europe-west4"],
    )
    grants: list[Grant] = Field(default=[], description="Roles on the bucket for Kubernetes service accounts.")
    delete_after_days: int | None = Field(
        default=None, ge=1, description="Age at which objects are deleted, in days. Default: never."
    )
    soft_delete_days: int = Field(
        default=7,
        ge=0,
        le=90,
        description="Days for which deleted objects can be restored: 7 to 90, or 0 to turn soft delete off.",
    )
    versioning: bool = Field(default=False, description="Keep overwritten and deleted objects as older versions.")
    on_destroy: Literal["keep", "delete"] = Field(
        default="keep",
        description="Effect of the deletion of the stack on the bucket. keep: it stays; delete: it is deleted "
        "with its data.",
    )
    adopt: bool = Field(
        default=False,
        description="Take over an existing bucket of this name, for example one that an earlier stack kept.",
    )
    protect: bool = Field(
        default=False, description="Refuse to delete the bucket. To delete it, set this to false and apply that first."
    )


class FuseVolume(Section):
    """A bucket mounted as a folder through the Cloud Storage FUSE CSI driver."""

    noun: ClassVar[str] = "a volume"

    bucket: str = Field(description="Bucket of this stack, as named in `buckets`.")
    mount_path: str = Field(default="/model-data", description="Mount path in the container.")
    mount_options: str = Field(
        default=fuse.MOUNT_OPTIONS, description="Mount options of the driver, separated by commas."
    )
    logging_severity: Literal["trace", "debug", "info", "warning", "error"] = Field(
        default="warning", description="Minimum severity of the driver's log entries."
    )
    sidecar_memory_limit: Request | None = Field(
        default="35Gi", description="Memory limit of the FUSE sidecar, in bytes."
    )
    sidecar_cpu: Request | None = Field(
        default=None, description="CPU request and limit of the FUSE sidecar, in cores. Default: the driver's own."
    )


@dataclass(frozen=True)
class BucketMount:
    """A bucket that the pods of a workload mount as a folder."""

    bucket: str
    path: str
    # Key of the workload that names the bucket, for messages.
    key: str
    # Whether the pods write checkpoints there.
    for_checkpoints: bool = False
