"""The gateway, its router and routes, and an InferencePool for each server behind it."""

from __future__ import annotations

import pulumi

from gke_ai.catalog.engines.engine import ENGINES
from gke_ai.catalog.engines.gateways import MAX_DRAIN_SECONDS
from gke_ai.catalog.project.apis import CERTIFICATE_MANAGER, NETWORK_SERVICES
from gke_ai.components import GatewayRoute, GkeCluster, InferenceGateway, InferencePool, ModelRouter
from gke_ai.components.serving.server import ModelServer
from gke_ai.program.cluster import Apis, in_cluster
from gke_ai.program.prerequisites import Prerequisites
from gke_ai.settings import ResolvedStack, model
from gke_ai.settings.resolved.gateway import are_by_model


def create_gateway(
    stack: ResolvedStack,
    cluster: GkeCluster,
    apis: Apis,
    prerequisites: Prerequisites,
    servers: list[ModelServer[model.Server]],
) -> InferenceGateway | None:
    """The gateway, if the stack has one. Its routes wait for the servers and the endpoint pickers."""
    section, gateway_namespace = stack.settings.gateway, stack.gateway_namespace
    if section is None or gateway_namespace is None:
        return None
    components = {component.server.name: component for component in servers}
    namespaces = prerequisites.namespaces
    pools = {
        server.name: create_pool(server, stack.cluster.vpc, section.api_key, cluster, prerequisites)
        for server in stack.gateway_servers
    }
    route_namespaces = {route.section.name: route.namespace or "" for route in stack.routes}
    enabled = apis.enabled(NETWORK_SERVICES, CERTIFICATE_MANAGER)
    gateway = InferenceGateway(
        section.name,
        section.model_copy(update={"namespace": gateway_namespace}),
        in_cluster(cluster, namespaces[gateway_namespace], *enabled),
        route_namespaces=list(route_namespaces.values()),
        kubeconfig=cluster.kubeconfig,
    )
    attached: list[pulumi.Resource] = [gateway]
    if are_by_model(stack.routes):
        after = in_cluster(cluster, namespaces[gateway_namespace], gateway)
        attached.append(ModelRouter(section.name, after, namespace=gateway_namespace, gateway=section.name))
    for routed_to in stack.routes:
        route = routed_to.section
        behind = [components[routed.server] for routed in route.servers]
        ready = [components[routed.server].ready for routed in route.servers if routed.weight]
        GatewayRoute(
            f"{route_namespaces[route.name]}/{route.name}",
            route,
            in_cluster(cluster, *attached, *(pools[routed.server] for routed in route.servers), *behind),
            namespace=route_namespaces[route.name],
            gateway=section.name,
            gateway_namespace=gateway_namespace,
            rules=routed_to.rules,
            servers_ready=pulumi.Output.all(*ready).apply(all),
        )
    return gateway


def create_pool(
    server: model.Server, vpc: model.Vpc | None, guarded: bool, cluster: GkeCluster, prerequisites: Prerequisites
) -> InferencePool:
    """The InferencePool of a server. It waits for the namespace, not for the server: it has no pods until then."""
    tenant = prerequisites.tenants.get(server.namespace)
    return InferencePool(
        f"{server.namespace}/{server.name}",
        in_cluster(cluster, prerequisites.namespaces[server.namespace], *([tenant] if tenant else [])),
        namespace=server.namespace,
        pool=server.name,
        app=server.app or server.name,
        port=server.port,
        health_path=ENGINES[server.engine].health_path,
        drain_seconds=min(server.termination_grace_period_seconds, MAX_DRAIN_SECONDS),
        proxy_range=vpc.proxy_cidr if vpc else None,
        isolated=tenant is not None,
        guarded=guarded,
    )
