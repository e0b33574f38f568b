"""The gateway through which clients reach the model servers, and its routes."""

from collections.abc import Sequence
from typing import Any

import pulumi

from gke_ai.catalog.engines.gateways import API_PATH, CERTIFICATES_OPTION
from gke_ai.catalog.engines.inference_extension import MODEL_HEADER
from gke_ai.catalog.kueue.namespaces import NAMESPACE_NAME
from gke_ai.catalog.versions import GATEWAY_API, INFERENCE_POOL_API
from gke_ai.components.base import Component, custom_object
from gke_ai.components.gateway.gateway_address import gateway_address
from gke_ai.components.support.retry import kueue_hook
from gke_ai.settings.model import Gateway, Route
from gke_ai.settings.resolved import DEFAULT_NAMESPACE
from gke_ai.settings.resolved.gateway import ModelRule, gateway_class

HTTP, HTTPS = ("http", "HTTP", 80), ("https", "HTTPS", 443)


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
    """

    address: pulumi.Output[str]
    """IP address. Known once the load balancer is programmed, and not in a preview."""
    url: pulumi.Output[str]
    """`https://ADDRESS`, or `http://ADDRESS` without TLS."""

    def __init__(
        self,
        name: str,
        args: Gateway,
        opts: pulumi.ResourceOptions | None = None,
        *,
        route_namespaces: Sequence[str] = (),
        kubeconfig: pulumi.Input[str] | None = None,
    ) -> None:
        """Create the Gateway.

        Args:
            route_namespaces: Namespaces of its routes. Default: its own.
            kubeconfig: Cluster in which an update waits for the address. Default: no wait, and no address.
        """
        super().__init__(name, opts)
        own = args.namespace or next(iter(route_namespaces), DEFAULT_NAMESPACE)
        scheme = (HTTP if args.plain_http else HTTPS)[0]
        spec: dict[str, Any] = {
            "gatewayClassName": gateway_class(args),
            "listeners": [listener(args, sorted({*route_namespaces} or {own}), own)],
        }
        if args.address:
            spec["addresses"] = [{"type": "NamedAddress", "value": args.address}]
        child = self.main_options(hooks=kueue_hook(f"gateway {name}"))
        gateway = custom_object(GATEWAY_API, "Gateway", args.name, spec, child, namespace=own)
        self.address = gateway_address(gateway, own, args.name, kubeconfig)
        self.url = self.address.apply(lambda address: f"{scheme}://{address}" if address else "")
        self.register_outputs({"address": self.address, "url": self.url})


class GatewayRoute(Component):
    """An HTTPRoute: divides the requests for a host among InferencePools, by weight.

    An update changes the route only once every server with a weight above 0 has a ready replica, so a canary gets no
    request before it can answer. Pulumi deletes a server that the route no longer names after it has changed the route.
    If a server does not get ready, the update fails, and the route stays as it was.

    It forwards the path `/v1` alone: vLLM checks an API key only there. Rules can divide requests by the model that
    they name. They need a `ModelRouter`.

    Sources: https://gateway-api.sigs.k8s.io/guides/traffic-splitting/,
    https://gateway-api-inference-extension.sigs.k8s.io/guides/inferencepool-rollout/,
    https://docs.vllm.ai/en/stable/usage/security/
    """

    def __init__(
        self,
        name: str,
        args: Route,
        opts: pulumi.ResourceOptions | None = None,
        *,
        namespace: str,
        gateway: str,
        gateway_namespace: str,
        rules: Sequence[ModelRule] = (),
        servers_ready: pulumi.Input[bool] = True,
    ) -> None:
        """Create the route.

        Args:
            namespace: Namespace of the route, and of its servers' InferencePools, which have the servers' names.
            gateway: Name of the Gateway.
            gateway_namespace: Namespace of the Gateway.
            rules: Which servers share the requests for which models. Default: all servers share all requests.
            servers_ready: The route is created or changed once this is known, whatever its value.
        """
        super().__init__(name, opts)
        spec = route_spec(args, gateway, gateway_namespace, rules)
        late_spec = pulumi.Output.from_input(servers_ready).apply(lambda _: spec)
        child = self.main_options(hooks=kueue_hook(f"route {name}"))
        custom_object(GATEWAY_API, "HTTPRoute", args.name, late_spec, child, namespace=namespace)
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


def route_spec(route: Route, gateway: str, gateway_namespace: str, rules: Sequence[ModelRule] = ()) -> dict[str, Any]:
    """Spec of the HTTPRoute."""
    every = ModelRule((), [routed.server for routed in route.servers])
    spec: dict[str, Any] = {
        "parentRefs": [{"name": gateway, "namespace": gateway_namespace}],
        "rules": [
            {
                "matches": matches(rule.models),
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
