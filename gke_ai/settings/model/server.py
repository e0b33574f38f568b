"""The keys that all model servers have."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from gke_ai.catalog.engines.engine import ENGINES
from gke_ai.catalog.engines.models import find_model
from gke_ai.settings.engine.arguments import Reading
from gke_ai.settings.engine.command_line import CommandLine, EngineName, EngineSetting
from gke_ai.settings.model.base import DnsLabel, Request, Section
from gke_ai.settings.model.buckets import BucketMount
from gke_ai.settings.model.lora import LoraAdapter, adapter_flags
from gke_ai.settings.model.model_cache import CachedModel, ModelCache
from gke_ai.settings.model.model_shape import ModelShape
from gke_ai.settings.model.nodes import Nodes
from gke_ai.settings.model.workloads import Resources, TokenSecret, Workload


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


# Envoy ends a stream without bytes after 300 s: the default of `stream_idle_timeout`,
# https://www.envoyproxy.io/docs/envoy/latest/faq/configuration/timeouts
MAX_HELD_SECONDS = 290


class HeldRequests(Section):
    """Requests that the gateway holds while no replica of the server has room for them."""

    noun: ClassVar[str] = "the held requests of a server"

    requests: int = Field(default=100, ge=1, le=10_000)
    """Maximum number of requests that wait. The gateway answers 429 to more."""
    seconds: int = Field(default=240, ge=1, le=MAX_HELD_SECONDS)
    """Maximum time that a request waits, in seconds. Then the gateway answers 503."""


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
    command_line_class: ClassVar[type[CommandLine]] = CommandLine

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
    held: HeldRequests | None = Field(default=None, examples=[{"requests": 200}])
    """Hold requests in the gateway while all replicas are busy, or none is ready. An autoscaler with minReplicas: 0
    needs it. Default: the gateway sends replicas all requests, and answers 503 without one."""
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
    def checkpoint_bytes(self) -> int | None:
        """Size of the model's files, from its shape or the catalog."""
        shape = self.model_shape or find_model(self.hub_ids.get("model", ""))
        return None if shape is None else ceil(shape.parameters * shape.bytes_per_parameter)

    @property
    def streamer_processes(self) -> int:
        """Processes of a replica among which the streamer divides the reading of the model."""
        return 1

    @property
    def cached_model(self) -> CachedModel | None:
        """The model in a bucket, if replicas read it there."""
        if self.model_cache is None:
            return None
        model = self.hub_ids.get("model", "")
        return CachedModel(self.model_cache, self.engine, model, self.checkpoint_bytes, self.streamer_processes)

    @property
    def model_location(self) -> str:
        """Where a replica finds the model: its id, or its folder or URI in the bucket."""
        return self.cached_model.location if self.cached_model else self.hub_ids.get("model", "")

    @property
    def bucket_mounts(self) -> list[BucketMount]:
        mount = self.cached_model.mount if self.cached_model else None
        return [mount] if mount else []

    @property
    def sidecar(self) -> Resources | None:
        return self.cached_model.sidecar if self.cached_model else None

    @property
    def images(self) -> list[str]:
        return [self.image or ENGINES[self.engine].image]

    @property
    def reading(self) -> Reading:
        """Its further arguments as the engine reads them."""
        return Reading()

    @property
    def compiles(self) -> bool:
        """Whether vLLM compiles the model when it starts."""
        stated = self.reading.values
        return "enforce-eager" not in stated and stated.get("optimization-level") != "0"

    @property
    def keeps_compiled(self) -> bool:
        """Whether what vLLM compiles is kept in the bucket of the model."""
        return self.model_cache is not None and self.model_cache.compile_cache

    @property
    def engine_settings(self) -> list[EngineSetting]:
        """The keys that the engine takes, whether set or not."""
        fields = type(self).model_fields.items()
        marks = {key: mark.name for key, field in fields for mark in field.metadata if isinstance(mark, EngineName)}
        values = {"model": self.model_location} if self.model_cache else {}
        names = {**ENGINES[self.engine].names, **marks}
        return [EngineSetting(name, key, values.get(key, getattr(self, key))) for key, name in names.items()]

    @property
    def command_line(self) -> CommandLine:
        """What its keys become for the engine."""
        cached = self.cached_model
        return self.command_line_class(
            engine=ENGINES[self.engine],
            image=self.images[0],
            settings=self.engine_settings,
            stated={**self.env, **self.reading.values},
            cache_flags=cached.flags if cached else (),
            cache_variables=cached.variables if cached else {},
            adapter_flags=adapter_flags(self.adapters, self.adapter_slots, self.model_cache),
            open_seconds=self.termination_grace_period_seconds - self.drain_seconds,
        )

    @property
    def set_variables(self) -> Mapping[str, str]:
        return self.command_line.set_variables

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
        return self.command_line.running_limit({name for name, _, _ in self.accelerator_places(nodes)})

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
