"""A cluster on a full disk says so at once, and names etcd, the free space and the remedy."""

import contextlib
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import httpx
import pytest

from emulator import cluster
from emulator.cloud import diagnosis
from emulator.cloud.api import answer, client
from emulator.cloud.control_plane import COMPONENTS, id_file, id_of
from emulator.cloud.folder import Folder
from emulator.cloud.records import ClusterRecord
from emulator.cluster import kwok
from emulator.commands import ready
from emulator.machine import paths, processes, trust
from emulator.machine.polling import poll_until

RECORD = ClusterRecord("full", "p", "us-central1", "autopilot", ["us-central1-a"], "1.36.1-gke.1")
REFUSED = r"etcd has no room: the disk of .* has \d+ MB free, and etcd needs \d+ MB"
SOON_SECONDS = 20


@pytest.fixture
def clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(paths, "STATE", tmp_path)
    monkeypatch.setattr(paths, "CLUSTERS", tmp_path / "clusters")
    monkeypatch.setattr(trust, "renew", lambda: None)
    return paths.CLUSTERS


@pytest.mark.parametrize(("free", "is_new", "starts"), [(159, True, False), (15, False, False), (17, False, True)])
def test_a_control_plane_that_exists_needs_less_room(
    clusters: Path, monkeypatch: pytest.MonkeyPatch, free: int, is_new: bool, starts: bool
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free * 1_000_000))
    if not is_new:
        (clusters / "etcd").mkdir(parents=True)
    lack = diagnosis.lack_for_etcd(clusters)
    assert bool(lack) != starts
    assert starts or f"has {free} MB free" in lack
    assert starts or f"du -xah {paths.STATE}" in lack


def test_a_component_that_ended_is_named_after_etcd_if_etcd_ended(
    clusters: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server only says that its deadline was exceeded."""
    folder = Folder("full")
    for component in COMPONENTS:
        id_file(folder, component).parent.mkdir(parents=True, exist_ok=True)
        id_file(folder, component).write_text(str(2**22))  # no process has this id
    log = folder.control_plane / "logs" / "etcd.log"
    log.parent.mkdir()
    log.write_text('{"level":"fatal","msg":"failed to create WAL","error":"write: no space left on device"}\n')
    folder.write(RECORD, "127.0.0.1:1", ready=False)
    refuses = httpx.MockTransport(Mock(side_effect=httpx.ConnectError("refused")))
    monkeypatch.setattr(kwok, "client", lambda _: httpx.Client(transport=refuses, base_url="http://c"))
    with pytest.raises(cluster.ClusterFailed, match=r"^etcd of full has ended: failed to create WAL: write: no space"):
        kwok._wait_for_success(folder, "/readyz", "kube-apiserver")
    assert clusters.exists()


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file system in memory. Only root may mount it."""
    root = tmp_path / "disk"
    root.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=300m", "tmpfs", str(root)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this user can't mount a file system")
    monkeypatch.setattr(paths, "STATE", root)
    monkeypatch.setattr(paths, "CLUSTERS", root / "clusters")
    try:
        yield root
    finally:
        (root / "filling").unlink(missing_ok=True)
        processes.end(Folder(RECORD.name).path)
        subprocess.run(["umount", "--lazy", root], check=True)


def fill(root: Path, leave: int) -> Path:
    """Fills a file system, except some bytes."""
    file = root / "filling"
    with file.open("wb", buffering=0) as to, contextlib.suppress(OSError):
        while (rest := shutil.disk_usage(root).free - leave) > 0:
            to.write(bytes(min(rest, 1 << 20)))
    return file


def refused_soon() -> None:
    began = time.monotonic()
    with pytest.raises(cluster.ClusterFailed, match=REFUSED):
        cluster.create(RECORD.name, RECORD)
    assert time.monotonic() - began < SOON_SECONDS


def test_a_command_on_a_full_disk_says_so(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "Pulumi.dev.yaml"
    config.write_text("config: {}\n")
    monkeypatch.setattr("sys.argv", ["ready", str(config)])
    fill(small, 0)
    with pytest.raises(SystemExit, match=r"The emulator has no room: the disk of .* has 0 MB free"):
        ready.main()
    (small / "filling").unlink()
    ready.main()


@pytest.mark.parametrize("left", [0, 20_000_000])
def test_no_cluster_is_created_on_a_full_disk(small: Path, left: int) -> None:
    fill(small, left)
    refused_soon()
    assert processes.of(Folder(RECORD.name).path) == []


@pytest.mark.cluster
@pytest.mark.nightly
def test_a_cluster_whose_disk_fills_up_continues_once_there_is_room(small: Path) -> None:
    cluster.create(RECORD.name, RECORD)
    folder = Folder(RECORD.name)
    filling = fill(small, 0)
    with client(folder) as api:
        etcd = id_of(folder, "etcd")

        def ends() -> bool:
            with contextlib.suppress(httpx.HTTPError):
                item = {"metadata": {"generateName": "a-"}, "data": {"a": "x" * 900_000}}
                api.post("/api/v1/namespaces/default/configmaps", json=item)
            return etcd not in processes.of(folder.path)

        assert poll_until(ends, 120), "etcd goes on although it can't write"
    refused_soon()
    filling.unlink()
    cluster.create(RECORD.name, RECORD)
    with client(folder) as api:
        assert answer(api.get("/api/v1/namespaces/default"))["metadata"]["name"] == "default"
