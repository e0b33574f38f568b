"""A changed route is applied once the endpoint pickers that it needs answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from emulator.gateway import rollout as gateway_rollout
from emulator.gateway.envoy_config import Picker
from emulator.gateway.rollout import MAX_SECONDS, SETTLED_SECONDS, Rollout, weighted_pools
from emulator.gateway.routes import Object, Objects

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


def test_a_route_waits_for_the_picker_of_a_new_pool(serving: set[int]) -> None:
    rollout = Rollout()
    assert weights(rollout, route(1, old=1), 0) == {"old": 1}
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
    rollout = Rollout()
    weights(rollout, route(1, old=1), 0)
    weights(rollout, route(2, old=1, new=0), 1)
    assert weights(rollout, route(2, old=1, new=0), 1 + SETTLED_SECONDS) == {"old": 1, "new": 0}
    assert weighted_pools(route(3, old=0, new=5)) == [NEW]
    assert serving == {11}


@pytest.mark.usefixtures("serving")
def test_a_route_does_not_wait_forever() -> None:
    rollout = Rollout()
    weights(rollout, route(1, old=1), 0)
    assert weights(rollout, route(2, new=1), 1, {}) == {"old": 1}
    assert weights(rollout, route(3, new=2), MAX_SECONDS, {}) == {"old": 1}  # a later version waits anew
    assert weights(rollout, route(3, new=2), 2 * MAX_SECONDS, {}) == {"new": 2}


@pytest.mark.usefixtures("serving")
def test_a_deleted_route_goes_at_once() -> None:
    rollout = Rollout()
    weights(rollout, route(1, old=1), 0)
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
