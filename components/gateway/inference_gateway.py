"""The gateway through which clients reach the model servers, and its routes."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import pulumi
from pydantic import Field

from gke_ai.catalog.engines.engine import ENGINES
from gke_ai.catalog.engines.gateways import API_PATH, CERTIFICATES_OPTION, MAX_DRAIN_SECONDS, MAX_WEIGHT
from gke_ai.catalog.engines.inference_extension import FAIRNESS_HEADER, MODEL_HEADER, OBJECTIVE_HEADER
from gke_ai.catalog.kueue.namespaces import NAMESPACE_NAME
from gke_ai.catalog.versions import GATEWAY_API, INFERENCE_POOL_API
from gke_ai.components.arguments import Input, Part, Refused, components_in, takes
from gke_ai.components.base import Component, custom_object
from gke_ai.components.cluster.connection import AnyCluster, InCluster, kubeconfig_in
from gke_ai.components.gateway.gateway_address import gateway_address
from gke_ai.components.gateway.inference_pool import InferencePool
from gke_ai.components.gateway.model_router import ModelRouter
from gke_ai.components.queues.namespace import WorkloadNamespace
from gke_ai.components.serving.server import ModelServer
from gke_ai.components.support.alone import check_alone
from gke_ai.components.support.retry import kueue_hook
from gke_ai.settings import model
from gke_ai.settings.model import Gateway
from gke_ai.settings.model.base import DnsLabel, GkeName
from gke_ai.settings.problems import Problem
from gke_ai.settings.resolved import DEFAULT_NAMESPACE
from gke_ai.settings.resolved.gateway import ModelRule, are_by_model, gateway_class, routes_of

# Clients try again after 429 and 503 as a header says. Every answer has it, because a route cannot set it by status.
RETRY_SECONDS = 5
HTTP, HTTPS = ("http", "HTTP", 80), ("https", "HTTPS", 443)


class Route(Part):
    """A route of an `InferenceGateway`, and the servers that share its requests."""

    name: DnsLabel | None = None
    """Name of the HTTPRoute. Default: that of the first server."""
    host: str | None = None
    """Host name of the requests. Default: all hosts that no other route names."""
    servers: Mapping[ModelServer[Any], Annotated[int, Field(ge=0, le=MAX_WEIGHT)]]
    """Servers that answer, each with its share of the requests, relative to the others."""

    def in_configuration(self) -> model.Route:
        """The route as a configuration has it."""
        routed = [model.RoutedServer(server=server.called, weight=weight) for server, weight in self.servers.items()]
        return model.Route(name=self.name or routed[0].server, host=self.host, servers=routed)


class InferenceGatewayArguments(InCluster, Gateway):
    name: GkeName = ""
    """Name of the Gateway. Default: the component's name."""
    namespace: WorkloadNamespace | DnsLabel | None = None  # type: ignore[assignment]
    """Namespace of the Gateway. Default: that of the first server."""
    routes: Sequence[Route] = ()  # type: ignore[assignment]
    """Which servers answer which requests. The first route of a host gets those that no other matches."""
    route_namespaces: Sequence[str] = ()
    """Namespaces of further routes, each a `GatewayRoute` of its own."""
    isolated: Sequence[str] = ()
    """Namespaces whose NetworkPolicies keep the load balancer out, such as those of tenants."""
    kubeconfig: Input[str] | None = None
    """Cluster in which an update waits for the address. Default: `cluster`, else no wait, and no address."""

    def components(self) -> list[pulumi.Resource]:
        # Servers may take long to get ready. Only the routes wait for them.
        spaces = [server.space for route in self.routes for server in route.servers]
        return [*components_in([self.cluster or self.place(), self.namespace, *spaces])]

    def place(self) -> AnyCluster | None:
        clusters = [self.cluster, *(server.cluster for route in self.routes for server in route.servers)]
        return next((cluster for cluster in clusters if isinstance(cluster, AnyCluster)), None)


class InferenceGateway(Component):
    """A Gateway: GKE creates a regional Application Load Balancer, internal unless `public`.

    Its routes are `GatewayRoute`s, whatever `routes` has. It has one listener: HTTPS with a certificate, or HTTP with
    `plain_http`. Only the namespaces of the routes may attach routes to it. An update ends once the Gateway has its
    address, and logs what it waits for.

    The network needs a proxy-only subnetwork in the region, and the cluster the Gateway API. `ClusterNetwork` and
    `GkeCluster` create them for a stack with a gateway.

    Refused: RunError if the Gateway has no address in time.

    Sources: https://cloud.google.com/kubernetes-engine/docs/how-to/deploying-gateways,
    https://cloud.google.com/kubernetes-engine/docs/how-to/secure-gateway,
    https://cloud.google.com/kubernetes-engine/docs/concepts/about-gke-inference-gateway

    Example:
        InferenceGateway("models", plain_http=True, routes=[Route(servers={gemma: 100})])
    """

    address: pulumi.Output[str]
    """IP address. Known once the load balancer is programmed, and not in a preview."""
    url: pulumi.Output[str]
    """`https://ADDRESS`, or `http://ADDRESS` without TLS."""

    @takes(InferenceGatewayArguments)
    def __init__(self, name: str, args: InferenceGatewayArguments) -> None:
        super().__init__(name, args)
        self.cluster = args.place()
        servers = {server.called: server for route in args.routes for server in route.servers}
        routes = [route.in_configuration() for route in args.routes]
        section = args.section(Gateway).model_copy(update={"routes": routes})
        for server in servers.values():
            if section.api_key and not server.requires_key:
                cause = f"{server.called} requires no API key, so whoever reaches the gateway reaches it"
                raise Refused(f"InferenceGateway {name}", Problem("apiKey", cause, "Pass api_key=True to it"))
        if not args.is_checked:
            cluster = self.cluster.section if self.cluster else None
            others = [server.server for server in servers.values()]
            # Without routes of its own, the program has GatewayRoutes.
            check_alone(f"InferenceGateway {name}", section, cluster, others, () if routes else ("routes",))
        if self.cluster:
            self.cluster.need(f"InferenceGateway {name}", "gateway_api", "It would not know the gateway's kinds")
        spaces = list(dict.fromkeys([*(it.server.namespace for it in servers.values()), *args.route_namespaces]))
        own = section.namespace or next(iter(spaces), DEFAULT_NAMESPACE)
        kubeconfig = kubeconfig_in(args.kubeconfig, self.cluster)
        scheme = (HTTP if section.plain_http else HTTPS)[0]
        spec: dict[str, Any] = {
            "gatewayClassName": gateway_class(section),
            "listeners": [listener(section, sorted({*spaces} or {own}), own)],
        }
        if section.address:
            spec["addresses"] = [{"type": "NamedAddress", "value": section.address}]
        child = self.main_options(hooks=kueue_hook(f"gateway {name}"))
        gateway = custom_object(GATEWAY_API, "Gateway", section.name, spec, child, namespace=own)
        self.address = gateway_address(gateway, own, section.name, kubeconfig)
        self.url = self.address.apply(lambda address: f"{scheme}://{address}" if address else "")
        self._attach(section, own, gateway, servers, args.isolated)
        self.register_outputs({"address": self.address, "url": self.url})

    def _attach(
        self,
        section: Gateway,
        namespace: str,
        gateway: pulumi.Resource,
        servers: Mapping[str, ModelServer[Any]],
        isolated: Sequence[str],
    ) -> None:
        """An InferencePool for each server, the router if requests name their model, and the routes."""
        vpc = self.cluster.section.vpc if self.cluster and self.cluster.section else None
        pools: dict[str, InferencePool] = {}
        for name, component in servers.items():
            server = component.server
            child, opts = self._part(f"{server.namespace}/{name}")
            pools[name] = InferencePool(
                child,
                opts=opts,
                name=name,
                namespace=server.namespace,
                app=server.app or name,
                port=server.port,
                health_path=ENGINES[server.engine].health_path,
                drain_seconds=min(server.termination_grace_period_seconds, MAX_DRAIN_SECONDS),
                proxy_range=vpc.proxy_cidr if vpc else None,
                held=server.held,
                requests_per_replica=component.placed.requests_per_replica,
                isolated=server.namespace in isolated,
                guarded=section.api_key,
            )
        attached = [gateway]
        routes = routes_of(section, [server.server for server in servers.values()])
        if are_by_model(routes):
            child, opts = self._part(section.name, gateway)
            attached.append(ModelRouter(child, opts=opts, namespace=namespace, gateway=section.name))
        for routed in routes:
            behind = {item.server: item.weight for item in routed.section.servers}
            after = [*attached, *(pools[name] for name in behind), *(servers[name] for name in behind)]
            ready = [servers[name].ready for name, weight in behind.items() if weight]
            GatewayRoute.of(
                *self._part(f"{routed.namespace}/{routed.section.name}", *after),
                section=routed.section,
                namespace=routed.namespace,
                gateway=section.name,
                gateway_namespace=namespace,
                rules=routed.rules,
                holds=any(servers[name].server.held for name in behind),
                servers_ready=pulumi.Output.all(*ready).apply(all),
            )

    def _part(self, part: str, *after: pulumi.Resource) -> tuple[str, pulumi.ResourceOptions]:
        """The name and the options of a component of the gateway."""
        name, inside = self.child(part, depends_on=list(after))
        # Stacks until 0.4 have it beside the Gateway.
        former = pulumi.ResourceOptions(aliases=[pulumi.Alias(name=part, parent=pulumi.ROOT_STACK_RESOURCE)])
        return name, pulumi.ResourceOptions.merge(inside, former)


class GatewayRouteArguments(InCluster, model.Route):
    name: DnsLabel = ""
    """Name of the HTTPRoute. Default: the component's name."""
    namespace: DnsLabel
    """Namespace of the route, and of its servers' InferencePools, which have the servers' names."""
    gateway: str
    """Name of the Gateway."""
    gateway_namespace: str
    """Namespace of the Gateway."""
    rules: Sequence[ModelRule] = ()
    """Which servers share the requests for which models. Default: all servers share all requests."""
    holds: bool = False
    """Requests can wait for a server of the route. Its answers then say when to try again."""
    servers_ready: Input[bool] = True
    """The route is created or changed once this is known, whatever its value."""


class GatewayRoute(Component):
    """An HTTPRoute: divides the requests for a host among InferencePools, by weight.

    An update changes the route only once every server with a weight above 0 has a ready replica, so a canary gets no
    request before it can answer. Pulumi deletes a server that the route no longer names after it has changed the route.
    If a server does not get ready, the update fails, and the route stays as it was.

    It forwards the path `/v1` alone: vLLM checks an API key only there. It removes or replaces the headers by which an
    endpoint picker orders requests. Rules can divide requests by the model that they name. They need a `ModelRouter`.

    Sources: https://gateway-api.sigs.k8s.io/guides/traffic-splitting/,
    https://gateway-api-inference-extension.sigs.k8s.io/guides/inferencepool-rollout/,
    https://docs.vllm.ai/en/stable/usage/security/,
    https://cloud.google.com/service-extensions/docs/configure-traffic-extensions (headers change before callouts)

    Example:
        GatewayRoute(
            "chat",
            cluster=cluster,
            namespace="llm",
            gateway="models",
            gateway_namespace="llm",
            servers=[RoutedServer(server="gemma")],
        )
    """

    @takes(GatewayRouteArguments)
    def __init__(self, name: str, args: GatewayRouteArguments) -> None:
        super().__init__(name, args)
        route, namespace = args.section(model.Route), args.namespace
        spec = route_spec(route, namespace, args.gateway, args.gateway_namespace, args.rules, args.holds)
        late_spec = pulumi.Output.from_input(args.servers_ready).apply(lambda _: spec)
        child = self.main_options(hooks=kueue_hook(f"route {name}"))
        custom_object(GATEWAY_API, "HTTPRoute", route.name, late_spec, child, namespace=namespace)
        self.register_outputs({})


def listener(gateway: Gateway, namespaces: Sequence[str], own_namespace: str) -> dict[str, Any]:
    """The listener of a Gateway: its protocol, its certificate, and the namespaces of its routes."""
    name, protocol, port = HTTP if gateway.plain_http else HTTPS
    selector = {"matchExpressions": [{"key": NAMESPACE_NAME, "operator": "In", "values": list(namespaces)}]}
    allowed = {"from": "Same"} if list(namespaces) == [own_namespace] else {"from": "Selector", "selector": selector}
    spec: dict[str, Any] = {
        "name": name,
        "protocol": protocol,
        "port": port,
        "allowedRoutes": {"namespaces": allowed, "kinds": [{"kind": "HTTPRoute"}]},
    }
    if gateway.certificate:
        spec["tls"] = {"mode": "Terminate", "options": {CERTIFICATES_OPTION: gateway.certificate}}
    elif gateway.tls_secret:
        spec["tls"] = {"mode": "Terminate", "certificateRefs": [{"name": gateway.tls_secret}]}
    return spec


def route_spec(
    route: model.Route,
    namespace: str,
    gateway: str,
    gateway_namespace: str,
    rules: Sequence[ModelRule] = (),
    holds: bool = False,
) -> dict[str, Any]:
    """Spec of the HTTPRoute. The picker orders requests by headers that no client sets: all of a route are one flow."""
    order = {"set": [{"name": FAIRNESS_HEADER, "value": namespace}], "remove": [OBJECTIVE_HEADER]}
    filters: list[dict[str, Any]] = [{"type": "RequestHeaderModifier", "requestHeaderModifier": order}]
    if holds:
        later = {"set": [{"name": "Retry-After", "value": str(RETRY_SECONDS)}]}
        filters.append({"type": "ResponseHeaderModifier", "responseHeaderModifier": later})
    every = ModelRule((), [routed.server for routed in route.servers])
    spec: dict[str, Any] = {
        "parentRefs": [{"name": gateway, "namespace": gateway_namespace}],
        "rules": [
            {
                "matches": matches(rule.models),
                "filters": filters,
                "backendRefs": [
                    {
                        "group": INFERENCE_POOL_API.partition("/")[0],
                        "kind": "InferencePool",
                        "name": routed.server,
                        "weight": routed.weight,
                    }
                    for routed in route.servers
                    if routed.server in rule.servers
                ],
            }
            for rule in rules or [every]
        ],
    }
    if route.host:
        spec["hostnames"] = [route.host]
    return spec


def matches(models: Sequence[str]) -> list[dict[str, Any]]:
    """Matches of requests for these models. Without models: of all requests."""
    path: dict[str, Any] = {"path": {"type": "PathPrefix", "value": API_PATH}}
    headers = [{"type": "Exact", "name": MODEL_HEADER, "value": model} for model in models]
    return [{**path, "headers": [header]} for header in headers] or [path]
