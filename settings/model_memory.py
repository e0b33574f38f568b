"""Accelerator memory that a model server needs, and servers for which it is unknown.

Pure functions over validated settings. A rule refuses models that do not fit. Preview, report and doctor list models
that are not checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from catalog.gpus import GPU_TYPES
from catalog.machines import MACHINES, machines_with
from catalog.model_memory import (
    MARGIN,
    TGI_UTILIZATION,
    VLLM_UTILIZATION,
    Need,
    kv_cache_bytes,
    longest_sequence,
    quantized_bytes,
    weights_bytes,
)
from catalog.models import Model, find_model
from catalog.quantities import GI
from catalog.tpus import VERSIONS
from settings.model import GpuPool, GpuServer, JetStream, Settings, Tgi, Vllm
from settings.plan import pools_of, workload_slice

# Start of each warning about an unchecked model. The report finds the warnings by it.
NOT_CHECKED = "Not checked: "

# Flags, variables and settings that change the memory of a server without one of its keys.
# https://docs.vllm.ai/en/stable/cli/serve.html
_VLLM_FLAGS = (
    *("pipeline-parallel-size", "pp", "decode-context-parallel-size", "dcp", "cpu-offload-gb", "dtype", "config"),
    *("hf-overrides", "rope-scaling", "load-format", "num-gpu-blocks-override", "kv-cache-memory-bytes"),
    *("speculative-config", "enable-lora"),
)
# https://huggingface.co/docs/text-generation-inference/reference/launcher
_TGI_VARIABLES = ("QUANTIZE", "DTYPE", "KV_CACHE_DTYPE", "CUDA_MEMORY_FRACTION", "TGI_WIGGLE_ROOM")
# https://github.com/AI-Hypercomputer/maxtext, configs/base.yml
_MAXTEXT_SETTINGS = ("quantization", "quantize_kvcache", "weight_dtype", "ici_data_parallelism")


@dataclass(frozen=True)
class Place:
    """An accelerator that a replica may run on. `memory` is in bytes; `where` names the compute class, if any."""

    accelerator: str
    memory: float
    where: str = ""

    def __str__(self) -> str:
        return f"{self.accelerator}{self.where}"


@dataclass(frozen=True)
class Unchecked:
    """A server whose model is not checked: its path in the configuration, the reason and the remedy."""

    path: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        unknown = "Whether the model fits its accelerators is unknown"
        return f"{NOT_CHECKED}{self.path}: {self.reason}. {unknown}. {self.remedy}."


@dataclass(frozen=True)
class Load:
    """Memory that a replica needs on `shards` accelerators.

    `tokens` is the length of a sequence. Each accelerator reserves memory for `sequences` of them. TGI without a length
    uses all free memory: then `tokens` is 0. JetStream distributes whole sequences over the chips; other engines
    distribute the heads of each sequence (`splits_heads`).
    """

    model: Model
    shards: int
    tokens: int
    utilization: float
    margin: int
    bytes_per_parameter: float | None = None
    kv_bytes: float | None = None
    sequences: int = 1
    splits_heads: bool = True

    def need(self) -> Need:
        """Memory that each accelerator needs."""
        cache = kv_cache_bytes(self.model, self.tokens, self._kv_shards, self.kv_bytes) * self.sequences
        return Need(weights_bytes(self.model, self.shards, self.bytes_per_parameter), cache, self.margin)

    def available(self, place: Place) -> float:
        """Memory of an accelerator that the engine may use, in bytes."""
        return place.memory * self.utilization

    def fits(self, place: Place) -> bool:
        """Whether each accelerator has enough memory."""
        return self.need().total <= self.available(place)

    def longest(self, place: Place) -> int:
        """Maximum length of a sequence that fits, in tokens; 0 if the weights do not fit."""
        need = self.need()
        room = int(self.available(place)) - need.weights - need.margin
        return longest_sequence(self.model, room // self.sequences, self._kv_shards, self.kv_bytes)

    def on(self, shards: int) -> Load:
        """The same model on another number of accelerators."""
        return replace(self, shards=shards)

    @property
    def _kv_shards(self) -> int:
        return self.shards if self.splits_heads else 1


def places(server: GpuServer | JetStream, settings: Settings) -> list[Place]:
    """The accelerators that a replica may run on, in ascending order of memory.

    Empty if the configuration names none, or if no node has as many as a replica needs.
    """
    if isinstance(server, JetStream):
        version = VERSIONS[workload_slice(server, settings).version]
        return [Place(version.accelerator, version.memory_gib * GI)]
    named = dict.fromkeys(_gpu_types(server, settings))
    known = [Place(name, GPU_TYPES[name].memory_gib * GI, where) for name, where in named if name in GPU_TYPES]
    return sorted(known, key=lambda place: place.memory)


def _gpu_types(server: GpuServer, settings: Settings) -> Iterator[tuple[str, str]]:
    if server.compute_class is not None:
        where = f" of compute class {server.compute_class}"
        for compute_class in settings.compute_classes:
            for priority in compute_class.priorities if compute_class.name == server.compute_class else ():
                machine = MACHINES.get(priority.machine_type)
                if machine is not None and machine.gpu is not None and machine.gpus >= server.gpus:
                    yield machine.gpu, where
    elif server.pool is not None:
        for pool in pools_of(server, settings):
            assert isinstance(pool, GpuPool)
            accelerator, count = pool.gpus
            if count >= server.gpus:
                yield accelerator, ""
    elif server.accelerator is not None:
        machines = machines_with(server.accelerator)
        yield from [(server.accelerator, "")] if any(machine.gpus >= server.gpus for machine in machines) else []


def load_of(server: GpuServer | JetStream, settings: Settings) -> Load | Unchecked:
    """The load of a replica of the server, or why it is unknown."""
    model: Model | None
    if server.model_shape is not None:
        model = Model(names=(server.model,), source=server.at("modelShape"), **server.model_shape.model_dump())
    else:
        model = find_model(server.model)
    if model is None:
        reason = f"the catalog does not have the model {server.model}"
        return Unchecked(server.at("model"), reason, f"Describe it in {server.at('modelShape')}")
    if isinstance(server, JetStream):
        return _jetstream(server, model, settings)
    if isinstance(server, Vllm):
        return _vllm(server, model)
    if isinstance(server, Tgi):
        return _tgi(server, model)
    reason = f"the memory needs of {server.engine} are unknown"
    return Unchecked(server.at("engine"), reason, "Watch the first start of the server")


def _vllm(server: Vllm, model: Model) -> Load | Unchecked:
    flags = _flags(server.arguments)
    for name in flags:
        if name.partition(".")[0] in _VLLM_FLAGS:
            return _changed(server.at("arguments"), f"--{name}")
    try:
        utilization = float(flags.get("gpu-memory-utilization", VLLM_UTILIZATION))
    except ValueError:
        return _changed(server.at("arguments"), "--gpu-memory-utilization")
    size = _quantized(server)
    if isinstance(size, Unchecked):
        return size
    kv_bytes = 1 if flags.get("kv-cache-dtype", "").startswith("fp8") else None
    tokens = server.max_model_len or model.context_length
    return Load(model, server.gpus, tokens, utilization, MARGIN, size, kv_bytes)


def _tgi(server: Tgi, model: Model) -> Load | Unchecked:
    for name in server.env:
        if name in _TGI_VARIABLES:
            return _changed(server.at(f"env.{name}"), name)
    size = _quantized(server)
    if isinstance(size, Unchecked):
        return size
    # TGI caches every token in every layer. Without a length it caches as many as fit:
    # https://huggingface.co/docs/text-generation-inference/reference/launcher
    whole = replace(model, sliding_window=None, sliding_layers=0)
    if server.max_model_len is None:
        return Load(whole, server.gpus, 0, 1.0, MARGIN, size)
    return Load(whole, server.gpus, server.max_model_len, TGI_UTILIZATION, MARGIN, size)


def _jetstream(server: JetStream, model: Model, settings: Settings) -> Load | Unchecked:
    for name in server.arguments:
        if name in _MAXTEXT_SETTINGS:
            return _changed(server.at("arguments"), name)
    chips = workload_slice(server, settings).chips
    # MaxText reserves every decoding slot at its full length. The needs of XLA are not published.
    # https://github.com/AI-Hypercomputer/JetStream/blob/main/docs/online-inference-with-maxtext-engine.md
    return Load(model, chips, server.max_target_length, 1.0, 0, sequences=server.batch_size, splits_heads=False)


def _quantized(server: GpuServer) -> float | Unchecked | None:
    if server.quantize is None:
        return None
    size = quantized_bytes(server.quantize, server.engine)
    if size is None:
        reason = f"{server.quantize} does not say how many bits a weight has"
        remedy = f"Set bytesPerParameter in {server.at('modelShape')}"
        if server.model_shape is None or "bytes_per_parameter" not in server.model_shape.model_fields_set:
            return Unchecked(server.at("quantize"), reason, remedy)
    return size


def _changed(path: str, name: str) -> Unchecked:
    return Unchecked(path, f"{name} changes how much memory the model needs", "Watch the first start of the server")


def _flags(arguments: list[str]) -> dict[str, str]:
    """The flags of a command line and their values, by name."""
    flags: dict[str, str] = {}
    for index, text in enumerate(arguments):
        if text.startswith("-"):
            name, equals, value = text.lstrip("-").partition("=")
            following = arguments[index + 1] if index + 1 < len(arguments) else ""
            flags[name.replace("_", "-")] = value if equals or following.startswith("-") else following
    return flags


def unchecked(settings: Settings) -> list[Unchecked]:
    """The servers whose model is not checked."""
    loads = [load_of(server, settings) for server in settings.serving]
    return [load for load in loads if isinstance(load, Unchecked)]
