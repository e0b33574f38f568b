"""The keys that all model servers have."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from gke_ai.catalog.engines import fuse
from gke_ai.catalog.engines.engine import ENGINES
from gke_ai.catalog.engines.model_cache import MOUNT_PATH, access_of, release_of
from gke_ai.catalog.engines.models import find_model
from gke_ai.catalog.engines.vllm import LORA_FLAGS
from gke_ai.catalog.quantities import GI, MI, format_quantity, parse_quantity
from gke_ai.settings.model.base import DnsLabel, Request, Section
from gke_ai.settings.model.buckets import BucketMount
from gke_ai.settings.model.lora import LoraAdapter
from gke_ai.settings.model.model_cache import ModelCache
from gke_ai.settings.model.model_shape import ModelShape
from gke_ai.settings.model.nodes import Nodes
from gke_ai.settings.model.workloads import Resources, TokenSecret, Workload

# What a server needs to end after its last answer, in seconds. vLLM 0.32 took less than 5 s on a CPU.
EXIT_SECONDS = 10


class ScratchVolume(Section):
    """A disk created and deleted with each pod, for example for a model too large for the boot disk."""

    noun: ClassVar[str] = "a scratch volume"

    mount_path: str = "/tmp"
    """Mount path in the container."""
    size: Request = "100Gi"
    """Size of the disk, in bytes."""
    storage_class: DnsLabel | None = Field(default=None, examples=["premium-rwo"])
    """StorageClass of the disk. Default: `premium-rwo`; for machines that attach only Hyperdisk, such as v6e, a class
    of the server's own."""


@dataclass(frozen=True)
class EngineName:
    """The name by which an engine takes a key: a flag such as `--max-num-seqs`, or an environment variable.

    It annotates a key of one engine. `ENGINES` has the names of the keys of every server.
    """

    name: str


class Server(Workload):
    """A model server of any engine: a Deployment and a Service."""

    short_noun: ClassVar[str] = "server"
    object_kind: ClassVar[str] = "Deployment"
    pod_noun: ClassVar[str] = "a replica of the server"
    ends: ClassVar[bool] = False
    # Key of the section that sets the longest sequence.
    length_key: ClassVar[str] = "maxModelLen"
    # Whether its processes share memory through /dev/shm.
    shares_memory: ClassVar[bool] = False
    # Kueue counts its pods, which have their sidecars by then.
    queue_counts_sidecar: ClassVar[bool] = True

    if TYPE_CHECKING:
        # A key of every engine, each with its own description.
        model: str

    engine: str
    """Engine that serves the model."""
    app: str | None = None
    """Value of the label `app`, by which the Service selects the pods. Default: `name`."""
    container: DnsLabel = "inference-server"
    """Name of the container."""
    image: str | None = Field(default=None, examples=["us-docker.pkg.dev/my-project/serving/server:1.0.0"])
    """Container image. Default: the pinned image of the engine."""
    replicas: int = Field(default=1, ge=0)
    """Number of pods. Cannot be set with an autoscaler."""
    port: int = Field(default=8000, ge=1, le=65535)
    """Port of the container and of the Service."""
    service: DnsLabel | None = None
    """Name of the Service. Default: `name`."""
    scratch: ScratchVolume | None = None
    """Disk for data too large for the boot disk. Default: the boot disk."""
    model_cache: ModelCache | None = Field(default=None, examples=[{"bucket": "models-{project}"}])
    """Bucket that replicas read the model from. Default: each replica downloads it from Hugging Face."""
    probes: bool = True
    """Create readiness, liveness and startup probes on the engine's health path."""
    disruption_budget: bool = True
    """Create a PodDisruptionBudget that lets one pod at a time be evicted."""
    pod_monitoring: bool = False
    """Create a PodMonitoring for Google Cloud Managed Service for Prometheus."""
    surge: bool = True
    """Create one more pod before a rollout deletes one. It needs free quota. If false, a rollout first deletes a
    pod."""
    drain_seconds: int = Field(default=15, ge=0, le=600)
    """Time for which a terminating pod still answers requests, until no more are sent to it, in seconds. 0: not at
    all."""
    termination_grace_period_seconds: int = Field(default=120, ge=1)
    """Time in which a terminating pod can finish its requests, including `drainSeconds`, in seconds. Longer answers are
    cut. vLLM gets `--shutdown-timeout` for it, less 10 seconds to end. On Spot nodes GKE allows less."""
    ready_timeout_seconds: int = Field(default=3600, ge=1)
    """Time that `up` waits for the first replica to be ready, in seconds."""
    model_shape: ModelShape | None = Field(
        default=None,
        examples=[
            {
                "parameters": 8030261248,
                "layers": 32,
                "attentionHeads": 32,
                "kvHeads": 8,
                "headSize": 128,
                "contextLength": 131072,
            }
        ],
    )
    """Dimensions of the model. Default: those in the catalog."""

    @property
    def hub_token(self) -> TokenSecret | None:
        """The Secret with the token for the download of the model, by a replica or by the Job that fills a bucket."""
        return super().token

    @property
    def token(self) -> TokenSecret | None:
        return None if self.model_cache else self.hub_token

    @property
    def model_location(self) -> str:
        """Where a replica finds the model: its id, or its folder or URI in the bucket."""
        model = self.hub_ids.get("model", "")
        return self.model_cache.location(model) if self.model_cache else model

    @property
    def checkpoint_bytes(self) -> int | None:
        """Size of the model's files, from its shape or the catalog."""
        shape = self.model_shape or find_model(self.hub_ids.get("model", ""))
        return None if shape is None else ceil(shape.parameters * shape.bytes_per_parameter)

    @property
    def file_cache_gib(self) -> int:
        """Size of the file cache of a replica, in GiB."""
        stated = self.model_cache.file_cache if self.model_cache else None
        size = parse_quantity(stated) if stated else Fraction(self.checkpoint_bytes or 0) * 11 / 10
        return ceil(size / GI)

    @property
    def cache_mount_options(self) -> str:
        """Mount options of the bucket with the model."""
        return fuse.caching_options(self.file_cache_gib * GI // MI)

    @property
    def bucket_mounts(self) -> list[BucketMount]:
        cache = self.model_cache
        return [BucketMount(cache.bucket, MOUNT_PATH, "modelCache")] if cache and cache.how.mounts else []

    @property
    def sidecar(self) -> Resources | None:
        cache = self.model_cache
        if cache is None or not cache.how.mounts:
            return None
        in_memory = cache.file_cache_medium == "memory"
        memory = parse_quantity(cache.sidecar_memory) + in_memory * self.file_cache_gib * GI
        storage = fuse.STORAGE_GIB + (not in_memory) * self.file_cache_gib
        return Resources(
            cpu=cache.sidecar_cpu, memory=format_quantity("memory", memory), ephemeral_storage=f"{storage}Gi"
        )

    @property
    def cache_variables(self) -> Mapping[str, str]:
        """Environment variables for a model in a bucket."""
        return self.model_cache.how.variables if self.model_cache else {}

    @property
    def cache_flags(self) -> list[str]:
        """Flags of the engine for a model in a bucket, which keeps its name for clients."""
        name = access_of(self.engine).served_name
        if self.model_cache is None or not name:
            return []
        return [f"{name}={self.hub_ids['model']}", *self.model_cache.how.flags]

    @property
    def streamer_processes(self) -> int:
        """Processes of a replica among which the streamer divides the reading of the model."""
        return 1

    @property
    def has_pinned_release(self) -> bool:
        """Whether its image is of the pinned release, as the engine's project publishes it."""
        engine, (name, _, _) = ENGINES[self.engine], self.images[0].partition(":")
        return self.image is None or (
            name.endswith(engine.image_name) and release_of(self.images[0]) == release_of(engine.image)
        )

    @property
    def images(self) -> list[str]:
        return [self.image or ENGINES[self.engine].image]

    @property
    def engine_names(self) -> dict[str, str]:
        """Names by which the engine takes the keys of the section, by key."""
        own = {
            key: mark.name
            for key, field in type(self).model_fields.items()
            for mark in field.metadata
            if isinstance(mark, EngineName)
        }
        return {**ENGINES[self.engine].names, **own}

    @property
    def flags(self) -> list[str]:
        """Flags of the engine's command line that the keys of the section set."""
        own = [name if value is True else f"{name}={value}" for name, value in self._settings() if is_flag(name)]
        return [*own, *self.cache_flags, *self.adapter_flags, *self.shutdown_flags]

    @property
    def adapter_flags(self) -> list[str]:
        """Flags of the engine for `adapters`."""
        return []

    @property
    def shutdown_flags(self) -> list[str]:
        """The flag with the time in which open answers may finish, if the image is known to have it.

        The engine needs some of the grace period to end.
        """
        engine = ENGINES[self.engine]
        release = release_of(self.images[0])
        seconds = self.termination_grace_period_seconds - self.drain_seconds - EXIT_SECONDS
        if not engine.shutdown_flag or engine.shutdown_flag in self.further_arguments or seconds < 1:
            return []
        if release is None or release < engine.shutdown_since:
            return []
        return [f"--{engine.shutdown_flag}={seconds}"]

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables of the engine that the keys of the section set."""
        texts = ((name, "true" if value is True else str(value)) for name, value in self._settings())
        return {name: text for name, text in texts if not is_flag(name)}

    def _settings(self) -> Iterator[tuple[str, object]]:
        for key, name in self.engine_names.items():
            if (value := self._value(key)) is not None and value is not False and value != "":
                yield name, value

    def _value(self, key: str) -> object:
        return self.model_location if key == "model" and self.model_cache else getattr(self, key)

    @property
    def set_variables(self) -> Mapping[str, str]:
        # A variable that only changes the memory is free while its key is not set.
        memory = ENGINES[self.engine].memory
        free = memory.changed_by if memory else ()
        return dict.fromkeys(self.cache_variables, "modelCache") | {
            name: yaml_key(type(self), key)
            for key, name in self.engine_names.items()
            if not is_flag(name) and (name not in free or getattr(self, key))
        }

    @property
    def set_arguments(self) -> Mapping[str, str]:
        """Names of the engine's arguments that the program sets, without dashes, with the key that each comes from."""
        flags = {name.lstrip("-"): key for key, name in self.engine_names.items() if is_flag(name)}
        cached = dict.fromkeys((flag.partition("=")[0].lstrip("-") for flag in self.cache_flags), "model_cache")
        adapters = dict.fromkeys(LORA_FLAGS if self.adapters else (), "lora_adapters")
        keys = {**flags, **ENGINES[self.engine].aliases, **cached, **adapters}
        return {name: yaml_key(type(self), key) for name, key in keys.items()}

    @property
    def further_arguments(self) -> dict[str, str]:
        """The values of further arguments of the engine, by name without dashes."""
        return {}

    @property
    def argument_texts(self) -> list[tuple[str, str]]:
        """Names of further arguments without dashes, each with its text."""
        return list(self.further_arguments.items())

    def argument_name(self, name: str) -> str:
        """A further argument in messages."""
        return name

    @property
    def set_labels(self) -> Mapping[str, str]:
        return {**super().set_labels, "app": "app"}

    @property
    def service_name(self) -> str:
        return self.service or self.name

    @property
    def served_model(self) -> str:
        """The model as clients name it in requests."""
        return self.model

    @property
    def adapters(self) -> Sequence[LoraAdapter]:
        """The LoRA adapters that it serves."""
        return ()

    @property
    def adapter_slots(self) -> int:
        """Number of adapters for which each accelerator reserves memory."""
        return 0

    @property
    def adapter_rank(self) -> int:
        """The rank for which it reserves memory."""
        return 0

    @property
    def data_ranks(self) -> int:
        """Copies of the attention in a replica, which share the experts (data parallelism)."""
        return 1

    @property
    def served_names(self) -> list[str]:
        """The model and the adapters as clients name them in requests."""
        return [self.served_model, *(adapter.name for adapter in self.adapters)]

    @property
    def quantization(self) -> str | None:
        """The quantization method, if any."""
        return None

    @property
    @abstractmethod
    def max_length(self) -> int | None:
        """The longest sequence that the section states, in tokens."""

    @property
    def sequences(self) -> int:
        """Number of sequences for which each accelerator reserves memory."""
        return 1

    def running_limit(self, nodes: Nodes) -> int | None:
        """Maximum number of requests that a replica runs at once; None if unknown. May raise LookupError."""
        limits = ENGINES[self.engine].limits
        names = {accelerator for accelerator, _, _ in self.accelerator_places(nodes)}
        defaults = [limits.running_on.get(name, limits.running) for name in names]
        default = max((limit for limit in defaults if limit is not None), default=limits.running)
        known = [self._limit(limits.running_setting, default), self.accepted_limit]
        return min((limit for limit in known if limit is not None), default=None)

    @property
    def accepted_limit(self) -> int | None:
        """Maximum number of requests that run or wait in a replica; None if unknown or not limited."""
        limits = ENGINES[self.engine].limits
        return self._limit(limits.accepted_setting, limits.accepted)

    def _limit(self, setting: str, default: int | None) -> int | None:
        keys = {name.lstrip("-"): str(value) for name, value in self._settings()}
        stated = {**self.env, **self.further_arguments, **keys}
        if setting in stated:
            return int(stated[setting]) if stated[setting].isdigit() else None
        # Another image may have another default.
        return default if self.image in (None, ENGINES[self.engine].image) else None

    @property
    @abstractmethod
    def size_key(self) -> str:
        """Key of the section that sets the accelerators of a replica."""

    @abstractmethod
    def shards(self, nodes: Nodes) -> int:
        """Number of accelerators that share the model."""

    def pods_at_once(self, nodes: Nodes) -> int:
        return min(self.replicas, 1)

    def max_pods(self, nodes: Nodes, max_replicas: int | None) -> int:
        return self.replicas if max_replicas is None else max_replicas


def is_flag(name: str) -> bool:
    """Whether a name of a setting is a command-line flag, not an environment variable."""
    return name.startswith("-")


def yaml_key(section: type[Section], key: str) -> str:
    """Returns a key as written in YAML."""
    return section.model_fields[key].alias or key
