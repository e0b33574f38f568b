"""Model servers: one class per engine."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from catalog.engines import ENGINES, JETSTREAM_HTTP_REQUEST, JETSTREAM_METRICS_PORT
from catalog.versions import JETSTREAM_HTTP_IMAGE
from settings.model.base import DnsLabel, Request, Section
from settings.model.pools import Pool
from settings.model.workloads import GpuWorkload, SingleSliceWorkload, Workload


class ScratchVolume(Section):
    """A disk created and deleted with each pod, for example for a model too large for the boot disk."""

    noun: ClassVar[str] = "a scratch volume"

    mount_path: str = Field(default="/tmp", description="Mount path in the container.")
    size: Request = Field(default="100Gi", description="Size of the disk, in bytes.")
    storage_class: DnsLabel = Field(default="premium-rwo", description="StorageClass of the disk.")


class ModelShape(Section):
    """Dimensions of a model outside the catalog, from its `config.json`."""

    noun: ClassVar[str] = "the shape of a model"

    parameters: int = Field(
        ge=1, description="Total number of parameters, including every expert of an MoE model.", examples=[8030261248]
    )
    layers: int = Field(ge=1, description="Number of hidden layers.", examples=[32])
    attention_heads: int = Field(ge=1, description="Attention heads per layer.", examples=[32])
    kv_heads: int = Field(ge=1, description="Key-value heads per layer.", examples=[8])
    head_size: int = Field(ge=1, description="Values per head.", examples=[128])
    context_length: int = Field(
        ge=1, description="Longest sequence that the model supports, in tokens.", examples=[131072]
    )
    sliding_window: int | None = Field(
        default=None,
        ge=1,
        description="Length of the sliding window, in tokens. Default: no layer has one.",
        examples=[4096],
    )
    sliding_layers: int = Field(default=0, ge=0, description="Number of layers with a sliding window.", examples=[21])
    latent_size: int | None = Field(
        default=None,
        ge=1,
        description="Values that a layer with multi-head latent attention caches per token: `kv_lora_rank` plus "
        "`qk_rope_head_dim`.",
        examples=[576],
    )
    bytes_per_parameter: float = Field(
        default=2, ge=0.25, le=4, description="Average size of a parameter, in bytes.", examples=[1]
    )
    kv_bytes: float = Field(default=2, ge=0.25, le=4, description="Size of a cached value, in bytes.", examples=[1])


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
    # Whether an autoscaler of this program can scale it by its own metrics.
    has_scaling_metrics: ClassVar[bool] = False

    engine: str = Field(description="Engine that serves the model.")
    app: str | None = Field(
        default=None, description="Value of the label `app`, by which the Service selects the pods. Default: `name`."
    )
    container: DnsLabel = Field(default="inference-server", description="Name of the container.")
    image: str | None = Field(default=None, description="Container image. Default: the pinned image of the engine.")
    replicas: int = Field(default=1, ge=0, description="Number of pods. Cannot be set with an autoscaler.")
    port: int = Field(default=8000, ge=1, le=65535, description="Port of the container and of the Service.")
    service: DnsLabel | None = Field(default=None, description="Name of the Service. Default: `name`.")
    scratch: ScratchVolume | None = Field(
        default=None, description="Disk for data too large for the boot disk. Default: the boot disk."
    )
    probes: bool = Field(
        default=True, description="Create readiness, liveness and startup probes on the engine's health path."
    )
    disruption_budget: bool = Field(
        default=True, description="Create a PodDisruptionBudget that lets one pod at a time be evicted."
    )
    pod_monitoring: bool = Field(
        default=False, description="Create a PodMonitoring for Google Cloud Managed Service for Prometheus."
    )
    surge: bool = Field(
        default=True,
        description="How a rollout replaces pods. true: it first creates one more pod, which needs free quota; false: "
        "it first deletes a pod.",
    )
    drain_seconds: int = Field(
        default=15,
        ge=0,
        le=600,
        description="Time for which a terminating pod still answers requests, until no more are sent to it, in "
        "seconds. 0: not at all. Default: 15.",
    )
    termination_grace_period_seconds: int = Field(
        default=120,
        ge=1,
        description="Time in which a terminating pod can finish its requests, including `drainSeconds`, in seconds. "
        "On Spot nodes GKE allows less. Default: 120.",
    )
    ready_timeout_seconds: int = Field(
        default=3600, ge=1, description="Time that `up` waits for the first replica to be ready, in seconds."
    )
    model_shape: ModelShape | None = Field(
        default=None,
        description="Dimensions of the model. Default: those in the catalog.",
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
        return [name if value is True else f"{name}={value}" for name, value in self._settings() if _is_flag(name)]

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables of the engine that the keys of the section set."""
        texts = ((name, "true" if value is True else str(value)) for name, value in self._settings())
        return {name: text for name, text in texts if not _is_flag(name)}

    def _settings(self) -> Iterator[tuple[str, object]]:
        for key, name in self.engine_names.items():
            value = getattr(self, key)
            if value is not None and value is not False and value != "":
                yield name, value

    @property
    def set_variables(self) -> Mapping[str, str]:
        # A variable that only changes the memory is free while its key is not set.
        memory = ENGINES[self.engine].memory
        free = memory.changed_by if memory else ()
        return {
            name: _alias(type(self), key)
            for key, name in self.engine_names.items()
            if not _is_flag(name) and (name not in free or getattr(self, key))
        }

    @property
    def set_arguments(self) -> Mapping[str, str]:
        """Names of the engine's arguments that the program sets, without dashes, with the key that each comes from."""
        flags = {name.lstrip("-"): key for key, name in self.engine_names.items() if _is_flag(name)}
        return {name: _alias(type(self), key) for name, key in {**flags, **ENGINES[self.engine].aliases}.items()}

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

    @property
    @abstractmethod
    def size_key(self) -> str:
        """Key of the section that sets the accelerators of a replica."""

    @abstractmethod
    def shards(self, pools: Sequence[Pool]) -> int:
        """Number of accelerators that share the model."""

    def pods_at_once(self, pools: Sequence[Pool]) -> int:
        return min(self.replicas, 1)

    def max_pods(self, pools: Sequence[Pool], max_replicas: int | None) -> int:
        return self.replicas if max_replicas is None else max_replicas


def _is_flag(name: str) -> bool:
    return name.startswith("-")


def _alias(section: type[Section], key: str) -> str:
    return section.model_fields[key].alias or key


class GpuServer(Server, GpuWorkload):
    """A server on GPUs for a model from Hugging Face."""

    accelerators_key: ClassVar[str] = "gpus"
    shares_memory: ClassVar[bool] = True

    model: str = Field(description="Model id on Hugging Face.")
    gpus: int = Field(default=1, ge=1, description="GPUs per replica. The engine shards the model over them.")
    quantize: str | None = Field(
        default=None, description="Quantization method, as the engine names it. Default: none."
    )
    max_model_len: int | None = Field(
        default=None,
        ge=1,
        description="Longest sequence, prompt and answer together, in tokens. Default: with vLLM the model's context "
        "length, with TGI what the GPU memory allows.",
        examples=[16384],
    )

    @property
    def hub_ids(self) -> Mapping[str, str]:
        return {"model": self.model}

    @property
    def quantization(self) -> str | None:
        return self.quantize

    @property
    def max_length(self) -> int | None:
        return self.max_model_len

    @property
    def size_key(self) -> str:
        return "gpus"

    def shards(self, pools: Sequence[Pool]) -> int:
        return self.gpus

    def accelerators_per_pod(self, pools: Sequence[Pool]) -> int:
        return self.gpus


class FlagServer(GpuServer):
    """A server on GPUs whose engine is configured by flags."""

    arguments: list[str] = Field(
        default=[], description="Additional arguments of the engine.", examples=[["--max-num-seqs=64"]]
    )

    @property
    def further_arguments(self) -> dict[str, str]:
        values: dict[str, str] = {}
        for index, text in enumerate(self.arguments):
            if _is_flag(text):
                name, equals, value = text.lstrip("-").partition("=")
                following = self.arguments[index + 1] if index + 1 < len(self.arguments) else ""
                values[name.replace("_", "-")] = value if equals or _is_flag(following) else following
        return values

    @property
    def argument_texts(self) -> list[tuple[str, str]]:
        return [(text.partition("=")[0].lstrip("-").replace("_", "-"), text) for text in self.arguments]

    def argument_name(self, name: str) -> str:
        return f"--{name}"


class Tgi(GpuServer):
    """Text Generation Inference."""

    noun: ClassVar[str] = "a TGI server"

    engine: Literal["tgi"] = Field(default="tgi", description="Text Generation Inference.")
    port_variable: str = Field(
        default="PORT", description="Environment variable with the port that the image listens on."
    )

    @property
    def engine_names(self) -> dict[str, str]:
        return {"port": self.port_variable, **super().engine_names}


class Vllm(FlagServer):
    """vLLM."""

    noun: ClassVar[str] = "a vLLM server"

    engine: Literal["vllm"] = Field(description="vLLM.")


class JetStream(Server, SingleSliceWorkload):
    """JetStream with MaxText on a single-host TPU slice: the model server and its HTTP front end."""

    noun: ClassVar[str] = "a JetStream server"
    has_scaling_metrics: ClassVar[bool] = True
    length_key: ClassVar[str] = "maxTargetLength"

    engine: Literal["jetstream"] = Field(description="JetStream with MaxText.")
    container: DnsLabel = Field(default="maxengine-server", description="Name of the container with the TPU.")
    model: Annotated[str, EngineName("model_name")] = Field(description="Model name in MaxText, for example gemma-7b.")
    tokenizer: Annotated[str, EngineName("tokenizer_path")] = Field(
        default="assets/tokenizer.gemma", description="Path of the tokenizer in the image."
    )
    checkpoint: Annotated[str, EngineName("load_parameters_path")] = Field(
        description="gs:// URI of the converted checkpoint."
    )
    batch_size: Annotated[int, EngineName("per_device_batch_size")] = Field(
        default=4, ge=1, description="Decoding slots per chip."
    )
    max_prefill_length: Annotated[int, EngineName("max_prefill_predict_length")] = Field(
        default=1024, ge=1, description="Maximum length of a prompt, in tokens."
    )
    max_target_length: Annotated[int, EngineName("max_target_length")] = Field(
        default=2048, ge=1, description="Maximum length of prompt and answer together, in tokens."
    )
    http_image: str | None = Field(
        default=None,
        description="Image of the HTTP front end. Default: the pinned image.",
        examples=["us-docker.pkg.dev/cloud-tpu-images/inference/jetstream-http:v0.2.2"],
    )
    metrics_port: Annotated[int, EngineName("prometheus_port")] = Field(
        default=JETSTREAM_METRICS_PORT, ge=1, le=65535, description="Port of the server's metrics."
    )
    arguments: dict[str, str] = Field(
        default={},
        description="Additional MaxText settings by name, for example `ici_tensor_parallelism`.",
        examples=[{"ici_tensor_parallelism": "1"}],
    )

    @property
    def images(self) -> list[str]:
        return [*super().images, self.http_image or JETSTREAM_HTTP_IMAGE]

    @property
    def further_request(self) -> Mapping[str, str]:
        return JETSTREAM_HTTP_REQUEST

    @property
    def set_variables(self) -> Mapping[str, str]:
        return {}  # MaxText takes all settings as arguments

    @property
    def set_arguments(self) -> Mapping[str, str]:
        return {name: _alias(JetStream, key) for key, name in self.engine_names.items()}

    @property
    def further_arguments(self) -> dict[str, str]:
        return self.arguments

    @property
    def max_length(self) -> int | None:
        return self.max_target_length

    @property
    def sequences(self) -> int:
        return self.batch_size

    @property
    def size_key(self) -> str:
        return "pool" if self.pool else "tpu"

    def shards(self, pools: Sequence[Pool]) -> int:
        return self.slice_among(pools).chips


# A server of any engine.
AnyServer = Tgi | Vllm | JetStream
