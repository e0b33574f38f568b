"""The release of Kueue in a rehearsal: the cluster's own if the emulator has it, else the nearest lower one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gke_ai.catalog.kueue.configuration import RELEASES, minor, nearest, numbers, tool
from gke_ai.catalog.kueue.releases import changes, gates
from gke_ai.catalog.versions import KUEUE_VERSION
from gke_ai.forecast.rehearse.progress import phase
from gke_ai.forecast.rehearse.scratch import Scratch
from gke_ai.forecast.snapshot.format import Snapshot
from gke_ai.formats.sentences import join_names
from gke_ai.terminal import Stop
from gke_ai.workspace.configuration_file import read_sections

GATES, QUEUES, VERSION = "featureGates", "gke-ai:queues", "kueueVersion"


def queues_of(config: Path) -> Mapping[str, Any]:
    """Returns the section with the queues of a configuration; empty without one."""
    stated = read_sections(config).get(QUEUES)
    return stated if isinstance(stated, dict) else {}


def _stated(config: Path) -> str | None:
    """Returns the version that a stack installs; None if it installs no Kueue."""
    queues = queues_of(config)
    return str(queues.get(VERSION, KUEUE_VERSION)) if queues and queues.get("kueue") != "existing" else None


def installed(config: Path, running: str | None = None) -> str | None:
    """Returns the release that a stack installs in a rehearsal, in place of what the cluster runs or the file states.

    None if it installs no Kueue, or one that the program refuses.
    """
    stated = _stated(config)
    return nearest(running or stated) if stated else None


def moves(base: Path, config: Path, running: str | None) -> Iterator[str]:
    """Yields to which version a change moves Kueue, from the one that the cluster runs."""
    before, after = _stated(base), _stated(config)
    if before and after and (before := running or before) != after:
        yield (
            f"The change also moves Kueue from {before} to {after}: the stack installs {after} unless "
            f"queues.{VERSION} names another release."
        )


def with_release(config: Path, release: str | None) -> dict[str, Any]:
    """Returns the keys of a configuration that let the stack install a release; empty if it does so by itself."""
    queues = queues_of(config)
    if release is None or str(queues.get(VERSION, KUEUE_VERSION)) == release:
        return {}
    return {QUEUES: {**queues, VERSION: release}}


def check_version(snapshot: Snapshot, name: str) -> None:
    """Stops if the cluster of a snapshot runs a Kueue that is older than every release of the emulator."""
    version = snapshot.kueue_version
    if version and not nearest(version):
        raise Stop(
            f"{name}: kueueVersion: the cluster runs Kueue {version}, which stores an older API than the oldest "
            f"release of a rehearsal, {RELEASES[0]}. Upgrade the cluster to {RELEASES[0]} or newer."
        )


def rehearsed(snapshot: Snapshot | None) -> str:
    """Returns the release that a rehearsal of a cluster runs. Of an unknown version: the pinned one."""
    version = snapshot and snapshot.kueue_version
    return (nearest(version) if version else None) or KUEUE_VERSION


def build(emulator: Scratch, release: str) -> None:
    """Builds a release if the emulator has not built it yet."""
    if release != KUEUE_VERSION:
        with phase(f"look for Kueue {release}, or build it once"):
            emulator.run("--tools", tool(release), "true")


def known(configuration: Mapping[str, Any], release: str) -> dict[str, Any]:
    """Returns a configuration without the feature gates that a release lacks: Kueue does not start with one."""
    if GATES not in configuration:
        return dict(configuration)
    kept = {gate: on for gate, on in configuration[GATES].items() if gate in gates(release)}
    return {**configuration, GATES: kept}


def notes(snapshot: Snapshot | None) -> Iterator[str]:
    """Yields what differs between the cluster's Kueue and that of a rehearsal."""
    if snapshot is None:
        return
    version, release = snapshot.kueue_version, rehearsed(snapshot)
    if version is None:
        yield f"The snapshot lacks Kueue's version, so the cluster's may differ from {release} here."
    elif version != release:
        yield f"The cluster runs Kueue {version}, which the emulator does not have. The rehearsal runs {release}."
        if minor(version) == minor(release):
            yield f"Kueue {version} and {release} differ in fixes alone."
        yield from changes(*sorted((version, release), key=numbers))
        unknown = sorted((snapshot.kueue or {}).get(GATES, {}).keys() - gates(release))
        if unknown:
            yield f"Kueue {release} lacks feature gates of the cluster, which are left out: {join_names(unknown)}."
