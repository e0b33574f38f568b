"""The engines that serve models: their images, ports, paths and request formats.

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

# Ports of JetStream's images; only the last can be configured.
JETSTREAM_HTTP_PORT, JETSTREAM_GRPC_PORT, JETSTREAM_METRICS_PORT = 8000, 9000, 9100
# Request of the sidecar that translates HTTP to gRPC: our choice, because the image documents none.
JETSTREAM_HTTP_REQUEST: Mapping[str, str] = MappingProxyType({"cpu": "1", "memory": "2Gi"})

# Arguments of JetStream's model server, in order. Braces name the key of the configuration with the value.
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
    """An engine and its interface.

    - `image` is the server's image.
    - `health_path` answers 200 on the serving port when the engine accepts requests.
    - `metrics_port` is None if metrics are on the serving port.
    - `burst` is the number of concurrent requests of a smoke test.
    - `quantize` has the names of its quantization methods; empty if it supports none.
    - `newest_kernels` is the highest compute capability with kernels in the image; None if it covers the whole catalog.
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
        """Returns the JSON of a request for at most `max_tokens` tokens."""
        prompt_fields = {"prompt": prompt, "max_tokens": max_tokens}
        return {"model": model, **prompt_fields} if self.form == "completions" else prompt_fields

    def text(self, answer: Mapping[str, Any]) -> str:
        """Returns the generated text of an answer. Raises KeyError, IndexError or TypeError for any other JSON."""
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
                # The only path of the HTTP front; it answers before the model is loaded.
                health_path="/",
                metrics_port=JETSTREAM_METRICS_PORT,
                metrics_path="/",
                request_path="/generate",
                form="generate",
                # The source document sends this many to show the autoscaler.
                burst=100,
            ),
        )
    }
)
