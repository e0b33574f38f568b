"""Training runs with an image of one's own: any program, on GPUs."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import ClassVar, Literal

from pydantic import Field

from settings.model.base import Request, Section
from settings.model.workloads import GpuWorkload, TokenSecret


class BucketVolume(Section):
    """A bucket that a training run mounts as a folder."""

    noun: ClassVar[str] = "a volume"

    bucket: str = Field(description="Bucket of this stack, as named in `buckets`.", examples=["datasets"])
    mount_path: str = Field(description="Mount path in the container.", examples=["/data"])
    read_only: bool = Field(default=False, description="Mount the bucket for reading only.")
    mount_options: str = Field(default="implicit-dirs", description="Mount options of the driver, separated by commas.")


class RunCheckpoints(Section):
    """Where a training run writes its checkpoints: a directory of its own in a bucket."""

    noun: ClassVar[str] = "the checkpoints of a run"

    bucket: str = Field(description="Bucket of this stack, as named in `buckets`.", examples=["checkpoints"])
    path: str | None = Field(
        default=None,
        description="Directory in the bucket. No other run may use it. Default: the name of the JobSet.",
        examples=["experiments/first"],
    )
    keep: int = Field(default=2, ge=1, description="Number of complete checkpoints to keep.")
    mount_path: str = Field(default="/checkpoints", description="Mount path of the bucket in the container.")


class TrainingRun(GpuWorkload):
    """A training run of any image: a JobSet on GPUs that Kueue starts, suspends and resumes."""

    noun: ClassVar[str] = "a training job"

    # A changed run always gets a new name.
    fixed_name: ClassVar[bool] = False

    kind: Literal["job"] = Field(description="A run of any image on GPUs.")
    image: str = Field(min_length=1, description="Image of the training program.")
    command: list[str] = Field(default=[], description="Command of the container. Default: the command of the image.")
    args: list[str] = Field(default=[], description="Arguments of the command.")
    pods: int = Field(default=1, ge=1, description="Number of pods that train together.")
    gpus_per_pod: int = Field(default=1, ge=1, description="GPUs per pod.")
    rendezvous_port: int = Field(
        default=29500, ge=1, le=65535, description="Port of the first pod on which the pods find each other."
    )
    volumes: list[BucketVolume] = Field(default=[], description="Buckets to mount, for example with training data.")
    sidecar_memory_limit: Request | None = Field(
        default=None,
        description="Memory limit of the FUSE sidecar, which serves all buckets of a pod, in bytes. Default: the "
        "driver's own, 256Mi.",
        examples=["2Gi"],
    )
    sidecar_cpu: Request | None = Field(
        default=None,
        description="CPU request and limit of the FUSE sidecar, in cores. Default: the driver's own.",
        examples=["1"],
    )
    shared_memory: Request | None = Field(
        default=None,
        description="Maximum size of /dev/shm, in bytes. It counts toward the memory of the container. Default: the "
        "memory of the container.",
        examples=["16Gi"],
    )
    checkpoints: RunCheckpoints | None = Field(
        default=None, description="Directory for the checkpoints. Default: none; a restarted run begins again."
    )
    resume_from: str | None = Field(
        default=None,
        description="Directory of another run in the bucket of `checkpoints`. A run without a checkpoint of its own "
        "starts from the newest one there. Default: the run begins at step 0.",
        examples=["pretrain-1a2b3c"],
    )
    max_restarts: int = Field(
        default=4, ge=0, description="Restarts of all pods after a pod fails. Disruptions do not count."
    )
    ignore_disruptions: bool | None = Field(
        default=None,
        description="Do not count node maintenance, eviction and preemption as failures. Default: true.",
        examples=[False],
    )
    termination_grace_period_seconds: int = Field(
        default=60,
        ge=0,
        description="Time between SIGTERM and SIGKILL, in which a preempted or evicted pod can save a checkpoint, in "
        "seconds. On Spot capacity GKE gives at most 15 to 25 s.",
    )
    token_secret: TokenSecret | None = Field(  # type: ignore[assignment]  # the program may need no token
        default=None,
        description="Secret with the Hugging Face token, which the container reads from HF_TOKEN. Default: no token.",
        examples=[{"name": "hf-secret"}],
    )

    def mounts(self) -> list[tuple[str, BucketVolume]]:
        """The buckets that a pod mounts, with the name of each volume and its path among the run's keys."""
        own = [(f"volumes[{index}]", volume) for index, volume in enumerate(self.volumes)]
        if self.checkpoints is None:
            return own
        volume = BucketVolume(bucket=self.checkpoints.bucket, mount_path=self.checkpoints.mount_path)
        return [*own, ("checkpoints", volume)]

    def in_container(self, directory: str) -> str:
        """The path of a directory of the checkpoint bucket in the container."""
        assert self.checkpoints is not None
        return str(PurePosixPath(self.checkpoints.mount_path) / directory)
