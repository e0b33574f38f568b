"""No object of a cluster leads out of the folder that it belongs to."""

import asyncio
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx
import pytest

from emulator.cloud.folder import Folder
from emulator.cloud.records import PoolRecord, write_pool
from emulator.cloud.store import Record, Store
from emulator.gateway.controller import Envoy
from emulator.machine import paths
from emulator.machine.folders import Outside, folder_name, inside
from emulator.pods import logs as pod_logs
from emulator.pods import scraping
from emulator.pods.controllers import ContainerProcess
from emulator.pods.local_pods import LocalPods
from emulator.pods.programs import Program
from emulator.pods.sandbox import Sandbox

Object = dict[str, Any]
HOSTILE = ["/abs", "..", ".", "../x", "a/../../x", "a/b", "", "a\0b", ".hidden", "A", "a..b", "x" * 300]


def test_a_hostile_value_becomes_a_plain_name_of_its_own_and_a_plain_name_stays(tmp_path: Path) -> None:
    names = {value: folder_name(value) for value in HOSTILE}
    assert len(set(names.values())) == len(HOSTILE)
    for value, name in names.items():
        assert (tmp_path / name).parent == tmp_path
        assert name not in ("", ".", "..", value)
        assert len(name) < 255
    for plain in ("6f0c3b1e-58f0-4f0e-9a53-0d5b6f7a8c9d", "run-0-x7", "my_bucket.example.com", "u1"):
        assert folder_name(plain) == plain


def test_an_absolute_path_is_one_below_the_folder_and_dots_and_links_out_of_it_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path)
    assert inside(folder, "/etc/x") == folder / "etc" / "x"
    for path in ("..", "../x", "a/../../x", "/../x", "a/..", "link/x"):
        with pytest.raises(Outside, match="leads out of its folder"):
            inside(folder, path)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """The folder of a cluster."""
    monkeypatch.setattr(paths, "CLUSTERS", tmp_path / "state" / "clusters")
    folder = Folder("c")
    folder.log.mkdir(parents=True)
    return folder


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A folder of the user, which nothing may touch."""
    (tmp_path / "victim" / "a").mkdir(parents=True)
    for file in ("file", "a/file"):
        (tmp_path / "victim" / file).write_text("content")
    return tmp_path / "victim"


def pod(uid: str, container: str = "a", image: str = "i") -> Object:
    metadata = {"namespace": "llm", "name": "p", "uid": uid, "annotations": {}}
    spec = {"nodeName": "n", "containers": [{"name": container, "image": image}]}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}


@pytest.mark.parametrize("place", ["uid", "container"])
def test_the_end_of_a_controller_deletes_only_its_own_folder(folder: Folder, victim: Path, place: str) -> None:
    hostile = pod(str(victim)) if place == "uid" else pod("u", str(victim))
    (spec,) = hostile["spec"]["containers"]

    async def sleeps(_: object) -> list[str]:
        return ["sleep", "600"]

    async def run() -> None:
        process = ContainerProcess(folder, Mock(), Mock(), hostile, spec, Program("i", sleeps), {}, Mock())
        while not process.sandbox.inside("/tmp").exists():
            await asyncio.sleep(0.01)
        process.stop()
        while process.sandbox.root.exists():
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(run(), 30))
    assert sorted(victim.rglob("*")) == [victim / "a", victim / "a" / "file", victim / "file"]


def test_the_end_of_a_local_pod_deletes_only_its_own_folder(folder: Folder, victim: Path) -> None:
    answers = Mock(return_value=httpx.Response(404, json={"message": "gone"}))

    async def run() -> None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(answers), base_url="http://c") as api:
            pods = Mock(objects={("llm", "p"): pod(str(victim))}, synced=asyncio.Event())
            pods.synced.set()
            local = LocalPods(folder, api, pods, Store(folder.path))
            pods.objects["llm", "p"]["metadata"]["annotations"]["emulator.gke-ai/local-processes"] = "true"
            running = asyncio.create_task(local.run(asyncio.Event()))
            while not answers.called:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            running.cancel()

    asyncio.run(asyncio.wait_for(run(), 30))
    assert (victim / "a" / "file").exists()


def test_logs_credentials_and_records_stay_in_the_folder_of_the_cluster(folder: Folder, victim: Path) -> None:
    files = [
        pod_logs.file_of(folder, pod(f"../../../../../{victim}"), "a", 0),
        pod_logs.file_of(folder, pod("u"), "../../../../..", 0),
        folder.path / scraping.credential("llm", f"x/../../../../..{victim}", "file"),
        Envoy(folder, ("llm", f"x/../../../../..{victim}")).path,
    ]
    write_pool(folder.pools, PoolRecord(f"x/../../../../..{victim}/pool", "m", ["z"]))
    files += folder.pools.glob("*")
    assert len(files) == 5
    for file in files:
        assert ".." not in file.parts
        assert file.is_relative_to(folder.path)


def test_a_cluster_and_a_bucket_stay_in_the_state(tmp_path: Path, folder: Folder, victim: Path) -> None:  # noqa: ARG001
    assert Folder(str(victim)).path.parent == paths.CLUSTERS
    store = Store(tmp_path / "state" / "cloud")
    store.put(Record(str(victim), "k", "p", {}))
    assert store.bucket_folder(str(victim)).is_relative_to(tmp_path / "state")
    store.remove_objects(str(victim))
    assert (victim / "file").exists()


def test_a_mount_of_a_controller_stays_in_its_sandbox(tmp_path: Path, victim: Path) -> None:
    sandbox = Sandbox(tmp_path / "state" / "sandbox")
    with pytest.raises(Outside, match="leads out of its folder"):
        sandbox.inside(f"/x/../../..{victim}")
