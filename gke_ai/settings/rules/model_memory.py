"""Rules of models: each fits the accelerators of its server, and its engine supports them.

A server that breaks one of these rules would restart until its timeout, and its nodes would be billed meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator

from gke_ai.catalog.engines import vllm
from gke_ai.catalog.engines.engine import ENGINES
from gke_ai.catalog.engines.vllm import LATER
from gke_ai.catalog.machines.gpus import GPU_TYPES, Gpu
from gke_ai.catalog.machines.tpus import slices
from gke_ai.catalog.machines.types import machines_with
from gke_ai.catalog.quantities import GI
from gke_ai.settings.estimates.model_memory import Load, Place, Unchecked, load_of, model_of, places
from gke_ai.settings.estimates.tight_models import table
from gke_ai.settings.model import AnyServer, Server, TpuServer, TpuWorkload, Vllm
from gke_ai.settings.model.serving import FlagArguments
from gke_ai.settings.problems import Problem
from gke_ai.settings.resolved import Placed
from gke_ai.settings.rules.common import each, each_server

# Shorter sequences are not useful; the remedy is then another one.
_MIN_USEFUL_TOKENS = 1024
# Most machines have no more.
_MAX_GPUS_SUGGESTED = 8


@each_server
def shapes_are_consistent(server: Server) -> Iterator[Problem]:
    """The dimensions of a model do not contradict each other."""
    shape = server.model_shape
    if shape is None:
        return
    if shape.attention_heads % shape.kv_heads:
        cause = f"{shape.attention_heads} attention heads cannot share {shape.kv_heads} key-value heads evenly"
        yield Problem(server.at("modelShape.kvHeads"), cause, "Copy num_key_value_heads from config.json")
    apart = {
        "slidingLayers": (shape.sliding_layers, "have a sliding window"),
        "linearLayers": (shape.linear_layers, "have linear attention"),
        "sharedLayers": (shape.shared_layers, "share a cache"),
    }
    if (excess := sum(count for count, _ in apart.values()) - shape.layers) > 0:
        key, (count, _) = next((key, part) for key, part in reversed(apart.items()) if part[0])
        kinds = " or ".join(kind for number, kind in apart.values() if number)
        cause = f"the model has {shape.layers} layers, and {shape.layers + excess} of them {kinds}"
        yield Problem(server.at(f"modelShape.{key}"), cause, f"Set it to {max(count - excess, 0)} or less")
    if bool(shape.sliding_layers) != (shape.sliding_window is not None):
        missing = "slidingWindow" if shape.sliding_layers else "slidingLayers"
        cause = f"{missing} is missing, and a sliding window needs its length and its layers"
        yield Problem(server.at(f"modelShape.{missing}"), cause, "Set both, or neither")


@each(lambda stack: stack.servers)
def models_are_shared_evenly(placed: Placed[AnyServer]) -> Iterator[Problem]:
    """The number of GPUs or TPU devices of a replica divides the heads and the experts of its model evenly."""
    server, load = placed.section, load_of(placed)
    if isinstance(load, Unchecked) or load.divides or not places(placed):
        return
    on_tpus = isinstance(server, TpuWorkload)
    counts = ", ".join(str(count) for count in range(1, _MAX_GPUS_SUGGESTED + 1) if load.on(count).divides)
    remedy = f"Choose a slice with one of these numbers: {counts}" if on_tpus else f"Write one of: {counts}"
    if load.shares_heads and load.use.expert_parallel_flag:
        remedy += f", or add --{load.use.expert_parallel_flag} to arguments"
    noun = "devices of a slice" if on_tpus else "GPUs"
    cause = f"{load.shards} {noun} cannot share the {_shared(load)} of {server.model} evenly"
    yield Problem(server.at(server.size_key), f"{cause}. The server would not start", remedy)


def _shared(load: Load) -> str:
    """What the accelerators cannot share."""
    model = load.model
    if not load.shares_heads:
        return f"{model.attention_heads} attention heads and {model.kv_heads} key-value heads"
    blocks = f", in blocks of {model.block}," if model.block > 1 else ""
    return f"{model.expert_size} columns{blocks} of each expert"


@each(lambda stack: stack.servers)
def models_fit(placed: Placed[AnyServer]) -> Iterator[Problem]:
    """Each accelerator that a replica may get has the memory that the model needs at least, with one sequence."""
    load = load_of(placed)
    if isinstance(load, Unchecked):
        return
    if not load.divides:
        return  # models_are_shared_evenly reports it
    short = [place for place in places(placed) if not load.fits(place)]
    if short:
        yield _does_not_fit(placed, load, short[0])


def _does_not_fit(placed: Placed[AnyServer], load: Load, place: Place) -> Problem:
    server = placed.section
    length = load.longest(place)
    length -= length % _MIN_USEFUL_TOKENS
    choices = [f"set {server.length_key} to {length:,} or less"] if length and load.tokens else []
    choices += _more_accelerators(placed, load, place)
    remedy = ", or ".join(choices) if choices else "choose a smaller model or a quantized one"
    return Problem(
        server.at(server.length_key if length and load.tokens else server.size_key),
        f"{server.model} needs at least {_gib(load.need(place).least)} GiB on each {place}, and "
        f"{_gib(load.available(place))} GiB can be used. The server would not start",
        remedy[0].upper() + remedy[1:],
        table(load, place),
    )


def _more_accelerators(placed: Placed[AnyServer], load: Load, place: Place) -> list[str]:
    """Suggests more accelerators of the same type or a larger type; else the smallest number of any type."""
    server = placed.section
    if isinstance(server, TpuWorkload):
        own = placed.slice
        larger = (other for other in slices(own.version) if not other.multi_host and other.devices > load.shards)
        fitting = next((other for other in larger if load.on(other.devices).fits(place)), None)
        return [f"use a {fitting.topology} slice"] if fitting else []
    usable = [gpu for gpu in GPU_TYPES.values() if _has_kernels(server, gpu)]
    remedies = []
    if more := _count_that_fits(load, place, load.gpus + 1):
        remedies.append(f"set gpus to {more}")
    for gpu in sorted(usable, key=lambda gpu: gpu.memory_gib):
        if _count_that_fits(load, _place(gpu), load.gpus) == load.gpus:
            remedies.append(f"use {gpu.name}")
            break
    if remedies:
        return remedies
    pairs = [(count, gpu.name) for gpu in usable if (count := _count_that_fits(load, _place(gpu), 1))]
    return [f"use {count} {name}" for count, name in sorted(pairs, key=lambda pair: pair[0])[:1]]


def _count_that_fits(load: Load, place: Place, min_gpus: int) -> int | None:
    """The smallest number of GPUs of a machine that holds the model."""
    counts = {machine.gpus for machine in machines_with(place.accelerator) if machine.gpus >= min_gpus}
    even = (count for count in sorted(counts) if count % load.ranks == 0 and load.on(count).divides)
    return next((count for count in even if load.on(count).likely_fits(place)), None)


def _place(gpu: Gpu) -> Place:
    return Place(gpu.name, gpu.memory_gib * GI)


@each_server
def lengths_are_within_the_context(server: Server) -> Iterator[Problem]:
    """No sequence is longer than the context of the model. vLLM refuses it unless a variable allows it.

    https://github.com/vllm-project/vllm/blob/v0.31.0/vllm/config/model.py, _get_and_verify_max_len
    """
    model, length = model_of(server), server.max_length
    if not isinstance(server, FlagArguments) or model is None or length is None or length <= model.context_length:
        return
    if "hf-overrides" not in server.reading.values and server.env.get(vllm.ALLOW_LONG, "0") == "0":
        cause = f"{server.model} has a context of {model.context_length:,} tokens. vLLM would not start"
        remedy = f"Set maxModelLen to {model.context_length:,} or less"
        yield Problem(server.at("maxModelLen"), cause, remedy)


@each_server
def gpus_are_those_of_the_parallelism(server: Server) -> Iterator[Problem]:
    """Tensor, data and pipeline parallelism together need as many GPUs as a replica has."""
    if not isinstance(server, Vllm):
        return
    if server.gpus % server.data_ranks:
        cause = f"{server.data_ranks} copies cannot share {server.gpus} GPUs evenly. The server would not start"
        counts = ", ".join(str(count) for count in range(1, server.gpus + 1) if server.gpus % count == 0)
        yield Problem(server.at("dataParallel"), cause, f"Write one of: {counts}")
    stages = server.reading.values.get(vllm.PIPELINE_FLAG, "1")
    if stages != "1":
        cause = f"gpus sets {server.tensor_parallel} GPUs for each layer, and --{vllm.PIPELINE_FLAG} {stages} "
        cause += f"times as many. The replica has {server.gpus} GPUs, and vLLM would not start"
        yield Problem(server.at("arguments"), cause, "Remove it: the GPUs share each layer")


@each(lambda stack: stack.servers)
def engines_have_kernels(placed: Placed[AnyServer]) -> Iterator[Problem]:
    """The engine's pinned image supports the GPU type; the user's own image is not checked."""
    server = placed.section
    if server.image is not None:
        return
    for place in places(placed):
        if place.accelerator in GPU_TYPES and not _has_kernels(server, GPU_TYPES[place.accelerator]):
            key = next(key for key in ("compute_class", "pool", "accelerator") if getattr(server, key) is not None)
            path = server.at({"compute_class": "computeClass"}.get(key, key))
            cause = f"the image of {ENGINES[server.engine].title} has no kernels for {place}"
            remedy = "Use engine: vllm, another GPU type, or an image of your own"
            yield Problem(path, f"{cause}. The server would fail", remedy)
            break


@each(lambda stack: stack.tpu_workloads)
def engines_support_the_tpu(placed: Placed[TpuWorkload]) -> Iterator[Problem]:
    """The engine's pinned image supports the TPU version; the user's own image is not checked."""
    server = placed.section
    supported = ENGINES[server.engine].tpus if isinstance(server, TpuServer) else ()
    if not isinstance(server, TpuServer) or server.image is not None or not supported:
        return
    version = placed.slice.version
    if version not in supported:
        cause = f"{ENGINES[server.engine].title} does not support TPU {version} yet. The server would fail"
        remedy = f"Use {', '.join(supported[:-1])} or {supported[-1]}, or an image of your own"
        yield Problem(server.at(server.size_key), cause, remedy)


@each_server
def models_are_known(server: Server) -> Iterator[Problem]:
    """The engine's pinned image has the model's architecture; the user's own image is not checked."""
    known, model = ENGINES[server.engine].architectures, model_of(server)
    name = model.architecture if model is not None else ""
    if not name or server.image is not None or known is None or name in known:
        return
    cause = f"{ENGINES[server.engine].title} {vllm.RELEASE} has no architecture {name}. The server would not start"
    later = f"Set an image of vLLM {LATER[name]} or newer" if name in LATER else "Choose another model or image"
    yield Problem(server.at("model"), cause, later)


@each(lambda stack: stack.servers)
def latent_attention_runs(placed: Placed[AnyServer]) -> Iterator[Problem]:
    """Models with multi-head latent attention run on TPUs only with further settings."""
    server, load = placed.section, load_of(placed)
    if isinstance(load, Unchecked) or load.use.latent_attention or load.model.latent_size is None:
        return
    cause = f"{server.model} has multi-head latent attention. {ENGINES[server.engine].title} would refuse it"
    remedy = f"Set {vllm.TPU_MLA_VARIABLE} to 1 in env, and add '{vllm.TPU_MLA_FLAG}' to arguments"
    yield Problem(server.at("model"), cause, remedy)


def _has_kernels(server: Server, gpu: Gpu) -> bool:
    newest = ENGINES[server.engine].newest_kernels
    return newest is None or server.image is not None or gpu.compute_capability <= newest


def _gib(amount: float) -> str:
    return f"{amount / GI:,.1f}"
