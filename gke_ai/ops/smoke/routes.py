"""Checks servers through their gateway, as clients reach them, if they require an API key.

The API server does not pass a client's credential on to a Service, so `gke-ai smoke` cannot send the key that way.
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
class KeyedRoute:
    """A model of a route whose servers require an API key, as the outputs of the stack describe it."""

    name: str
    namespace: str
    url: str
    host: str
    model: str
    servers: tuple[str, ...]
    engine: Engine
    of_tenant: bool = False
    only: bool = True

    def __str__(self) -> str:
        """The route, with the model if it answers for several."""
        return f"{self.namespace}/{self.name} (route)" + ("" if self.only else f": {self.model}")

    def send(self, key: str, answered: Callable[[], None]) -> tuple[list[Reply], float]:
        """Sends a burst of requests with the stack's key, or the tenant's. Returns the replies and their seconds."""
        key = tenant_api_key(key, self.namespace) if self.of_tenant else key
        server = Server(self.servers[0], self.namespace, "", 0, self.engine, self.model)
        headers = {"Authorization": f"Bearer {key}", **({"Host": self.host} if self.host else {})}
        began = time.perf_counter()
        replies = send_burst(self._client(key), server, answered, path="", headers=headers)
        return replies, time.perf_counter() - began

    def _client(self, key: str) -> ApiClient:
        """A client of the gateway. It removes the key from all messages."""
        from kubernetes.client import ApiClient, Configuration

        configuration = Configuration(host=self.url)
        configuration.api_key["key"] = key
        configuration.connection_pool_maxsize = self.engine.burst
        configuration.tls_server_name = self.host or None
        configuration.proxy = None
        return ApiClient(configuration)


def keyed_routes(outputs: Mapping[str, Any]) -> Iterator[KeyedRoute]:
    """Yields the models of the routes of a stack whose servers require an API key and get requests."""
    servers_of_stack = outputs.get("servers") or []
    engines = {(server["namespace"], server["name"]): server.get("engine", "") for server in servers_of_stack}
    tenants = {tenant["namespace"] for tenant in outputs.get("tenants") or []}
    for gateway in outputs.get("gateways") or []:
        for route in gateway["routes"] if gateway["apiKey"] else []:
            servers = tuple(routed["server"] for routed in route["servers"] if routed["weight"])
            engine = ENGINES.get(engines.get((route["namespace"], servers[0]), ""))
            models = route.get("models") or [route["model"]]
            if engine is None:
                continue
            for model in models:
                yield KeyedRoute(
                    *(route["name"], route["namespace"], gateway["url"], route["host"], model),
                    *(servers, engine, route["namespace"] in tenants, len(models) == 1),
                )


def requires_key(server: Mapping[str, Any], outputs: Mapping[str, Any]) -> bool:
    """Whether a server requires an API key: a route of such a gateway names it, with or without a weight."""
    gateways = (gateway for gateway in outputs.get("gateways") or [] if gateway["apiKey"])
    routes = (route for gateway in gateways for route in gateway["routes"])
    keyed = {(route["namespace"], routed["server"]) for route in routes for routed in route["servers"]}
    return (server["namespace"], server["name"]) in keyed


def api_key() -> str:
    """The API key of the environment, or an empty text."""
    return os.environ.get(KEY, "").strip()


def with_key(command: str, stack: str) -> str:
    """Returns a command with the stack's API key in its environment."""
    return f'{KEY}="$(pulumi config get gke-ai:gatewayApiKey --stack {stack})" {command}'
