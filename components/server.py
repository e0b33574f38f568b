"""A model server, whatever its engine."""

from math import ceil
from typing import NotRequired, TypedDict

import pulumi
import pulumi_kubernetes as k8s

from catalog.engines import ENGINES, Engine
from catalog.versions import POD_MONITORING_API
from components.base import Component
from components.readiness import first_replica
from components.retry import kueue_hook
from components.workload import (
    SHARED_MEMORY_MOUNT,
    SKIP_AWAIT,
    GpuWorkloadArgs,
    WorkloadArgs,
    environment,
    queue_label,
    resources,
    shared_memory,
)
from settings.model import GpuServer, ScratchVolume, Server
from settings.plan import service_name

PROBE_SECONDS = 10
# Who scales by hand owns the replicas from then on, and after a refresh the plugin would be refused to set them back.
OURS = {"pulumi.com/patchForce": "true"}
MONITORING_INTERVAL = "30s"
SCRATCH_VOLUME = "ephemeral-volume"
# Ports by name: a PodMonitoring that refers to one by name also writes the container's name to the metrics.
HTTP_PORT, METRICS_PORT = "http", "metrics"


class ScratchVolumeArgs(TypedDict):
    """A disk that comes and goes with each pod."""

    mount_path: NotRequired[str]
    size: NotRequired[str]
    """Bytes, as a Kubernetes quantity."""
    storage_class: NotRequired[str]


class ModelShapeArgs(TypedDict):
    """Dimensions of a model."""

    parameters: int
    layers: int
    attention_heads: int
    kv_heads: int
    head_size: int
    context_length: int
    """Tokens."""
    sliding_window: NotRequired[int]
    """Tokens."""
    sliding_layers: NotRequired[int]
    latent_size: NotRequired[int]
    bytes_per_parameter: NotRequired[float]
    kv_bytes: NotRequired[float]


class ServerArgs(WorkloadArgs):
    """Arguments that every server has."""

    model: str
    """The model, in the words of the engine."""
    engine: NotRequired[str]
    app: NotRequired[str]
    """Value of the label `app` that the Service selects; none: the name."""
    container: NotRequired[str]
    """Name of the container that runs the model."""
    image: NotRequired[str]
    """None: the pinned image of the engine."""
    replicas: NotRequired[int]
    autoscaled: NotRequired[bool]
    """An autoscaler decides the replicas, so none are written."""
    port: NotRequired[int]
    service: NotRequired[str]
    """Name of the Service; none: the name."""
    scratch: NotRequired[ScratchVolumeArgs]
    probes: NotRequired[bool]
    disruption_budget: NotRequired[bool]
    pod_monitoring: NotRequired[bool]
    surge: NotRequired[bool]
    """Roll out by a pod more, which needs free quota; false: by a pod less."""
    drain_seconds: NotRequired[int]
    """Seconds that a pod which is to end goes on answering; 0: none."""
    termination_grace_period_seconds: NotRequired[int]
    """Seconds that a pod has to end, `drain_seconds` included."""
    ready_timeout_seconds: NotRequired[int]
    """How long an update waits for the first replica, in seconds."""
    model_shape: NotRequired[ModelShapeArgs]
    """Used when a configuration is checked; the component itself does not need it."""
    kubeconfig: NotRequired[pulumi.Input[str]]
    """By which the first replica is awaited; none: it is not awaited."""


class GpuServerArgs(ServerArgs, GpuWorkloadArgs):
    """Arguments that every server on GPUs has."""

    gpus: NotRequired[int]
    """GPUs of one replica; the model is sharded over them."""
    quantize: NotRequired[str]
    """Quantisation method, in the words of the engine."""
    max_model_len: NotRequired[int]
    """Tokens of the longest sequence, prompt and answer together."""


class ModelServer(Component):
    """A Deployment and its Service; on request probes, a disruption budget, a PodMonitoring and a scratch volume.

    What all engines share: an engine's own component says which containers there are, the one with the model first.

    The queue's label stands on the Deployment and on its pods: each replica is a workload of its own for Kueue.

    An update ends when one replica is ready, and says meanwhile what it waits for; replicas that wait for quota or
    capacity are no failure. With `surge: false` a rollout takes a replica away before it brings the new one: at full
    quota the only way, and with one replica an outage.

    Replicas scaled by hand stay until a refresh has seen them; the next update then sets them back. With `autoscaled`
    none are written, and whoever scales owns them.

    Refused: arguments that the engine's section refuses; RunError when no replica is ready in time.

    Sources: https://kueue.sigs.k8s.io/docs/tasks/run/deployment/,
    https://kubernetes.io/docs/concepts/storage/ephemeral-volumes/#generic-ephemeral-volumes,
    https://cloud.google.com/stackdriver/docs/managed-prometheus/setup-managed
    """

    url: pulumi.Output[str]
    """Address inside the cluster; known when `ready` is."""
    ready: pulumi.Output[bool]
    """Known once a replica answers; false where none is wanted or awaited."""

    def __init__(
        self,
        name: str,
        server: Server,
        args: ServerArgs,
        containers: "list[k8s.core.v1.ContainerArgsDict]",
        opts: pulumi.ResourceOptions | None,
        service_ports: "list[k8s.core.v1.ServicePortArgsDict] | None" = None,
        service_links: bool = True,
    ) -> None:
        """`service_ports`: none, the server's own alone; `service_links`: whether pods get a variable a Service."""
        super().__init__(name, opts)
        namespace, service = server.namespace, service_name(server)
        selector = {"app": server.app or server.name}
        inside = pulumi.ResourceOptions(parent=self)
        autoscaled = args.get("autoscaled", False)

        spec: k8s.apps.v1.DeploymentSpecArgsDict = {
            "selector": {"match_labels": selector},
            "strategy": {
                "type": "RollingUpdate",
                "rolling_update": {"max_surge": int(server.surge), "max_unavailable": int(not server.surge)},
            },
            "template": {
                "metadata": {"labels": {**server.labels, **selector, **queue_label(server)}},
                "spec": pod(server, containers, args.get("node_selector", {}), service_links),
            },
        }
        if not autoscaled:
            spec["replicas"] = server.replicas
        deployment = k8s.apps.v1.Deployment(
            f"{namespace}/{server.name}",
            metadata={
                "name": server.name,
                "namespace": namespace,
                "labels": {**selector, **queue_label(server)},
                "annotations": SKIP_AWAIT if autoscaled else {**SKIP_AWAIT, **OURS},
            },
            spec=spec,
            # Kueue looks at every Deployment in the namespaces that it manages, under a queue or not.
            opts=pulumi.ResourceOptions(parent=self, hooks=kueue_hook(f"server {name}")),
        )
        k8s.core.v1.Service(
            f"{namespace}/{service}",
            # Its endpoint comes with the replica, which is awaited below; the plugin would wait for it too, and a
            # refresh record its absence as an error.
            metadata={"name": service, "namespace": namespace, "annotations": SKIP_AWAIT},
            spec={
                "type": "ClusterIP",
                "selector": selector,
                "ports": service_ports or [{"protocol": "TCP", "port": server.port, "target_port": server.port}],
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
            engine = engine_of(server)
            port = HTTP_PORT if engine.metrics_port is None else METRICS_PORT
            k8s.apiextensions.CustomResource(
                f"{namespace}/{server.name}",
                api_version=POD_MONITORING_API,
                kind="PodMonitoring",
                metadata={"name": server.name, "namespace": namespace},
                spec={
                    "selector": {"matchLabels": selector},
                    "endpoints": [{"port": port, "path": engine.metrics_path, "interval": MONITORING_INTERVAL}],
                },
                opts=inside,
            )

        self.ready = first_replica(server, deployment, args.get("kubeconfig"))
        self.url = self.ready.apply(lambda _: f"http://{service}.{namespace}.svc.cluster.local:{server.port}")
        self.register_outputs({"url": self.url})


def engine_of(server: Server) -> Engine:
    """The engine that the server runs."""
    return ENGINES[server.engine]


def gpu_container(
    server: GpuServer, variables: dict[str, str], *token_variables: str
) -> "k8s.core.v1.ContainerArgsDict":
    """The container of a server on GPUs: it has the token, and shared memory by which its shards talk."""
    container: k8s.core.v1.ContainerArgsDict = {
        "name": server.container,
        "image": server.image or engine_of(server).image,
        "resources": resources(server, server.gpus),
        "env": environment(server, variables, token_variables),
        "volume_mounts": [SHARED_MEMORY_MOUNT, *scratch_mount(server)],
    }
    if server.pod_monitoring:
        container["ports"] = [{"name": HTTP_PORT, "container_port": server.port}]
    if server.probes:
        add_probes(container, server, {"http_get": {"path": engine_of(server).health_path, "port": server.port}})
    return container


def add_probes(container: "k8s.core.v1.ContainerArgsDict", server: Server, check: "k8s.core.v1.ProbeArgsDict") -> None:
    """Probes by a check that passes once the model is loaded; the others begin when the first has passed."""
    often: k8s.core.v1.ProbeArgsDict = {**check, "period_seconds": PROBE_SECONDS, "timeout_seconds": 5}
    # Loading may take as long as an update would wait for it.
    patience = ceil(server.ready_timeout_seconds / PROBE_SECONDS)
    container["startup_probe"] = {**often, "failure_threshold": patience}
    container["readiness_probe"] = {**often, "failure_threshold": 3}
    container["liveness_probe"] = {**often, "failure_threshold": 6}


def pod(
    server: Server,
    containers: "list[k8s.core.v1.ContainerArgsDict]",
    node_selector: dict[str, str],
    service_links: bool,
) -> "k8s.core.v1.PodSpecArgsDict":
    """Spec of the server's pods.

    Each container waits before it is told to end: the pod gets requests until all proxies have learned of its end.
    https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination-flow
    """
    if server.drain_seconds:
        # The kubelet's own sleep, as an image may have none: Kubernetes 1.30 and newer.
        lifecycle: k8s.core.v1.LifecycleArgsDict = {"pre_stop": {"sleep": {"seconds": server.drain_seconds}}}
        containers = [{**container, "lifecycle": lifecycle} for container in containers]
    spec: k8s.core.v1.PodSpecArgsDict = {
        "containers": containers,
        "termination_grace_period_seconds": server.termination_grace_period_seconds,
    }
    volumes: list[k8s.core.v1.VolumeArgsDict] = [shared_memory()] if isinstance(server, GpuServer) else []
    if server.scratch is not None:
        volumes.append(scratch_volume(server.scratch))
    if volumes:
        spec["volumes"] = volumes
    if server.priority_class:
        spec["priority_class_name"] = server.priority_class
    if server.service_account != "default":
        spec["service_account_name"] = server.service_account
    if node_selector:
        spec["node_selector"] = node_selector
    if not service_links:
        spec["enable_service_links"] = False
    return spec


def scratch_mount(server: Server) -> "list[k8s.core.v1.VolumeMountArgsDict]":
    """Where the container with the model has the server's scratch volume, if there is one."""
    return [{"name": SCRATCH_VOLUME, "mount_path": server.scratch.mount_path}] if server.scratch else []


def scratch_volume(scratch: ScratchVolume) -> "k8s.core.v1.VolumeArgsDict":
    """A generic ephemeral volume: its claim is made with the pod, and deleted with it."""
    return {
        "name": SCRATCH_VOLUME,
        "ephemeral": {
            "volume_claim_template": {
                "metadata": {"labels": {"type": "ephemeral"}},
                "spec": {
                    "access_modes": ["ReadWriteOnce"],
                    "storage_class_name": scratch.storage_class,
                    "resources": {"requests": {"storage": scratch.size}},
                },
            }
        },
    }
