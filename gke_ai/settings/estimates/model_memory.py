"""Accelerator memory that a model server needs, and servers for which it is unknown.

Pure functions over validated settings. A rule refuses a model if what the engine takes at least leaves too little.
Preview, report and doctor warn of one that likely does not fit, and list models that are not checked.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gke_ai.catalog.engines import model_memory, vllm, vllm_memory
from gke_ai.catalog.engines.engine import ENGINES, MemoryUse
from gke_ai.catalog.engines.model import Model
from gke_ai.catalog.engines.model_cache import release_of
from gke_ai.catalog.engines.models import find_model
from gke_ai.catalog.engines.vllm_memory import Part, Run
from gke_ai.catalog.machines.gpus import GPU_TYPES
from gke_ai.catalog.machines.tpus import VERSIONS
from gke_ai.catalog.quantities import GI
from gke_ai.settings.model import AnyServer, Server
from gke_ai.settings.model.lora import reserved_rank
from gke_ai.settings.resolved import Placed

# Start of each warning about an unchecked model. The report finds the warnings by it.
NOT_CHECKED = "Not checked: "
# Compute capability of the first GPUs with BF16
_BF16 = (8, 0)
_HOPPER = (9, 0)
# Flags of vLLM that state the sizes of CUDA graphs, and one that limits images to none
_GRAPH_FLAGS = {"compilation-config", "cudagraph-capture-sizes", "max-cudagraph-capture-size", "optimization-level"}
_NO_IMAGES = re.compile(r"""["']?image["']?\s*[:=]\s*0\b""")

# Memory of each accelerator in GiB, by the name of its node label.
_MEMORY_GIB: dict[str, float] = {gpu.name: gpu.memory_gib for gpu in GPU_TYPES.values()}
# The devices of a TPU chip share its memory.
_MEMORY_GIB |= {version.accelerator: version.usable_gib / version.devices_per_chip for version in VERSIONS.values()}


@dataclass(frozen=True)
class Place:
    """An accelerator that a replica may run on. `memory` is in bytes; `where` names the compute class, if any."""

    accelerator: str
    memory: float
    where: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether it is a whole GPU. An engine takes the defaults of small GPUs on a part of one."""
        gpu = GPU_TYPES.get(self.accelerator)
        return gpu is None or self.memory > gpu.memory_gib * GI / 2

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
class Need:
    """Memory that a model needs on one GPU or chip: its parts, and the KV cache, in bytes."""

    parts: tuple[Part, ...]
    kv_cache: int

    @property
    def least(self) -> int:
        """What it needs at least."""
        return sum(part.least for part in self.parts) + self.kv_cache

    @property
    def likely(self) -> int:
        """What it is expected to need."""
        return sum(part.likely for part in self.parts) + self.kv_cache


@dataclass(frozen=True)
class Load:
    """Memory that a replica needs on `shards` accelerators.

    `tokens` is the length of a sequence. Each accelerator reserves memory for `sequences` of them. TGI without a length
    uses all free memory: then `tokens` is 0. JetStream distributes whole sequences over the chips; other engines
    distribute the heads of each sequence. `batch_tokens` is a stated size of a batch. Memory is reserved for
    `adapter_slots` LoRA adapters of `adapter_rank`. `ranks` is the size of data parallelism, with `shards` accelerators
    each. `run` says how vLLM on GPUs runs the model, except for what depends on the GPU.
    """

    model: Model
    shards: int
    tokens: int
    utilization: float
    use: MemoryUse
    bytes_per_parameter: float | None = None
    kv_bytes: float | None = None
    sequences: int = 1
    batch_tokens: int | None = None
    expert_parallel: bool = False
    adapter_slots: int = 0
    adapter_rank: int = 0
    ranks: int = 1
    requests: int | None = None
    run: Run | None = None

    @property
    def gpus(self) -> int:
        """Accelerators of a replica."""
        return self.shards * self.ranks

    @property
    def splits_heads(self) -> bool:
        """Whether accelerators share the heads of each sequence."""
        return self.use.splits_heads

    @property
    def divides(self) -> bool:
        """Whether the accelerators can share the model evenly."""
        return not self.splits_heads or (self.shares_heads and self.shares_experts)

    @property
    def shares_heads(self) -> bool:
        """Whether the accelerators can share the heads evenly."""
        return self.shards in model_memory.shards_that_divide(self.model, split_kv_heads=not self.use.copies_kv_heads)

    @property
    def shares_experts(self) -> bool:
        """Whether the accelerators can share each expert evenly."""
        return self.expert_parallel or model_memory.experts_divide(self.model, self.gpus)

    def need(self, place: Place) -> Need:
        """Memory that each accelerator needs."""
        load = self._as_loaded_on(place)
        shards, in_flight = load._kv_shards, load._in_flight(place)
        cache = model_memory.kv_cache_bytes(load.model, load.tokens, shards, load.kv_bytes, in_flight) * load.sequences
        return Need(tuple(part for part in load._parts(place) if part.likely), cache)

    def available(self, place: Place) -> float:
        """Memory of an accelerator that the engine may use, in bytes."""
        return place.memory * self.utilization

    def fits(self, place: Place) -> bool:
        """Whether each accelerator has enough memory for what the model needs at least."""
        return self.need(place).least <= self.available(place)

    def likely_fits(self, place: Place) -> bool:
        """Whether each accelerator has enough memory for what the model is expected to need."""
        return self.need(place).likely <= self.available(place)

    def fits_all(self, accelerators: Sequence[Place]) -> bool:
        """Whether it fits each of the accelerators."""
        return all(self.fits(place) for place in accelerators)

    def longest(self, place: Place, likely: bool = False) -> int:
        """Maximum length of a sequence that fits, at most or as expected, in tokens; 0 if the rest does not fit."""
        need, load = self.need(place), self._as_loaded_on(place)
        taken = (need.likely if likely else need.least) - need.kv_cache
        room = (int(self.available(place)) - taken) // self.sequences
        return model_memory.longest_sequence(load.model, room, load._kv_shards, load.kv_bytes, load._in_flight(place))

    def on(self, gpus: int) -> Load:
        """The same model on another number of accelerators."""
        return replace(self, shards=max(gpus // self.ranks, 1))

    def _parts(self, place: Place) -> Iterator[Part]:
        """All parts but the KV cache, for a load as loaded on the place."""
        gpu = GPU_TYPES.get(place.accelerator)
        capability = gpu.compute_capability if gpu else _HOPPER
        seen = self.model.loaded_gib_on_hopper if capability == _HOPPER else None
        seen = None if self.bytes_per_parameter is not None else seen or self.model.loaded_gib
        least = model_memory.weights_bytes(self.model, self.shards, self.bytes_per_parameter, self.ranks)
        if self.run is None:
            yield Part("weights", least, least)
        else:
            likely = model_memory.weights_bytes(self.model, self.shards, self.bytes_per_parameter, self.ranks, seen)
            if not self.run.images and vllm_memory.takes_images(self.model):
                least = max(least - round(vllm_memory.ENCODER_WEIGHTS_GIB * GI), 0)
            rope = vllm_memory.rope_bytes(self.model)
            yield Part("weights", least + rope, round(likely * (1 + vllm_memory.ROUNDING)) + rope)
        adapters = model_memory.adapters_bytes(self.model, self.shards, self.adapter_slots, self.adapter_rank)
        yield Part(f"{self.adapter_slots} adapters", adapters, adapters)
        yield Part("activations", self.use.margin, self.use.margin)
        if self.run is not None:
            batch = self._in_flight(place) // self.use.concurrent_batches
            large = vllm.REQUESTS_ON if place.is_whole else {}
            requests = self.requests or large.get(place.accelerator, vllm.REQUESTS)
            run = replace(self.run, gpus=self.shards, batch=batch, requests=requests, capability=capability)
            yield from vllm_memory.parts(self.model, run)

    @property
    def _kv_shards(self) -> int:
        return self.shards if self.splits_heads else 1

    def _in_flight(self, place: Place) -> int:
        if self.batch_tokens is not None:
            return self.use.concurrent_batches * self.batch_tokens
        large = self.use.in_flight_tokens_on if place.is_whole else {}
        return large.get(place.accelerator, self.use.in_flight_tokens)

    def _as_loaded_on(self, place: Place) -> Load:
        """The load as FP32, on a GPU without BF16, if the model refuses FP16."""
        gpu = GPU_TYPES.get(place.accelerator)
        if gpu is None or gpu.compute_capability >= _BF16 or self.model.architecture not in self.use.no_float16:
            return self
        wide = replace(self.model, bytes_per_parameter=2 * self.model.bytes_per_parameter)
        if self.model.bytes_per_parameter < 2 or self.bytes_per_parameter is not None:
            wide = self.model  # quantized: only what is not quantized grows
        return replace(self, model=wide, kv_bytes=4 if self.kv_bytes is None else self.kv_bytes)


def places(placed: Placed[AnyServer]) -> list[Place]:
    """The accelerators that a replica may run on, in ascending order of memory.

    Empty if the configuration names none, or if no node has as many as a replica needs.
    """
    named = dict.fromkeys(placed.section.accelerator_places(placed.nodes))
    known = [Place(name, _MEMORY_GIB[name] * GI / parts, where) for name, parts, where in named if name in _MEMORY_GIB]
    return sorted(known, key=lambda place: place.memory)


def model_of(server: Server) -> Model | None:
    """The dimensions of the server's model: as written, else those in the catalog. None if neither has them."""
    if server.model_shape is None:
        return find_model(server.model)
    return Model(names=(server.model,), source=server.at("modelShape"), **server.model_shape.model_dump())


def load_of(placed: Placed[AnyServer]) -> Load | Unchecked:
    """The load of a replica of the server, or why it is unknown."""
    server = placed.section
    model = model_of(server)
    if model is None:
        reason = f"the catalog does not have the model {server.model}"
        remedy = f"Describe it in {server.at('modelShape')}, which gke-ai model {shlex.quote(server.model)} prints"
        return Unchecked(server.at("model"), reason, remedy)
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
    if not use.sliding_windows or (model.chunked and not use.chunked_windows):
        model = replace(model, sliding_window=None)
    arguments = server.reading.values
    utilization, tokens = float(arguments.get(use.utilization_flag, use.utilization)), server.max_length
    if tokens is None:
        tokens = (model.default_length or model.context_length) if use.without_length == "context" else 0
        utilization = utilization if tokens else 1.0
    batch, requests = arguments.get(use.batch_flag, ""), arguments.get("max-num-seqs", "")
    return Load(
        model,
        server.shards(placed.nodes),
        tokens,
        utilization,
        use,
        size,
        1 if arguments.get(use.kv_cache_flag, "").startswith("fp8") else None,
        sequences=server.sequences,
        batch_tokens=int(batch) if batch.isdigit() else None,
        expert_parallel=use.expert_parallel_flag in arguments,
        adapter_slots=server.adapter_slots,
        adapter_rank=reserved_rank(server.adapters),
        ranks=server.data_ranks,
        requests=int(requests) if requests.isdigit() else None,
        run=_run(server) if use.profiles else None,
    )


def _run(server: Server) -> Run:
    """How vLLM on GPUs runs the server's model, except for what depends on the GPU."""
    stated = server.reading.values
    return Run(
        gpus=1,
        batch=0,
        requests=0,
        capability=_HOPPER,
        ranks=server.data_ranks,
        graphs="enforce-eager" not in stated and server.env.get(vllm.ESTIMATE_GRAPHS) != "0",
        stated_graphs=not _GRAPH_FLAGS.isdisjoint(stated),
        images=not any(name in stated for name in vllm.WITHOUT_IMAGES) and not _limits_images(server),
        whole_experts="enable-expert-parallel" in stated,
        adapters=bool(server.adapters),
        pinned=release_of(server.images[0]) == release_of(vllm.IMAGE),
    )


def _limits_images(server: Server) -> bool:
    """Whether requests may have no image."""
    return bool(_NO_IMAGES.search(server.reading.values.get("limit-mm-per-prompt", "")))


def _changes(server: Server, use: MemoryUse) -> Iterator[Unchecked]:
    """Variables and arguments of the server that change its memory in ways that are not computed."""
    for name in server.env:
        if name in use.changed_by:
            yield _changed(server.at(f"env.{name}"), name)
    for name, value in server.reading.values.items():
        if name in use.changed_by or (name == use.utilization_flag and not _is_number(value)):
            yield _changed(server.at("arguments"), f"{server.reading.dashes}{name}")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _quantized(server: Server, use: MemoryUse) -> float | Unchecked | None:
    if server.quantization is None:
        return None
    size = model_memory.quantized_bytes(server.quantization, use.bytes_per_parameter)
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
