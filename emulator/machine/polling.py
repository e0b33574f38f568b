"""Waits for a condition by polling."""

from __future__ import annotations

import time
from collections.abc import Callable


def poll_until(condition: Callable[[], object], timeout: float, pause: float = 0.05) -> bool:
    """Evaluates a condition until it is true. Returns whether it became true in time.

    Args:
        condition: Evaluated at least once. An exception ends the wait.
        timeout: Seconds after which the wait ends.
        pause: Seconds between two evaluations.
    """
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
    return True
