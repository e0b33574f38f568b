"""What happens if the first start of a cluster, or of a component, fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator import paths, trust
from emulator.cluster import kwok
from emulator.cluster.control_plane import COMPONENTS, id_file
from emulator.cluster.folder import Folder
from emulator.cluster.kwok import ClusterFailed
from emulator.cluster.records import ClusterRecord, Endpoint


@pytest.mark.parametrize("failures", [0, 1, 2])
def test_a_failed_start_is_repeated_once_with_a_new_cluster(
    failures: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def make(*_: object) -> None:
        done.append("made")
        if done.count("made") <= failures:
            raise ClusterFailed("its port was taken")

    monkeypatch.setattr(paths, "CLUSTERS", tmp_path)
    monkeypatch.setattr(kwok, "_create", make)
    monkeypatch.setattr(kwok, "_discard", lambda _: done.append("discarded"))
    monkeypatch.setattr(kwok, "endpoint", lambda _: Endpoint("127.0.0.1:1", ""))
    monkeypatch.setattr(trust, "renew", lambda: None)
    record = ClusterRecord("ai", "p", "us-central1", "autopilot", ["us-central1-a"], "1.36.1-gke.1")
    if failures == 2:
        with pytest.raises(ClusterFailed, match="its port was taken"):
            kwok.create("ai", record)
    else:
        assert kwok.create("ai", record).host == "127.0.0.1:1"
    assert done == ["discarded", "made"] * (1 + min(failures, 1))


def test_components_that_gave_up_before_the_api_server_was_ready_are_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[str, ...]] = []
    monkeypatch.setattr(paths, "CLUSTERS", tmp_path)
    monkeypatch.setattr(kwok, "_wait_for_success", lambda *_: None)
    monkeypatch.setattr(kwok, "_kwokctl", lambda _, *arguments: started.append(arguments))
    folder = Folder("ai")
    for component in COMPONENTS:
        id_file(folder, component).parent.mkdir(parents=True, exist_ok=True)
        id_file(folder, component).write_text(str(2**22))  # no process has this id
    kwok._wait_until_ready(folder)
    assert started == [("start", "cluster")]
