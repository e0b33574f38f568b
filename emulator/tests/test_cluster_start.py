"""If the first start of a cluster fails, the cluster is created again, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator import paths, trust
from emulator.cluster import kwok
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
