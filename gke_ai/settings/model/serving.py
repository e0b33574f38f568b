"""Model servers: one class per engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from gke_ai.catalog.engines.engine import CURRENT, ENGINES, JETSTREAM_HTTP_REQUEST, JETSTREAM_METRICS_PORT
from gke_ai.catalog.engines.model_cache import SHARED_READING, SHARED_READING_SINCE, release_of
from gke_ai.catalog.versions import JETSTREAM_HTTP_IMAGE
from gke_ai.settings.engine.arguments import Reading, read
from gke_ai.settings.engine.command_line import CommandLine, EngineName, EngineSetting, MaxTextCommandLine
from gke_ai.settings.model.base import DnsLabel
from gke_ai.settings.model.lora import LoraAdapter
from gke_ai.settings.model.nodes import Nodes
from gke_ai.settings.model.server import Server
from gke_ai.settings.model.workloads import GpuWorkload, SingleSliceWorkload, TokenSecret


def legacy(engine: str) -> str:
    """The description of a legacy engine, with what to use instead."""
    row = ENGINES[engine]
    return f"{row.title}. Legacy: {row.legacy}. Use `{CURRENT[row.accelerator]}` instead."


class GpuServer(Server, GpuWorkload):
    """A server on GPUs for a model from Hugging Face."""

    accelerators_key: ClassVar[str] = "gpus"
    shares_memory: ClassVar[bool] = True

    model: str
    """Model id on Hugging Face."""
    gpus: int = Field(default=1, ge=1)
    """GPUs per replica. The engine shards the model over them."""
    quantize: str | None = None
    """Quantization method, as the engine names it."""
    max_model_len: int | None = Field(default=None, ge=1, examples=[16384])
    """Longest sequence, prompt and answer together, in tokens. Default: with vLLM the model's context length, with TGI
    what the GPU memory allows."""

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

    def shards(self, nodes: Nodes) -> int:
        return self.gpus

    def accelerators_per_pod(self, nodes: Nodes) -> int:
        return self.gpus


class FlagArguments(Server):
    """A server whose engine is configured by flags."""

    arguments: list[str] = Field(default=[], examples=[["--max-num-seqs=64"]])
    """Additional arguments of the engine."""

    @property
    def reading(self) -> Reading:
        return read(tuple(self.arguments), ENGINES[self.engine].flags)

    @property
    def served_model(self) -> str:
        return self.reading.values.get("served-model-name", "").partition(" ")[0] or super().served_model


class FlagServer(FlagArguments, GpuServer):
    """A server on GPUs whose engine is configured by flags."""


class Vllm(FlagServer):
    """vLLM on GPUs. The default engine."""

    noun: ClassVar[str] = "a vLLM server"

    engine: Literal["vllm"] = "vllm"
    """vLLM."""
    lora_adapters: list[LoraAdapter] = Field(default=[])
    """LoRA adapters that the server answers for, besides its model."""
    max_loras: int | None = Field(default=None, ge=1, examples=[4])
    """Adapters whose requests run at once. Each GPU reserves memory for them. Default: all of `loraAdapters`."""
    data_parallel: Annotated[int | None, EngineName("--data-parallel-size")] = Field(default=None, ge=1, examples=[8])
    """Copies of the attention among which `gpus` are divided. They share the experts of a model. Default: 1."""

    @property
    def data_ranks(self) -> int:
        return self.data_parallel or 1

    def shards(self, nodes: Nodes) -> int:
        return self.tensor_parallel

    @property
    def tensor_parallel(self) -> int:
        """GPUs that share each layer."""
        return max(self.gpus // self.data_ranks, 1)

    @property
    def engine_settings(self) -> list[EngineSetting]:
        settings = super().engine_settings
        return [replace(item, value=self.tensor_parallel) if item.key == "gpus" else item for item in settings]

    @property
    def hub_ids(self) -> Mapping[str, str]:
        sources = ((index, adapter) for index, adapter in enumerate(self.lora_adapters) if not adapter.of_bucket)
        return {**super().hub_ids, **{f"loraAdapters[{index}].source": adapter.source for index, adapter in sources}}

    @property
    def streamer_processes(self) -> int:
        shares = (release_of(self.images[0]) or (0,)) >= SHARED_READING_SINCE
        stated = SHARED_READING.lstrip("-").partition("=")[0] in self.reading.values
        return self.tensor_parallel if shares and not stated else 1

    @property
    def adapters(self) -> Sequence[LoraAdapter]:
        return self.lora_adapters

    @property
    def adapter_slots(self) -> int:
        return len(self.adapters) if self.max_loras is None else self.max_loras


class TpuServer(Server, SingleSliceWorkload):
    """A server on a single-host TPU slice, whose devices share the model."""

    @property
    def size_key(self) -> str:
        return "pool" if self.pool else "tpu"

    def shards(self, nodes: Nodes) -> int:
        return self.slice_on(nodes).devices


class VllmTpu(FlagArguments, TpuServer):
    """vLLM on a single-host TPU slice. The devices of the slice share the model (tensor parallelism)."""

    noun: ClassVar[str] = "a vLLM server on TPUs"
    shares_memory: ClassVar[bool] = True

    engine: Literal["vllm-tpu"]
    """vLLM on TPUs."""
    model: str = Field(examples=["meta-llama/Llama-3.1-8B-Instruct"])
    """Model id on Hugging Face."""
    max_model_len: int | None = Field(default=None, ge=1, examples=[4096])
    """Longest sequence, prompt and answer together, in tokens. Default: the model's context length."""
    xla_cache: Annotated[str | None, EngineName("VLLM_XLA_CACHE_PATH")] = Field(
        default=None, examples=["/tmp/xla-cache"]
    )
    """Folder for compiled programs. On the scratch volume, they survive a restart of the container. Default: a folder
    of the container."""
    token_secret: TokenSecret | None = TokenSecret()
    """Secret with the Hugging Face token."""

    @property
    def hub_token(self) -> TokenSecret | None:
        return self.token_secret

    @property
    def hub_ids(self) -> Mapping[str, str]:
        return {"model": self.model}

    @property
    def max_length(self) -> int | None:
        return self.max_model_len


class Tgi(GpuServer):
    """Text Generation Inference. Legacy: use vLLM instead."""

    noun: ClassVar[str] = "a TGI server"

    engine: Literal["tgi"] = Field(description=legacy("tgi"), json_schema_extra={"deprecated": True})
    port_variable: str = "PORT"
    """Environment variable with the port that the image listens on."""

    @property
    def engine_settings(self) -> list[EngineSetting]:
        return [EngineSetting(self.port_variable, "port", self.port), *super().engine_settings]


class JetStream(TpuServer):
    """JetStream with MaxText on a single-host TPU slice: the model server and its HTTP front end. Legacy: use vLLM on
    TPUs instead."""

    noun: ClassVar[str] = "a JetStream server"
    length_key: ClassVar[str] = "maxTargetLength"
    command_line_class: ClassVar[type[CommandLine]] = MaxTextCommandLine

    engine: Literal["jetstream"] = Field(description=legacy("jetstream"), json_schema_extra={"deprecated": True})
    container: DnsLabel = "maxengine-server"
    """Name of the container with the TPU."""
    model: Annotated[str, EngineName("model_name")]
    """Model name in MaxText, for example gemma-7b."""
    tokenizer: Annotated[str, EngineName("tokenizer_path")] = "assets/tokenizer.gemma"
    """Path of the tokenizer in the image."""
    checkpoint: Annotated[str, EngineName("load_parameters_path")]
    """gs:// URI of the converted checkpoint."""
    batch_size: Annotated[int, EngineName("per_device_batch_size")] = Field(default=4, ge=1)
    """Decoding slots per chip."""
    max_prefill_length: Annotated[int, EngineName("max_prefill_predict_length")] = Field(default=1024, ge=1)
    """Maximum length of a prompt, in tokens."""
    max_target_length: Annotated[int, EngineName("max_target_length")] = Field(default=2048, ge=1)
    """Maximum length of prompt and answer together, in tokens."""
    http_image: str | None = Field(
        default=None, examples=["us-docker.pkg.dev/cloud-tpu-images/inference/jetstream-http:v0.2.2"]
    )
    """Image of the HTTP front end. Default: the pinned image."""
    metrics_port: Annotated[int, EngineName("prometheus_port")] = Field(default=JETSTREAM_METRICS_PORT, ge=1, le=65535)
    """Port of the server's metrics."""
    arguments: dict[str, str] = Field(default={}, examples=[{"ici_tensor_parallelism": "1"}])
    """Additional MaxText settings by name, for example `ici_tensor_parallelism`."""

    @property
    def images(self) -> list[str]:
        return [*super().images, self.http_image or JETSTREAM_HTTP_IMAGE]

    @property
    def further_request(self) -> Mapping[str, str]:
        return JETSTREAM_HTTP_REQUEST

    @property
    def reading(self) -> Reading:
        return Reading(list(self.arguments.values()), "", self.arguments, list(self.arguments))

    @property
    def max_length(self) -> int | None:
        return self.max_target_length

    @property
    def sequences(self) -> int:
        return self.batch_size

    def running_limit(self, nodes: Nodes) -> int | None:
        return self.batch_size * self.slice_on(nodes).devices


# A server of any engine. The first is the default.
AnyServer = Vllm | VllmTpu | Tgi | JetStream
