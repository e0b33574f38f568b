"""How an engine uses the memory of its accelerators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

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
