"""Memory that a model needs on each accelerator: weights, the KV cache of one sequence and a margin for activations.

All figures are bytes per GPU or TPU chip. Each part is the minimum that an engine needs: a model that does not fit
cannot start, and a model that fits may still run poorly.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from catalog.models import Model
from catalog.quantities import GI

# Peak activations that vLLM measures for Llama 3 8B, on one GPU and on two. Logs of other models show 1.0 to 2.5 GiB,
# and up to 0.4 GiB outside PyTorch. https://github.com/vllm-project/vllm/pull/10511,
# https://github.com/vllm-project/vllm/issues/16570
MARGIN = round(1.26 * GI)

# Minimum bytes per parameter by quantization method: embeddings, scales and zeros come on top. The table leaves out
# methods whose width depends on the checkpoint. https://docs.vllm.ai/en/stable/features/quantization/,
# https://huggingface.co/docs/text-generation-inference/conceptual/quantization
_FOUR_BITS = (
    *("awq", "awq_marlin", "gptq", "gptq_marlin", "gptq_marlin_24", "marlin", "bitsandbytes-nf4", "bitsandbytes-fp4"),
    *("mxfp4", "modelopt_fp4", "petit_nvfp4", "bitsandbytes"),
)
_EIGHT_BITS = ("fp8", "ptpc_fp8", "fbgemm_fp8", "modelopt", "eetq", "experts_int8", "tpu_int8", "deepspeedfp")
_BYTES: Mapping[str, float] = MappingProxyType(dict.fromkeys(_FOUR_BITS, 0.5) | dict.fromkeys(_EIGHT_BITS, 1))


@dataclass(frozen=True)
class Need:
    """Memory that a model needs on one GPU or chip, in bytes."""

    weights: int
    kv_cache: int
    margin: int

    @property
    def total(self) -> int:
        """Sum of all parts."""
        return self.weights + self.kv_cache + self.margin


def quantized_bytes(method: str, of_engine: Mapping[str, float]) -> float | None:
    """Returns the bytes per parameter of a quantization method; None if its name does not tell."""
    return of_engine.get(method, _BYTES.get(method))


def weights_bytes(model: Model, shards: int, bytes_per_parameter: float | None = None) -> int:
    """Returns the bytes of weights on each of `shards` accelerators. Quantization can only reduce the bytes per
    parameter."""
    size = min(model.bytes_per_parameter, bytes_per_parameter or model.bytes_per_parameter)
    return round(model.parameters * size / shards)


def kv_bytes_per_token(model: Model, shards: int = 1, kv_bytes: float | None = None) -> float:
    """Returns the bytes that one layer caches per token on each accelerator.

    KV heads are split over the accelerators; with more accelerators than KV heads, each has one. A latent is not split.
    """
    size = model.kv_bytes if kv_bytes is None else kv_bytes
    if model.latent_size is not None:
        return model.latent_size * size
    return 2 * -(-model.kv_heads // shards) * model.head_size * size


def kv_cache_bytes(model: Model, tokens: int, shards: int = 1, kv_bytes: float | None = None) -> int:
    """Returns the bytes of a sequence's KV cache on each accelerator. Sliding-window layers cache only their window."""
    full_layers = model.layers - model.sliding_layers
    in_window = min(tokens, model.sliding_window or tokens)
    cached = full_layers * tokens + model.sliding_layers * in_window
    return round(cached * kv_bytes_per_token(model, shards, kv_bytes))


def longest_sequence(model: Model, room: int, shards: int = 1, kv_bytes: float | None = None) -> int:
    """Returns the maximum number of tokens, up to the model's context, whose KV cache fits in `room` bytes."""
    lengths = range(model.context_length + 1)
    return max(bisect_right(lengths, room, key=lambda tokens: kv_cache_bytes(model, tokens, shards, kv_bytes)) - 1, 0)


def shards_that_divide(model: Model, split_kv_heads: bool) -> list[int]:
    """Returns the numbers of accelerators that a model's heads can be split over.

    vLLM copies KV heads if there are fewer than accelerators. With `split_kv_heads`, as in TGI, the engine copies only
    a single KV head.
    https://github.com/vllm-project/vllm/blob/v0.11.0/vllm/config/model.py (verify_with_parallel_config),
    https://github.com/huggingface/text-generation-inference/blob/v3.3.5/server/text_generation_server/models/custom_modeling/flash_llama_modeling.py
    """
    whole = [count for count in range(1, model.attention_heads + 1) if model.attention_heads % count == 0]
    if model.latent_size is not None or model.kv_heads == 1:
        return whole
    if split_kv_heads:
        return [count for count in whole if model.kv_heads % count == 0]
    return [count for count in whole if model.kv_heads % count == 0 or count % model.kv_heads == 0]
