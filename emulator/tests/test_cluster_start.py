"""What happens if the first start of a cluster, or of a component, fails."""

import os
import threading
import time
from pathlib import Path

import pytest

from emulator.cloud import control_plane
from emulator.cloud.control_plane import COMPONENTS, id_file
from emulator.cloud.folder import Folder, locked, try_lock
from emulator.cloud.records import ClusterRecord, Endpoint
from emulator.cluster import kwok
from emulator.cluster.kwok import ClusterFailed
from emulator.machine import paths, progress, trust


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
    record = ClusterRecord("ai", "p", "us-central1", "standard", ["us-central1-a"], "1.36.1-gke.1")
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


def test_a_command_that_waits_for_another_one_or_starts_a_cluster_again_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "NOTICE_SECONDS", 0.1)
    other = try_lock(tmp_path)
    assert other is not None
    threading.Timer(0.5, os.close, [other]).start()
    with locked(tmp_path):
        assert f"Waiting for another command, which creates, starts or deletes a cluster in {tmp_path}" in said(capsys)
    with locked(tmp_path):
        time.sleep(0.3)
    assert said(capsys) == ""
    monkeypatch.setattr(paths, "CLUSTERS", tmp_path)
    monkeypatch.setattr(kwok, "_kwokctl", lambda *_: time.sleep(0.5))
    for step in ("_wait_until_ready", "_start_daemon", "_wait_for_daemon", "_refuse_taken_port"):
        monkeypatch.setattr(kwok, step, lambda _: None)
    for step in ("is_open", "leave_taken_ports"):
        monkeypatch.setattr(control_plane, step, lambda *_: False)
    monkeypatch.setattr(kwok, "_forget_dead", lambda _: ["etcd", "kube-apiserver"])
    folder = Folder("ai")
    folder.create()
    kwok._start(folder)
    assert said(capsys).startswith("Starting etcd, kube-apiserver of cluster ai again (")


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err
