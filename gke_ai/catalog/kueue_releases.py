"""How releases of Kueue differ: `kueue_releases.yaml` lists what decides in a queue, and the feature gates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gke_ai.catalog.kueue import minor
from gke_ai.catalog.tables import table

_LISTED: Any = table("kueue_releases.yaml")


def gates(release: str) -> frozenset[str]:
    """Returns the feature gates that a release of the emulator knows. Kueue ends at any other."""
    known = set[str]()
    for entry in _LISTED["gates"]:
        known = (known | {*entry["added"]}) - {*entry["removed"]}
        if entry["release"] == release:
            return frozenset(known)
    raise KeyError(release)


def changes(since: str, until: str) -> Iterator[str]:
    """Yields what minor versions after one changed, up to that of another, each in a sentence."""
    listed = {minor(version): points for version, points in _LISTED["changes"].items()}
    for version, points in listed.items():
        if minor(since) < version <= minor(until):
            yield f"New in {'.'.join(map(str, version))}: {'; '.join(points)}."
    if minor(until) > max(listed):
        yield f"What later versions changed is not known here: read the release notes of Kueue {until}."
