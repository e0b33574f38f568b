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
    - `linear_layers` is the number of layers with linear attention, and `linear_state` the bytes of the state that each
      keeps per sequence. 0: unknown.
    - `shared_layers` is the number of layers that use the KV cache of another. `sliding_layers` does not count them.
    - `full_kv_heads` and `full_head_size` are those of layers without a window, if they differ.
    - `method` is the quantization method of a copy whose method not every engine has.
    - `loaded_gib` and `loaded_gib_on_hopper` are figures of vLLM, for models that it loads larger than their files.
    - `vocabulary` and `hidden_size` are those of the embeddings.
    - `experts_per_token` is the number of experts that a token is sent to.
    - `unloaded` is the number of parameters in the files that are not loaded, less those that are loaded twice.
    - `rope_tables` is the number of values that an engine keeps per position and per value of a head, for RoPE.
    - `default_length` is the longest sequence without a stated one, if it is not `context_length`.
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
    loaded_gib_on_hopper: float | None = None
    vocabulary: int | None = None
    hidden_size: int | None = None
    experts_per_token: int | None = None
    unloaded: int = 0
    linear_state: int = 0
    rope_tables: int = 1
    default_length: int | None = None

    @property
    def full_layers(self) -> int:
        """Layers that cache every token."""
        return self.layers - self.sliding_layers - self.linear_layers - self.shared_layers

    def average(self, size: float) -> float:
        """Bytes per parameter of the whole model with `size` bytes per quantized parameter."""
        embeddings = self.embeddings if size < 2 else 0
        return size + embeddings * (2 - size) / self.parameters

    @property
    def width(self) -> int:
        """Values of a token between layers. If it is not stated: as many as all heads have, as in most models."""
        return self.hidden_size or self.attention_heads * self.head_size

    @property
    def least_vocabulary(self) -> int:
        """Size of the vocabulary. If it is not stated, as with separate input and output embeddings. 0: unknown."""
        return self.vocabulary or (self.embeddings // self.hidden_size // 2 if self.hidden_size else 0)

    @property
    def likely_vocabulary(self) -> int:
        """Size of the vocabulary. If it is not stated, as if embeddings were shared, or as in Gemma 3, the largest."""
        return self.vocabulary or self.embeddings // self.width or 262_144

    @property
    def attention(self) -> int:
        """Parameters of the attention of all layers; of latent attention only its output, as its ranks are unknown."""
        heads, kv_heads = self.attention_heads, self.kv_heads
        wide = heads if self.latent_size is not None else 2 * heads + 2 * kv_heads
        return self.layers * self.width * wide * self.head_size

    @property
    def intermediate(self) -> int:
        """Width of a dense feed-forward network, whose three matrices are what a layer has beside attention.

        0 with experts or with embeddings per layer. No dense model of the catalog has more than 8 times its width.
        """
        rest = self.parameters - self.unloaded - self.embeddings - self.attention
        size = max(rest // (self.layers * 3 * self.width), 0)
        return size if self.expert_size is None and not self.shared_layers and size <= 9 * self.width else 0


def linear_state(value_heads: int, key_heads: int = 16, head_size: int = 128, kernel: int = 4) -> int:
    """Returns the bytes of a sequence's state in a layer of Gated DeltaNet.

    A matrix per value head of 32 bits, and the convolution's last inputs of 16: gated_delta_net_state_shape in
    vllm/model_executor/layers/mamba/mamba_utils.py of the release.
    """
    convolution = (2 * key_heads + value_heads) * head_size * (kernel - 1)
    return value_heads * head_size * head_size * 4 + convolution * 2
