"""What several files of tests share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.recorder import Record, record


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Record]:
    """Builds one component alone and gives the record of it."""

    def run(component: Any, base: dict[str, Any], **more: Any) -> Record:
        return record(lambda: component("x", {**base, **more}), False, monkeypatch)

    return run


@pytest.fixture(autouse=True)
def loop() -> None:
    """An event loop, as the engine's calls have one; a test before may have taken away the thread's own."""
    try:
        asyncio.get_event_loop()
    except RuntimeError:
        # Kept for the tests after: Pulumi's root resource is bound to the loop that it was made in.
        asyncio.set_event_loop(asyncio.new_event_loop())
