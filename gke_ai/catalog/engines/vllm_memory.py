"""What vLLM 0.31 takes of a GPU beside weights and KV cache: each part at least, and as expected.

vLLM measures these parts when it starts, and what is left of its share is the KV cache: `determine_available_memory`
in https://github.com/vllm-project/vllm/blob/v0.31.0/vllm/v1/worker/gpu_worker.py. Each function names its source, a
file of that tag. What only a measurement shows (the constants below) comes from tests/support/measured_memory.csv, of
H100. The least is below each measured figure, and the expected one above most.
"""

from __future__ import annotations

from dataclasses import dataclass

from gke_ai.catalog.engines.model import Model
from gke_ai.catalog.quantities import GI, MI

# MiB that a graph of a captured size takes per layer. Pieces between attention are captured for every size; whole
# graphs for sizes up to the number of requests: `capture` in vllm/v1/worker/gpu/cudagraph_utils.py. Whole graphs vary
# most, are smaller on several GPUs, and largest with latent attention.
_PIECE_LEAST, _PIECE = 0.235, 0.25
_WHOLE_LEAST, _WHOLE, _WHOLE_SHARED, _WHOLE_LATENT = 0.06, 0.45, 0.225, 0.9
_LARGEST_GRAPH, _LARGEST_GRAPH_ON_BLACKWELL = 512, 1024
# GiB outside PyTorch and in small buffers: on one GPU, and with NCCL on several. More than two were not measured.
_OUTSIDE, _OUTSIDE_NCCL, _OUTSIDE_UNMEASURED = (0.23, 0.30), (1.0, 1.05), (1.0, 1.5)
# Tensors of the width of a token that exist at once in a layer: at least, in models without norms of their own, in
# other dense models, and with experts, latent attention or MXFP4
_WIDTHS_LEAST, _WIDTHS_PLAIN, _WIDTHS, _WIDTHS_EXPERTS, _WIDTHS_LATENT, _WIDTHS_MXFP4 = 2, 3.4, 5, 12, 24, 26
_PLAIN = ("Llama", "Mistral")
# Architectures whose logits exist twice, because they are capped
_SOFT_CAPS = ("Gemma2", "Gemma3n", "Gemma4")
# Gemma 3 encodes an image as 256 tokens, from 4,096 patches of 1,152 values, of which 12 exist at once. Other encoders
# take up to a GiB, and small ones less than a layer of the model.
_GEMMA_3, _IMAGE_TOKENS, _IMAGE_BYTES = "Gemma3For", 256, 4096 * 1152 * 12 * 2
_SMALL_ENCODERS, _ENCODER_GIB = ("Mistral3", "Gemma4"), 1.0
# A model of images may be loaded without its encoder, which takes no more than this.
ENCODER_WEIGHTS_GIB = 1.0
# Share of the weights that is expected beside those that are computed
ROUNDING = 0.0025


@dataclass(frozen=True)
class Part:
    """A part of the memory of a GPU, in bytes: at least, and as expected."""

    name: str
    least: int
    likely: int


@dataclass(frozen=True)
class Run:
    """How vLLM runs a model.

    Attributes:
        gpus: GPUs that share each layer (tensor parallelism).
        ranks: Copies of the attention, which share the experts (data parallelism).
        batch: Tokens of a batch.
        requests: Requests at once.
        capability: Compute capability of the GPU.
        graphs: Whether it captures CUDA graphs, and takes their estimate from the memory.
        stated_graphs: Whether the sizes of the graphs are stated. Then the estimate is not bounded.
        images: Whether it encodes images.
        whole_experts: Whether each GPU has whole experts (expert parallelism).
        adapters: Whether it has LoRA adapters.
        pinned: Whether the image is of the release that this module describes. Others are not bounded.
    """

    gpus: int
    batch: int
    requests: int
    capability: tuple[int, int]
    ranks: int = 1
    graphs: bool = True
    stated_graphs: bool = False
    images: bool = True
    whole_experts: bool = False
    adapters: bool = False
    pinned: bool = True


def takes_images(model: Model) -> bool:
    """Whether the model has an encoder, by its architecture."""
    return model.architecture.endswith("ForConditionalGeneration")


def rope_bytes(model: Model) -> int:
    """Returns the bytes of the tables of RoPE on every GPU: sine and cosine of each position, in 16 bits.

    RotaryEmbeddingBase in vllm/model_executor/layers/rotary_embedding/base.py. Latent attention and Qwen 3.5 rotate 64
    values of a head.
    """
    values = 64 if model.latent_size is not None or model.linear_layers else model.head_size
    return model.context_length * model.rope_tables * values * 2


def parts(model: Model, run: Run) -> list[Part]:
    """Returns what vLLM takes of each GPU beside weights, adapters and KV cache."""
    found = [
        Part("CUDA graphs", *_graphs(model, run)),
        Part("sampling", *_sampling(model, run)),
        Part("activations", *_activations(model, run)),
        Part("experts", *_experts(model, run)),
        Part("outside PyTorch", *_outside(run)),
    ]
    return [part if run.pinned else Part(part.name, 0, part.likely) for part in found if part.likely]


def graph_sizes(run: Run) -> list[int]:
    """Returns the sizes of batches that are captured: `_set_cudagraph_sizes` in vllm/config/vllm.py."""
    most = _LARGEST_GRAPH_ON_BLACKWELL if run.capability[0] == 10 else _LARGEST_GRAPH
    most = min(2 * run.requests, most, run.batch)
    sizes = [*(size for size in (1, 2, 4) if size <= most), *range(8, min(most + 1, 256), 8), *range(256, most + 1, 16)]
    return sorted({*sizes, *(size for size in (run.requests, run.batch) if size <= most)})


def _graphs(model: Model, run: Run) -> tuple[int, int]:
    if not run.graphs:
        return 0, 0
    sizes = graph_sizes(run)
    whole = len([size for size in sizes if size <= run.requests])
    if run.images and model.architecture.startswith(_GEMMA_3):
        whole = 0  # attention to images is never captured
    of_whole = _WHOLE_LATENT if model.latent_size is not None else _WHOLE if run.gpus == 1 else _WHOLE_SHARED
    likely = model.layers * (_PIECE * len(sizes) + of_whole * whole) * (1 + run.adapters)
    least = 0 if run.stated_graphs else model.layers * (_PIECE_LEAST * len(sizes) + _WHOLE_LEAST * whole)
    return round(least * MI), round(likely * MI)


def _sampling(model: Model, run: Run) -> tuple[int, int]:
    """Counts of each token in 32 bits, and a bit per token: vllm/v1/worker/gpu/sample/penalties.py."""
    return run.requests * model.least_vocabulary * 33 // 8, run.requests * model.likely_vocabulary * 33 // 8


def _activations(model: Model, run: Run) -> tuple[int, int]:
    """The largest sum of tensors that exist at once, in a layer, the logits or the encoder: `profile_run` in
    vllm/v1/worker/gpu/model_runner.py."""
    logits = min(run.requests, run.batch) * model.likely_vocabulary * 2
    # Several GPUs gather their shares of the logits, and copy the whole.
    copies = 2 + 1 / run.gpus if run.gpus > 1 else 1
    capped = max(copies, 2) if model.architecture.startswith(_SOFT_CAPS) else copies
    hidden = run.batch * model.width * 2
    layer_least, layer = hidden * _WIDTHS_LEAST, hidden * _widths(model)
    if model.latent_size is None and not model.linear_layers:
        # Gate and up, and their product
        network = run.batch * 3 * model.intermediate // run.gpus * 2
        layer_least += network
        layer += network + (run.batch * model.intermediate // run.gpus if model.block > 1 else 0)
    elif model.linear_layers:
        layer += run.batch * 3 * model.intermediate // run.gpus * 2
    encoder_least, encoder, kept = _encoder(model, run)
    if run.images and takes_images(model):
        kept += hidden  # embeddings of the batch, with those of the images
    # While it compiles, a dense model was seen to need as much as an embedding. Why is not known.
    compiles = run.graphs and _widths(model) == _WIDTHS
    compiling = model.likely_vocabulary * model.width * 2 // run.gpus if compiles else 0
    is_known = model.hidden_size is not None and model.vocabulary is not None
    least = max(layer_least, hidden + logits * copies, encoder_least) if is_known else 0
    return round(least), round(max(layer + kept, hidden + kept + logits * capped, encoder + kept, compiling))


def _widths(model: Model) -> float:
    if model.latent_size is not None:
        return _WIDTHS_LATENT
    if model.loaded_gib_on_hopper is not None:
        return _WIDTHS_MXFP4
    if not model.intermediate:
        return _WIDTHS_EXPERTS
    return _WIDTHS_PLAIN if model.architecture.startswith(_PLAIN) else _WIDTHS


def _encoder(model: Model, run: Run) -> tuple[int, int, int]:
    """The encoder's tensors: at least, as expected, and those that stay beside a layer's."""
    if not run.images or not takes_images(model):
        return 0, 0, 0
    if model.architecture.startswith(_GEMMA_3):
        size = max(run.batch // _IMAGE_TOKENS, 1) * _IMAGE_BYTES
        return round(0.95 * size), size, 0
    return 0, 0, 0 if model.architecture.startswith(_SMALL_ENCODERS) else round(_ENCODER_GIB * GI)


def _experts(model: Model, run: Run) -> tuple[int, int]:
    """Inputs and outputs of the experts, which stay: `workspace_shapes` in
    vllm/model_executor/layers/fused_moe/experts/triton_moe.py. Other kernels, as for 4 bits, differ."""
    if model.expert_size is None:
        return 0, 0
    size, width = model.expert_size, model.width
    if not run.whole_experts:
        size //= run.gpus * run.ranks
    tokens = run.batch * (model.experts_per_token or 8)
    if model.loaded_gib_on_hopper is not None:
        return 0, tokens * size * 2
    both = tokens * (max(size, width) + max(2 * size, width)) * 2
    is_known = model.experts_per_token and model.hidden_size and model.bytes_per_parameter >= 1 and run.ranks == 1
    return both if is_known and run.capability == (9, 0) else 0, both


def _outside(run: Run) -> tuple[int, int]:
    gpus = run.gpus * run.ranks
    least, likely = _OUTSIDE if gpus == 1 else _OUTSIDE_NCCL if gpus == 2 else _OUTSIDE_UNMEASURED
    return round((least if run.ranks == 1 else _OUTSIDE[0]) * GI), round(likely * GI)
