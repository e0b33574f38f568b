"""Memory that a model needs on each accelerator: weights, LoRA adapters and the KV cache of one sequence.

All figures are bytes per GPU or TPU chip.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

from gke_ai.catalog.engines.model import Model
from gke_ai.catalog.quantities import GI

# Minimum bytes per quantized parameter by method: scales and zeros come on top. The table leaves out methods whose
# width depends on the checkpoint. https://docs.vllm.ai/en/stable/features/quantization/,
# https://huggingface.co/docs/text-generation-inference/conceptual/quantization
_FOUR_BITS = (
    *("awq", "awq_marlin", "gptq", "gptq_marlin", "gptq_marlin_24", "marlin", "bitsandbytes-nf4", "bitsandbytes-fp4"),
    *("mxfp4", "modelopt_fp4", "auto_awq", "auto_gptq", "gpt_oss_mxfp4", "nvfp4_per_token", "bitsandbytes"),
)
_EIGHT_BITS = (
    *("fp8", "fbgemm_fp8", "modelopt", "modelopt_mxfp8", "mxfp8", "eetq", "experts_int8", "deepseek_v4_fp8"),
    *("fp8_per_tensor", "fp8_per_block", "fp8_per_channel", "int8_per_channel_weight_only"),
)
_BYTES: Mapping[str, float] = dict.fromkeys(_FOUR_BITS, 0.5) | dict.fromkeys(_EIGHT_BITS, 1)


# Architectures with `embedding_modules`, whose embeddings get adapters: vllm/model_executor/models
_ADAPTED_EMBEDDINGS = frozenset(
    f"{family}ForCausalLM" for family in ("Llama", "Mistral", "Mixtral", "Qwen3", "Qwen3Moe")
)


def quantized_bytes(method: str, of_engine: Mapping[str, float]) -> float | None:
    """Returns the bytes per parameter of a quantization method; None if its name does not tell."""
    return of_engine.get(method, _BYTES.get(method))


def weights_bytes(
    model: Model, shards: int, bytes_per_parameter: float | None = None, ranks: int = 1, loaded_gib: float | None = None
) -> int:
    """Returns the bytes of weights on each accelerator, loaded.

    `shards` accelerators share each layer. With data parallelism, `ranks` times as many share the experts, and each
    rank has the rest. `bytes_per_parameter` is that of quantized parameters. Quantization can only reduce the size.
    `loaded_gib` is a figure that was seen.
    """
    size = model.bytes_per_parameter
    if bytes_per_parameter is not None:
        size = min(size, model.average(bytes_per_parameter))
    total = loaded_gib * GI if loaded_gib is not None else (model.parameters - model.unloaded) * size
    if ranks == 1:
        return round(total / shards)
    rest = total if model.intermediate else min(model.attention * size + model.embeddings * 2, total)
    return round((rest + (total - rest) / ranks) / shards)


def adapters_bytes(model: Model, shards: int, slots: int, rank: int) -> int:
    """Returns the bytes that vLLM reserves on each accelerator for `slots` LoRA adapters of a rank.

    Each matrix of a layer gets two factors, of its inputs and of its outputs, in 16 bits. Of a layer's seven matrices
    (q, k, v, o, gate, up, down), the side of the model's width is on every accelerator, and the other is divided:
    `create_lora_weights` in vllm/lora/layers/base_linear.py of the release. Embeddings and output may have two factors
    each, of the vocabulary and of the width: vocab_parallel_embedding.py and logits_processor.py there. MoE models have
    more. 0 for other attention, whose matrices differ.
    """
    if model.latent_size is not None or model.linear_layers or model.shared_layers:
        return 0
    heads = 2 * model.attention_heads + 2 * model.kv_heads
    per_layer = 7 * model.width + (heads * model.head_size + 3 * model.intermediate) // shards
    embeddings = 2 * (model.least_vocabulary + model.width) if model.architecture in _ADAPTED_EMBEDDINGS else 0
    return (model.layers * per_layer + embeddings) * rank * slots * 2


def kv_bytes_per_token(model: Model, shards: int = 1, kv_bytes: float | None = None, full: bool = True) -> float:
    """Returns the bytes that one layer caches per token on each accelerator. `full` is whether it has no window.

    KV heads are split over the accelerators; with more accelerators than KV heads, each has one. A latent is not split.
    """
    size = model.kv_bytes if kv_bytes is None else kv_bytes
    if model.latent_size is not None:
        return model.latent_size * size
    heads = model.full_kv_heads if full and model.full_kv_heads else model.kv_heads
    head_size = model.full_head_size if full and model.full_head_size else model.head_size
    return 2 * -(-heads // shards) * head_size * size


def kv_cache_bytes(
    model: Model, tokens: int, shards: int = 1, kv_bytes: float | None = None, in_flight: int = 0
) -> int:
    """Returns the bytes of a sequence's KV cache on each accelerator.

    Layers with a sliding window cache their window. An engine with `in_flight` tokens in running batches caches these
    too, and reserves memory for groups of layers of the same size.
    """
    full, sliding = model.full_layers, model.sliding_layers
    if model.linear_state and full and in_flight:
        return _hybrid_bytes(model, tokens, shards, kv_bytes_per_token(model, shards, kv_bytes))
    if full and sliding and model.sliding_window and in_flight:
        size = _group_size(full, sliding)
        full, sliding = -(-full // size) * size, -(-sliding // size) * size
    cache = full * tokens * kv_bytes_per_token(model, shards, kv_bytes)
    if sliding:
        window = (model.sliding_window or tokens) + (in_flight - (not model.chunked) if in_flight else 0)
        cache += sliding * min(tokens, window) * kv_bytes_per_token(model, shards, kv_bytes, full=False)
    return round(cache)


def _hybrid_bytes(model: Model, tokens: int, shards: int, per_token: float) -> int:
    """Bytes of a sequence's cache if layers with linear attention keep their state in it, in vLLM.

    A block has as many tokens as a state is large, in multiples of 16, and a layer has two blocks of states:
    MambaSpec.max_memory_usage_bytes in vllm/v1/kv_cache_interface.py, with prefix caching.
    """
    size = _group_size(model.full_layers, model.linear_layers)
    block = 16 * -(-model.linear_state // shards // round(16 * per_token))
    full, linear = -(-model.full_layers // size), -(-model.linear_layers // size)
    return round(size * block * per_token * (full * -(-tokens // block) + 2 * linear))


def _group_size(full: int, sliding: int) -> int:
    """Layers in a group of vLLM's cache: `_get_kv_cache_groups_uniform_page_size` in v1/core/kv_cache_utils.py."""
    small, large = sorted((full, sliding))
    return large if large < 1.5 * small else small


def longest_sequence(
    model: Model, room: int, shards: int = 1, kv_bytes: float | None = None, in_flight: int = 0
) -> int:
    """Returns the maximum number of tokens, up to the model's context, whose KV cache fits in `room` bytes."""
    lengths = range(model.context_length + 1)

    def size(tokens: int) -> int:
        return kv_cache_bytes(model, tokens, shards, kv_bytes, in_flight)

    return max(bisect_right(lengths, room, key=size) - 1, 0)


def experts_divide(model: Model, shards: int) -> bool:
    """Whether each accelerator gets an equal part of every expert, in whole blocks of quantized weights.

    https://github.com/vllm-project/vllm/issues/17569, and `vllm/model_executor/layers/quantization/utils/fp8_utils.py`
    """
    return model.expert_size is None or model.expert_size % (shards * model.block) == 0


def shards_that_divide(model: Model, split_kv_heads: bool) -> list[int]:
    """Returns the numbers of accelerators that a model's heads can be split over.

    vLLM copies KV heads if there are fewer than accelerators. With `split_kv_heads`, as in TGI, the engine copies only
    a single KV head.
    `verify_with_parallel_config` in vllm/config/model.py of the release,
    https://github.com/huggingface/text-generation-inference/blob/v3.3.5/server/text_generation_server/models/custom_modeling/flash_llama_modeling.py
    """
    whole = [count for count in range(1, model.attention_heads + 1) if model.attention_heads % count == 0]
    if model.latent_size is not None or model.kv_heads == 1:
        return whole
    if split_kv_heads:
        return [count for count in whole if model.kv_heads % count == 0]
    return [count for count in whole if model.kv_heads % count == 0 or count % model.kv_heads == 0]
