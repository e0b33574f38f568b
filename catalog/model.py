"""A model, with the dimensions that decide how much accelerator memory it needs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Model:
    """A model and its dimensions.

    - `sliding_layers` is the number of layers that attend only to the last `sliding_window` tokens.
    - `latent_size` is for multi-head latent attention: the values that a layer caches per token (`kv_lora_rank` plus
      the RoPE dimensions), regardless of the number of heads.
    - `bytes_per_parameter` is the average of the published checkpoint.
    - `kv_bytes` is the size of a cached value.
    - `architecture` is the one in `config.json`.
    - `embeddings` is the number of parameters of input and output embeddings, which quantized copies keep in 16 bits.
    - `expert_size` is the width of an expert (`moe_intermediate_size`), which accelerators share.
    - `block` is the width of a block of quantized weights. Accelerators share whole blocks.
    - `chunked` is whether the layers with a window attend to chunks instead.
    - `linear_layers` is the number of layers with linear attention. Their state, of constant size, does not count.
    - `shared_layers` is the number of layers that use the KV cache of another. `sliding_layers` does not count them.
    - `full_kv_heads` and `full_head_size` are those of layers without a window, if they differ.
    - `method` is the quantization method of a copy whose method not every engine has.
    - `loaded_gib` and `activations_gib` are published figures of vLLM, for models that need more than their files.
    """

    names: tuple[str, ...]
    parameters: int
    layers: int
    attention_heads: int
    kv_heads: int
    head_size: int
    context_length: int
    source: str
    sliding_window: int | None = None
    sliding_layers: int = 0
    latent_size: int | None = None
    bytes_per_parameter: float = 2
    kv_bytes: float = 2
    architecture: str = ""
    embeddings: int = 0
    expert_size: int | None = None
    block: int = 1
    chunked: bool = False
    linear_layers: int = 0
    shared_layers: int = 0
    full_kv_heads: int | None = None
    full_head_size: int | None = None
    method: str = ""
    loaded_gib: float | None = None
    activations_gib: float | None = None

    @property
    def full_layers(self) -> int:
        """Layers that cache every token."""
        return self.layers - self.sliding_layers - self.linear_layers - self.shared_layers

    def average(self, size: float) -> float:
        """Bytes per parameter of the whole model with `size` bytes per quantized parameter."""
        embeddings = self.embeddings if size < 2 else 0
        return size + embeddings * (2 - size) / self.parameters
