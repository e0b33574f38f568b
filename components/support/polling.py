"""Waits until a condition in the cloud or the cluster is met."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pulumi


@dataclass(frozen=True)
class Pauses:
    """Seconds between two checks: `first`, then each longer by the factor `growth`, up to `maximum`."""

    first: float
    growth: float = 1.0
    maximum: float = math.inf


class ProgressLog:
    """Logs the reason of a wait when it changes, and again after `repeat_seconds`.

    Logs nothing in the first `quiet_seconds`.
    """

    def __init__(
        self, log: Callable[[str], None], quiet_seconds: float = 0.0, repeat_seconds: float = math.inf
    ) -> None:
        self._log, self._quiet_seconds, self._repeat_seconds = log, quiet_seconds, repeat_seconds
        self._reason, self._logged_at = "", 0.0

    def __call__(self, reason: str, waited: float) -> None:
        changed = reason != self._reason
        if waited >= self._quiet_seconds and (changed or waited - self._logged_at > self._repeat_seconds):
            self._log(reason)
            self._reason, self._logged_at = reason, waited


def log_waits(title: str, resource: pulumi.Resource, quiet_seconds: float = 1.0) -> ProgressLog:
    """Logs what a resource waits for, again once a minute. Most need no message in the first second."""

    def log(reason: str) -> None:
        pulumi.log.info(f"{title} waits for {reason}", resource=resource)

    return ProgressLog(log, quiet_seconds, repeat_seconds=60.0)


def no_answer(error: Exception) -> str:
    """What a wait continues for after an error of the API or the plugin, which may be gone at the next try."""
    return f"the cluster to answer: {str(error).strip().splitlines()[0]}"


async def poll_until(
    check: Callable[[], Awaitable[str | None]],
    patience_seconds: float,
    pauses: Pauses,
    progress: Callable[[str, float], None] | None = None,
) -> str | None:
    """Call `check` until it returns None. Returns None, or the last reason after `patience_seconds`.

    `check` returns why the wait continues. `progress` gets this reason and the seconds waited.
    """
    begun, pause = time.monotonic(), pauses.first
    while reason := await check():
        waited = time.monotonic() - begun
        if waited >= patience_seconds:
            return reason
        if progress:
            progress(reason, waited)
        await asyncio.sleep(pause)
        pause = min(pause * pauses.growth, pauses.maximum)
    return None
