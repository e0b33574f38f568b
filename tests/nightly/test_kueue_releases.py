"""Only here: a rehearsal of a cluster with an earlier Kueue runs that release."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from emulator.setup.go_build import sources
from emulator.setup.toolchain import BY_NAME
from gke_ai.catalog.kueue.configuration import RELEASES, tool
from gke_ai.catalog.kueue.releases import gates
from gke_ai.catalog.versions import EARLIER_KUEUE_VERSIONS
from tests.support.emulator import Emulator
from tests.support.rehearsal.changes import changes, judged, objects, rehearsed, running

CHANGE = next(change for change in changes() if change.name == "server-scaled-up-takes-back-a-borrowed-gpu")


@pytest.mark.parametrize("release", RELEASES)
def test_the_listed_gates_are_those_of_the_release(release: str) -> None:
    module = BY_NAME[tool(release)].module
    text = (sources(module, "sigs.k8s.io/kueue") / "pkg/features/kube_features.go").read_text()
    assert gates(release) == set(re.findall(r"^\t(\w+): \{$", text, re.M))


SnapshotOf = Callable[[str], Path]


@pytest.fixture(scope="module")
def snapshot_of(tmp_path_factory: pytest.TempPathFactory) -> SnapshotOf:
    taken: dict[str, Path] = {}

    def snapshot(release: str) -> Path:
        if release not in taken:
            with running(CHANGE.base, tmp_path_factory.mktemp("base"), release) as file:
                taken[release] = file
        return taken[release]

    return snapshot


# The pinned release is rehearsed by tests/nightly/test_manifests.py.
@pytest.mark.parametrize("release", EARLIER_KUEUE_VERSIONS)
def test_a_rehearsal_runs_the_release_of_the_cluster(release: str, snapshot_of: SnapshotOf, tmp_path: Path) -> None:
    snapshot = snapshot_of(release)
    assert json.loads(snapshot.read_text())["kueueVersion"] == release
    forecast, printed = rehearsed(CHANGE, tmp_path, snapshot)
    assert list(judged(CHANGE, forecast, printed)) == [], CHANGE.because
    (kept,) = (tmp_path / "state" / "rehearsal-base").glob("*/rehearsed/base.yaml")
    assert yaml.safe_load(kept.read_text())["kueue"]["release"] == release
    assert forecast
    assert [note for note in forecast.notes if "Kueue" in note] == []


@pytest.mark.parametrize("release", EARLIER_KUEUE_VERSIONS)
def test_the_order_of_a_queue_is_known_by_each_release(release: str, snapshot_of: SnapshotOf, tmp_path: Path) -> None:
    run = next(item for item in objects({"job mine": {"queue": "train", "priority": "low"}}) if item["kind"] == "Job")
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(run))
    asked = ("gke-ai", "when", "--snapshot", str(snapshot_of(release)), str(tmp_path / "run.yaml"))
    printed = Emulator(tmp_path / "state").run("--tools", "all", *asked)
    assert "1 waiting run of its queue is ahead of it." in printed
    assert "team/job/later" in printed
    assert ("does not show its order here" in printed) is (release == "0.16.2")
