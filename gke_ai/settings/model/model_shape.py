"""The dimensions of a model outside the catalog."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from gke_ai.settings.model.base import Section


class ModelShape(Section):
    """Dimensions of a model outside the catalog, from its `config.json`."""

    noun: ClassVar[str] = "the shape of a model"

    parameters: int = Field(ge=1, examples=[8030261248])
    """Total number of parameters, including every expert of an MoE model."""
    layers: int = Field(ge=1, examples=[32])
    """Number of hidden layers."""
    attention_heads: int = Field(ge=1, examples=[32])
    """Attention heads per layer."""
    kv_heads: int = Field(ge=1, examples=[8])
    """Key-value heads per layer."""
    head_size: int = Field(ge=1, examples=[128])
    """Values per head."""
    context_length: int = Field(ge=1, examples=[131072])
    """Longest sequence that the model supports, in tokens."""
    sliding_window: int | None = Field(default=None, ge=1, examples=[4096])
    """Length of the sliding window, in tokens. Default: no layer has one."""
    sliding_layers: int = Field(default=0, ge=0, examples=[21])
    """Number of layers with a sliding window."""
    latent_size: int | None = Field(default=None, ge=1, examples=[576])
    """Values that a layer with multi-head latent attention caches per token: `kv_lora_rank` plus `qk_rope_head_dim`,
    and the key of its indexer, if it has one."""
    bytes_per_parameter: float = Field(default=2, ge=0.25, le=4, examples=[1])
    """Average size of a parameter, in bytes."""
    kv_bytes: float = Field(default=2, ge=0.25, le=4, examples=[1])
    """Size of a cached value, in bytes."""
    architecture: str = Field(default="", examples=["LlamaForCausalLM"])
    """Entry of `architectures`. Without it, the program does not check that the engine supports the model."""
    expert_size: int | None = Field(default=None, ge=1, examples=[768])
    """Width of an expert (`moe_intermediate_size`)."""
    block: int = Field(default=1, ge=1, examples=[128])
    """Width of a block of quantized weights (`weight_block_size`)."""
    embeddings: int = Field(default=0, ge=0, examples=[1050673152])
    """Parameters of input and output embeddings, which `quantize` leaves in 16 bits."""
    vocabulary: int | None = Field(default=None, ge=1, examples=[128256])
    """Number of tokens in the vocabulary (`vocab_size`). Without it, or without `hiddenSize`, less of what vLLM needs
    is known."""
    hidden_size: int | None = Field(default=None, ge=1, examples=[4096])
    """Values per token between layers (`hidden_size`)."""
    experts_per_token: int | None = Field(default=None, ge=1, examples=[8])
    """Experts that a token is sent to (`num_experts_per_tok`)."""
    chunked: bool = False
    """Whether layers with a window attend to chunks, as in Llama 4."""
    linear_layers: int = Field(default=0, ge=0, examples=[30])
    """Number of layers with linear attention."""
    linear_state: int = Field(default=0, ge=0, examples=[2146304])
    """Size of the state that a layer with linear attention keeps per sequence, in bytes."""
    shared_layers: int = Field(default=0, ge=0, examples=[18])
    """Number of layers that use the KV cache of another (`num_kv_shared_layers`). `slidingLayers` does not count
    them."""
    full_kv_heads: int | None = Field(default=None, ge=1, examples=[4])
    """Key-value heads of layers without a window. Default: `kvHeads`."""
    full_head_size: int | None = Field(default=None, ge=1, examples=[512])
    """Values per head of layers without a window. Default: `headSize`."""
