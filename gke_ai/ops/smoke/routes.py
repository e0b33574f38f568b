"""Checks servers through their gateway, as clients reach them, if they require an API key or sleep.

The API server does not pass a client's credential on to a Service, so `gke-ai smoke` cannot send the key that way. And
only the gateway holds a request that wakes a server.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gke_ai.catalog.engines.engine import ENGINES, Engine
from gke_ai.catalog.engines.gateways import tenant_api_key
from gke_ai.kube.client import ApiClient
from gke_ai.ops.smoke.answers import Reply, Server, send_burst

KEY = "GATEWAY_API_KEY"


@dataclass(frozen=True)
class ModelRoute:
    """A model of a route, as the outputs of the stack describe it."""

    name: str
    namespace: str
    url: str
    host: str
    model: str
    servers: tuple[str, ...]
    engine: Engine
    of_tenant: bool = False
    only: bool = True
    keyed: bool = False

    def __str__(self) -> str:
        """The route, with the model if it answers for several."""
        return f"{self.namespace}/{self.name} (route)" + ("" if self.only else f": {self.model}")

    @property
    def server(self) -> Server:
        """The first server of the route, as it answers through the gateway."""
        return Server(self.servers[0], self.namespace, "", 0, self.engine, self.model)

    def headers(self, key: str) -> dict[str, str]:
        """Headers of a request with the stack's key, or the tenant's. None is needed without a key."""
        own = self._own_key(key)
        return {**({"Authorization": f"Bearer {own}"} if own else {}), **({"Host": self.host} if self.host else {})}

    def send(self, key: str, answered: Callable[[], None]) -> tuple[list[Reply], float]:
        """Sends a burst of requests with a key. Returns the replies and their seconds."""
        api, began = self.client(key, self.engine.burst), time.perf_counter()
        replies = send_burst(api, self.server, answered, path="", headers=self.headers(key))
        return replies, time.perf_counter() - began

    def client(self, key: str, connections: int) -> ApiClient:
        """A client of the gateway. It removes the key from all messages."""
        from kubernetes.client import ApiClient, Configuration

        configuration = Configuration(host=self.url)
        configuration.api_key["key"] = self._own_key(key)
        configuration.connection_pool_maxsize = connections
        configuration.tls_server_name = self.host or None
        configuration.proxy = None
        configuration.retries = False
        return ApiClient(configuration)

    def _own_key(self, key: str) -> str:
        """The key that the route accepts: the stack's, or the tenant's that follows from it."""
        return tenant_api_key(key, self.namespace) if self.of_tenant and key else key


def model_routes(outputs: Mapping[str, Any]) -> Iterator[ModelRoute]:
    """Yields the models of the routes of a stack whose servers get requests."""
    servers_of_stack = outputs.get("servers") or []
    engines = {(server["namespace"], server["name"]): server.get("engine", "") for server in servers_of_stack}
    tenants = {tenant["namespace"] for tenant in outputs.get("tenants") or []}
    for gateway in outputs.get("gateways") or []:
        for route in gateway["routes"]:
            servers = tuple(routed["server"] for routed in route["servers"] if routed["weight"])
            engine = ENGINES.get(engines.get((route["namespace"], servers[0]), "")) if servers else None
            models = route.get("models") or [route["model"]]
            if engine is None:
                continue
            for model in models:
                yield ModelRoute(
                    *(route["name"], route["namespace"], gateway["url"], route["host"], model),
                    *(servers, engine, route["namespace"] in tenants, len(models) == 1, gateway["apiKey"]),
                )


def checked_routes(outputs: Mapping[str, Any]) -> Iterator[ModelRoute]:
    """Yields those whose servers answer through the gateway alone."""
    through = through_gateway(outputs)
    routes = model_routes(outputs)
    return (route for route in routes if any((route.namespace, server) in through for server in route.servers))


def through_gateway(outputs: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Servers that answer through the gateway alone: they require an API key, or a request has to wake them."""
    gateways = (gateway for gateway in outputs.get("gateways") or [] if gateway["apiKey"])
    routes = (route for gateway in gateways for route in gateway["routes"])
    keyed = {(route["namespace"], routed["server"]) for route in routes for routed in route["servers"]}
    autoscalers = outputs.get("autoscalers") or []
    return keyed | {(item["namespace"], item["server"]) for item in autoscalers if item.get("minReplicas") == 0}


def api_key() -> str:
    """The API key of the environment, or an empty text."""
    return os.environ.get(KEY, "").strip()


def with_key(command: str, stack: str) -> str:
    """Returns a command with the stack's API key in its environment."""
    return f'{KEY}="$(pulumi config get gke-ai:gatewayApiKey --stack {stack})" {command}'
