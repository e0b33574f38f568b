"""The InferencePool of a model server, and its endpoint picker."""

import hashlib
from collections.abc import Sequence
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
import yaml

from gke_ai.catalog.engines.gateways import HEALTH_CHECK_RANGES
from gke_ai.catalog.engines.inference_extension import (
    HELD_BYTES,
    PICKER_CONFIG_API,
    PICKER_HEALTH_PORT,
    PICKER_IMAGE,
    PICKER_LABEL,
    PICKER_METRICS_PORT,
    PICKER_PORT,
    UNKNOWN_REQUESTS,
)
from gke_ai.catalog.versions import GATEWAY_POLICY_API, INFERENCE_POOL_API, POD_MONITORING_API
from gke_ai.components.arguments import in_sections, takes
from gke_ai.components.base import Component, custom_object
from gke_ai.components.cluster.connection import InCluster
from gke_ai.components.gateway.callout_parts import permissions, pod_spec
from gke_ai.components.queues.namespace import WorkloadNamespace
from gke_ai.components.support.peers import api_server, namespaces
from gke_ai.components.support.retry import kueue_hook
from gke_ai.settings.model import HeldRequests
from gke_ai.settings.model.base import DnsLabel
from gke_ai.settings.resolved.gateway import picker_name

CONFIG_FILE = "plugins.yaml"
# Scorers of the endpoint picker with their weights: those of its chart.
# https://github.com/kubernetes-sigs/gateway-api-inference-extension/blob/v1.5.0/config/charts/inferencepool/templates/epp-config.yaml
SCORERS = {"queue-scorer": 2, "kv-cache-utilization-scorer": 2, "prefix-cache-scorer": 3}
# It counts requests that it sent. The other detector knows only what it last read of a replica's metrics, so a new
# replica would get all requests that waited for it.
DETECTOR = "concurrency-detector"
# One replica picks, and the other takes over when it fails: without a picker, a pool answers nothing.
REPLICAS = 2
# It may still answer requests as long as any pod of its pool: the chart's value, longer than the default of servers.
GRACE_SECONDS = 130
# Leader and standby differ in readiness, so no rollout ever has all replicas ready. The first one is enough.
WAIT_FOR_ONE = {"pulumi.com/waitFor": "jsonpath={.status.readyReplicas}"}
HEALTH_CHECK_SECONDS = 2
PICKER_GROUP = PICKER_CONFIG_API.partition("/")[0]
PICKER_RULES: "list[k8s.rbac.v1.PolicyRuleArgsDict]" = [
    {"api_groups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
    {
        "api_groups": [INFERENCE_POOL_API.partition("/")[0]],
        "resources": ["inferencepools"],
        "verbs": ["get", "list", "watch"],
    },
    # Where their CRDs exist, the picker waits until it has read both.
    {
        "api_groups": [PICKER_GROUP],
        "resources": ["inferenceobjectives", "inferencemodelrewrites"],
        "verbs": ["get", "list", "watch"],
    },
    # Leader election.
    {
        "api_groups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"],
    },
    {"api_groups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
]
# How soon an autoscaler sees that a request is held.
HELD_INTERVAL = "5s"
# The default, 50 ms, costs each vLLM 17 to 24 % of a core: a scrape takes 8.5 to 12 ms (vLLM 0.32 on a CPU).
SCRAPE_INTERVAL = "250ms"


class InferencePoolArguments(InCluster):
    name: DnsLabel = ""
    """Name of the InferencePool. Default: the component's name."""
    namespace: WorkloadNamespace | DnsLabel
    """Namespace of the server, and of all objects here."""
    app: str
    """Label `app` of the server's pods."""
    port: int = 8000
    """Port of the pods."""
    health_path: str = "/health"
    """Path that answers 200 once a pod answers requests."""
    response_seconds: int = 600
    """Maximum time of a response, in seconds."""
    drain_seconds: int = 120
    """Time in which a terminating pod may finish its responses, in seconds."""
    proxy_range: str | None = None
    """IPv4 range of the load balancer's proxies, if known."""
    isolated: bool = False
    """NetworkPolicies of the namespace keep the proxies out. Create policies that let them in, and the picker out to
    the API server."""
    held: HeldRequests | None = None
    """Bounds of the requests that the picker holds while no replica has room for them. Default: it holds none."""
    requests_per_replica: int = UNKNOWN_REQUESTS
    """Requests that a replica gets at once, with `held`."""
    guarded: bool = False
    """The server requires an API key. Keep other clients of the cluster from its pods."""


class InferencePool(Component):
    """An InferencePool with the pods of a model server, and the endpoint picker that chooses among them.

    The load balancer asks the picker for each request. The picker reads the metrics of vLLM four times a second. It
    prefers the pod with the shortest queue, the most free KV cache and the prompt's prefix in its cache. It fails
    closed: a pool without a picker answers nothing, so a second replica stands by, with leader election.

    A HealthCheckPolicy and a GCPBackendPolicy set what GKE's load balancer needs to know about the pods. The defaults
    are 30 s for a whole response, and no time for open responses of a pod that terminates.

    With `held`, requests wait in the picker until a replica has room, also while there is none. It answers 429 to more
    than `requests`, or than 256 MiB of bodies, and 503 after `seconds`. Those that wait are lost with the picker: at
    its update or failure the load balancer answers 500. Whether GKE's load balancer waits that long is not documented.

    Metrics of the picker need no authentication, as those of vLLM. It has no permission beyond its namespace.

    vLLM checks an API key below /v1 alone. With `guarded`, a NetworkPolicy keeps all pods of the cluster but the picker
    and the collectors of metrics from the server. It needs the range of the proxies.

    Refused: by the API server, clusters before GKE 1.34.0-gke.1626000, which have no InferencePool.

    Sources: https://cloud.google.com/kubernetes-engine/docs/how-to/deploy-gke-inference-gateway,
    https://github.com/kubernetes-sigs/gateway-api-inference-extension/tree/v1.5.0/config/charts/inferencepool,
    https://gateway-api-inference-extension.sigs.k8s.io/api-types/inferencepool/,
    https://cloud.google.com/kubernetes-engine/docs/how-to/configure-gateway-resources

    Example:
        InferencePool("gemma-pool", cluster=cluster, namespace=llm, app="gemma")
    """

    pool: pulumi.Output[str]
    """Name of the InferencePool. Known once its endpoint picker is ready."""

    @takes(InferencePoolArguments)
    def __init__(self, name: str, args: InferencePoolArguments) -> None:
        super().__init__(name, args)
        namespace, pool, app, port = in_sections(args.namespace), args.name, args.app, args.port
        picker = picker_name(pool)
        # GKE serves the kinds some minutes after the Gateway API is turned on.
        late = kueue_hook(f"pool {name}")
        served = pulumi.ResourceOptions(parent=self, hooks=late)

        access = permissions(namespace, picker, PICKER_RULES, self)
        configured = yaml.safe_dump(plugins(args.held, args.requests_per_replica), sort_keys=False)
        config = k8s.core.v1.ConfigMap(
            *self.child(f"{namespace}/{picker}"),
            metadata={"name": picker, "namespace": namespace},
            data={CONFIG_FILE: configured},
        )
        # A picker reads its configuration once. That of one that holds nothing never changes.
        checksum = {"checksum/config": hashlib.sha256(configured.encode()).hexdigest()}
        k8s.core.v1.Service(
            *self.child(f"{namespace}/{picker}"),
            # Its endpoint exists once a picker is ready, which its Deployment waits for.
            metadata={"name": picker, "namespace": namespace, "annotations": {"pulumi.com/skipAwait": "true"}},
            spec={
                "type": "ClusterIP",
                "selector": {"app": picker},
                "ports": [
                    {"name": "grpc-ext-proc", "protocol": "TCP", "port": PICKER_PORT, "target_port": PICKER_PORT},
                    {
                        "name": "http-metrics",
                        "protocol": "TCP",
                        "port": PICKER_METRICS_PORT,
                        "target_port": PICKER_METRICS_PORT,
                    },
                ],
            },
        )
        spec = {
            "selector": {"matchLabels": {"app": app}},
            "targetPorts": [{"number": port}],
            "endpointPickerRef": {"name": picker, "port": {"number": PICKER_PORT}},
        }
        main = self.main_options(hooks=late)
        inference_pool = custom_object(INFERENCE_POOL_API, "InferencePool", pool, spec, main, namespace=namespace)
        held_seconds = args.held.seconds if args.held else 0
        target = {"group": INFERENCE_POOL_API.partition("/")[0], "kind": "InferencePool", "name": pool}
        after = pulumi.ResourceOptions.merge(served, pulumi.ResourceOptions(depends_on=[inference_pool]))
        for kind, default in (
            ("HealthCheckPolicy", health_check(port, args.health_path)),
            # A request that waits uses the time of its response.
            ("GCPBackendPolicy", backend_policy(args.response_seconds + held_seconds, args.drain_seconds)),
        ):
            policy, suffix = {"default": default, "targetRef": target}, f"-{kind.lower()}"
            custom_object(GATEWAY_POLICY_API, kind, pool, policy, after, namespace=namespace, suffix=suffix)
        if args.held:
            scrape = {
                "selector": {"matchLabels": {"app": picker}},
                "endpoints": [{"port": "metrics", "interval": HELD_INTERVAL}],
            }
            custom_object(POD_MONITORING_API, "PodMonitoring", picker, scrape, served, namespace=namespace)
        deployment = k8s.apps.v1.Deployment(
            # A picker is ready once it has read its pool.
            *self.child(
                f"{namespace}/{picker}",
                depends_on=[inference_pool, config, *access],
                hooks=kueue_hook(f"endpoint picker {name}"),
            ),
            metadata={"name": picker, "namespace": namespace, "annotations": WAIT_FOR_ONE},
            spec={
                "replicas": REPLICAS,
                # A new leader waits for the lease of the old one. With a rolling update, the old one would stay.
                "strategy": {"type": "Recreate"},
                "selector": {"match_labels": {"app": picker}},
                "template": {
                    "metadata": {
                        "labels": {"app": picker, PICKER_LABEL: picker},
                        **({"annotations": checksum} if args.held else {}),
                    },
                    "spec": picker_pod(namespace, pool, picker, args.held is not None),
                },
            },
        )
        ranges = [args.proxy_range, *HEALTH_CHECK_RANGES] if args.proxy_range is not None else []
        if args.isolated and ranges:
            self._let_in(namespace, pool, app, port, ranges)
        if args.guarded and ranges:
            self._guard(namespace, pool, app, port, ranges)
        self.pool = deployment.id.apply(lambda _: pool)
        self.register_outputs({"pool": self.pool})

    def _let_in(self, namespace: str, pool: str, app: str, port: int, ranges: Sequence[str]) -> None:
        """Let the load balancer reach the pods and the picker, and the picker the API server."""
        sources: list[k8s.networking.v1.NetworkPolicyPeerArgsDict] = [{"ip_block": {"cidr": cidr}} for cidr in ranges]
        picker = picker_name(pool)
        self._ingress(namespace, f"{pool}-gateway-ingress", {"app": app}, sources, [port])
        own = {PICKER_LABEL: picker}
        self._ingress(namespace, f"{picker}-ingress", own, sources, [PICKER_PORT, PICKER_HEALTH_PORT])
        k8s.networking.v1.NetworkPolicy(
            *self.child(f"{namespace}/{picker}-egress"),
            metadata={"name": f"{picker}-egress", "namespace": namespace},
            spec={
                "pod_selector": {"match_labels": own},
                "policy_types": ["Egress"],
                # The control plane has an address outside the cluster that only GKE knows.
                "egress": [{"to": [{"ip_block": {"cidr": "0.0.0.0/0"}}], "ports": [{"protocol": "TCP", "port": 443}]}],
            },
        )

    def _guard(self, namespace: str, pool: str, app: str, port: int, ranges: Sequence[str]) -> None:
        """Let the load balancer, the picker, the collectors of metrics and the API server reach the pods, nobody else.

        Probes always pass.
        """
        sources: list[k8s.networking.v1.NetworkPolicyPeerArgsDict] = [{"ip_block": {"cidr": cidr}} for cidr in ranges]
        sources += [{"pod_selector": {"match_labels": {PICKER_LABEL: picker_name(pool)}}}, namespaces(), api_server()]
        self._ingress(namespace, f"{pool}-clients", {"app": app}, sources, [port])

    def _ingress(
        self,
        namespace: str,
        name: str,
        labels: dict[str, str],
        sources: "Sequence[k8s.networking.v1.NetworkPolicyPeerArgsDict]",
        ports: Sequence[int],
    ) -> None:
        """Let the sources reach ports of the pods with these labels."""
        k8s.networking.v1.NetworkPolicy(
            *self.child(f"{namespace}/{name}"),
            metadata={"name": name, "namespace": namespace},
            spec={
                "pod_selector": {"match_labels": labels},
                "policy_types": ["Ingress"],
                "ingress": [{"from_": sources, "ports": [{"protocol": "TCP", "port": number} for number in ports]}],
            },
        )


def plugins(held: HeldRequests | None, requests_per_replica: int) -> dict[str, Any]:
    """The configuration of the endpoint picker: its scorers, how much each counts, and what it holds."""
    return {
        "apiVersion": PICKER_CONFIG_API,
        "kind": "EndpointPickerConfig",
        **(holding(held) if held else {}),
        "plugins": [
            *({"type": scorer} for scorer in SCORERS),
            *([{"type": DETECTOR, "parameters": {"maxConcurrency": requests_per_replica}}] if held else []),
        ],
        "schedulingProfiles": [
            {
                "name": "default",
                "plugins": [{"pluginRef": scorer, "weight": weight} for scorer, weight in SCORERS.items()],
            }
        ],
    }


def holding(held: HeldRequests) -> dict[str, Any]:
    """Holds requests while each replica has as many as it runs at once, or there is none.

    https://github.com/kubernetes-sigs/gateway-api-inference-extension/blob/v1.5.0/site-src/guides/flow-control.md
    """
    return {
        "featureGates": ["flowControl"],
        "flowControl": {"maxRequests": held.requests, "maxBytes": HELD_BYTES, "defaultRequestTTL": f"{held.seconds}s"},
        "saturationDetector": {"pluginRef": DETECTOR},
    }


def health_check(port: int, path: str) -> dict[str, Any]:
    """The load balancer's health check of the pods."""
    return {
        "checkIntervalSec": HEALTH_CHECK_SECONDS,
        "timeoutSec": HEALTH_CHECK_SECONDS,
        "config": {
            "type": "HTTP",
            "httpHealthCheck": {"requestPath": path, "portSpecification": "USE_FIXED_PORT", "port": port},
        },
    }


def backend_policy(response_seconds: int, drain_seconds: int) -> dict[str, Any]:
    """How long a response may take, and how long a pod that terminates may still send one."""
    return {"timeoutSec": response_seconds, "connectionDraining": {"drainingTimeoutSec": drain_seconds}}


def picker_pod(namespace: str, pool: str, picker: str, holds: bool = False) -> "k8s.core.v1.PodSpecArgsDict":
    """Spec of the endpoint picker's pods."""
    container: k8s.core.v1.ContainerArgsDict = {
        "name": "epp",
        "image": PICKER_IMAGE,
        "args": [
            f"--pool-name={pool}",
            f"--pool-namespace={namespace}",
            f"--config-file=/config/{CONFIG_FILE}",
            f"--refresh-metrics-interval={SCRAPE_INTERVAL}",
            "--ha-enable-leader-election",
            "--zap-encoder=json",
            "--tracing=false",
            "--enable-pprof=false",
            "--metrics-endpoint-auth=false",
            # The load balancer names the pods of the time of a request, and none while there is no replica:
            # https://github.com/kubernetes-sigs/gateway-api-inference-extension/issues/2117
            *(["--disable-endpoint-subset-filter"] if holds else []),
        ],
        "env": [
            {"name": name, "value_from": {"field_ref": {"field_path": f"metadata.{field}"}}}
            for name, field in (("NAMESPACE", "namespace"), ("POD_NAME", "name"))
        ],
        "ports": [
            {"name": "grpc", "container_port": PICKER_PORT},
            {"name": "grpc-health", "container_port": PICKER_HEALTH_PORT},
            {"name": "metrics", "container_port": PICKER_METRICS_PORT},
        ],
        "liveness_probe": {
            "grpc": {"port": PICKER_HEALTH_PORT, "service": "liveness"},
            "initial_delay_seconds": 5,
            "period_seconds": 10,
        },
        "readiness_probe": {"grpc": {"port": PICKER_HEALTH_PORT, "service": "readiness"}, "period_seconds": 2},
        "volume_mounts": [{"name": "config", "mount_path": "/config", "read_only": True}],
    }
    return {
        **pod_spec(picker, container),
        "termination_grace_period_seconds": GRACE_SECONDS,
        "volumes": [{"name": "config", "config_map": {"name": picker}}],
    }
