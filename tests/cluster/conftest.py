"""Emulators for the tests. Each ends after its last test, whatever happened."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from emulator.tests import spares
from tests.cluster.emulator import Emulator


@contextmanager
def fresh(**extra: str) -> Iterator[Emulator]:
    """An empty emulator. At the end its clusters and processes are ended by id."""
    state = Path(tempfile.mkdtemp(prefix="gke-ai-"))
    emulator = Emulator(state, extra=tuple(extra.items()))
    spares.give(state)
    try:
        yield emulator
    finally:
        for cluster in (state / "clusters").glob("*"):
            emulator.run("python", "-c", f"import emulator.cluster; emulator.cluster.delete({cluster.name!r})")
        shutil.rmtree(state, ignore_errors=True)


@contextmanager
def deployed(example: str, sections: Mapping[str, Any]) -> Iterator[Emulator]:
    """An emulator with an example, of which some sections are others."""
    with fresh() as emulator:
        emulator.make("up", emulator.configure(example, **sections))
        yield emulator


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """An emulator for one test."""
    with fresh() as started:
        yield started


@pytest.fixture
def emulator_with() -> Iterator[Callable[..., Emulator]]:
    """Create an emulator with additional environment variables."""
    opened = []

    def make(**extra: str) -> Emulator:
        context = fresh(**extra)
        opened.append(context)
        return context.__enter__()

    yield make
    for context in opened:
        context.__exit__(None, None, None)
