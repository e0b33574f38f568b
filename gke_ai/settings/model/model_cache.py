"""Models in a bucket: which bucket, and how servers read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import ClassVar, Literal

from pydantic import Field

from gke_ai.catalog.engines import fuse
from gke_ai.catalog.engines.model_cache import (
    COMPILED_PATH,
    COMPILED_VARIABLE,
    MOUNT_PATH,
    READERS,
    SHARED_READING,
    Reader,
    access_of,
    folder_of,
)
from gke_ai.catalog.quantities import GI, MI, format_quantity, parse_quantity
from gke_ai.settings.model.base import Request, Section
from gke_ai.settings.model.buckets import BucketMount
from gke_ai.settings.model.workloads import Resources


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
    compile_cache: bool = False
    """Keep what vLLM compiles at its start in the bucket, for later replicas. Needs a service account that only the
    server has."""
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


@dataclass(frozen=True)
class CachedModel:
    """A server's model in a bucket, as a replica reads it.

    Attributes:
        section: The section of the cache.
        engine: The engine of the server.
        model: Id of the model on Hugging Face.
        size: Size of the model's files, in bytes; None if unknown.
        processes: Processes of a replica among which the streamer divides the reading of the model.
    """

    section: ModelCache
    engine: str
    model: str
    size: int | None
    processes: int

    @property
    def location(self) -> str:
        """Where a replica finds the model: its folder or URI in the bucket."""
        return self.section.location(self.model)

    @property
    def mount(self) -> BucketMount | None:
        """The bucket that the pods mount, if they do."""
        return BucketMount(self.section.bucket, MOUNT_PATH, "modelCache") if self.section.how.mounts else None

    @property
    def file_cache_gib(self) -> int:
        """Size of the file cache of a replica, in GiB."""
        stated = self.section.file_cache
        return ceil((parse_quantity(stated) if stated else Fraction(self.size or 0) * 11 / 10) / GI)

    @property
    def mount_options(self) -> str:
        """Mount options of the bucket."""
        return fuse.caching_options(self.file_cache_gib * GI // MI)

    @property
    def sidecar(self) -> Resources | None:
        """Resources of the FUSE sidecar, if the pods mount the bucket."""
        if not self.section.how.mounts:
            return None
        in_memory = self.section.file_cache_medium == "memory"
        memory = parse_quantity(self.section.sidecar_memory) + in_memory * self.file_cache_gib * GI
        storage = fuse.STORAGE_GIB + (not in_memory) * self.file_cache_gib
        return Resources(
            cpu=self.section.sidecar_cpu, memory=format_quantity("memory", memory), ephemeral_storage=f"{storage}Gi"
        )

    @property
    def flags(self) -> list[str]:
        """Flags of the engine, by which the model keeps its name for clients."""
        name, how = access_of(self.engine).served_name, self.section.how
        if not name:
            return []
        shared = [] if how.mounts or self.processes == 1 else [SHARED_READING]
        return [f"{name}={self.model}", *how.flags, *shared]

    @property
    def variables(self) -> Mapping[str, str]:
        """Environment variables of the container."""
        compiled = {COMPILED_VARIABLE: COMPILED_PATH} if self.section.compile_cache else {}
        return {**self.section.how.variables, **compiled}
