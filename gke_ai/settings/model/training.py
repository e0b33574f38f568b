"""Training runs with an image of one's own: any program, on GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from gke_ai.catalog import checkpoints
from gke_ai.catalog.engines import fuse
from gke_ai.catalog.machines.types import Machine
from gke_ai.settings.model.base import Request, Section
from gke_ai.settings.model.buckets import BucketMount
from gke_ai.settings.model.nodes import Nodes
from gke_ai.settings.model.run_names import hash_suffix
from gke_ai.settings.model.topology import Topology
from gke_ai.settings.model.workloads import GpuWorkload, Resources, TokenSecret

# Name of the replicated Job of a training job.
WORKERS = "worker"
# Environment variables of a training job, with the key that each comes from.
_VARIABLES: Mapping[str, str] = {
    **dict.fromkeys(("MASTER_ADDR", "PET_MASTER_ADDR", "JAX_COORDINATOR_ADDRESS"), "pods"),
    **dict.fromkeys(("MASTER_PORT", "PET_MASTER_PORT"), "rendezvousPort"),
    **dict.fromkeys(("WORLD_SIZE", "PET_NNODES", "JAX_NUM_PROCESSES"), "pods"),
    **dict.fromkeys(("RANK", "NODE_RANK", "PET_NODE_RANK", "JAX_PROCESS_ID"), "pods"),
    "PET_NPROC_PER_NODE": "gpusPerPod",
    checkpoints.DIRECTORY: "checkpoints",
    checkpoints.KEEP: "checkpoints.keep",
    checkpoints.RESUME_FROM: "resumeFrom",
    checkpoints.GRACE_SECONDS: "terminationGracePeriodSeconds",
}


class BucketVolume(Section):
    """A bucket that a training run mounts as a folder."""

    noun: ClassVar[str] = "a volume"

    bucket: str = Field(examples=["datasets"])
    """Bucket of this stack, as named in `buckets`."""
    mount_path: str = Field(examples=["/data"])
    """Mount path in the container."""
    read_only: bool = False
    """Mount the bucket for reading only."""
    mount_options: str = fuse.MOUNT_OPTIONS
    """Mount options of the driver, separated by commas."""


class RunCheckpoints(Section):
    """The directory in a bucket to which a training run writes its checkpoints."""

    noun: ClassVar[str] = "a directory of checkpoints"

    bucket: str = Field(examples=["checkpoints"])
    """Bucket of this stack, as named in `buckets`."""
    path: str | None = Field(default=None, examples=["experiments/first"])
    """Directory in the bucket. No other run may use it. Default: the name of the JobSet."""
    keep: int = Field(default=2, ge=1, le=1000)
    """Number of complete checkpoints to keep."""
    mount_path: str = "/checkpoints"
    """Mount path of the bucket in the container."""


class GpuRun(GpuWorkload):
    """A run on GPUs, whose pods may be on several nodes."""

    topology: Topology | None = Field(default=None, examples=[{"required": "block"}])
    """How close to each other Kueue places the pods, on flavors with topology. Default: anywhere."""
    accept_slow_network: bool = False
    """Run on several nodes over the default network, although the GPUs need a faster one."""
    if TYPE_CHECKING:  # keys of its kinds, each with a default of its own
        pods: int
        gpus_per_pod: int

    def needs_fabric(self, machine: Machine) -> bool:
        """Whether the run needs the network between nodes of a machine type, as its GPUs are on several of them."""
        return not self.accept_slow_network and self.pods * self.gpus_per_pod > machine.gpus

    @property
    def placement(self) -> Topology | None:
        return self.topology


# Keys that say where it runs. It moves there and continues.
_PLACE = frozenset({"pool", "accelerator", "compute_class"})


class TrainingRun(GpuRun):
    """A training run of any image: a JobSet on GPUs that Kueue starts, suspends and resumes."""

    noun: ClassVar[str] = "a training job"
    pod_noun: ClassVar[str] = "a pod of the JobSet"
    object_kind: ClassVar[str] = "JobSet"
    run_kind: ClassVar[str] = "job"
    deletion_is_awaited: ClassVar[bool] = True
    writes_checkpoints: ClassVar[bool] = True
    accelerators_key: ClassVar[str] = "gpusPerPod"
    pods_key: ClassVar[str] = "pods"

    # A changed run always gets a new name.
    fixed_name: ClassVar[bool] = False

    kind: Literal["job"]
    """A run of any image on GPUs."""
    image: str = Field(min_length=1)
    """Image of the training program."""
    command: list[str] = Field(default=[])
    """Command of the container. Default: the command of the image."""
    args: list[str] = Field(default=[])
    """Arguments of the command."""
    pods: int = Field(default=1, ge=1)
    """Number of pods that train together."""
    gpus_per_pod: int = Field(default=1, ge=1)
    """GPUs per pod."""
    rendezvous_port: int = Field(default=29500, ge=1, le=65535)
    """Port of the first pod on which the pods find each other."""
    volumes: list[BucketVolume] = Field(default=[])
    """Buckets to mount, for example with training data."""
    sidecar_memory_limit: Request | None = Field(default=None, examples=["2Gi"])
    """Memory limit of the FUSE sidecar, which serves all buckets of a pod, in bytes. Default: 256Mi, and 128Mi for each
    GPU if the pod writes to a bucket."""
    sidecar_cpu: Request | None = Field(default=None, examples=["1"])
    """CPU request and limit of the FUSE sidecar, in cores. Default: the driver's own."""
    shared_memory: Request | None = Field(default=None, examples=["16Gi"])
    """Maximum size of /dev/shm, in bytes. It counts toward the memory of the container. Default: the memory of the
    container."""
    checkpoints: RunCheckpoints | None = None
    """Directory for the checkpoints. Without it, a restarted run begins again."""
    resume_from: str | None = Field(default=None, examples=["pretrain-1a2b3c"])
    """Directory of another run in the bucket of `checkpoints`. A run without a checkpoint of its own starts from the
    newest one there. Default: the run begins at step 0."""
    max_restarts: int = Field(default=4, ge=0)
    """Restarts of all pods after a pod fails. Disruptions do not count."""
    ignore_disruptions: bool | None = Field(default=None, examples=[False])
    """Do not count node maintenance, eviction and preemption as failures. Default: `true`."""
    # https://docs.cloud.google.com/kubernetes-engine/docs/concepts/spot-vms
    termination_grace_period_seconds: int = Field(default=60, ge=0)
    """Time between SIGTERM and SIGKILL, in which a preempted or evicted pod can save a checkpoint, in seconds. When
    Google takes back a Spot node, its pods have 15 s by default."""
    token_secret: TokenSecret | None = Field(default=None, examples=[{"name": "hf-secret"}])
    """Secret with the Hugging Face token, which the container reads from HF_TOKEN. Default: no token."""

    @cached_property
    def suffix(self) -> str:
        return hash_suffix(self, _PLACE)

    @property
    def ignores_disruptions(self) -> bool:
        """Whether disruptions do not count as failures."""
        return self.ignore_disruptions is not False

    @property
    def checkpoint_folder(self) -> tuple[str, PurePosixPath] | None:
        """Bucket and folder of its checkpoints, if it writes any."""
        saved = self.checkpoints
        return (saved.bucket, PurePosixPath(saved.path or self.object_name)) if saved else None

    def pod_host(self, index: int) -> str:
        """Stable host name of a pod in the Service of its JobSet: a replaced pod has the same one.

        https://jobset.sigs.k8s.io/docs/concepts/#jobset-naming-and-dns
        """
        return f"{self.object_name}-{WORKERS}-0-{index}"

    @property
    def bucket_mounts(self) -> list[BucketMount]:
        mounts = [
            BucketMount(volume.bucket, volume.mount_path, f"volumes[{index}]")
            for index, volume in enumerate(self.volumes)
        ]
        if self.checkpoints is not None:
            saved = self.checkpoints
            mounts.append(BucketMount(saved.bucket, saved.mount_path, "checkpoints", for_checkpoints=True))
        return mounts

    @property
    def sidecar(self) -> Resources | None:
        if not self.volumes and self.checkpoints is None:
            return None
        writes = self.checkpoints is not None or any(not volume.read_only for volume in self.volumes)
        usual = fuse.sidecar_memory(self.gpus_per_pod) if writes else None
        return Resources(cpu=self.sidecar_cpu, memory=self.sidecar_memory_limit or usual)

    @property
    def has_named_service(self) -> bool:
        return False

    @property
    def set_variables(self) -> Mapping[str, str]:
        return _VARIABLES

    def selector_on(self, nodes: Nodes) -> dict[str, str]:
        # A pool is always selected by its name. Otherwise a further pool with these GPUs would move the run.
        own = nodes.pools if self.pool is not None else ()
        return {**super().selector_on(nodes), **(own[0].selector if own else {})}

    def accelerators_per_pod(self, nodes: Nodes) -> int:
        return self.gpus_per_pod

    def pods_at_once(self, nodes: Nodes) -> int:
        return self.pods

    def in_container(self, directory: str) -> str:
        """The path of a directory of the checkpoint bucket in the container."""
        assert self.checkpoints is not None
        return str(PurePosixPath(self.checkpoints.mount_path) / directory)
