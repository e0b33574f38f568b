"""Servers whose model fits only if its engine takes less memory than expected, and the parts of that memory as a table.

Preview, report and doctor warn of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gke_ai.catalog.engines.vllm_memory import Part
from gke_ai.catalog.quantities import GI
from gke_ai.settings.estimates.model_memory import Load, Place, Unchecked, load_of, places
from gke_ai.settings.model import AnyServer, Server
from gke_ai.settings.resolved import Placed


@dataclass(frozen=True)
class Tight:
    """A server whose model fits only if its engine takes less than expected, with its path and the remedy."""

    path: str
    reason: str
    remedy: str
    parts: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}. {self.remedy}. make doctor lists the parts of the memory."


def tight(servers: Sequence[Placed[AnyServer]]) -> Iterator[Tight]:
    """The servers whose model fits, and likely does not."""
    for placed in servers:
        load = load_of(placed)
        if isinstance(load, Unchecked) or not load.divides or not load.fits_all(places(placed)):
            continue
        place = next((place for place in places(placed) if not load.likely_fits(place)), None)
        if place is not None:
            yield _tight(placed.section, load, place)


def _tight(server: Server, load: Load, place: Place) -> Tight:
    length = load.longest(place, likely=True)
    length -= length % 16
    parts = table(load, place)
    if not length:
        need = f"{load.need(place).likely / GI:,.1f} GiB of {load.available(place) / GI:,.1f} GiB"
        reason = f"{server.model} likely needs {need} of {place}. The server may not start"
        return Tight(server.at(server.size_key), reason, "Use more or larger GPUs, or a smaller model", parts)
    reason = (
        f"vLLM likely takes {length:,} tokens of {server.model} on {place}, and the server asks for {load.tokens:,}"
    )
    remedy = f"Set {server.length_key} to {length:,} or less, or use more GPUs"
    return Tight(server.at(server.length_key), f"{reason}. It may not start", remedy, parts)


def table(load: Load, place: Place) -> str:
    """The parts of the memory that a model needs on a place, as lines of text."""
    need = load.need(place)
    slots = f"{load.sequences} sequences" if load.sequences > 1 else "one sequence"
    cache = Part(f"KV cache of {slots} of {load.tokens:,} tokens", need.kv_cache, need.kv_cache)
    parts = [*need.parts, *([cache] if need.kv_cache else []), Part("sum", need.least, need.likely)]
    title = f"GiB on each {place}"
    width = max(len(part.name) for part in [*parts, Part(title, 0, 0)])
    lines = [f"{title:<{width}}  at least  expected"]
    lines += [f"{part.name:<{width}}  {part.least / GI:>8,.1f}  {part.likely / GI:>8,.1f}" for part in parts]
    return "\n".join([*lines, f"{'can be used':<{width}}  {load.available(place) / GI:>8,.1f}"])
