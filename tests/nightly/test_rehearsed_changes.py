"""Only here: the rehearsals of 75 changes say what really happens, as it was written down before they ran.

Print what the rehearsal of one says:

    emulator/run pytest -s tests/nightly/test_rehearsed_changes.py -k NAME
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.rehearsal.changes import FURTHER, Change, changes, judged, rehearsed, running, text_of

# What was expected and is not said, with the reason.
MISSES = {
    "run-of-five-in-one-block-of-four": "it says how many pods fit a block now, and not that no empty block holds all",
    "block-that-becomes-free-goes-to-the-older-run": "Kueue considers the new run before it queues the older one again",
}


SnapshotOf = Callable[[Change], Path | None]


@pytest.fixture(scope="module")
def snapshot_of(tmp_path_factory: pytest.TempPathFactory) -> SnapshotOf:
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


def marked(change: Change) -> object:
    """A change, as one that may be wrong if it is a known miss."""
    marks = [pytest.mark.xfail(reason=MISSES[change.name])] if change.name in MISSES else []
    return pytest.param(change, id=change.name, marks=marks)


@pytest.mark.parametrize("change", [*map(marked, (*changes(), *changes(FURTHER)))])
def test_a_rehearsal_says_what_the_change_does(change: Change, snapshot_of: SnapshotOf, folder: Path) -> None:
    forecast, printed = rehearsed(change, folder, snapshot_of(change))
    print(text_of(forecast) if forecast else printed)
    assert list(judged(change, forecast, printed)) == [], change.because
