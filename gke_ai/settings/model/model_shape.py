"""The dimensions of a model outside the catalog."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from gke_ai.settings.model.base import Section


class ModelShape(Section):
    """Dimensions of a model outside the catalog, from its `config.json`."""

    noun: ClassVar[str] = "the shape of a model"

    parameters: int = Field(
        ge=1, description="Total number of parameters, including every expert of an MoE model.", examples=[8030261248]
    )
    layers: int = Field(ge=1, description="Number of hidden layers.", examples=[32])
    attention_heads: int = Field(ge=1, description="Attention heads per layer.", examples=[32])
    kv_heads: int = Field(ge=1, description="Key-value heads per layer.", examples=[8])
    head_size: int = Field(ge=1, description="Values per head.", examples=[128])
    context_length: int = Field(
        ge=1, description="Longest sequence that the model supports, in tokens.", examples=[131072]
    )
    sliding_window: int | None = Field(
        default=None,
        ge=1,
        description="Length of the sliding window, in tokens. Default: no layer has one.",
        examples=[4096],
    )
    sliding_layers: int = Field(default=0, ge=0, description="Number of layers with a sliding window.", examples=[21])
    latent_size: int | None = Field(
        default=None,
        ge=1,
        description="Values that a layer with multi-head latent attention caches per token: `kv_lora_rank` plus "
        "`qk_rope_head_dim`, and the key of its indexer, if it has one.",
        examples=[576],
    )
    bytes_per_parameter: float = Field(
        default=2, ge=0.25, le=4, description="Average size of a parameter, in bytes.", examples=[1]
    )
    kv_bytes: float = Field(default=2, ge=0.25, le=4, description="Size of a cached value, in bytes.", examples=[1])
    architecture: str = Field(
        default="",
        description="Entry of `architectures`. Without it, the program does not check that the engine supports the "
        "model.",
        examples=["LlamaForCausalLM"],
    )
    expert_size: int | None = Field(
        default=None, ge=1, description="Width of an expert (`moe_intermediate_size`).", examples=[768]
    )
    block: int = Field(
        default=1, ge=1, description="Width of a block of quantized weights (`weight_block_size`).", examples=[128]
    )
    embeddings: int = Field(
        default=0,
        ge=0,
        description="Parameters of input and output embeddings, which `quantize` leaves in 16 bits.",
        examples=[1050673152],
    )
    vocabulary: int | None = Field(
        default=None,
        ge=1,
        description="Number of tokens in the vocabulary (`vocab_size`). Without it, or without `hiddenSize`, less of "
        "what vLLM needs is known.",
        examples=[128256],
    )
    hidden_size: int | None = Field(
        default=None, ge=1, description="Values per token between layers (`hidden_size`).", examples=[4096]
    )
    experts_per_token: int | None = Field(
        default=None, ge=1, description="Experts that a token is sent to (`num_experts_per_tok`).", examples=[8]
    )
    chunked: bool = Field(default=False, description="Whether layers with a window attend to chunks, as in Llama 4.")
    linear_layers: int = Field(default=0, ge=0, description="Number of layers with linear attention.", examples=[30])
    linear_state: int = Field(
        default=0,
        ge=0,
        description="Size of the state that a layer with linear attention keeps per sequence, in bytes.",
        examples=[2146304],
    )
    shared_layers: int = Field(
        default=0,
        ge=0,
        description="Number of layers that use the KV cache of another (`num_kv_shared_layers`). `slidingLayers` does "
        "not count them.",
        examples=[18],
    )
    full_kv_heads: int | None = Field(
        default=None, ge=1, description="Key-value heads of layers without a window. Default: `kvHeads`.", examples=[4]
    )
    full_head_size: int | None = Field(
        default=None,
        ge=1,
        description="Values per head of layers without a window. Default: `headSize`.",
        examples=[512],
    )
