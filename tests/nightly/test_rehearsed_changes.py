"""Only here: the rehearsals of 75 changes say what really happens, as it was written down before they ran."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rehearsal.changes import FURTHER, Change, changes, judged, rehearsed, running


@pytest.fixture(scope="module")
def snapshot_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Change], Path | None]:
    """Returns the snapshot of a cluster that runs the base of a change, None for a configuration."""
    known: dict[str, Path] = {}

    def snapshot(change: Change) -> Path | None:
        key = json.dumps(change.base)
        if not change.example and key not in known:
            with running(change.base, tmp_path_factory.mktemp("base")) as taken:
                known[key] = taken
        return known.get(key)

    return snapshot


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all rehearsals, which share their deployed bases."""
    return tmp_path_factory.mktemp("rehearsals")


@pytest.mark.parametrize("change", [*changes(), *changes(FURTHER)], ids=lambda change: change.name)
def test_a_rehearsal_says_what_the_change_does(
    change: Change, snapshot_of: Callable[[Change], Path | None], folder: Path
) -> None:
    assert list(judged(change, *rehearsed(change, folder, snapshot_of(change)))) == [], change.because
