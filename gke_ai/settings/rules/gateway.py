"""Rules of the gateway: its address, its certificate, its API key, and the servers behind its routes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import IPv4Network

from gke_ai.catalog.engines.engine import ENGINES
from gke_ai.catalog.engines.gateways import LONGEST_PROXY_PREFIX, MAX_MATCHES
from gke_ai.catalog.kueue.namespaces import is_system
from gke_ai.settings.model import Gateway, Server
from gke_ai.settings.problems import Problem
from gke_ai.settings.resolved import ResolvedStack, Routed
from gke_ai.settings.resolved.gateway import are_by_model, picker_name
from gke_ai.settings.rules import common
from gke_ai.settings.rules.network import of_new_clusters

# Hostname of the Gateway API: https://gateway-api.sigs.k8s.io/reference/api-types/httproute/#hostnames
_HOST = re.compile(r"(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_ADDRESS = re.compile(r"[0-9.]+")
_MAX_NAME = 63


@common.rule
def gateway_has_routes(stack: ResolvedStack) -> Iterator[Problem]:
    """A gateway has a route, and names of routes are unique."""
    gateway = stack.settings.gateway
    if gateway is not None and not stack.routes:
        cause = "the gateway has no route. It would cost money and answer nothing"
        yield Problem(gateway.at("routes"), cause, "Add a route, or remove the gateway")
    names = ((route, "name", route.section.name) for route in stack.routes)
    yield from common.repeated(names, "route", "the second could not be created")


@common.of_the_gateway
def certificate_is_chosen(gateway: Gateway) -> Iterator[Problem]:
    """A gateway has one certificate, or states plain HTTP and is internal."""
    stated = {
        "certificate": gateway.certificate is not None,
        "tlsSecret": gateway.tls_secret is not None,
        "plainHttp": gateway.plain_http,
    }
    keys = [key for key, is_stated in stated.items() if is_stated]
    if not keys:
        cause = "the gateway has no certificate. Prompts, answers and API keys would cross the network unencrypted"
        remedy = "Set certificate or tlsSecret. In a network that you trust, set plainHttp: true"
        yield Problem(gateway.at("certificate"), cause, remedy)
    elif len(keys) > 1:
        cause = f"{common.join_names(keys)} are set, and the gateway has one listener"
        yield Problem(gateway.at(keys[-1]), cause, "Keep one of them")
    if gateway.public and gateway.plain_http:
        cause = "the gateway is public. Everyone on the way could read prompts and answers"
        yield Problem(gateway.at("plainHttp"), cause, "Remove it and set certificate")


@common.of_the_gateway
def public_gateways_require_a_key(gateway: Gateway) -> Iterator[Problem]:
    """A public gateway requires an API key: nothing else would keep strangers from the servers."""
    if gateway.public and not gateway.api_key:
        cause = "the gateway is public and requires no API key. Everyone on the Internet could use the servers"
        yield Problem(gateway.at("apiKey"), cause, "Set apiKey: true, or remove public: true")


@common.rule
def routes_are_apart(stack: ResolvedStack) -> Iterator[Problem]:
    """Hosts of routes are valid, and no two routes match the same requests: routes of a host have other models."""
    seen: dict[tuple[str | None, str], str] = {}
    for routed_to in stack.routes:
        route = routed_to.section
        path = routed_to.at("host")
        if route.host is not None and (not _HOST.fullmatch(route.host) or _ADDRESS.fullmatch(route.host)):
            cause = f'"{route.host}" is not a host name. The API server would refuse the route'
            yield Problem(path, cause, "Write a DNS name in lowercase, without scheme, port and path")
            continue
        for model in routed_to.models:
            other = seen.setdefault((route.host, model), route.name)
            if other != route.name:
                whose = f"of host {route.host}" if route.host else "of all hosts"
                cause = f"routes {other} and {route.name} both match requests {whose} for {model}. "
                cause += "One of them would get nothing"
                remedy = "Give each route a host or models of its own, or merge their servers into one route"
                yield Problem(path, cause, remedy)
                break


@common.each(lambda stack: stack.routes)
def routes_match_their_models(routed_to: Routed) -> Iterator[Problem]:
    """A route has no more models and adapters than its HTTPRoute can match."""
    names = max(len(matched.models) for matched in routed_to.rules)
    if names > MAX_MATCHES:
        cause = f"the route answers for {names} models and adapters, and an HTTPRoute matches {MAX_MATCHES}. "
        cause += "The API server would refuse it"
        yield Problem(routed_to.at("servers"), cause, "Divide the adapters among servers of more routes")


@common.rule
def routes_name_servers(stack: ResolvedStack) -> Iterator[Problem]:
    """The servers of a route exist once, are named once, and run engines whose metrics an endpoint picker reads."""
    names = [server.name for server in stack.settings.serving]
    engines = {server.name: ENGINES[server.engine] for server in stack.settings.serving}
    readable = [engine.title for engine in ENGINES.values() if engine.endpoint_picker]
    for routed_to in stack.routes:
        route = routed_to.section
        seen: set[str] = set()
        for position, routed in enumerate(route.servers):
            path = routed_to.at(f"servers[{position}].server")
            yield from common.SERVERS.unknown(stack, path, routed.server, "its share would fail")
            if routed.server in seen:
                cause = f"{routed.server} is named twice in this route. Its share would be unclear"
                yield Problem(path, cause, "Add up its weights in one entry")
            elif names.count(routed.server) > 1:
                cause = f"several servers are named {routed.server}. Requests could reach the wrong one"
                yield Problem(path, cause, "Rename all but one of them")
            elif routed.server in engines and not engines[routed.server].endpoint_picker:
                cause = f"{routed.server} runs {engines[routed.server].title}, whose metrics an endpoint picker cannot "
                yield Problem(path, f"{cause}read. Its requests would fail", f"Use {' or '.join(readable)}")
            seen.add(routed.server)


@common.needs("gke-ai:serving")
@common.each(lambda stack: stack.routes)
def servers_of_a_route_belong_together(routed_to: Routed) -> Iterator[Problem]:
    """The servers of a route are in one namespace and serve a model of one name."""
    servers = routed_to.servers
    namespaces = list(dict.fromkeys(server.namespace for server in servers))
    if len(namespaces) > 1:
        cause = f"its servers are in namespaces {common.join_names(namespaces)}, and a route is in one. GKE would "
        cause += "refuse it"
        yield Problem(routed_to.at("servers"), cause, "Move the servers into one namespace")
    models = list(dict.fromkeys(server.served_model for server in servers))
    if len(models) > 1:
        cause = f"its servers answer to {common.join_names(models)}, and a request names one model. A server refuses "
        cause += "any other, so a share of the requests would fail"
        remedy = 'Set arguments: ["--served-model-name=NAME"] with one name on each of them'
        yield Problem(routed_to.at("servers"), cause, remedy)


@common.needs("gke-ai:serving", "gke-ai:autoscaling")
def weights_reach_replicas(stack: ResolvedStack) -> Iterator[Problem]:
    """A route has a weight above zero, and a server with such a weight has replicas."""
    replicas = {
        server.name: server.replicas
        or (1 if server.name in {scaler.server for scaler in stack.settings.autoscaling} else 0)
        for server in stack.settings.serving
    }
    for routed_to in stack.routes:
        route = routed_to.section
        if not any(routed.weight for routed in route.servers):
            cause = "all weights of the route are 0. It would answer no request"
            yield Problem(routed_to.at("servers"), cause, "Set a weight above 0, or remove the route")
        for position, routed in enumerate(route.servers):
            if routed.weight and replicas.get(routed.server) == 0:
                cause = f"{routed.server} has replicas: 0 and a weight of {routed.weight}. Its share would fail"
                path = routed_to.at(f"servers[{position}].weight")
                yield Problem(path, cause, "Set the weight to 0, or give it replicas")


@common.needs("gke-ai:serving")
def pools_have_their_own_pods(stack: ResolvedStack) -> Iterator[Problem]:
    """No two servers behind the gateway share pods, and the names of their objects are valid."""
    servers = stack.gateway_servers
    entries = ((server, "app", f"{server.namespace}/{server.app or server.name}") for server in servers)
    yield from common.repeated(entries, "label app", "each InferencePool would have the pods of both")
    for server in servers:
        picker = picker_name(server.name)
        if len(picker) > _MAX_NAME or not common.BEGINS_WITH_A_LETTER.fullmatch(picker):
            cause = f'"{picker}" is the Service of its endpoint picker and not a valid name. Kubernetes would refuse it'
            remedy = f"Use up to {_MAX_NAME - len(picker_name(''))} characters, and begin with a letter"
            yield Problem(server.at("name"), cause, remedy)


@common.needs("gke-ai:serving", "gke-ai:cluster", "gke-ai:tenants")
def load_balancer_reaches_tenants(stack: ResolvedStack) -> Iterator[Problem]:
    """The range of the load balancer is known where NetworkPolicies must let it in."""
    if stack.cluster.vpc is not None:
        return
    for routed_to in stack.routes:
        namespace = routed_to.namespace
        if namespace is not None and namespace in {tenant.name for tenant in stack.settings.tenants}:
            cause = f"namespace {namespace} belongs to a tenant, whose NetworkPolicy lets in no load balancer. The "
            cause += "range of its proxies is only known in a VPC of this stack"
            yield Problem(routed_to.at("servers"), cause, "Set cluster.vpc, or move the servers")


def _is_in_a_tenant(stack: ResolvedStack) -> bool:
    return stack.gateway_namespace in {tenant.name for tenant in stack.settings.tenants}


@common.needs("gke-ai:serving", "gke-ai:tenants")
def no_tenant_has_the_key_of_the_certificate(stack: ResolvedStack) -> Iterator[Problem]:
    """The Secret of the certificate, which is in the namespace of the Gateway, is not in a tenant's namespace."""
    gateway = stack.settings.gateway
    if gateway is not None and gateway.tls_secret and _is_in_a_tenant(stack):
        cause = f"the Gateway would be in namespace {stack.gateway_namespace}, whose tenant can read and replace the "
        cause += f"private key in Secret {gateway.tls_secret}. It could pose as the gateway to all clients"
        yield Problem(gateway.at("namespace"), cause, "Choose a namespace without a tenant, or use certificate")


@common.needs("gke-ai:serving", "gke-ai:tenants")
def no_tenant_has_the_router(stack: ResolvedStack) -> Iterator[Problem]:
    """The router, which reads all requests, is not in a tenant's namespace."""
    gateway = stack.settings.gateway
    if gateway is not None and are_by_model(stack.routes) and _is_in_a_tenant(stack):
        cause = f"the router of the gateway would be in namespace {stack.gateway_namespace}, whose tenant could read "
        cause += "all requests there. It divides them by model"
        yield Problem(gateway.at("namespace"), cause, "Choose a namespace without a tenant, or remove it")


@common.needs("gke-ai:serving")
def gateway_is_in_a_namespace_of_the_stack(stack: ResolvedStack) -> Iterator[Problem]:
    """The Gateway is not in a system namespace."""
    gateway, gateway_namespace = stack.settings.gateway, stack.gateway_namespace
    if gateway is not None and is_system(gateway_namespace or ""):
        cause = f"namespace {gateway_namespace} belongs to the cluster. The stack could not create it"
        yield Problem(gateway.at("namespace"), cause, "Choose another namespace")


@of_new_clusters
def proxies_have_addresses(stack: ResolvedStack) -> Iterator[Problem]:
    """The range of the proxies is large enough."""
    gateway = stack.settings.gateway
    own = stack.cluster.vpc
    if gateway is None or own is None or IPv4Network(own.proxy_cidr).prefixlen <= LONGEST_PROXY_PREFIX:
        return
    cause = f"{own.proxy_cidr} is smaller than a /{LONGEST_PROXY_PREFIX}. Google Cloud would refuse the subnetwork"
    yield Problem(stack.cluster.at("vpc.proxyCidr"), cause, "Write a /23")


@common.each_server
def keys_are_secrets(server: Server) -> Iterator[Problem]:
    """No server has an API key in plain text among its arguments or variables."""
    variable = ENGINES[server.engine].api_key_variable
    where = "arguments" if "api-key" in server.reading.values else "env" if variable in server.env else ""
    if variable and where:
        cause = "this is an API key in plain text. Everyone who can read this file or the cluster could use it"
        yield Problem(server.at(where), cause, "Remove it, choose another one, and set gateway.apiKey: true")
