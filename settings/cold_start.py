"""How long a new replica of each server takes to read its model, from its size and its way.

Pure functions over validated settings. Preview and report show them. A calibration file replaces the estimate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from catalog.cold_start import Way, node_disk, seconds, ways
from settings.calibration import Calibration
from settings.model import AnyServer
from settings.stack import Placed

# Start of each message about a cold start. The report finds the messages by it.
COLD_START = "Cold start: "


@dataclass(frozen=True)
class ColdStart:
    """The time in which a replica reads its model, and how it follows from size and bandwidth."""

    server: str
    size: int
    parts: tuple[Way, ...]
    measured_seconds: int | None = None

    @property
    def seconds(self) -> float:
        """The measured time until the engine answers, else the estimate of reading the weights."""
        return seconds(self.size, list(self.parts)) if self.measured_seconds is None else self.measured_seconds

    def __str__(self) -> str:
        if self.measured_seconds is not None:
            return f"{COLD_START}{self.server} loads its model in {self.measured_seconds} s, as measured."
        slowest = min(self.parts, key=lambda part: part.bandwidth)
        way = " and ".join(f"{part.name} at {part.bandwidth / 1e9:.2f} GB/s" for part in self.parts)
        return (
            f"{COLD_START}{self.server} reads {self.size / 1e9:.1f} GB by {way}: "
            f"about {self.seconds:.0f} s, limited by {slowest.name}."
        )


def estimates(servers: Sequence[Placed[AnyServer]], measured: Calibration) -> Iterator[ColdStart]:
    """The cold start of each server whose model has a known size and comes from Hugging Face or a bucket."""
    for placed in servers:
        server = placed.section
        size, name = server.checkpoint_bytes, f"{server.namespace}/{server.name}"
        if size is None or not server.hub_ids:
            continue
        took = measured.duration("modelLoad", name)
        yield ColdStart(name, size, tuple(_ways(placed)), took.seconds if took else None)


def _ways(placed: Placed[AnyServer]) -> list[Way]:
    server, cache = placed.section, placed.section.model_cache
    on_disk = cache is None or (cache.how.mounts and cache.file_cache_medium == "disk")
    disk = None
    if on_disk and placed.pools and (cache is not None or server.scratch is None):
        pool = placed.pools[0]
        disk = node_disk(pool.shape, pool.section.disk_type)
    return ways(cache.reader if cache else "hub", disk)
