"""The gateway with its routes to model servers."""

from __future__ import annotations

from gke_ai.catalog.project.apis import CERTIFICATE_MANAGER, NETWORK_SERVICES
from gke_ai.components import GkeCluster, InferenceGateway, Route
from gke_ai.components.serving.server import ModelServer
from gke_ai.program.cluster import Apis, after
from gke_ai.program.prerequisites import Prerequisites
from gke_ai.settings import ResolvedStack, model


def create_gateway(
    stack: ResolvedStack,
    cluster: GkeCluster,
    apis: Apis,
    prerequisites: Prerequisites,
    servers: dict[str, ModelServer[model.Server]],
) -> InferenceGateway | None:
    """The gateway, if the stack has one. Its routes wait for the servers and the endpoint pickers."""
    section, namespace = stack.settings.gateway, stack.gateway_namespace
    if section is None or namespace is None:
        return None
    routes = [
        Route(name=route.name, host=route.host, servers={servers[item.server]: item.weight for item in route.servers})
        for route in section.routes
    ]
    spaces = {server.namespace for server in stack.gateway_servers}
    tenants = [tenant for space, tenant in prerequisites.tenants.items() if space in spaces]
    return InferenceGateway.of(
        section.name,
        after(*tenants, *apis.enabled(NETWORK_SERVICES, CERTIFICATE_MANAGER)),
        section=section.model_copy(update={"namespace": namespace}),
        cluster=cluster,
        namespace=prerequisites.namespaces[namespace],
        routes=routes,
        isolated=list(prerequisites.tenants),
    )
