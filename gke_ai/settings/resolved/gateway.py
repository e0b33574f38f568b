"""A route of the gateway with its servers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gke_ai.catalog.engines.gateways import EXTERNAL_CLASS, INTERNAL_CLASS
from gke_ai.settings.model import Gateway, Route, Server


@dataclass(frozen=True)
class ModelRule:
    """Requests for some models, and the servers that share them."""

    models: Sequence[str]
    """Models and adapters, as requests name them. Empty: all requests for the host that no other rule matches."""
    servers: Sequence[str]
    """Servers of the route."""


@dataclass(frozen=True)
class Routed:
    """A route, its place in the configuration, and its servers."""

    section: Route
    path: str
    servers: tuple[Server, ...]
    """The servers of the route, in its order. Other rules report unknown ones."""
    leads: bool = True
    """Whether it is the first route of its host. It gets the requests that no other route matches."""

    @property
    def models(self) -> list[str]:
        """Models and adapters that it answers for: those of servers with a weight."""
        weights = {routed.server: routed.weight for routed in self.section.servers}
        return list(
            dict.fromkeys(name for server in self.servers if weights[server.name] for name in server.served_names)
        )

    @property
    def rules(self) -> list[ModelRule]:
        """Which servers share the requests for which models.

        An adapter that only some of the servers have is a rule of its own.
        """
        having: dict[tuple[str, ...], list[str]] = {tuple(server.name for server in self.servers): []}
        for model in self.models:
            servers = tuple(server.name for server in self.servers if model in server.served_names)
            having.setdefault(servers, []).append(model)
        (every, common), *partial = having.items()
        shared = ModelRule([] if self.leads else common, every)
        return [shared, *(ModelRule(models, servers) for servers, models in partial)]

    @property
    def namespace(self) -> str | None:
        """The namespace of the route: that of its servers. None if none of them exists."""
        return next((server.namespace for server in self.servers), None)

    def at(self, key: str) -> str:
        """Path of a key of the route in the configuration."""
        return f"{self.path}.{key}"


def routes_of(gateway: Gateway | None, servers: Sequence[Server]) -> list[Routed]:
    """The routes of the gateway with their servers."""
    if gateway is None:
        return []
    by_name = {server.name: server for server in servers}
    hosts = [route.host for route in gateway.routes]
    return [
        Routed(
            route,
            gateway.at(f"routes[{index}]"),
            tuple(by_name[routed.server] for routed in route.servers if routed.server in by_name),
            leads=route.host not in hosts[:index],
        )
        for index, route in enumerate(gateway.routes)
    ]


def are_by_model(routes: Sequence[Routed]) -> bool:
    """Whether a rule of these routes matches models. The gateway then needs a router."""
    return any(rule.models for route in routes for rule in route.rules)


def gateway_class(gateway: Gateway) -> str:
    """The GatewayClass: GKE's regional external or internal Application Load Balancer."""
    return EXTERNAL_CLASS if gateway.public else INTERNAL_CLASS


def picker_name(pool: str) -> str:
    """Name of the endpoint picker of an InferencePool."""
    return f"{pool}-epp"


def router_name(gateway: str) -> str:
    """Name of the router of a Gateway."""
    return f"{gateway}-router"
