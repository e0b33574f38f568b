"""How releases of Kueue differ: `kueue_releases.yaml` lists what decides in a queue, and the feature gates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gke_ai.catalog.kueue.configuration import minor, numbers
from gke_ai.catalog.tables import table

_LISTED: Any = table("kueue/releases.yaml")


def gates(release: str) -> frozenset[str]:
    """Returns the feature gates that a release of the emulator knows. Kueue ends at any other."""
    known = set[str]()
    for entry in _LISTED["gates"]:
        known = (known | {*entry["added"]}) - {*entry["removed"]}
        if entry["release"] == release:
            return frozenset(known)
    raise KeyError(release)


def changes(since: str, until: str) -> Iterator[str]:
    """Yields what versions after one changed, up to another, each in a sentence."""
    for version, points in _LISTED["changes"].items():
        if numbers(since) < numbers(version) <= numbers(until):
            yield f"New in {version}: {'; '.join(points)}."
    if minor(until) > max(map(minor, _LISTED["changes"])):
        yield f"What later versions changed is not known here: read the release notes of Kueue {until}."
