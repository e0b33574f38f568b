"""Models in a bucket: which bucket, and how servers read them."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from gke_ai.catalog.engines.model_cache import MOUNT_PATH, READERS, Reader, folder_of
from gke_ai.settings.model.base import Request, Section


class ModelCache(Section):
    """A bucket with the model. A Job downloads the model once, and replicas read it from there without a token."""

    noun: ClassVar[str] = "a model cache"

    bucket: str = Field(examples=["models-{project}"])
    """Bucket of this stack, as named in `buckets`."""
    revision: str = Field(default="main", examples=["0cb88a4f764b7a12671c53f0838cd831a0843b95"])
    """Commit, tag or branch on Hugging Face. The first download decides which commit a branch means."""
    reader: Literal["fuse", "streamer"] = "fuse"
    """Reader of the bucket. fuse: a folder, with a file cache on the node; streamer: vLLM's Run:ai Model Streamer, from
    the bucket into the accelerators."""
    file_cache: Request | None = Field(default=None, examples=["20Gi"])
    """Size of a replica's file cache, in bytes. Default: the size of the model, plus a tenth."""
    file_cache_medium: Literal["disk", "memory"] = "disk"
    """Medium of the file cache. disk: on the disk or the Local SSDs of the node; memory: in the memory of the sidecar,
    in addition to `sidecarMemory`."""
    sidecar_cpu: Request = "2"
    """CPU request and limit of the FUSE sidecar, in cores."""
    sidecar_memory: Request = "2Gi"
    """Memory request and limit of the FUSE sidecar, in bytes."""
    timeout_seconds: int = Field(default=3600, ge=60)
    """Time that `up` waits until the bucket has the model, in seconds."""

    @property
    def how(self) -> Reader:
        """What the reader needs."""
        return READERS[self.reader]

    def location(self, model: str, revision: str | None = None) -> str:
        """Where a replica finds a model or adapter: a folder in the container, or a URI."""
        return self.mounted(folder_of(model, revision or self.revision))

    def mounted(self, folder: str) -> str:
        """Where a replica finds a folder of the bucket."""
        root = MOUNT_PATH if self.how.mounts else f"gs://{self.bucket}"
        return f"{root}/{folder}"
