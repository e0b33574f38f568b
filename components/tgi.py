"""A model server: Text Generation Inference behind a Service."""

from math import ceil
from typing import NotRequired

import pulumi
import pulumi_kubernetes as k8s

from catalog.versions import POD_MONITORING_API, TGI_IMAGE
from components.base import Component, read
from components.readiness import first_replica
from components.retry import kueue_hook
from components.workload import (
    SHARED_MEMORY,
    SHARED_MEMORY_MOUNT,
    SKIP_AWAIT,
    WorkloadArgs,
    environment,
    queue_label,
    resources,
)
from settings.model import Tgi
from settings.plan import service_name

PROBE_SECONDS = 10
# Who scales by hand owns the replicas from then on, and after a refresh the plugin would be refused to set them back.
OURS = {"pulumi.com/patchForce": "true"}
MONITORING_INTERVAL = "30s"


class TgiServerArgs(WorkloadArgs):
    """Arguments of a `TgiServer`."""

    model: str
    """Model id on Hugging Face."""
    engine: NotRequired[str]
    """`tgi`."""
    app: NotRequired[str]
    """Value of the label `app` that the Service selects; none: the name."""
    image: NotRequired[str]
    """None: the pinned image of TGI."""
    replicas: NotRequired[int]
    gpus: NotRequired[int]
    """GPUs of one replica; the model is sharded over them."""
    port: NotRequired[int]
    port_variable: NotRequired[str]
    """Environment variable that tells the image its port."""
    service: NotRequired[str]
    """Name of the Service; none: the name."""
    quantize: NotRequired[str]
    """TGI's `--quantize`, such as `bitsandbytes-nf4`."""
    probes: NotRequired[bool]
    disruption_budget: NotRequired[bool]
    pod_monitoring: NotRequired[bool]
    surge: NotRequired[bool]
    """Roll out by a pod more, which needs free quota; false: by a pod less."""
    ready_timeout_seconds: NotRequired[int]
    """How long an update waits for the first replica, in seconds."""
    kubeconfig: NotRequired[pulumi.Input[str]]
    """By which the first replica is watched; none: it is not awaited."""


class TgiServer(Component):
    """A Deployment of TGI and its Service; on request probes, a disruption budget and a PodMonitoring.

    The queue's label stands on the Deployment and on its pods: each replica is a workload of its own for Kueue.

    An update ends when one replica is ready, and says meanwhile what it waits for; replicas that wait for quota or
    capacity are no failure. With `surge: false` a rollout takes a replica away before it brings the new one: at full
    quota the only way, and with one replica an outage.

    Replicas scaled by hand stay until a refresh has seen them; the next update then sets them back.

    Refused: arguments that `settings.model.Server` refuses; RunError when no replica is ready in time.

    Sources: https://huggingface.co/docs/text-generation-inference/reference/launcher,
    https://kueue.sigs.k8s.io/docs/tasks/run/deployment/,
    https://cloud.google.com/stackdriver/docs/managed-prometheus/setup-managed
    """

    url: pulumi.Output[str]
    """Address inside the cluster; known when `ready` is."""
    ready: pulumi.Output[bool]
    """Known once a replica answers; false where none is wanted or awaited."""

    def __init__(self, name: str, args: TgiServerArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        server = read(Tgi, name, args)
        namespace, service = server.namespace, service_name(server)
        selector = {"app": server.app or server.name}
        inside = pulumi.ResourceOptions(parent=self)

        deployment = k8s.apps.v1.Deployment(
            f"{namespace}/{server.name}",
            metadata={
                "name": server.name,
                "namespace": namespace,
                "labels": {**selector, **queue_label(server)},
                "annotations": {**SKIP_AWAIT, **OURS},
            },
            spec={
                "replicas": server.replicas,
                "selector": {"match_labels": selector},
                "strategy": {
                    "type": "RollingUpdate",
                    "rolling_update": {"max_surge": int(server.surge), "max_unavailable": int(not server.surge)},
                },
                "template": {
                    "metadata": {"labels": {**server.labels, **selector, **queue_label(server)}},
                    "spec": pod(server, args.get("node_selector", {})),
                },
            },
            opts=pulumi.ResourceOptions(parent=self, hooks=kueue_hook(f"server {name}") if server.queue else None),
        )
        k8s.core.v1.Service(
            f"{namespace}/{service}",
            # Its endpoint comes with the replica, which is awaited below; the plugin would wait for it too, and a
            # refresh record its absence as an error.
            metadata={"name": service, "namespace": namespace, "annotations": SKIP_AWAIT},
            spec={
                "type": "ClusterIP",
                "selector": selector,
                "ports": [{"protocol": "TCP", "port": server.port, "target_port": server.port}],
            },
            opts=inside,
        )
        if server.disruption_budget:
            k8s.policy.v1.PodDisruptionBudget(
                f"{namespace}/{server.name}",
                metadata={"name": server.name, "namespace": namespace},
                spec={"max_unavailable": 1, "selector": {"match_labels": selector}},
                opts=inside,
            )
        if server.pod_monitoring:
            k8s.apiextensions.CustomResource(
                f"{namespace}/{server.name}",
                api_version=POD_MONITORING_API,
                kind="PodMonitoring",
                metadata={"name": server.name, "namespace": namespace},
                spec={
                    "selector": {"matchLabels": selector},
                    "endpoints": [{"port": "http", "path": "/metrics", "interval": MONITORING_INTERVAL}],
                },
                opts=inside,
            )

        self.ready = first_replica(server, deployment, args.get("kubeconfig"))
        self.url = self.ready.apply(lambda _: f"http://{service}.{namespace}.svc.cluster.local:{server.port}")
        self.register_outputs({"url": self.url})


def pod(server: Tgi, node_selector: dict[str, str]) -> "k8s.core.v1.PodSpecArgsDict":
    """Spec of the server's pods."""
    variables = {server.port_variable: str(server.port), "NUM_SHARD": str(server.gpus), "MODEL_ID": server.model}
    if server.quantize:
        variables["QUANTIZE"] = server.quantize
    container: k8s.core.v1.ContainerArgsDict = {
        "name": "inference-server",
        "image": server.image or TGI_IMAGE,
        "resources": resources(server, server.gpus),
        "env": environment(server, variables, "HUGGING_FACE_HUB_TOKEN"),
        "volume_mounts": [SHARED_MEMORY_MOUNT],
    }
    if server.pod_monitoring:
        container["ports"] = [{"name": "http", "container_port": server.port}]
    if server.probes:
        add_probes(container, server)
    spec: k8s.core.v1.PodSpecArgsDict = {"containers": [container], "volumes": [SHARED_MEMORY]}
    if server.priority_class:
        spec["priority_class_name"] = server.priority_class
    if server.service_account != "default":
        spec["service_account_name"] = server.service_account
    if node_selector:
        spec["node_selector"] = node_selector
    return spec


def add_probes(container: "k8s.core.v1.ContainerArgsDict", server: Tgi) -> None:
    """Probes on TGI's /health, which answers once the model is loaded; the others begin when the first has passed."""
    check: k8s.core.v1.ProbeArgsDict = {
        "http_get": {"path": "/health", "port": server.port},
        "period_seconds": PROBE_SECONDS,
        "timeout_seconds": 5,
    }
    # Loading may take as long as an update would wait for it.
    patience = ceil(server.ready_timeout_seconds / PROBE_SECONDS)
    container["startup_probe"] = {**check, "failure_threshold": patience}
    container["readiness_probe"] = {**check, "failure_threshold": 3}
    container["liveness_probe"] = {**check, "failure_threshold": 6}
