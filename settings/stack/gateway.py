"""A route of the gateway with its servers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from catalog.gateways import EXTERNAL_CLASS, INTERNAL_CLASS
from settings.model import Gateway, Route, Server


@dataclass(frozen=True)
class Routed:
    """A route, its place in the configuration, and its servers."""

    section: Route
    path: str
    servers: tuple[Server, ...]
    """The servers of the route, in its order. Other rules report unknown ones."""

    @property
    def namespace(self) -> str | None:
        """The namespace of the route: that of its servers. None if none of them exists."""
        return next((server.namespace for server in self.servers), None)

    def at(self, key: str) -> str:
        """Path of a key of the route in the configuration."""
        return f"{self.path}.{key}"


def routes_of(gateway: Gateway | None, servers: Sequence[Server]) -> list[Routed]:
    """The routes of the gateway with their servers."""
    by_name = {server.name: server for server in servers}
    return [
        Routed(
            route,
            gateway.at(f"routes[{index}]"),
            tuple(by_name[routed.server] for routed in route.servers if routed.server in by_name),
        )
        for index, route in enumerate(gateway.routes if gateway else [])
        if gateway
    ]


def gateway_class(gateway: Gateway) -> str:
    """The GatewayClass: GKE's regional external or internal Application Load Balancer."""
    return EXTERNAL_CLASS if gateway.public else INTERNAL_CLASS


def picker_name(pool: str) -> str:
    """Name of the endpoint picker of an InferencePool."""
    return f"{pool}-epp"
