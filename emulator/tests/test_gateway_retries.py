"""The Gateway controller tries again after a failure."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from emulator.cloud.api import View
from emulator.cloud.folder import Folder
from emulator.cloud.records import ClusterRecord
from emulator.gateway.controller import Envoy, Gateways
from emulator.gateway.routes import CLASSES
from emulator.machine import paths, processes

RECORD = ClusterRecord("c", "p", "us-central1", "standard", ["us-central1-a"], "1.36.1-gke.1", gateway_api=True)


def test_a_refused_class_is_created_later_in_a_cluster_without_gateways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "CLUSTERS", tmp_path)
    folder = Folder("c")
    folder.path.mkdir()
    folder.write(RECORD, "127.0.0.1:1", ready=True)
    created: list[str] = []

    async def respond(request: httpx.Request) -> httpx.Response:
        if "watch" in request.url.params:
            await asyncio.Event().wait()  # nothing changes
        if request.method == "GET":
            return httpx.Response(200, json={"items": [], "metadata": {"resourceVersion": "1"}})
        created.append(request.url.path.rpartition("gatewayclasses/")[2])
        return httpx.Response(500 if len(created) == 1 else 200, json={"message": "etcdserver: request timed out"})

    async def run() -> None:
        async with httpx.AsyncClient(base_url="http://api", transport=httpx.MockTransport(respond)) as api:
            none = View(api, "/unused", lambda: None)
            running = asyncio.create_task(Gateways(folder, api, none, none, none, dict).run(1))
            while f"{CLASSES[-1]}/status" not in created:
                await asyncio.sleep(0.05)
            running.cancel()

    asyncio.run(asyncio.wait_for(run(), 20))
    assert created[0] == created[1] == CLASSES[0]


def test_an_envoy_that_could_not_be_started_is_started_at_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "CLUSTERS", tmp_path)
    monkeypatch.setattr(processes, "tool", str)
    starts: list[str] = []

    async def keep_running(title: str, *_: object) -> None:
        starts.append(title)
        if len(starts) == 1:
            raise OSError("Resource temporarily unavailable")
        await asyncio.Event().wait()

    monkeypatch.setattr(processes, "keep_running", keep_running)

    async def run() -> None:
        envoy = Envoy(Folder("c"), ("llm", "g"))
        for _ in range(2):
            envoy.configure({})
            await asyncio.sleep(0)

    asyncio.run(run())
    assert starts == ["gateway_llm_g"] * 2
