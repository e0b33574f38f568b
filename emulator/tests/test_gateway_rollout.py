"""A changed route is applied once the endpoint pickers that it needs answer, and what fails is tried again."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from emulator.cloud.api import View
from emulator.cloud.folder import Folder
from emulator.cloud.records import ClusterRecord
from emulator.gateway import rollout as gateway_rollout
from emulator.gateway.controller import Envoy, Gateways
from emulator.gateway.envoy_config import Picker
from emulator.gateway.rollout import MAX_SECONDS, SETTLED_SECONDS, Rollout, weighted_pools
from emulator.gateway.routes import CLASSES, Object, Objects
from emulator.machine import paths, processes

OLD, NEW = ("llm", "old"), ("llm", "new")
PICKERS = {OLD: [Picker(1, 11)], NEW: [Picker(2, 12)]}


def route(generation: int, **weights: int) -> Object:
    reference = {"group": "inference.networking.k8s.io", "kind": "InferencePool"}
    refs = [{**reference, "name": name, "weight": weight} for name, weight in weights.items()]
    metadata = {"namespace": "llm", "name": "r", "uid": "u", "generation": generation}
    return {"metadata": metadata, "spec": {"rules": [{"backendRefs": refs}]}}


@pytest.fixture
def serving(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The ports whose probes succeed."""
    ports = {11}

    async def serves(port: int, _: str) -> bool:
        return port in ports

    monkeypatch.setattr(gateway_rollout, "serves", serves)
    return ports


def weights(rollout: Rollout, item: Object, now: float, pickers: Any = None) -> dict[str, int]:
    objects = Objects({}, {("llm", "r"): item}, {}, {}, {}, {})
    result = asyncio.run(rollout.applied(objects, PICKERS if pickers is None else pickers, now))
    (applied,) = result.routes.values()
    return {ref["name"]: ref["weight"] for ref in applied["spec"]["rules"][0]["backendRefs"]}


def applied() -> Rollout:
    """A rollout that has applied the first version of the route."""
    rollout = Rollout()
    assert weights(rollout, route(1, old=1), 0) == {"old": 1}
    return rollout


def test_a_route_waits_for_the_picker_of_a_new_pool(serving: set[int]) -> None:
    rollout = applied()
    assert weights(rollout, route(2, old=1, new=1), 1) == {"old": 1}
    serving.add(12)
    assert weights(rollout, route(2, old=1, new=1), 2) == {"old": 1}
    assert weights(rollout, route(2, old=1, new=1), 2 + SETTLED_SECONDS) == {"old": 1, "new": 1}
    serving.remove(12)
    assert weights(rollout, route(2, old=1, new=1), 9) == {"old": 1, "new": 1}


def test_a_new_picker_of_a_pool_has_the_same_time_as_the_first_one(serving: set[int]) -> None:
    rollout = Rollout()
    serving |= {12, 13}
    weights(rollout, route(1, old=1), 0)
    weights(rollout, route(2, new=1), 1)
    weights(rollout, route(3, old=1), 10)
    later = {**PICKERS, NEW: [Picker(3, 13)]}
    assert weights(rollout, route(4, new=1), 20, later) == {"old": 1}
    assert weights(rollout, route(4, new=1), 20 + SETTLED_SECONDS, later) == {"new": 1}


def test_a_pool_without_requests_is_not_waited_for(serving: set[int]) -> None:
    rollout = applied()
    weights(rollout, route(2, old=1, new=0), 1)
    assert weights(rollout, route(2, old=1, new=0), 1 + SETTLED_SECONDS) == {"old": 1, "new": 0}
    assert weighted_pools(route(3, old=0, new=5)) == [NEW]
    assert serving == {11}


@pytest.mark.usefixtures("serving")
def test_a_route_does_not_wait_forever_and_a_deleted_one_not_at_all() -> None:
    rollout = applied()
    assert weights(rollout, route(2, new=1), 1, {}) == {"old": 1}
    assert weights(rollout, route(3, new=2), MAX_SECONDS, {}) == {"old": 1}  # a later version waits anew
    assert weights(rollout, route(3, new=2), 2 * MAX_SECONDS, {}) == {"new": 2}
    rollout = applied()
    deleted = route(2, new=1)
    deleted["metadata"]["deletionTimestamp"] = "2026-11-22T10:00:00Z"
    assert weights(rollout, deleted, 1, {}) == {"new": 1}


def test_a_port_without_a_server_is_not_healthy() -> None:
    assert asyncio.run(gateway_rollout.serves(9, "inference-extension")) is False


ROUTER = ("llm", "router")


def extended(rollout: Rollout, item: Object, now: float, ports: list[Picker]) -> tuple[int, bool]:
    """The generation of the route and whether the extension is applied."""
    extension = {"metadata": {"namespace": "llm", "name": "router"}}
    objects = Objects({}, {("llm", "r"): item}, {}, {}, {}, {}, {ROUTER: extension})
    result = asyncio.run(rollout.applied(objects, PICKERS, now, {ROUTER: ports}))
    (applied,) = result.routes.values()
    return applied["metadata"]["generation"], ROUTER in result.extensions


def test_an_extension_waits_for_its_server_and_a_changed_route_for_the_extension(serving: set[int]) -> None:
    rollout, server = Rollout(), [Picker(3, 13)]
    weights(rollout, route(1, old=1), 0)
    assert extended(rollout, route(2, old=1), 10, []) == (1, False)
    assert extended(rollout, route(2, old=1), 11, server) == (1, False)
    serving.add(13)
    assert extended(rollout, route(2, old=1), 12, server) == (1, False)
    assert extended(rollout, route(2, old=1), 12 + SETTLED_SECONDS, server) == (2, True)
    serving.remove(13)
    assert extended(rollout, route(2, old=1), 20, server) == (2, True), "a load balancer asks a server that failed"


def test_an_extension_whose_server_never_answers_is_applied_in_the_end(serving: set[int]) -> None:
    assert serving == {11}
    rollout = Rollout()
    assert extended(rollout, route(1, old=1), 0, []) == (1, False)
    assert extended(rollout, route(1, old=1), MAX_SECONDS, []) == (1, True)


def test_a_refused_class_is_created_later_in_a_cluster_without_gateways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "CLUSTERS", tmp_path)
    folder = Folder("c")
    folder.path.mkdir()
    record = ClusterRecord("c", "p", "us-central1", "standard", ["us-central1-a"], "1.36.1-gke.1", gateway_api=True)
    folder.write(record, "127.0.0.1:1", ready=True)
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
