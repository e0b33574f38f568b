"""Fixtures for all tests."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest

from components.base import Component
from tests.recorder import Record, construct, record


def pytest_collection_finish() -> None:
    """Excludes what collection loaded, above all the SDKs' classes, from garbage collection.

    Every collection went through them: 40 % of the CPU time of the tests that run the program.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Record]:
    """Builds a single component from flat inputs and returns its record."""

    def run(component: type[Component], base: dict[str, Any], **more: Any) -> Record:
        return record(lambda: construct(component, "x", {**base, **more}), False, monkeypatch)

    return run


@pytest.fixture(autouse=True)
def loop() -> None:
    """Sets an event loop, as the engine does. An earlier test may have removed the thread's loop."""
    try:
        asyncio.get_event_loop()
    except RuntimeError:
        # Kept for later tests: Pulumi's root resource is bound to the loop in which it was created.
        asyncio.set_event_loop(asyncio.new_event_loop())
