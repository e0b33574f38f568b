"""The engines that serve models: their images, ports, paths and request formats.

Sources:
- tgi: https://huggingface.co/docs/text-generation-inference/reference/api_reference (health, metrics, completions)
- vllm, vllm-tpu: https://docs.vllm.ai/en/stable/serving/openai_compatible_server.html
- jetstream: https://cloud.google.com/kubernetes-engine/docs/tutorials/serve-gemma-tpu-jetstream, and for its HTTP front
  https://github.com/GoogleCloudPlatform/ai-on-gke, tutorials-and-examples/inference-servers/jetstream/http-server
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from gke_ai.catalog.engines import vllm
from gke_ai.catalog.engines.vllm import ARCHITECTURES, WITHOUT_LORA
from gke_ai.catalog.machines.tpus import GOOGLE_TPU
from gke_ai.catalog.nodes.shape import NVIDIA_GPU
from gke_ai.catalog.quantities import GI

# Peak activations of TGI. No page states them: these are those of Llama 3 8B that a vLLM of 2024 measured.
# https://github.com/vllm-project/vllm/pull/10511
MARGIN = round(1.26 * GI)


@dataclass(frozen=True)
class MemoryUse:
    """How an engine uses the memory of its accelerators.

    Attributes:
        utilization: Share of the memory that weights, activations and KV cache may take.
        margin: Memory for activations on each accelerator, in bytes, unless it `profiles`.
        profiles: Whether it measures what it takes, as gke_ai.catalog.engines.vllm_memory computes.
        without_length: What the engine reserves without a stated length: a sequence of the model's context length
            (`context`), or the free memory (`free`).
        sliding_windows: Whether layers with a sliding window cache no more than their window.
        chunked_windows: Whether layers with chunked attention do.
        in_flight_tokens: Tokens of running batches, which layers with a window cache on top.
        in_flight_tokens_on: The same on GPU types that differ.
        batch_flag: Flag that sets the tokens of a batch, without dashes.
        concurrent_batches: Number of batches that run at once.
        no_float16: Architectures that it loads as FP32 on GPUs without BF16.
        latent_attention: Whether it runs multi-head latent attention with the arguments that the program sets.
        expert_parallel_flag: Flag that gives each accelerator whole experts, without dashes.
        splits_heads: Whether accelerators share the heads of each sequence. Otherwise each has whole sequences.
        copies_kv_heads: Whether accelerators beyond the number of KV heads get copies of them.
        changed_by: Flags (without dashes), variables and settings that change the memory without a key of the server.
        utilization_flag: Flag that sets the utilization, without dashes.
        kv_cache_flag: Flag that sets the type of cached values, without dashes. Types that begin with fp8 have a byte.
        bytes_per_parameter: Bytes per parameter by quantization method, if they differ from those of other engines.
    """

    utilization: float
    margin: int = MARGIN
    profiles: bool = False
    without_length: Literal["context", "free"] = "context"
    sliding_windows: bool = True
    chunked_windows: bool = True
    in_flight_tokens: int = 0
    in_flight_tokens_on: Mapping[str, int] = field(default_factory=dict)
    batch_flag: str = ""
    concurrent_batches: int = 1
    no_float16: frozenset[str] = frozenset()
    latent_attention: bool = True
    expert_parallel_flag: str = ""
    splits_heads: bool = True
    copies_kv_heads: bool = True
    changed_by: tuple[str, ...] = ()
    utilization_flag: str = ""
    kv_cache_flag: str = ""
    bytes_per_parameter: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class RequestLimits:
    """How many requests a replica of the pinned image takes, and what sets that.

    Attributes:
        running: Maximum number of requests that run at once. Default: no limit but the memory.
        running_on: The same on GPU types that differ.
        running_setting: Flag (without dashes) or environment variable that sets it.
        accepted: Maximum number of requests that run or wait; the server refuses others. Default: no limit.
        accepted_setting: Flag (without dashes) or environment variable that sets it.
    """

    running: int | None = None
    running_on: Mapping[str, int] = field(default_factory=dict)
    running_setting: str = ""
    accepted: int | None = None
    accepted_setting: str = ""


NO_LIMITS = RequestLimits()
# https://github.com/huggingface/text-generation-inference/blob/v3.3.7/launcher/src/main.rs#L645
TGI_LIMITS = RequestLimits(running_setting="MAX_BATCH_SIZE", accepted=128, accepted_setting="MAX_CONCURRENT_REQUESTS")
VLLM_LIMITS = RequestLimits(running=vllm.REQUESTS, running_on=vllm.REQUESTS_ON, running_setting="max-num-seqs")
# No page states the default on TPUs.
VLLM_TPU_LIMITS = RequestLimits(running_setting="max-num-seqs")


# Ports of JetStream's images; only the last can be configured.
JETSTREAM_HTTP_PORT, JETSTREAM_GRPC_PORT, JETSTREAM_METRICS_PORT = 8000, 9000, 9100
# Named ports: a PodMonitoring that uses a port name also adds the container's name to the metrics.
HTTP_PORT, METRICS_PORT = "http", "metrics"
# Request of the sidecar that translates HTTP to gRPC: our choice, because the image documents none.
JETSTREAM_HTTP_REQUEST: Mapping[str, str] = {"cpu": "1", "memory": "2Gi"}

# Arguments of JetStream's model server, in order. A key of the server sets those without a value.
# https://github.com/AI-Hypercomputer/maxtext, configs/base.yml
MAXTEXT_SETTINGS: Mapping[str, str | None] = {
    "model_name": None,
    "tokenizer_path": None,
    "per_device_batch_size": None,
    "max_prefill_predict_length": None,
    "max_target_length": None,
    "async_checkpointing": "false",
    "ici_fsdp_parallelism": "1",
    "ici_autoregressive_parallelism": "-1",
    "ici_tensor_parallelism": "1",
    "scan_layers": "false",
    "weight_dtype": "bfloat16",
    "load_parameters_path": None,
    "prometheus_port": None,
}


@dataclass(frozen=True)
class Engine:
    """An engine that serves models: everything about it that is data.

    Attributes:
        name: Value of the key `engine`.
        title: Name in messages.
        component: Class of `gke_ai.components` that deploys it.
        image: The pinned image, with its source.
        health_path: Path that answers 200 on the serving port once the engine answers requests.
        metrics_port: Port of its metrics. Default: the serving port.
        metrics_path: Path of its metrics.
        request_path: Path of a request.
        form: Form of a request: `completions` is OpenAI's, `generate` is that of JetStream.
        burst: Number of concurrent requests that the smoke check sends.
        endpoint_picker: Whether the endpoint picker of a gateway can read its metrics.
        api_key_variable: Variable with the API key that it requires from clients. Default: it can require none.
        names: Names by which the engine takes keys of every server: flags (with dashes) or environment variables.
        aliases: Other names by which it takes a key, without dashes.
        quantize: Names of its quantization methods. Default: it has none.
        quantize_of_own_images: Whether other images than the pinned one may have further methods.
        accelerator: Kind of accelerator that it runs on, as a Kubernetes resource.
        tpus: TPU versions that the pinned image supports. Default: every version.
        legacy: What ended its development, and when. Default: it is maintained.
        newest_kernels: Highest compute capability that the image has kernels for. Default: that of every GPU type.
        memory: How it uses accelerator memory. Default: unknown, so models are not checked.
        charts: Charts of its metrics: title, PromQL with {} for the selector, unit.
        series: Series of Prometheus by which an autoscaler can scale it, by the names of the metrics in `autoscaling`.
        limits: How many requests a replica takes. Default: unknown, so targets are not compared with it.
        metrics_off: Flag (without dashes) that turns its metrics off.
        shutdown_flag: Flag (without dashes) with the time in which open answers may finish after SIGTERM, in seconds.
            Default: no flag.
        shutdown_since: The first release with this flag.
        flags: File of this folder with the flags of the pinned image. Default: unknown, so arguments are not checked.
        removed: Flags (without dashes) of former releases that the pinned image refuses, with the remedy.
        architectures: Architectures of models that the pinned image supports. Default: unknown, so models pass.
        without_lora: Architectures for which the pinned image takes no LoRA adapters.
    """

    name: str
    title: str
    component: str
    image: str
    health_path: str
    metrics_path: str
    request_path: str
    form: Literal["completions", "generate"]
    burst: int
    metrics_port: int | None = None
    endpoint_picker: bool = False
    api_key_variable: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    quantize: tuple[str, ...] = ()
    quantize_of_own_images: bool = False
    accelerator: str = NVIDIA_GPU
    tpus: tuple[str, ...] = ()
    legacy: str = ""
    newest_kernels: tuple[int, int] | None = None
    memory: MemoryUse | None = None
    charts: tuple[tuple[str, str, str], ...] = ()
    series: Mapping[str, str] = field(default_factory=dict)
    limits: RequestLimits = NO_LIMITS
    metrics_off: str = ""
    shutdown_flag: str = ""
    shutdown_since: tuple[int, ...] = ()
    flags: str = ""
    removed: Mapping[str, str] = field(default_factory=dict)
    architectures: frozenset[str] | None = None
    without_lora: frozenset[str] = frozenset()

    @property
    def metrics_port_name(self) -> str:
        """Name of the container port with its metrics."""
        return HTTP_PORT if self.metrics_port is None else METRICS_PORT

    @property
    def streams(self) -> bool:
        """Whether it can send an answer token by token, with the key `stream` of OpenAI's API."""
        return self.form == "completions"

    @property
    def image_name(self) -> str:
        """Name of the image, without tag and digest."""
        return self.image.partition("@")[0].rpartition(":")[0]

    def body(self, model: str, prompt: str, max_tokens: int) -> dict[str, Any]:
        """Returns the JSON of a request for at most `max_tokens` tokens."""
        prompt_fields = {"prompt": prompt, "max_tokens": max_tokens}
        return {"model": model, **prompt_fields} if self.form == "completions" else prompt_fields

    def text(self, answer: Mapping[str, Any]) -> str:
        """Returns the generated text of an answer. Raises KeyError, IndexError or TypeError for any other JSON."""
        text = answer["choices"][0]["text"] if self.form == "completions" else answer["response"]
        if not isinstance(text, str):
            raise TypeError(f"the text of the answer is {type(text).__name__}")
        return text


# The engine to use on each kind of accelerator.
CURRENT: Mapping[str, str] = {NVIDIA_GPU: "vllm", GOOGLE_TPU: "vllm-tpu"}


# Tokens of batches that run, by GPU type
_IN_FLIGHT = {name: vllm.CONCURRENT_BATCHES * tokens for name, tokens in vllm.BATCH_TOKENS_ON.items()}


def _vllm_charts(title: str) -> tuple[tuple[str, str, str], ...]:
    """https://docs.vllm.ai/en/stable/usage/metrics.html"""
    return (
        (f"{title}: requests that wait", "sum by (namespace, job) (vllm:num_requests_waiting{})", "1"),
        (f"{title}: requests that run", "sum by (namespace, job) (vllm:num_requests_running{})", "1"),
        (f"{title}: KV cache in use", "avg by (namespace, job) (vllm:kv_cache_usage_perc{})", "10^2.%"),
        (f"{title}: tokens generated", f"sum by (namespace, job) (rate({vllm.GENERATED_TOKENS}{{}}[5m]))", "1/s"),
    )


_VLLM = Engine(
    name="vllm",
    title="vLLM",
    component="VllmServer",
    image=vllm.IMAGE,
    health_path="/health",
    metrics_path="/metrics",
    request_path="/v1/completions",
    form="completions",
    burst=4,
    # https://gateway-api-inference-extension.sigs.k8s.io/implementations/model-servers/
    endpoint_picker=True,
    # https://docs.vllm.ai/en/stable/configuration/env_vars.html
    api_key_variable="VLLM_API_KEY",
    # https://docs.vllm.ai/en/stable/cli/serve.html
    names={
        "port": "--port",
        "gpus": "--tensor-parallel-size",
        "quantize": "--quantization",
        "max_model_len": "--max-model-len",
    },
    aliases={"model": "model", "hf-token": "token_secret"},
    quantize_of_own_images=True,
    quantize=vllm.QUANTIZATION,
    shutdown_flag=vllm.SHUTDOWN_TIMEOUT,
    shutdown_since=vllm.SHUTDOWN_TIMEOUT_SINCE,
    flags="engines/vllm_flags.json",
    removed=vllm.REMOVED_FLAGS,
    architectures=ARCHITECTURES,
    without_lora=WITHOUT_LORA,
    memory=MemoryUse(
        utilization=vllm.UTILIZATION,
        margin=0,
        profiles=True,
        changed_by=vllm.MEMORY_SETTINGS,
        in_flight_tokens=vllm.CONCURRENT_BATCHES * vllm.BATCH_TOKENS,
        in_flight_tokens_on=_IN_FLIGHT,
        batch_flag="max-num-batched-tokens",
        concurrent_batches=vllm.CONCURRENT_BATCHES,
        chunked_windows=vllm.CHUNKED_ATTENTION_SAVES,
        no_float16=vllm.NO_FLOAT16,
        expert_parallel_flag="enable-expert-parallel",
        utilization_flag="gpu-memory-utilization",
        kv_cache_flag="kv-cache-dtype",
    ),
    charts=_vllm_charts("vLLM"),
    series=vllm.SERIES,
    metrics_off=vllm.METRICS_OFF,
    limits=VLLM_LIMITS,
)
_VLLM_ON_TPUS = replace(
    _VLLM,
    name="vllm-tpu",
    title="vLLM on TPUs",
    component="VllmTpuServer",
    image=vllm.TPU_IMAGE,
    accelerator=GOOGLE_TPU,
    # v5p is experimental: https://docs.vllm.ai/projects/tpu/en/latest/getting_started/tpu_setup/
    tpus=("v5e", "v6e", "tpu7x"),
    # https://docs.vllm.ai/en/stable/cli/serve.html
    names={"port": "--port", "max_model_len": "--max-model-len"},
    aliases={"model": "model", "tensor-parallel-size": "pool", "hf-token": "token_secret"},
    quantize=(),
    quantize_of_own_images=False,
    without_lora=frozenset(),
    # It measures no activations: the rest of the memory is for them. Weights count before the KV cache.
    # tpu_inference/worker/tpu_worker.py of the release.
    memory=MemoryUse(
        utilization=vllm.UTILIZATION,
        margin=0,
        in_flight_tokens=vllm.CONCURRENT_BATCHES * vllm.BATCH_TOKENS,
        batch_flag="max-num-batched-tokens",
        concurrent_batches=vllm.CONCURRENT_BATCHES,
        chunked_windows=vllm.CHUNKED_ATTENTION_SAVES_ON_TPUS,
        latent_attention=False,
        expert_parallel_flag="enable-expert-parallel",
        changed_by=(
            *vllm.MEMORY_SETTINGS,
            *(vllm.PIPELINE_FLAG, "additional-config", "data-parallel-size", "quantization"),
        ),
        utilization_flag="gpu-memory-utilization",
        kv_cache_flag="kv-cache-dtype",
    ),
    charts=_vllm_charts("vLLM on TPUs"),
    limits=VLLM_TPU_LIMITS,
)
ENGINES: Mapping[str, Engine] = {
    engine.name: engine
    for engine in (
        Engine(
            name="tgi",
            title="Text Generation Inference",
            component="TgiServer",
            # https://github.com/huggingface/text-generation-inference: in maintenance mode, its last release.
            # By its tag, as no digest of it was found in public.
            image="ghcr.io/huggingface/text-generation-inference:3.3.7",
            health_path="/health",
            metrics_path="/metrics",
            request_path="/v1/completions",
            form="completions",
            burst=4,
            # https://github.com/huggingface/text-generation-inference/pull/3344
            legacy="in maintenance mode since 2025-12-11",
            # https://huggingface.co/docs/text-generation-inference/reference/launcher
            names={
                "gpus": "NUM_SHARD",
                "model": "MODEL_ID",
                "quantize": "QUANTIZE",
                "max_model_len": "MAX_TOTAL_TOKENS",
            },
            # https://huggingface.co/docs/text-generation-inference/reference/launcher#quantize
            quantize=(
                *("awq", "compressed-tensors", "eetq", "exl2", "gptq", "marlin", "fp8"),
                *("bitsandbytes", "bitsandbytes-nf4", "bitsandbytes-fp4"),
            ),
            # Built with CUDA 12.4 for 8.0, 8.6 and 9.0 (lines 47 and 76), with FlashAttention 2.6.1:
            # https://github.com/huggingface/text-generation-inference/blob/v3.3.7/Dockerfile
            newest_kernels=(9, 0),
            # TGI keeps a tenth free when it sizes the KV cache (TGI_WIGGLE_ROOM), not when it loads the weights:
            # https://github.com/huggingface/text-generation-inference/blob/v3.3.5/server/text_generation_server/models/globals.py
            # It caches every token in every layer. Without a length it caches as many as fit:
            # https://huggingface.co/docs/text-generation-inference/reference/launcher
            memory=MemoryUse(
                utilization=0.9,
                without_length="free",
                sliding_windows=False,
                # https://github.com/huggingface/text-generation-inference/blob/v3.3.5/server/text_generation_server/models/custom_modeling/flash_llama_modeling.py
                copies_kv_heads=False,
                changed_by=("QUANTIZE", "DTYPE", "KV_CACHE_DTYPE", "CUDA_MEMORY_FRACTION", "TGI_WIGGLE_ROOM"),
                # TGI quantizes to 8 bits, vLLM to 4: https://docs.vllm.ai/en/stable/features/quantization/bnb.html
                bytes_per_parameter={"bitsandbytes": 1},
            ),
            # https://huggingface.co/docs/text-generation-inference/reference/metrics
            charts=(
                ("TGI: requests that wait", "sum by (namespace, job) (tgi_queue_size{})", "1"),
                ("TGI: requests in the batch", "sum by (namespace, job) (tgi_batch_current_size{})", "1"),
                ("TGI: requests", "sum by (namespace, job) (rate(tgi_request_count{}[5m]))", "1/s"),
            ),
            # https://cloud.google.com/kubernetes-engine/docs/how-to/machine-learning/inference/autoscaling
            series={"queuedRequests": "tgi_queue_size", "runningRequests": "tgi_batch_current_size"},
            limits=TGI_LIMITS,
        ),
        _VLLM,
        _VLLM_ON_TPUS,
        Engine(
            name="jetstream",
            title="JetStream",
            component="JetStreamServer",
            # https://cloud.google.com/kubernetes-engine/docs/tutorials/serve-gemma-tpu-jetstream
            image="us-docker.pkg.dev/cloud-tpu-images/inference/maxengine-server:v0.2.2",
            # The only path of the HTTP front; it answers before the model is loaded.
            health_path="/",
            accelerator=GOOGLE_TPU,
            # https://github.com/AI-Hypercomputer/JetStream/pull/278
            legacy="archived since 2026-02-01",
            metrics_port=JETSTREAM_METRICS_PORT,
            metrics_path="/",
            request_path="/generate",
            form="generate",
            # The source document sends this many to show the autoscaler.
            burst=100,
            # MaxText reserves every decoding slot at its full length. The needs of XLA are not published.
            # https://github.com/AI-Hypercomputer/JetStream/blob/main/docs/online-inference-with-maxtext-engine.md
            memory=MemoryUse(
                utilization=1.0,
                margin=0,
                splits_heads=False,
                # https://github.com/AI-Hypercomputer/maxtext, configs/base.yml
                changed_by=("quantization", "quantize_kvcache", "weight_dtype", "ici_data_parallelism"),
            ),
            # https://github.com/AI-Hypercomputer/JetStream, jetstream/core/metrics/prometheus.py
            charts=(
                ("JetStream: prefill backlog", "sum by (namespace, job) (jetstream_prefill_backlog_size{})", "1"),
                ("JetStream: slots in use", "avg by (namespace, job) (jetstream_slots_used_percentage{})", "10^2.%"),
            ),
            # `memory_used` is of the TPU device plugin. A backlog before the prefill is not all that waits: after
            # it, requests wait for a slot. https://github.com/AI-Hypercomputer/JetStream, jetstream/core/metrics
            series={
                "prefillBacklog": "jetstream_prefill_backlog_size",
                "slotsUsed": "jetstream_slots_used_percentage",
                "tpuMemory": "memory_used",
            },
        ),
    )
}
