"""Whether a model fits its accelerators: weights, the KV cache of one sequence and a margin for activations.

Everything is counted per GPU or TPU chip, in bytes. Each part is the least that an engine needs: what does not fit
cannot start, and what fits need not run well.
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

# Bytes per parameter by quantization method, at the least: embeddings, scales and zeros come on top. Methods whose
# width the checkpoint decides are not listed. https://docs.vllm.ai/en/stable/features/quantization/,
# https://huggingface.co/docs/text-generation-inference/conceptual/quantization
_FOUR_BITS = (
    *("awq", "awq_marlin", "gptq", "gptq_marlin", "gptq_marlin_24", "marlin", "bitsandbytes-nf4", "bitsandbytes-fp4"),
    *("mxfp4", "modelopt_fp4", "petit_nvfp4", "bitsandbytes"),
)
_EIGHT_BITS = ("fp8", "ptpc_fp8", "fbgemm_fp8", "modelopt", "eetq", "experts_int8", "tpu_int8", "deepspeedfp")
_BYTES: Mapping[str, float] = MappingProxyType(dict.fromkeys(_FOUR_BITS, 0.5) | dict.fromkeys(_EIGHT_BITS, 1))


@dataclass(frozen=True)
class Need:
    """What one GPU or chip has to hold, in bytes."""

    weights: int
    kv_cache: int
    margin: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.kv_cache + self.margin


def quantized_bytes(method: str, of_engine: Mapping[str, float]) -> float | None:
    """Bytes per parameter under a quantization method; None where the name of the method does not say."""
    return {**_BYTES, **of_engine}.get(method)


def weights_bytes(model: Model, shards: int, bytes_per_parameter: float | None = None) -> int:
    """The weights on each of `shards` accelerators; `bytes_per_parameter` of a quantization method, if it is less."""
    size = min(model.bytes_per_parameter, bytes_per_parameter or model.bytes_per_parameter)
    return round(model.parameters * size / shards)


def kv_bytes_per_token(model: Model, shards: int = 1, kv_bytes: float | None = None) -> float:
    """Bytes that one layer caches for a token on each accelerator.

    Keys and values of the KV heads are split; with more accelerators than KV heads each has one. A latent is not split.
    """
    size = model.kv_bytes if kv_bytes is None else kv_bytes
    if model.latent_size is not None:
        return model.latent_size * size
    return 2 * -(-model.kv_heads // shards) * model.head_size * size


def kv_cache_bytes(model: Model, tokens: int, shards: int = 1, kv_bytes: float | None = None) -> int:
    """The KV cache of one sequence on each accelerator; a layer with a sliding window keeps no more than its window."""
    full_layers = model.layers - model.sliding_layers
    in_window = min(tokens, model.sliding_window or tokens)
    cached = full_layers * tokens + model.sliding_layers * in_window
    return round(cached * kv_bytes_per_token(model, shards, kv_bytes))


def longest_sequence(model: Model, room: int, shards: int = 1, kv_bytes: float | None = None) -> int:
    """The most tokens, up to the model's context, whose KV cache has room in so many bytes."""
    lengths = range(model.context_length + 1)
    return max(bisect_right(lengths, room, key=lambda tokens: kv_cache_bytes(model, tokens, shards, kv_bytes)) - 1, 0)


def shards_that_divide(model: Model, split_kv_heads: bool) -> list[int]:
    """Numbers of accelerators that a model's heads can be shared by.

    vLLM copies KV heads where there are fewer than accelerators; with `split_kv_heads`, as in TGI, only a single one.
    https://github.com/vllm-project/vllm/blob/v0.11.0/vllm/config/model.py (verify_with_parallel_config),
    https://github.com/huggingface/text-generation-inference/blob/v3.3.5/server/text_generation_server/models/custom_modeling/flash_llama_modeling.py
    """
    whole = [count for count in range(1, model.attention_heads + 1) if model.attention_heads % count == 0]
    if model.latent_size is not None or model.kv_heads == 1:
        return whole
    if split_kv_heads:
        return [count for count in whole if model.kv_heads % count == 0]
    return [count for count in whole if model.kv_heads % count == 0 or count % model.kv_heads == 0]
