"""The gateway: its class, its namespace, and the servers behind it."""

from __future__ import annotations

from catalog.gateways import EXTERNAL_CLASS, INTERNAL_CLASS
from settings.model import Gateway, Route, Server, Settings


def gateway_class(gateway: Gateway) -> str:
    """The GatewayClass: GKE's regional external or internal Application Load Balancer."""
    return EXTERNAL_CLASS if gateway.public else INTERNAL_CLASS


def route_servers(route: Route, settings: Settings) -> list[Server]:
    """The servers of a route, in its order. Other rules report unknown ones."""
    by_name = {server.name: server for server in settings.serving}
    return [by_name[routed.server] for routed in route.servers if routed.server in by_name]


def gateway_servers(settings: Settings) -> list[Server]:
    """The servers behind the gateway, in the order of the configuration."""
    routes = settings.gateway.routes if settings.gateway else []
    named = {routed.server for route in routes for routed in route.servers}
    return [server for server in settings.serving if server.name in named]


def route_namespace(route: Route, settings: Settings) -> str | None:
    """The namespace of a route: that of its servers. None if none of them exists."""
    return next((server.namespace for server in route_servers(route, settings)), None)


def gateway_namespace(settings: Settings) -> str | None:
    """The namespace of the Gateway. None without a gateway, or if no server of it exists."""
    if settings.gateway is None:
        return None
    routed = (route_namespace(route, settings) for route in settings.gateway.routes)
    return settings.gateway.namespace or next(filter(None, routed), None)


def awaits_replica(server: Server, settings: Settings) -> bool:
    """Whether an update waits for the server: not if the gateway names it, always with weight 0.

    So a rollback from a server that never gets ready ends at once.
    """
    routes = settings.gateway.routes if settings.gateway else []
    weights = [routed.weight for route in routes for routed in route.servers if routed.server == server.name]
    return not weights or any(weights)


def proxy_range(settings: Settings) -> str | None:
    """IPv4 range of the load balancer's proxies, if the stack creates it."""
    return settings.cluster.vpc.proxy_cidr if settings.cluster.vpc else None


def requires_api_key(server: Server, settings: Settings) -> bool:
    """Whether the server requires an API key from its clients."""
    return settings.gateway is not None and settings.gateway.api_key and server in gateway_servers(settings)


def picker_name(pool: str) -> str:
    """Name of the endpoint picker of an InferencePool."""
    return f"{pool}-epp"
