"""Pods of stubs end as those of a kubelet: preStop, SIGTERM, SIGKILL, and only then the pod."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx
import pytest

from emulator.cloud.folder import Folder
from emulator.cloud.records import ClusterRecord
from emulator.machine import paths, processes
from emulator.pods import controllers, termination
from emulator.pods.controllers import ContainerProcess, Controllers
from emulator.pods.programs import Program
from emulator.pods.sandbox import Container

Object = dict[str, Any]
RECORD = ClusterRecord("c", "proj", "us-west4", "standard", ["us-west4-a"], "1.36.1-gke.1")
PORT = 8000
# Writes when it listens and when it gets SIGTERM, and ends once the test allows it.
# It waits for the signal: Python can miss one with a handler that comes just before the main thread sleeps.
WAITS = """
import pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
(folder / "listening").touch()
signal.sigwait({signal.SIGTERM})
(folder / "terminating").touch()
while not (folder / "may end").exists():
    time.sleep(0.02)
(folder / "ended").touch()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.setattr(paths, "CLUSTERS", tmp_path)
    created = Folder("c")
    created.path.mkdir()
    created.log.mkdir()
    created.write(RECORD, "127.0.0.1:1", ready=True)
    return created


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """The only program that the emulator knows."""

    async def command(container: Container) -> list[str]:
        container.sandbox.port(PORT)
        return [sys.executable, "-c", WAITS, str(tmp_path)]

    stub = Program("i", command)
    monkeypatch.setattr(controllers, "known", lambda _: stub)
    return stub


def pod(pre_stop: float = 0, grace: int = 60) -> Object:
    spec = {"name": "a", "image": "i", "lifecycle": {"preStop": {"sleep": {"seconds": pre_stop}}}}
    metadata = {"namespace": "llm", "name": "p", "uid": "u1", "annotations": {}}
    ready = {"type": "Ready", "status": "True"}
    return {
        "metadata": metadata,
        "spec": {"nodeName": "n1", "containers": [spec], "terminationGracePeriodSeconds": grace},
        "status": {"phase": "Running", "podIP": "10.0.0.7", "conditions": [ready]},
    }


class Cluster:
    """The pods of a cluster with one pod, and the controllers that run it."""

    def __init__(self, folder: Folder, api: httpx.AsyncClient, running: Object) -> None:
        self.patches: list[Object] = []
        self.pods = Mock(objects={("llm", "p"): running}, synced=asyncio.Event())
        self.pods.synced.set()
        none = Mock(objects={})
        self.controllers = Controllers(folder, api, self.pods, none, none, Mock())
        self.changed = asyncio.Event()

    def change(self, **metadata: object) -> None:
        """Changes the pod's metadata, as the API server does."""
        before = self.pods.objects["llm", "p"]
        self.pods.objects["llm", "p"] = before | {"metadata": before["metadata"] | metadata}
        self.changed.set()

    def delete(self, grace: int = 60) -> None:
        self.change(deletionTimestamp="2026-01-01T00:00:00Z", deletionGracePeriodSeconds=grace)


def rehearsed(folder: Folder, running: Object, steps: Callable[[Cluster], Any]) -> list[Object]:
    """Runs the controllers while `steps` acts. Returns the changes of the pod."""
    patches: list[Object] = []

    def respond(request: httpx.Request) -> httpx.Response:
        patches.append(json.loads(request.content))
        return httpx.Response(200, json={})

    async def run() -> None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(respond), base_url="http://c") as api:
            cluster = Cluster(folder, api, running)
            cluster.patches = patches
            task = asyncio.create_task(cluster.controllers.run(cluster.changed))
            await steps(cluster)
            task.cancel()

    asyncio.run(asyncio.wait_for(run(), 60))
    return patches


async def until(check: Callable[[], object]) -> None:
    while not check():
        await asyncio.sleep(0.02)


def held(patches: list[Object]) -> bool:
    return {termination.ANNOTATION: termination.STUB} in [patch["metadata"].get("annotations") for patch in patches]


def ends(patches: list[Object]) -> list[str]:
    return [patch["status"]["phase"] for patch in patches if "status" in patch]


@pytest.mark.usefixtures("program")
def test_a_deleted_pod_exists_and_is_reached_until_its_process_has_ended(folder: Folder, tmp_path: Path) -> None:
    async def steps(cluster: Cluster) -> None:
        await until(lambda: (tmp_path / "listening").exists() and held(cluster.patches))
        cluster.change(annotations={termination.ANNOTATION: termination.STUB})
        cluster.delete()
        await until((tmp_path / "terminating").exists)
        cluster.changed.set()
        assert not ends(cluster.patches)
        assert PORT in cluster.controllers.served()["u1"]
        (tmp_path / "may end").touch()
        await until(lambda: ends(cluster.patches))
        assert (tmp_path / "ended").exists()
        await until(lambda: not cluster.controllers.served())

    patches = rehearsed(folder, pod(), steps)
    assert ends(patches)[0] == "Failed"
    assert patches[-1]["status"]["conditions"] == [{"type": "Ready", "status": "False", "reason": "PodFailed"}]
    assert patches[-1]["metadata"] == {"uid": "u1"}, "another pod with this name stays as it is"


@pytest.mark.usefixtures("program")
def test_a_pod_that_is_deleted_by_force_loses_its_process_at_once(folder: Folder, tmp_path: Path) -> None:
    async def steps(cluster: Cluster) -> None:
        await until(lambda: (tmp_path / "listening").exists() and held(cluster.patches))
        cluster.change(annotations={termination.ANNOTATION: termination.STUB})
        cluster.delete()
        await until((tmp_path / "terminating").exists)
        cluster.pods.objects.clear()
        cluster.changed.set()
        await until(lambda: not processes.of(folder.path))

    rehearsed(folder, pod(), steps)
    assert not (tmp_path / "ended").exists()


@pytest.mark.usefixtures("program")
def test_a_deleted_pod_whose_process_ended_with_an_earlier_daemon_ends(folder: Folder) -> None:
    lost = pod()
    lost["metadata"] |= {"annotations": {termination.ANNOTATION: termination.STUB}, "deletionTimestamp": "2026"}

    async def steps(cluster: Cluster) -> None:
        await until(lambda: ends(cluster.patches))

    assert set(ends(rehearsed(folder, lost, steps))) == {"Failed"}


@pytest.mark.parametrize(("pre_stop", "grace"), [(600, 0), (0, 1)])
def test_a_process_is_killed_at_the_end_of_the_grace_period(
    folder: Folder, program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pre_stop: float, grace: int
) -> None:
    monkeypatch.setattr(termination, "MIN_GRACE_SECONDS", 0.1)

    async def run() -> None:
        whole = pod(pre_stop, grace)
        (spec,) = whole["spec"]["containers"]
        process = ContainerProcess(folder, Mock(), Mock(), whole, spec, program, {}, Mock())
        await until((tmp_path / "listening").exists)
        await process.end(grace)
        assert not processes.of(folder.path)

    asyncio.run(asyncio.wait_for(run(), 60))
    assert not (tmp_path / "ended").exists()


def test_a_pre_stop_hook_comes_before_sigterm_and_is_part_of_the_grace_period(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setenv(termination.PRE_STOP_VARIABLE, "20")
    assert asyncio.run(termination.after_pre_stop(15, 120)) == 105
    # The kubelet gives a hook that takes the whole grace period two more seconds.
    assert asyncio.run(termination.after_pre_stop(30, 18)) == termination.MIN_GRACE_SECONDS == 2
    monkeypatch.delenv(termination.PRE_STOP_VARIABLE)
    # The emulator cuts a long hook short, and gives the process no more time for it.
    assert asyncio.run(termination.after_pre_stop(15, 120)) == 105
    assert slept == [15, 18, termination.PRE_STOP_SECONDS]
