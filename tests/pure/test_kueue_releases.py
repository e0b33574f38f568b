"""Which release of Kueue a rehearsal runs, and what it says about a cluster with another one."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from gke_ai.catalog.kueue.configuration import RELEASES, nearest, tool
from gke_ai.catalog.kueue.releases import changes, gates
from gke_ai.catalog.versions import KUEUE_VERSION
from gke_ai.forecast.rehearse import release
from gke_ai.forecast.snapshot.format import Snapshot
from tests.support.snapshots import TAKEN


def snapshot(version: str | None, **more: Any) -> Snapshot:
    """The snapshot of an empty cluster with a version of Kueue."""
    return Snapshot(takenAt=TAKEN, stack="prod", kueueVersion=version, objects={}, **more)


def configuration(folder: Path, queues: Any) -> Path:
    """A configuration with these queues."""
    path = folder / "Pulumi.prod.yaml"
    path.write_text(yaml.safe_dump({"config": {"gke-ai:cluster": {"name": "c"}, "gke-ai:queues": queues}}))
    return path


def test_releases_are_in_order_and_the_pinned_one_is_the_last() -> None:
    assert sorted(RELEASES, key=lambda version: [*map(int, version.split("."))]) == [*RELEASES]
    assert RELEASES[-1] == KUEUE_VERSION
    assert [tool(version) for version in RELEASES] == ["kueue-0.16.2", "kueue-0.18.4", "kueue"]


def test_version_takes_the_release_of_its_minor_version_else_the_next_lower() -> None:
    taken = {"0.15.9": None, "0.16.0": "0.16.2", "0.17.4": "0.16.2", "0.18.6": "0.18.4", "0.19.1": "0.19.2"}
    taken |= {"0.20.1": "0.19.2", "1.0.0": "0.19.2", "latest": None}
    assert {version: nearest(version) for version in taken} == taken


def test_gates_are_added_and_removed_from_release_to_release() -> None:
    assert "DisableWaitForPodsReady" in gates("0.19.2") - gates("0.18.4")
    assert "DynamicResourceAllocation" in gates("0.18.4") - gates("0.19.2")
    with pytest.raises(KeyError):
        gates("0.17.0")


def test_changes_are_those_of_the_minor_versions_and_patches_in_between() -> None:
    assert [line.partition(":")[0] for line in changes("0.16.2", "0.18.0")] == ["New in 0.17", "New in 0.18"]
    assert [*changes("0.18.4", "0.18.6")] == []
    *known, unknown = changes("0.19.2", "0.21.0")
    assert [line.partition(":")[0] for line in known] == ["New in 0.20"]
    assert unknown.endswith("read the release notes of Kueue 0.21.0.")
    (line,) = changes("0.19.1", "0.19.2")
    assert line.startswith("New in 0.19.2: the replacement of a failed node")
    assert [*changes("0.19.2", "0.19.7")] == []


def test_nothing_differs_if_the_emulator_has_the_release_of_the_cluster() -> None:
    assert [release.rehearsed(snapshot(version)) for version in RELEASES] == [*RELEASES]
    assert [note for version in RELEASES for note in release.notes(snapshot(version))] == []


def test_a_rehearsal_says_what_differs_from_a_release_that_the_emulator_lacks() -> None:
    other = snapshot("0.20.0", kueue={"featureGates": {"TopologyAwareScheduling": True, "Tomorrow": True}})
    first, new, left_out = release.notes(other)
    assert first == "The cluster runs Kueue 0.20.0, which the emulator does not have. The rehearsal runs 0.19.2."
    assert new.startswith("New in 0.20: v1beta1 is no longer served;")
    assert left_out == "Kueue 0.19.2 lacks feature gates of the cluster, which are left out: Tomorrow."
    assert [*release.notes(snapshot("0.18.6"))][1:] == ["Kueue 0.18.6 and 0.18.4 differ in fixes alone."]
    first, alone, new = release.notes(snapshot("0.19.1"))
    assert first == "The cluster runs Kueue 0.19.1, which the emulator does not have. The rehearsal runs 0.19.2."
    assert alone == "Kueue 0.19.1 and 0.19.2 differ in fixes alone."
    assert new.startswith("New in 0.19.2: ")


@pytest.mark.parametrize(
    ("running", "before", "after", "moves"),
    [
        ("0.19.1", {}, {}, "from 0.19.1 to 0.19.2"),
        ("0.18.6", {"kueueVersion": "0.18.6"}, {}, "from 0.18.6 to 0.19.2"),
        (None, {"kueueVersion": "0.18.4"}, {}, "from 0.18.4 to 0.19.2"),
        ("0.19.1", {"kueueVersion": "0.19.1"}, {"kueueVersion": "0.19.1"}, ""),
        ("0.20.1", {}, {}, "from 0.20.1 to 0.19.2"),
        ("0.19.2", {}, {}, ""),
        ("0.19.1", {"kueue": "existing"}, {"kueue": "existing"}, ""),
    ],
)
def test_a_change_that_also_moves_kueue_names_the_versions_of_cluster_and_stack(
    running: str | None, before: Any, after: Any, moves: str, tmp_path: Path
) -> None:
    (tmp_path / "changed").mkdir()
    base = configuration(tmp_path, {"flavors": [], **before})
    notes = [*release.moves(base, configuration(tmp_path / "changed", {"flavors": [], **after}), running)]
    assert len(notes) == bool(moves)
    assert all(f"also moves Kueue {moves}: the stack installs 0.19.2 unless" in note for note in notes)


def test_kueue_gets_no_feature_gate_that_its_release_lacks() -> None:
    stated = {"fairSharing": {}, "featureGates": {"PriorityBoost": True, "PartialAdmission": False}}
    assert release.known(stated, "0.16.2") == {"fairSharing": {}, "featureGates": {"PartialAdmission": False}}
    assert release.known(stated, KUEUE_VERSION) == stated
    assert release.known({"fairSharing": {}}, "0.16.2") == {"fairSharing": {}}


@pytest.mark.parametrize(
    ("queues", "running", "installed"),
    [
        ({"flavors": []}, "0.18.4", "0.18.4"),
        ({"flavors": []}, "0.17.1", "0.16.2"),
        ({"flavors": []}, None, KUEUE_VERSION),
        ({"kueueVersion": "0.16.2"}, None, "0.16.2"),
        ({"kueueVersion": "0.16.2"}, "0.18.4", "0.18.4"),
        ({"kueueVersion": "0.15.0"}, None, None),
        ({"kueue": "existing"}, "0.18.4", None),
        (None, "0.18.4", None),
    ],
)
def test_base_has_the_clusters_release(queues: Any, running: str | None, installed: str | None, tmp_path: Path) -> None:
    file = configuration(tmp_path, queues)
    assert release.installed(file, running) == installed
    keys = release.with_release(file, installed)
    by_itself = (queues or {}).get("kueueVersion", KUEUE_VERSION)
    is_changed = installed not in (None, by_itself)
    assert keys == ({"gke-ai:queues": {**queues, "kueueVersion": installed}} if is_changed else {})
