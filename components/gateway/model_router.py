"""The router of a gateway: puts the model that a request names into a header, which routes match."""

from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from gke_ai.catalog.engines.inference_extension import ROUTER_HEALTH_PORT, ROUTER_IMAGE, ROUTER_PORT
from gke_ai.catalog.versions import GATEWAY_API, GATEWAY_POLICY_API
from gke_ai.components.arguments import in_sections, takes
from gke_ai.components.base import Component, custom_object
from gke_ai.components.cluster.connection import InCluster
from gke_ai.components.gateway.callout_parts import permissions, pod_spec
from gke_ai.components.queues.namespace import WorkloadNamespace
from gke_ai.components.support.retry import kueue_hook
from gke_ai.settings.model.base import DnsLabel
from gke_ai.settings.resolved.gateway import router_name

# Each of them answers. The load balancer fails requests if none does.
REPLICAS = 2
# Maximum time of the router for a message of the load balancer, as its chart sets it.
MESSAGE_TIMEOUT = "1s"
ROUTER_RULES: "list[k8s.rbac.v1.PolicyRuleArgsDict]" = [
    {"api_groups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}
]


class ModelRouterArguments(InCluster):
    namespace: WorkloadNamespace | DnsLabel
    """Namespace of the Gateway, and of all objects here."""
    gateway: str
    """Name of the Gateway."""


class ModelRouter(Component):
    """The body-based router of a Gateway, which GKE's load balancer asks before it chooses a route.

    It reads the field `model` of the request's JSON, and writes it into the header `X-Gateway-Model-Name`. A
    GCPRoutingExtension attaches it to the Gateway, and a HealthCheckPolicy says how the load balancer checks it. GKE
    has no managed router. It fails closed: without a router, the load balancer answers 500.

    It sees every request, so no other team should have access to its namespace. Its permission is to read ConfigMaps
    there, which it needs to start.

    Sources: https://cloud.google.com/kubernetes-engine/docs/how-to/configure-body-based-routing,
    https://cloud.google.com/kubernetes-engine/docs/how-to/configure-gke-service-extensions,
    https://github.com/kubernetes-sigs/gateway-api-inference-extension/tree/v1.5.0/config/charts/body-based-routing

    Example:
        ModelRouter("router", cluster=cluster, namespace=llm, gateway="models")
    """

    @takes(ModelRouterArguments)
    def __init__(self, name: str, args: ModelRouterArguments) -> None:
        super().__init__(name, args)
        namespace, gateway = in_sections(args.namespace), args.gateway
        router = router_name(gateway)
        metadata: k8s.meta.v1.ObjectMetaArgsDict = {"name": router, "namespace": namespace}
        access = permissions(namespace, router, ROUTER_RULES, self)
        service = k8s.core.v1.Service(
            *self.child(f"{namespace}/{router}"),
            # Its endpoint exists once a router is ready, which its Deployment waits for.
            metadata={**metadata, "annotations": {"pulumi.com/skipAwait": "true"}},
            spec={
                "type": "ClusterIP",
                "selector": {"app": router},
                "ports": [
                    {
                        "protocol": "TCP",
                        "port": ROUTER_PORT,
                        "target_port": ROUTER_PORT,
                        # The load balancer speaks HTTP/2 with TLS, and does not verify the certificate.
                        "app_protocol": "HTTP2",
                    }
                ],
            },
        )
        deployment = k8s.apps.v1.Deployment(
            *self.main_child(f"{namespace}/{router}", depends_on=access, hooks=kueue_hook(f"router {name}")),
            metadata=metadata,
            spec={
                "replicas": REPLICAS,
                "selector": {"match_labels": {"app": router}},
                "template": {"metadata": {"labels": {"app": router}}, "spec": router_pod(router)},
            },
        )
        k8s.policy.v1.PodDisruptionBudget(
            *self.child(f"{namespace}/{router}"),
            metadata=metadata,
            spec={"max_unavailable": 1, "selector": {"match_labels": {"app": router}}},
        )
        # GKE serves the kinds some minutes after the Gateway API is turned on.
        after = pulumi.ResourceOptions(
            parent=self, depends_on=[service, deployment], hooks=kueue_hook(f"extension {name}")
        )
        policy = {"default": {"config": health_check()}, "targetRef": {"group": "", "kind": "Service", "name": router}}
        check = custom_object(
            *(GATEWAY_POLICY_API, "HealthCheckPolicy", router, policy, after),
            namespace=namespace,
            suffix="-healthcheckpolicy",
        )
        last = pulumi.ResourceOptions.merge(after, pulumi.ResourceOptions(depends_on=[check]))
        extension = extension_spec(gateway, router)
        custom_object(GATEWAY_POLICY_API, "GCPRoutingExtension", router, extension, last, namespace=namespace)
        self.register_outputs({})


def health_check() -> dict[str, Any]:
    """The load balancer's health check of the router."""
    return {"type": "GRPC", "grpcHealthCheck": {"portSpecification": "USE_FIXED_PORT", "port": ROUTER_HEALTH_PORT}}


def extension_spec(gateway: str, router: str) -> dict[str, Any]:
    """Spec of the GCPRoutingExtension: the load balancer sends the router every request with its body."""
    callout = {
        "name": "model",
        "authority": router,
        "timeout": MESSAGE_TIMEOUT,
        "supportedEvents": ["RequestHeaders", "RequestBody", "RequestTrailers"],
        "requestBodySendMode": "FullDuplexStreamed",
        "backendRef": {"group": "", "kind": "Service", "name": router, "port": ROUTER_PORT},
    }
    return {
        "targetRefs": [{"group": GATEWAY_API.partition("/")[0], "kind": "Gateway", "name": gateway}],
        "extensionChains": [{"name": "model", "extensions": [callout]}],
    }


def router_pod(router: str) -> "k8s.core.v1.PodSpecArgsDict":
    """Spec of the router's pods."""
    probe: k8s.core.v1.ProbeArgsDict = {"grpc": {"port": ROUTER_HEALTH_PORT}}
    container: k8s.core.v1.ContainerArgsDict = {
        "name": "bbr",
        "image": ROUTER_IMAGE,
        "args": ["--streaming", "--zap-encoder=json", "--tracing=false"],
        # It reads ConfigMaps of this namespace alone.
        "env": [{"name": "NAMESPACE", "value_from": {"field_ref": {"field_path": "metadata.namespace"}}}],
        "ports": [
            {"name": "grpc", "container_port": ROUTER_PORT},
            {"name": "grpc-health", "container_port": ROUTER_HEALTH_PORT},
        ],
        "liveness_probe": {**probe, "initial_delay_seconds": 5, "period_seconds": 10},
        "readiness_probe": {**probe, "period_seconds": 2},
    }
    return pod_spec(router, container)
