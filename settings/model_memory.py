"""What a model server loads on each GPU or TPU chip, and what of it cannot be told.

Pure functions over validated settings. The rule refuses what does not fit; preview, report and doctor list what is not
checked.
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
from settings.plan import gpus, pools_of, workload_slice

# Begins every warning about a model that is not checked; the report finds it by this.
NOT_CHECKED = "Not checked: "

# Settings past the keys of a server that change what it needs.
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
    """An accelerator that a replica may run on, and the memory of each in bytes; `where` says by what it is chosen."""

    accelerator: str
    memory: float
    where: str = ""

    def __str__(self) -> str:
        return f"{self.accelerator}{self.where}"


@dataclass(frozen=True)
class Unchecked:
    """A server whose model is not checked: the path in the configuration, why, and what makes it checked."""

    path: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        unknown = "Nothing says whether the model fits its accelerators"
        return f"{NOT_CHECKED}{self.path}: {self.reason}. {unknown}. {self.remedy}."


@dataclass(frozen=True)
class Load:
    """What a replica loads on `shards` accelerators.

    `tokens` is the length of a sequence, `sequences` how many of it each accelerator reserves memory for. TGI without
    a length takes what memory is left: then `tokens` is 0. JetStream shares whole sequences among the chips, others
    share the heads of each: `splits_heads`.
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
        """What each accelerator has to hold."""
        cache = kv_cache_bytes(self.model, self.tokens, self._kv_shards, self.kv_bytes) * self.sequences
        return Need(weights_bytes(self.model, self.shards, self.bytes_per_parameter), cache, self.margin)

    def available(self, place: Place) -> float:
        """The memory of an accelerator that may be used."""
        return place.memory * self.utilization

    def fits(self, place: Place) -> bool:
        """Whether each accelerator holds its part."""
        return self.need().total <= self.available(place)

    def longest(self, place: Place) -> int:
        """The most tokens of a sequence that fit; 0 where not even the weights do."""
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
    """The accelerators that a replica may get, smallest memory first.

    None where the configuration names none, or where no node has as many as a replica takes.
    """
    if isinstance(server, JetStream):
        version = VERSIONS[workload_slice(server, settings).version]
        return [Place(version.accelerator, version.memory_gib * GI)]
    named = dict.fromkeys(_gpu_types(server, settings))
    found = [Place(name, GPU_TYPES[name].memory_gib * GI, where) for name, where in named if name in GPU_TYPES]
    return sorted(found, key=lambda place: place.memory)


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
            accelerator, count = gpus(pool)
            if count >= server.gpus:
                yield accelerator, ""
    elif server.accelerator is not None:
        machines = machines_with(server.accelerator)
        yield from [(server.accelerator, "")] if any(machine.gpus >= server.gpus for machine in machines) else []


def load_of(server: GpuServer | JetStream, settings: Settings) -> Load | Unchecked:
    """What a replica of the server loads, or why that cannot be told."""
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
    reason = f"nothing is known of how much memory {server.engine} takes"
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
    # TGI caches every token in every layer. Without a length it takes as many as fit:
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
    # MaxText reserves every decoding slot at its full length; no published figure tells what XLA needs beside it.
    # https://github.com/AI-Hypercomputer/JetStream/blob/main/docs/online-inference-with-maxtext-engine.md
    return Load(model, chips, server.max_target_length, 1.0, 0, sequences=server.batch_size, splits_heads=False)


def _quantized(server: GpuServer) -> float | Unchecked | None:
    if server.quantize is None:
        return None
    size = quantized_bytes(server.quantize, server.engine)
    if size is None:
        reason = f"{server.quantize} does not say how many bits a weight has"
        remedy = f"State bytesPerParameter in {server.at('modelShape')}"
        if server.model_shape is None or "bytes_per_parameter" not in server.model_shape.model_fields_set:
            return Unchecked(server.at("quantize"), reason, remedy)
    return size


def _changed(path: str, name: str) -> Unchecked:
    return Unchecked(path, f"{name} changes how much memory the model needs", "Watch the first start of the server")


def _flags(arguments: list[str]) -> dict[str, str]:
    """The flags of a command line by name, each with its value, if it has one."""
    found: dict[str, str] = {}
    for index, text in enumerate(arguments):
        if text.startswith("-"):
            name, equals, value = text.lstrip("-").partition("=")
            following = arguments[index + 1] if index + 1 < len(arguments) else ""
            found[name.replace("_", "-")] = value if equals or following.startswith("-") else following
    return found


def unchecked(settings: Settings) -> list[Unchecked]:
    """The servers whose model is not checked."""
    loads = [load_of(server, settings) for server in settings.serving]
    return [load for load in loads if isinstance(load, Unchecked)]
