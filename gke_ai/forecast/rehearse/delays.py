"""Google's durations for a rehearsal, from the catalog or the calibration file, compressed for the emulator. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gke_ai.catalog.nodes.durations import CONTAINER_START, MODEL_LOAD, NODE_IDLE, NODE_READY
from gke_ai.forecast.result.forecast import Duration
from gke_ai.settings.calibration import Calibration, Step

COMPRESSION = 60.0
# Seconds without a change after which a cluster counts as settled, besides the longest delay.
QUIET_SECONDS = 5.0
_STEPS: tuple[Step, ...] = ("nodeReady", "containerStart", "modelLoad")


def durations(calibration: Calibration) -> list[Duration]:
    """Returns the durations that a rehearsal uses: those of the catalog, and the measured ones."""
    return [
        *(Duration("nodeReady", mode, entry.seconds, entry.source) for mode, entry in NODE_READY.items()),
        Duration("containerStart", "", CONTAINER_START.seconds, CONTAINER_START.source),
        Duration("modelLoad", "", MODEL_LOAD.seconds, MODEL_LOAD.source),
        Duration("nodeIdle", "", NODE_IDLE.seconds, NODE_IDLE.source),
        *(
            Duration(
                entry.step, entry.of, entry.seconds, f"measured on {entry.measured_on}, {entry.count} observations"
            )
            for entry in calibration.durations
            if entry.step in _STEPS
        ),
    ]


def arguments(stated: Iterable[Duration], compression: float) -> list[str]:
    """Returns the arguments of `emulator/run delay` for durations on Google Cloud."""
    return [f"{key}={round(seconds / compression, 2):g}" for key, seconds in sorted(_seconds(list(stated)))]


def longest(delays: Iterable[str]) -> float:
    """Returns the longest of these delays of the emulator, in seconds."""
    return max((float(delay.partition("=")[2]) for delay in delays), default=0.0)


def _seconds(stated: list[Duration]) -> Iterator[tuple[str, int]]:
    """The seconds on Google Cloud by the emulator's key. A server starts its container, then loads its model."""
    by_step = {(duration.step, duration.of): duration.seconds for duration in stated}
    start, load = by_step["containerStart", ""], by_step["modelLoad", ""]
    yield "pod", start
    yield "server", start + load
    yield "idle", by_step["nodeIdle", ""]
    yield from ((f"node/{of}", seconds) for (step, of), seconds in by_step.items() if step == "nodeReady")
    measured = {of for step, of in by_step if step in ("containerStart", "modelLoad") and of}
    for of in measured:
        seconds = by_step.get(("containerStart", of), start) + by_step.get(("modelLoad", of), load)
        yield f"server/{of}", seconds
