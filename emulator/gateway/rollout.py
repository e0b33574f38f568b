"""Holds changed HTTPRoutes and new GCPRoutingExtensions back until the servers that they need answer.

On GKE the pod of a picker or a router is ready only once its probe succeeds, and a program changes the route after
that. KWOK makes pods ready at once, so the change may come before the server's process answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import grpc

from emulator.gateway.envoy_config import Picker
from emulator.gateway.routes import Key, Object, Objects, pool_of, refs_of

# A change is applied after this time in any case, as a load balancer does not wait for backends.
MAX_SECONDS = 60.0
# For this time a picker must have answered: Envoy probes it every 0.5 s.
SETTLED_SECONDS = 1.5
PROBE_SECONDS = 2.0
SERVING = b"\x08\x01"
"""The message HealthCheckResponse with status SERVING: https://grpc.io/docs/guides/health-checking/"""


class Rollout:
    """The versions of HTTPRoutes that are applied."""

    def __init__(self) -> None:
        self._applied: dict[Key, Object] = {}
        self._extensions: set[Key] = set()
        self._seen: dict[Key, float] = {}
        self._pending: dict[Key, tuple[object, float]] = {}
        self._answers_since: dict[Picker, float] = {}

    async def applied(
        self,
        objects: Objects,
        pickers: Mapping[Key, Sequence[Picker]],
        now: float,
        callouts: Mapping[Key, Sequence[Picker]] | None = None,
    ) -> Objects:
        """The objects with the versions of routes, and the GCPRoutingExtensions, to apply.

        Args:
            objects: The objects of the cluster.
            pickers: The endpoint pickers that run, by InferencePool.
            now: A monotonic time in seconds.
            callouts: The servers that GCPRoutingExtensions call, by GCPRoutingExtension.
        """
        servers = callouts or {}
        self._extensions = {
            key
            for key in objects.extensions
            if key in self._extensions
            or await self._answers(servers.get(key, ()), now)
            or now - self._seen.setdefault(key, now) >= MAX_SECONDS
        }
        routes = {}
        for key, route in objects.routes.items():
            before = self._applied.get(key)
            if (
                before is not None
                and _version(before) != _version(route)
                and await self._holds(key, route, pickers, now, objects.extensions.keys() <= self._extensions)
            ):
                routes[key] = before
            else:
                self._pending.pop(key, None)
                routes[key] = route
        self._applied = routes
        extensions = {key: item for key, item in objects.extensions.items() if key in self._extensions}
        return replace(objects, routes=routes, extensions=extensions)

    async def _holds(
        self, key: Key, route: Object, pickers: Mapping[Key, Sequence[Picker]], now: float, extended: bool
    ) -> bool:
        """Whether a changed route waits for a picker, or for the server of a GCPRoutingExtension."""
        version, since = self._pending.get(key, (None, now))
        if version != _version(route):
            since = now
        self._pending[key] = (_version(route), since)
        if "deletionTimestamp" in route["metadata"] or now - since >= MAX_SECONDS:
            return False
        answers = [await self._answers(pickers.get(pool, ()), now) for pool in weighted_pools(route)]
        return not (extended and all(answers))

    async def _answers(self, pickers: Sequence[Picker], now: float) -> bool:
        for picker in pickers:
            if picker.probe_port is None or await serves(picker.probe_port, picker.probe_service):
                return now - self._answers_since.setdefault(picker, now) >= SETTLED_SECONDS
            self._answers_since.pop(picker, None)
        return False


def weighted_pools(route: Object) -> list[Key]:
    """The InferencePools that a route sends requests to."""
    return sorted({pool for ref in refs_of(route) if ref["weight"] and (pool := pool_of(ref, route))})


async def serves(port: int, service: str) -> bool:
    """Whether a gRPC server of this machine says that a service is healthy."""
    name = service.encode()
    request = b"\x0a" + bytes([len(name)]) + name if name else b""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        check: Any = channel.unary_unary("/grpc.health.v1.Health/Check")
        try:
            return bool(await check(request, timeout=PROBE_SECONDS) == SERVING)
        except grpc.RpcError:
            return False


def _version(route: Object) -> object:
    return route["metadata"].get("uid"), route["metadata"]["generation"]
