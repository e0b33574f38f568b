"""The engines that serve models: what each answers to, and how it is asked.

Sources:
- tgi: https://huggingface.co/docs/text-generation-inference/reference/api_reference (health, metrics, completions)
- vllm: https://docs.vllm.ai/en/stable/serving/openai_compatible_server.html
- jetstream: https://cloud.google.com/kubernetes-engine/docs/tutorials/serve-gemma-tpu-jetstream, and for its HTTP front
  https://github.com/GoogleCloudPlatform/ai-on-gke, tutorials-and-examples/inference-servers/jetstream/http-server
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from catalog.versions import JETSTREAM_IMAGE, TGI_IMAGE, VLLM_IMAGE

# What JetStream's images listen on; only the last can be told otherwise.
JETSTREAM_HTTP_PORT, JETSTREAM_GRPC_PORT, JETSTREAM_METRICS_PORT = 8000, 9000, 9100
# What the container beside it takes, which turns HTTP into gRPC: chosen, as the image says nothing of it.
JETSTREAM_HTTP_REQUEST: Mapping[str, str] = MappingProxyType({"cpu": "1", "memory": "2Gi"})

# What JetStream's model server is told, in order; braces name the key of the configuration that says it.
# https://github.com/AI-Hypercomputer/maxtext, configs/base.yml
MAXTEXT_SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "model_name": "{model}",
        "tokenizer_path": "{tokenizer}",
        "per_device_batch_size": "{batch_size}",
        "max_prefill_predict_length": "{max_prefill_length}",
        "max_target_length": "{max_target_length}",
        "async_checkpointing": "false",
        "ici_fsdp_parallelism": "1",
        "ici_autoregressive_parallelism": "-1",
        "ici_tensor_parallelism": "1",
        "scan_layers": "false",
        "weight_dtype": "bfloat16",
        "load_parameters_path": "{checkpoint}",
        "prometheus_port": "{metrics_port}",
    }
)


@dataclass(frozen=True)
class Engine:
    """One engine, seen from outside.

    `image` is the one that serves; `health_path` answers 200 on the serving port once the engine can be asked;
    `metrics_port` is the port of its metrics (none: the serving port); `burst` how many requests at once try it;
    `quantize` has the quantization methods that it knows by name (none: it takes none). `newest_kernels` is the highest
    compute capability that its image has kernels for (none: every GPU type of the catalog).
    """

    name: str
    title: str
    image: str
    health_path: str
    metrics_port: int | None
    metrics_path: str
    request_path: str
    form: Literal["completions", "generate"]
    burst: int
    quantize: tuple[str, ...] = ()
    newest_kernels: tuple[int, int] | None = None

    def body(self, model: str, prompt: str, max_tokens: int) -> dict[str, Any]:
        """The JSON of a request for at most `max_tokens` tokens."""
        prompt_fields = {"prompt": prompt, "max_tokens": max_tokens}
        return {"model": model, **prompt_fields} if self.form == "completions" else prompt_fields

    def text(self, answer: Mapping[str, Any]) -> str:
        """The generated text of an answer; KeyError, IndexError or TypeError where it is none of this engine's."""
        text = answer["choices"][0]["text"] if self.form == "completions" else answer["response"]
        if not isinstance(text, str):
            raise TypeError(f"the text of the answer is {type(text).__name__}")
        return text


ENGINES: Mapping[str, Engine] = MappingProxyType(
    {
        engine.name: engine
        for engine in (
            Engine(
                name="tgi",
                title="Text Generation Inference",
                image=TGI_IMAGE,
                health_path="/health",
                metrics_port=None,
                metrics_path="/metrics",
                request_path="/v1/completions",
                form="completions",
                burst=4,
                # https://huggingface.co/docs/text-generation-inference/reference/launcher#quantize
                quantize=(
                    *("awq", "compressed-tensors", "eetq", "exl2", "gptq", "marlin", "fp8"),
                    *("bitsandbytes", "bitsandbytes-nf4", "bitsandbytes-fp4"),
                ),
                # Built with CUDA 12.4 for 8.0, 8.6 and 9.0 (lines 47 and 76), with FlashAttention 2.6.1:
                # https://github.com/huggingface/text-generation-inference/blob/v3.3.7/Dockerfile
                newest_kernels=(9, 0),
            ),
            Engine(
                name="vllm",
                title="vLLM",
                image=VLLM_IMAGE,
                health_path="/health",
                metrics_port=None,
                metrics_path="/metrics",
                request_path="/v1/completions",
                form="completions",
                burst=4,
                # https://github.com/vllm-project/vllm/blob/v0.11.0/vllm/model_executor/layers/quantization/__init__.py
                quantize=(
                    *("awq", "deepspeedfp", "tpu_int8", "fp8", "ptpc_fp8", "fbgemm_fp8", "modelopt", "modelopt_fp4"),
                    *("bitblas", "gguf", "gptq_marlin_24", "gptq_marlin", "gptq_bitblas", "awq_marlin", "gptq"),
                    *("compressed-tensors", "bitsandbytes", "hqq", "experts_int8", "ipex", "quark", "moe_wna16"),
                    *("torchao", "auto-round", "rtn", "inc", "mxfp4", "petit_nvfp4"),
                ),
            ),
            Engine(
                name="jetstream",
                title="JetStream",
                image=JETSTREAM_IMAGE,
                # Of the HTTP front, which has no other: it answers before the model is loaded.
                health_path="/",
                metrics_port=JETSTREAM_METRICS_PORT,
                metrics_path="/",
                request_path="/generate",
                form="generate",
                # What the source document sends to see the autoscaler at work.
                burst=100,
            ),
        )
    }
)
