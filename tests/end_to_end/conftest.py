"""Stand-in clouds for the tests, each ended after its last test whatever happened in them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.end_to_end.standin import StandIn


@contextmanager
def fresh(**extra: str) -> Iterator[StandIn]:
    """A stand-in with nothing in it; at the end its clusters and processes go, by id."""
    state = Path(tempfile.mkdtemp(prefix="gke-ai-"))
    stand_in = StandIn(state, extra=tuple(extra.items()))
    try:
        yield stand_in
    finally:
        for cluster in (state / "clusters").glob("*"):
            stand_in.run("python", "-c", f"import local.cluster; local.cluster.delete({cluster.name!r})")
        shutil.rmtree(state, ignore_errors=True)


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    """A stand-in for one test."""
    with fresh() as made:
        yield made


@pytest.fixture
def stand_in_with() -> Iterator[Callable[..., StandIn]]:
    """Makes a stand-in with further variables in its environment."""
    opened = []

    def make(**extra: str) -> StandIn:
        context = fresh(**extra)
        opened.append(context)
        return context.__enter__()

    yield make
    for context in opened:
        context.__exit__(None, None, None)
