"""How long a new replica of each server takes to start its container and to read its model.

Pure functions over validated settings. Preview and report show them, with the estimates for faster settings beside
them. A calibration file replaces an estimate. The start of a node, and what the engine does after the weights are
read, come on top.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gke_ai.catalog.engines.model_cache import access_of
from gke_ai.catalog.machines.zones import region_of
from gke_ai.catalog.nodes.cold_start import Way, node_disk, seconds, ways
from gke_ai.catalog.nodes.durations import (
    CONTAINER_START,
    CONTAINER_START_PRELOADED,
    CONTAINER_START_STREAMED,
    ENGINE_COMPILATION,
    ENGINE_GRAPHS,
    ENGINE_PROCESSES,
    NODE_READY,
)
from gke_ai.catalog.project.registries import streams_to
from gke_ai.settings.calibration import Calibration
from gke_ai.settings.model import AnyServer, Pool, Run, Server, Workload
from gke_ai.settings.resolved import Placed, ScaledServer

# Until the autoscaler has seen a held request: the picker is read every 5 s, and autoscalers look every 15 s.
SEEN_SECONDS = 20
# Of a pod that states none.
DEFAULT_GRACE_SECONDS = 30
# Start of each message about a cold start. The report finds the messages by it.
COLD_START = "Cold start: "
# Container starts by how the image reaches the node, and the key of a pool that sets it.
_IMAGES = {
    "pulled": CONTAINER_START.seconds,
    "imageStreaming": CONTAINER_START_STREAMED.seconds,
    "secondaryBootDisk": CONTAINER_START_PRELOADED.seconds,
}


@dataclass(frozen=True)
class ColdStart:
    """The time in which a replica starts its container and reads its model, and how it follows from the settings."""

    server: str
    size: int
    parts: tuple[Way, ...]
    measured_seconds: int | None = None
    image: str = ""
    """How the image reaches the node, as in `_IMAGES`. Empty without pools: GKE then chooses the nodes."""
    measured_start: int | None = None
    faster_readers: tuple[tuple[str, float], ...] = ()
    """Other ways to read the model that are estimated to be faster, by their key, with their time in seconds."""

    @property
    def seconds(self) -> float:
        """The measured time until the engine answers, else the estimate of reading the weights."""
        return seconds(self.size, list(self.parts)) if self.measured_seconds is None else self.measured_seconds

    @property
    def faster(self) -> list[tuple[str, float]]:
        """Settings that are estimated to be faster than those of the stack, each with its time in seconds."""
        now = _IMAGES.get(self.image, 0)
        images = [(key, float(took)) for key, took in _IMAGES.items() if self.measured_start is None and took < now]
        return [*images, *(self.faster_readers if self.measured_seconds is None else ())]

    def __str__(self) -> str:
        sentences = [f"{COLD_START}{self.server} {self._reading()}", self._container()]
        if self.faster:
            sentences.append(f"Estimates with other settings: {', '.join(f'{k} {s:.0f} s' for k, s in self.faster)}.")
        return " ".join(filter(None, sentences))

    def _reading(self) -> str:
        if self.measured_seconds is not None:
            return f"loads its model in {self.measured_seconds} s, as measured."
        slowest = min(self.parts, key=lambda part: part.bandwidth)
        way = " and ".join(f"{part.name} at {part.bandwidth / 1e9:.2f} GB/s" for part in self.parts)
        return f"reads {self.size / 1e9:.1f} GB by {way}: about {self.seconds:.0f} s, limited by {slowest.name}."

    def _container(self) -> str:
        if self.measured_start is not None:
            return f"Its container starts in {self.measured_start} s, as measured."
        if not self.image:
            return ""
        how = "its image pulled" if self.image == "pulled" else self.image
        return f"On a new node, its container starts in about {_IMAGES[self.image]} s ({how})."


@dataclass(frozen=True)
class Waking:
    """How long a server without replicas takes to answer the request that wakes it, at most."""

    server: str
    parts: tuple[tuple[str, float], ...]
    """What it waits for, with the time in seconds."""
    held_seconds: int
    """How long the gateway holds a request."""

    @property
    def seconds(self) -> float:
        return sum(seconds for _, seconds in self.parts)

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in self.parts)
        held = f"The gateway holds a request for {self.held_seconds} s"
        enough = (
            f"{held}." if self.seconds <= self.held_seconds else f"{held}, then answers 503: clients have to try again."
        )
        return (
            f"{COLD_START}{self.server} wakes within about {self.seconds:.0f} s if there is capacity: {parts}. {enough}"
        )


def wakings(scaled: Sequence[ScaledServer], placed: Sequence[Placed[Workload]]) -> Iterator[Waking]:
    """The waking of each server whose autoscaler has minReplicas: 0."""
    for scaler in scaled:
        server = scaler.server
        if not scaler.section.sleeps or server is None or (held := server.section.held) is None:
            continue
        modes = {pool.section.capacity.mode for pool in server.pools} or {"onDemand"}
        parts = [
            ("the autoscaler", SEEN_SECONDS),
            *([("preemption", grace)] if (grace := _longest_grace(server, placed)) else []),
            ("a node", max(NODE_READY[mode].seconds for mode in modes)),
            *start_parts(server),
        ]
        yield Waking(f"{server.section.namespace}/{server.section.name}", tuple(parts), held.seconds)


def _longest_grace(server: Placed[AnyServer], placed: Sequence[Placed[Workload]]) -> int:
    """The longest grace period of what the server can preempt in its cluster queue, in seconds."""
    queue = server.queue
    lower = [other for other in placed if queue and other.queue == queue and other.priority < server.priority]
    sections = (other.section for other in lower)
    graces = (section.termination_grace_period_seconds for section in sections if isinstance(section, Run | Server))
    return max((grace or DEFAULT_GRACE_SECONDS for grace in graces), default=0)


def estimates(servers: Sequence[Placed[AnyServer]], measured: Calibration) -> Iterator[ColdStart]:
    """The cold start of each server whose model has a known size and comes from Hugging Face or a bucket."""
    for placed in servers:
        server = placed.section
        size, name = server.checkpoint_bytes, f"{server.namespace}/{server.name}"
        if size is None or not server.hub_ids:
            continue
        load, start = measured.duration("modelLoad", name), measured.duration("containerStart", name)
        parts = _ways(placed)
        yield ColdStart(
            name,
            size,
            tuple(parts),
            load.seconds if load else None,
            _image(placed),
            start.seconds if start else None,
            tuple(_faster_readers(placed, size, seconds(size, parts))),
        )


def start_seconds(placed: Placed[AnyServer]) -> int:
    """About how long a replica takes from its node to its first answer, in seconds."""
    return round(sum(took for _, took in start_parts(placed)))


def start_parts(placed: Placed[AnyServer]) -> list[tuple[str, float]]:
    """What a replica with a node does until its first answer, with the time in seconds."""
    size = placed.section.checkpoint_bytes if placed.section.hub_ids else None
    return [
        ("its container", _IMAGES[_image(placed) or "pulled"]),
        *([("the weights", seconds(size, _ways(placed)))] if size else []),
        *_engine_parts(placed.section),
    ]


def _engine_parts(server: AnyServer) -> list[tuple[str, float]]:
    """What an engine does beside reading the weights. Only that of vLLM on GPUs was measured."""
    if server.engine != "vllm":
        return [("the engine", ENGINE_PROCESSES.seconds + ENGINE_COMPILATION.seconds + ENGINE_GRAPHS.seconds)]
    parts: list[tuple[str, float]] = [("the engine's processes", ENGINE_PROCESSES.seconds)]
    if server.compiles:
        compilation = "compilation if nothing is kept" if server.keeps_compiled else "compilation"
        parts += [(compilation, ENGINE_COMPILATION.seconds), ("CUDA graphs", ENGINE_GRAPHS.seconds)]
    return parts


def streams(pool: Pool, image: str, zone: str) -> bool:
    """Whether a pool's nodes stream the image."""
    return bool(pool.image_streaming) and streams_to(image, region_of(zone))


def _image(placed: Placed[AnyServer]) -> str:
    if not placed.pools:
        return ""
    pool = placed.pools[0]
    if pool.section.preloads_images:
        return "secondaryBootDisk"
    return "imageStreaming" if streams(pool.section, placed.section.images[0], pool.shape.zone) else "pulled"


def _ways(placed: Placed[AnyServer]) -> list[Way]:
    server, cache = placed.section, placed.section.model_cache
    if cache is None:
        return ways("hub", None if server.scratch is not None else _disk(placed))
    on_disk = cache.how.mounts and cache.file_cache_medium == "disk"
    return ways(cache.reader, _disk(placed) if on_disk else None, _processes(server, cache.reader))


def _processes(server: Server, reader: str) -> int:
    return server.streamer_processes if reader == "streamer" else 1


def _disk(placed: Placed[AnyServer]) -> Way | None:
    pool = placed.pools[0] if placed.pools else None
    return node_disk(pool.shape, pool.section.disk_type) if pool else None


def _faster_readers(placed: Placed[AnyServer], size: int, now: float) -> Iterator[tuple[str, float]]:
    """The readers of the engine that would read the model faster. Another image may be needed for the streamer."""
    server = placed.section
    for reader in access_of(server.engine).readers:
        disk = _disk(placed) if reader == "fuse" else None
        took = seconds(size, ways(reader, disk, _processes(server, reader)))
        if took < now:
            yield f"modelCache.reader: {reader}", took
