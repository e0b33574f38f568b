"""Training runs and batch Jobs: one class per kind."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from pathlib import PurePosixPath
from typing import ClassVar, Literal

from pydantic import Field

from gke_ai.catalog import versions
from gke_ai.catalog.machines.capacity import MAX_RUN_SECONDS, MIN_RUN_SECONDS
from gke_ai.settings.model.base import DnsLabel, Request, Section
from gke_ai.settings.model.buckets import FuseVolume
from gke_ai.settings.model.nodes import Nodes
from gke_ai.settings.model.run_names import hash_suffix
from gke_ai.settings.model.slices import TpuSlice
from gke_ai.settings.model.training import GpuRun, TrainingRun
from gke_ai.settings.model.workloads import SingleSliceWorkload, TokenSecret, TpuWorkload

# Failures per pod that a Job of several pods tolerates.
FAILURES_PER_POD = 4
# Folder of the checkpoints of a run with a fixed name, below the mount path, as in its source document.
_FIXED_FOLDER = "model-gemma2/experiment"


class Dataset(Section):
    """Training data on Hugging Face."""

    noun: ClassVar[str] = "a dataset"

    name: str = "b-mc2/sql-create-context"
    """Dataset id on Hugging Face."""
    limit: int = Field(default=5000, ge=1)
    """Maximum number of rows."""


class FineTune(GpuRun):
    """A fine-tuning run: a headless Service and an Indexed Job that Kueue starts, suspends and resumes."""

    noun: ClassVar[str] = "a fine-tuning run"
    accelerators_key: ClassVar[str] = "gpusPerPod"
    pods_key: ClassVar[str] = "pods"
    run_kind: ClassVar[str] = "fineTune"
    writes_checkpoints: ClassVar[bool] = True

    kind: Literal["fineTune"] = "fineTune"
    """A fine-tuning run on GPUs."""
    image: str = versions.FINE_TUNE_IMAGE
    """Image of the training program."""
    base_model: str = "google/gemma-2-2b"
    """Model on Hugging Face to start from."""
    new_model: str = "gemma-ft"
    """Name of the tuned model."""
    model_path: str | None = Field(default=None, examples=["/model-data/experiments/first"])
    """Folder for the checkpoints. A restarted run continues from the last one. Two runs cannot share a folder. Default:
    a folder with the name of the Job below `volume.mountPath`; with `fixedName` the folder model-gemma2/experiment
    there."""
    experiment: str = "finetune-experiment"
    """Name of the MLflow experiment."""
    dataset: Dataset = Dataset()
    """Training data."""
    epochs: int = Field(default=1, ge=1)
    """Passes over the data."""
    gradient_accumulation_steps: int = Field(default=2, ge=1)
    """Batches between two updates of the weights."""
    checkpoint_steps: int = Field(default=10, ge=1)
    """Steps between two checkpoints."""
    pods: int = Field(default=2, ge=1)
    """Number of pods that train together."""
    gpus_per_pod: int = Field(default=2, ge=1)
    """GPUs per pod."""
    volume: FuseVolume
    """Bucket for the checkpoints."""
    service: DnsLabel | None = None
    """Name of the headless Service. Default: `name`."""
    rendezvous_port: int = Field(default=29500, ge=1, le=65535)
    """Port on which the pods find each other."""
    backoff_limit: int | None = Field(default=None, ge=0, examples=[8])
    """Number of failed pods after which the Job fails. A pod that fails or is disrupted makes the others fail, and
    these count. Default: 4 for each pod, or 4 with `fixedName`."""
    ignore_disruptions: bool | None = Field(default=None, examples=[False])
    """Do not count node maintenance, eviction and preemption as failures. A failed pod is then replaced, not restarted
    in place. Default: `true`, or `false` with `fixedName`."""
    remove_incomplete_checkpoints: bool | None = Field(default=None, examples=[False])
    """Delete checkpoints without `trainer_state.json` when the run starts. They were not written completely, and the
    run cannot continue from them. Default: `true`, or `false` with `fixedName`."""
    termination_grace_period_seconds: int = Field(default=60, ge=0)
    """Time in which a preempted or evicted pod can finish, in seconds. The default image writes no checkpoint then: the
    work since the last one is lost."""
    fixed_name: bool = False
    """Use exactly `name` as the name of the Job. A changed Job then needs a new name. If false, the name ends in a hash
    of the content, and a changed Job runs beside the old one."""

    @cached_property
    def suffix(self) -> str:
        return "" if self.fixed_name else hash_suffix(self)

    @property
    def ignores_disruptions(self) -> bool:
        """Whether disruptions do not count as failures. A run with a fixed name keeps its original behavior."""
        return not self.fixed_name if self.ignore_disruptions is None else self.ignore_disruptions

    @property
    def grace_seconds(self) -> int:
        """Grace period of the pods."""
        return self.termination_grace_period_seconds

    @property
    def removes_incomplete_checkpoints(self) -> bool:
        """Whether it deletes incomplete checkpoints at its start. A run with a fixed name keeps its behavior."""
        stated = self.remove_incomplete_checkpoints
        return not self.fixed_name if stated is None else stated

    @property
    def checkpoint_path(self) -> str:
        """The folder of its checkpoints in the container. Default: one of its own."""
        default = _FIXED_FOLDER if self.fixed_name else self.object_name
        return self.model_path or str(PurePosixPath(self.volume.mount_path) / default)

    @property
    def checkpoint_folder(self) -> tuple[str, PurePosixPath] | None:
        """Bucket and folder of its checkpoints; None if they are not in its bucket."""
        mount, folder = PurePosixPath(self.volume.mount_path), PurePosixPath(self.checkpoint_path)
        return (self.volume.bucket, folder.relative_to(mount)) if folder.is_relative_to(mount) else None

    @property
    def bucket_volume(self) -> FuseVolume | None:
        return self.volume

    @property
    def service_name(self) -> str:
        return self.service or self.name

    @property
    def set_variables(self) -> Mapping[str, str]:
        return {
            "EXPERIMENT": "experiment",
            "MODEL_NAME": "baseModel",
            "NEW_MODEL": "newModel",
            "MODEL_PATH": "modelPath",
            "DATASET_NAME": "dataset.name",
            "DATASET_LIMIT": "dataset.limit",
            "EPOCHS": "epochs",
            "GRADIENT_ACCUMULATION_STEPS": "gradientAccumulationSteps",
            "CHECKPOINT_SAVE_STEPS": "checkpointSteps",
        }

    @property
    def hub_ids(self) -> Mapping[str, str]:
        return {"baseModel": self.base_model, "dataset.name": self.dataset.name}

    def allowed_failures(self, pods: int) -> int | None:
        """Number of failed pods after which the Job fails; None for the default of Kubernetes."""
        if self.backoff_limit is not None:
            return self.backoff_limit
        return 4 if self.fixed_name else FAILURES_PER_POD * pods

    def accelerators_per_pod(self, nodes: Nodes) -> int:
        return self.gpus_per_pod

    def pods_at_once(self, nodes: Nodes) -> int:
        return self.pods


class TpuRun(TpuWorkload):
    """The container of a TPU Job or JobSet."""

    # Key of the section that sets the name of its Service.
    service_key: ClassVar[str] = "service"

    image: str = versions.JAX_TPU_IMAGE
    """Image of the container."""
    container: DnsLabel = "jax-tpu"
    """Name of the container."""
    command: list[str] = Field(default=[])
    """Command of the container. Default: the command of the image."""
    args: list[str] = Field(default=[])
    """Arguments of the command."""
    ports: list[int] = Field(default=[8471, 8431])
    """Ports that TPU workers listen on."""
    privileged: bool = False
    """Run a privileged container. GKE has not needed one since version 1.28."""
    volume: FuseVolume | None = Field(default=None, examples=[{"bucket": "checkpoints"}])
    """Bucket to mount, for data and checkpoints."""
    shared_memory: Request | None = Field(default=None, examples=["16Gi"])
    """Size of /dev/shm, in bytes. It counts toward the memory of the container. Default: the container runtime's own,
    64 MiB."""
    token_secret: TokenSecret | None = Field(default=None, examples=[{"name": "hf-secret"}])
    """Secret with the Hugging Face token, which the container reads from HF_TOKEN. Default: no token."""
    ignore_disruptions: bool | None = Field(default=None, examples=[False])
    """Do not count node maintenance, eviction and preemption as failures. A failed pod is then replaced, not restarted
    in place. Default: `true`, or `false` with `fixedName`."""
    termination_grace_period_seconds: int | None = Field(default=None, ge=0, examples=[300])
    """Time in which a preempted or evicted pod can finish, in seconds. Default: 60, or 30 with `fixedName`."""
    fixed_name: bool = False
    """Use exactly `name` as the name of the run. A changed run then needs a new name. If false, the name ends in a hash
    of the content, and a changed run runs beside the old one."""

    @cached_property
    def suffix(self) -> str:
        return "" if self.fixed_name else hash_suffix(self)

    @property
    def ignores_disruptions(self) -> bool:
        """Whether disruptions do not count as failures. A run with a fixed name keeps its original behavior."""
        return not self.fixed_name if self.ignore_disruptions is None else self.ignore_disruptions

    @property
    def grace_seconds(self) -> int | None:
        """Grace period of the pods; None for the default of Kubernetes."""
        stated = self.termination_grace_period_seconds
        return 60 if stated is None and not self.fixed_name else stated

    @property
    def checkpoint_folder(self) -> None:
        """Bucket and folder of its checkpoints: the configuration does not say where they are."""

    @property
    def token(self) -> TokenSecret | None:
        return self.token_secret

    @property
    def bucket_volume(self) -> FuseVolume | None:
        return self.volume

    @property
    def is_privileged(self) -> bool:
        return self.privileged

    @abstractmethod
    def has_derived_service(self, nodes: Nodes) -> bool:
        """Whether it has a headless Service with the name of its Job or JobSet."""


# Variables by which the slices of a run find each other. GKE or this program sets them.
MEGASCALE_VARIABLES = ("MEGASCALE_NUM_SLICES", "MEGASCALE_SLICE_ID", "MEGASCALE_COORDINATOR_ADDRESS")


class Multislice(TpuRun):
    """A JobSet over several equal multi-host TPU slices: one child Job for each slice and its node pool."""

    noun: ClassVar[str] = "a Multislice run"
    object_kind: ClassVar[str] = "JobSet"
    deletion_is_awaited: ClassVar[bool] = True
    has_pool_per_slice: ClassVar[bool] = True
    accelerators_key: ClassVar[str] = "pools"
    pods_key: ClassVar[str] = "slices"
    pools_key: ClassVar[str] = "pools"
    service_key: ClassVar[str] = "name"
    run_kind: ClassVar[str] = "multislice"

    kind: Literal["multislice"]
    """A JobSet over several TPU slices."""
    slices: int = Field(ge=1)
    """Number of TPU slices that train together."""
    pools: list[str] = Field(default=[])
    """TPU pools of this stack, at least one for each slice."""
    tpu: TpuSlice | None = None
    """TPU slice, if the stack has no TPU pools: on Autopilot or an existing cluster."""
    host_network: bool = False
    """Run the pods on the node's network. They then have no workload identity."""
    max_restarts: int = Field(default=4, ge=0)
    """Restarts of the JobSet after a slice fails. Disruptions do not count."""

    @property
    def has_named_service(self) -> bool:
        return False

    def has_derived_service(self, nodes: Nodes) -> bool:
        return True

    @property
    def uses_host_network(self) -> bool:
        return self.host_network

    @property
    def set_variables(self) -> Mapping[str, str]:
        return dict.fromkeys(MEGASCALE_VARIABLES, "slices")

    @property
    def named_pools(self) -> dict[str, str]:
        return {self.at(f"pools[{index}]"): name for index, name in enumerate(self.pools)}

    @property
    def is_bound_to_pools(self) -> bool:
        return True

    def pool_of_slice(self, nodes: Nodes) -> list[str]:
        return [pool.name for pool in nodes.pools[: self.slices]] if nodes.grow else []

    def pods_at_once(self, nodes: Nodes) -> int:
        return self.slice_on(nodes).hosts * self.slices


class TpuBatch(TpuRun, SingleSliceWorkload):
    """A Job on one TPU slice: one pod, or one pod on each node of a multi-host slice."""

    noun: ClassVar[str] = "a TPU batch Job"
    short_noun: ClassVar[str] = "batch Job"
    run_kind: ClassVar[str] = "tpuBatch"

    service: DnsLabel | None = None
    """Name of the headless Service of a multi-host Job. Default: the name of the Job."""
    backoff_limit: int | None = Field(default=None, ge=0, examples=[0])
    """Number of failed pods after which the Job fails. On a multi-host slice, a pod that fails or is disrupted makes
    the others fail, and these count. Default: 4 for each pod of a multi-host slice, or 0 with `fixedName`; 6 on a
    single-host slice."""
    max_run_duration_seconds: int | None = Field(default=None, ge=MIN_RUN_SECONDS, le=MAX_RUN_SECONDS)
    """Maximum duration of the run on queuedFlexStart capacity, in seconds. Default: that of the pool."""

    @property
    def has_named_service(self) -> bool:
        return self.service is not None

    @property
    def service_name(self) -> str:
        return self.service or self.name

    @property
    def max_seconds(self) -> int | None:
        return self.max_run_duration_seconds

    def allowed_failures(self, pods: int) -> int | None:
        """Number of failed pods after which the Job fails; None for the default of Kubernetes."""
        if self.backoff_limit is not None or pods == 1:
            return self.backoff_limit
        return 0 if self.fixed_name else FAILURES_PER_POD * pods

    def has_derived_service(self, nodes: Nodes) -> bool:
        return self.service is None and self.slice_on(nodes).multi_host

    def pods_at_once(self, nodes: Nodes) -> int:
        return self.slice_on(nodes).hosts


# A run of any kind.
Run = FineTune | Multislice | TrainingRun | TpuBatch
