"""What all servers and runs have in common."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from settings.model.base import DnsLabel, Labels, Request, Section
from settings.model.buckets import BucketMount, FuseVolume
from settings.model.pools import TpuSlice


class Resources(Section):
    """Resource requests of one pod; its limits equal them."""

    noun: ClassVar[str] = "the resources of a pod"

    cpu: Request | None = Field(default=None, description="CPU cores.")
    memory: Request | None = Field(default=None, description="Memory, in bytes.")
    ephemeral_storage: Request | None = Field(default=None, description="Local storage of the node, in bytes.")


class TokenSecret(Section):
    """The Kubernetes Secret with the Hugging Face token, in the namespace of the workload."""

    noun: ClassVar[str] = "a token secret"

    name: DnsLabel = Field(default="hf-secret", description="Name of the Secret.")
    key: str = Field(default="hf_api_token", description="Key in the Secret.")


class Workload(Section):
    """Base of all servers and runs: their namespace, queue and pods."""

    # The noun in messages that name the workload too.
    short_noun: ClassVar[str] = "training"

    name: DnsLabel = Field(description="Name of the workload.")
    namespace: DnsLabel = Field(default="llm", description="Namespace of the workload.")
    queue: str | None = Field(
        default=None, description="Local queue of the same namespace. Default: Kueue does not manage the workload."
    )
    priority_class: str | None = Field(
        default=None, description="PriorityClass of the pods. Default: the global default class, or else priority 0."
    )
    service_account: DnsLabel = Field(default="default", description="Kubernetes service account of the pods.")
    resources: Resources = Field(default=Resources(), description="Resource requests of one pod.")
    labels: Labels = Field(default={}, description="Additional labels of the pods.")
    env: dict[str, str] = Field(
        default={}, description="Additional environment variables of the container.", examples=[{"LOG_LEVEL": "info"}]
    )

    @property
    def token(self) -> TokenSecret | None:
        """The Secret with the Hugging Face token, if the workload reads one."""
        return None

    @property
    def bucket_volume(self) -> FuseVolume | None:
        """The bucket that the workload mounts, if any."""
        return None

    @property
    def bucket_mounts(self) -> list[BucketMount]:
        """The buckets that the pods mount."""
        volume = self.bucket_volume
        return [] if volume is None else [BucketMount(volume.bucket, volume.mount_path, "volume")]

    @property
    def sidecar(self) -> Resources | None:
        """Resources of the FUSE sidecar that the configuration states, if the pods mount a bucket."""
        volume = self.bucket_volume
        return None if volume is None else Resources(cpu=volume.sidecar_cpu, memory=volume.sidecar_memory_limit)


class GpuWorkload(Workload):
    """A workload on GPUs: of a pool, of a compute class, or of a GPU type where Google manages the nodes."""

    pool: str | None = Field(default=None, description="GPU pool of this stack that the workload runs on.")
    accelerator: str | None = Field(
        default=None, description="GPU type, if the stack has no GPU pool: on Autopilot or an existing cluster."
    )
    compute_class: str | None = Field(default=None, description="Compute class of this stack that provides the nodes.")
    token_secret: TokenSecret | None = Field(default=TokenSecret(), description="Secret with the Hugging Face token.")

    @property
    def token(self) -> TokenSecret | None:
        return self.token_secret


class TpuWorkload(Workload):
    """A workload on TPUs: of a pool of this stack, or of a slice where Google manages the nodes."""

    pool: str | None = Field(default=None, description="TPU pool of this stack that the workload runs on.")
    tpu: TpuSlice | None = Field(
        default=None, description="TPU slice, if the stack has no TPU pool: on Autopilot or an existing cluster."
    )
