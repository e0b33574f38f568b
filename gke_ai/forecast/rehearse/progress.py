"""Prints what a rehearsal does, while it does it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gke_ai.terminal import printable


@contextmanager
def phase(description: str) -> Iterator[Callable[[str], None]]:
    """Prints what is done, an answer if the block gives one, and how long it took."""
    print(printable(f"… {description}"), end="", flush=True)
    started = time.monotonic()
    try:
        yield lambda answer: print(printable(f": {answer}"), end="", flush=True)
    except BaseException:
        print(" – failed", flush=True)
        raise
    print(f" ({time.monotonic() - started:.0f} s)", flush=True)
