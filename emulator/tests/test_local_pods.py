"""Which pods a daemon takes for its own and which it leaves to be simulated, without a cluster."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from emulator.cloud.api import View
from emulator.cloud.folder import Folder
from emulator.cloud.store import Store
from emulator.machine import paths, processes
from emulator.pods import local_pods

Object = dict[str, Any]


def running(name: str, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> Object:
    metadata = {"namespace": "default", "name": name, "uid": f"uid-{name}"}
    spec = {"containers": [{"name": "worker", "image": "example.com/worker:1"}]}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Running", "startTime": f"{start:%FT%TZ}"}}


def claimed(folder: Path, before: Object, during_start: Callable[[View], None], monkeypatch: pytest.MonkeyPatch) -> str:
    """The path of the first change that a daemon makes to a pod. `during_start` runs while it ends old processes."""
    changes: asyncio.Queue[str] = asyncio.Queue()

    async def answer(request: httpx.Request) -> httpx.Response:
        changes.put_nowait(request.url.path)
        return httpx.Response(404, json={"message": "gone"})

    async def run() -> str:
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://cluster") as api:
            changed = asyncio.Event()
            pods = View(api, "/api/v1/pods", changed.set)
            pods.objects = {("default", before["metadata"]["name"]): before}
            pods.synced.set()
            monkeypatch.setattr(processes, "end_local_pods", lambda _: during_start(pods))
            local = local_pods.LocalPods(Folder("local"), api, pods, Store(folder / "cloud"))
            task = asyncio.create_task(local.run(changed))
            try:
                return await asyncio.wait_for(changes.get(), 20)
            finally:
                task.cancel()

    return asyncio.run(run())


@pytest.fixture(autouse=True)
def all_local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "CLUSTERS", tmp_path)
    monkeypatch.setattr(local_pods, "program_for", lambda image: object())  # noqa: ARG005 (as its own)


def test_a_pod_runs_that_starts_before_a_daemon_first_sees_pods_and_an_earlier_one_stays_simulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster is there once its daemon listens, which may be before it has listed the pods."""

    def during_start(pods: View) -> None:
        pods.objects["default", "new"] = running("new", datetime.now(UTC))

    new = running("new", datetime.now(UTC))
    for before, act in ((new, lambda _: None), (running("earlier"), during_start)):
        assert claimed(tmp_path, before, act, monkeypatch) == "/api/v1/namespaces/default/pods/new"
