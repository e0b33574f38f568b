"""Accelerator memory that a model server needs, and servers for which it is unknown.

Pure functions over validated settings. A rule refuses models that do not fit. Preview, report and doctor list models
that are not checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from catalog.engines import ENGINES, MemoryUse
from catalog.gpus import GPU_TYPES
from catalog.model_memory import Need, kv_cache_bytes, longest_sequence, quantized_bytes, weights_bytes
from catalog.models import Model, find_model
from catalog.quantities import GI
from catalog.tpus import VERSIONS
from settings.model import AnyServer, Server
from settings.stack import Placed

# Start of each warning about an unchecked model. The report finds the warnings by it.
NOT_CHECKED = "Not checked: "

# Memory of each accelerator in GiB, by the name of its node label.
_MEMORY_GIB: dict[str, float] = {gpu.name: gpu.memory_gib for gpu in GPU_TYPES.values()}
# The devices of a TPU chip share its memory.
_MEMORY_GIB |= {version.accelerator: version.memory_gib / version.devices_per_chip for version in VERSIONS.values()}


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
    copies_kv_heads: bool = True

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


def places(placed: Placed[AnyServer]) -> list[Place]:
    """The accelerators that a replica may run on, in ascending order of memory.

    Empty if the configuration names none, or if no node has as many as a replica needs.
    """
    named = dict.fromkeys(placed.section.accelerator_places(placed.nodes))
    known = [Place(name, _MEMORY_GIB[name] * GI, where) for name, where in named if name in _MEMORY_GIB]
    return sorted(known, key=lambda place: place.memory)


def load_of(placed: Placed[AnyServer]) -> Load | Unchecked:
    """The load of a replica of the server, or why it is unknown."""
    server = placed.section
    model: Model | None
    if server.model_shape is not None:
        model = Model(names=(server.model,), source=server.at("modelShape"), **server.model_shape.model_dump())
    else:
        model = find_model(server.model)
    if model is None:
        reason = f"the catalog does not have the model {server.model}"
        return Unchecked(server.at("model"), reason, f"Describe it in {server.at('modelShape')}")
    use = ENGINES[server.engine].memory
    if use is None:
        reason = f"the memory needs of {server.engine} are unknown"
        return Unchecked(server.at("engine"), reason, "Watch the first start of the server")
    return next(_changes(server, use), None) or _load(placed, model, use)


def _load(placed: Placed[AnyServer], model: Model, use: MemoryUse) -> Load | Unchecked:
    server = placed.section
    size = _quantized(server, use)
    if isinstance(size, Unchecked):
        return size
    if not use.sliding_windows:
        model = replace(model, sliding_window=None, sliding_layers=0)
    arguments = server.further_arguments
    utilization, tokens = float(arguments.get(use.utilization_flag, use.utilization)), server.max_length
    if tokens is None:
        tokens = model.context_length if use.without_length == "context" else 0
        utilization = utilization if tokens else 1.0
    return Load(
        model,
        server.shards(placed.nodes),
        tokens,
        utilization,
        use.margin,
        size,
        1 if arguments.get(use.kv_cache_flag, "").startswith("fp8") else None,
        sequences=server.sequences,
        splits_heads=use.splits_heads,
        copies_kv_heads=use.copies_kv_heads,
    )


def _changes(server: Server, use: MemoryUse) -> Iterator[Unchecked]:
    """Variables and arguments of the server that change its memory in ways that are not computed."""
    for name in server.env:
        if name in use.changed_by:
            yield _changed(server.at(f"env.{name}"), name)
    for name, value in server.further_arguments.items():
        if name.partition(".")[0] in use.changed_by or (name == use.utilization_flag and not _is_number(value)):
            yield _changed(server.at("arguments"), server.argument_name(name))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _quantized(server: Server, use: MemoryUse) -> float | Unchecked | None:
    if server.quantization is None:
        return None
    size = quantized_bytes(server.quantization, use.bytes_per_parameter)
    if size is None:
        reason = f"{server.quantization} does not say how many bits a weight has"
        remedy = f"Set bytesPerParameter in {server.at('modelShape')}"
        if server.model_shape is None or "bytes_per_parameter" not in server.model_shape.model_fields_set:
            return Unchecked(server.at("quantize"), reason, remedy)
    return size


def _changed(path: str, name: str) -> Unchecked:
    return Unchecked(path, f"{name} changes how much memory the model needs", "Watch the first start of the server")


def unchecked(servers: Sequence[Placed[AnyServer]]) -> list[Unchecked]:
    """The servers whose model is not checked."""
    loads = [load_of(server) for server in servers]
    return [load for load in loads if isinstance(load, Unchecked)]
