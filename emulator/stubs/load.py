"""The load of a stub's engine: requests that run, requests that wait, and the time of tokens."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

ANSWER = "A stub of the emulated cloud answers: no model runs here."
# Seconds per token of a model server. The container or the emulator's environment can set it.
TOKEN_SECONDS_VARIABLE = "GKE_AI_STUB_TOKEN_SECONDS"
TOKEN_SECONDS = 0.002
DEFAULT_TOKENS = 16


class Load:
    """Requests of one engine. At most `slots` run at once; the others wait, and the first of them runs next.

    An engine's metrics come from `running`, `waiting` and `share`.

    Args:
        slots: Number of requests that run at once.
        changed: Called with the share of used slots whenever it changes.
    """

    def __init__(self, slots: int, changed: Callable[[float], None] = lambda _: None) -> None:
        self.slots = slots
        self.running = 0
        self.generated = 0
        self._frozen = False
        self._queue: deque[threading.Event] = deque()
        self._changed = changed
        self._lock = threading.Lock()
        self._run(0)

    @property
    def waiting(self) -> int:
        """Number of requests that wait for a slot."""
        return len(self._queue)

    @property
    def share(self) -> float:
        """Share of the slots that are in use, 0 to 1."""
        return self.running / self.slots

    def freeze(self) -> None:
        """Ends the engine without its server: requests get no further token, no error and no end."""
        self._frozen = True

    def _generate(self, count: int) -> None:
        time.sleep(count * token_seconds())
        if self._frozen:
            threading.Event().wait()
        with self._lock:
            self.generated += count

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Waits for a slot and holds it."""
        turn = threading.Event()
        with self._lock:
            if self.running < self.slots:
                self._run(1)
                turn.set()
            else:
                self._queue.append(turn)
        turn.wait()
        try:
            yield
        finally:
            with self._lock:
                if self._queue:
                    self._queue.popleft().set()  # the next request gets the slot directly
                else:
                    self._run(-1)

    def _run(self, more: int) -> None:
        self.running += more
        self._changed(self.share)

    def text(self, count: int) -> str:
        """Waits for a slot, holds it for the time of this many tokens, and returns them."""
        with self.slot():
            self._generate(count)
        return "".join(_token(number) for number in range(count))

    def tokens(self, count: int) -> Iterator[str]:
        """Waits for a slot, and yields one token after another while it holds the slot."""
        with self.slot():
            for number in range(count):
                self._generate(1)
                yield _token(number)


def _token(number: int) -> str:
    words = ANSWER.split()
    return f"{' ' if number else ''}{words[number % len(words)]}"


def token_seconds() -> float:
    """Seconds per token."""
    return float(os.environ.get(TOKEN_SECONDS_VARIABLE) or TOKEN_SECONDS)


def token_count(value: object) -> int:
    """The number of tokens that a request asks for."""
    return value if isinstance(value, int) and value > 0 else DEFAULT_TOKENS
