"""A model server: what all engines share."""

from collections.abc import Mapping
from math import ceil
from typing import Any, Generic, TypeVar, cast

import pulumi
import pulumi_kubernetes as k8s

from gke_ai.catalog.engines import fuse
from gke_ai.catalog.engines.engine import ENGINES, HTTP_PORT, Engine
from gke_ai.catalog.engines.gateways import API_KEY, API_KEY_SECRET
from gke_ai.catalog.engines.model_cache import COMPILED_PATH, MOUNT_PATH, compiled_folder
from gke_ai.catalog.machines.disks import STORAGE_CLASSES, USUAL_STORAGE_CLASS
from gke_ai.catalog.versions import POD_MONITORING_API
from gke_ai.components.arguments import Input, Refused
from gke_ai.components.base import SKIP_AWAIT, Component, custom_object
from gke_ai.components.serving.readiness import first_replica
from gke_ai.components.support.retry import kueue_hook
from gke_ai.components.workloads.arguments import WorkloadArguments
from gke_ai.manifests import workload
from gke_ai.manifests.job import fuse_annotations
from gke_ai.settings.model import ScratchVolume, Server
from gke_ai.settings.problems import Problem
from gke_ai.settings.resolved import Placed

PROBE_SECONDS = 10
# Scaling by hand changes the owner of the replicas. Without force, the API refuses the plugin's reset after a refresh.
FORCE = {"pulumi.com/patchForce": "true"}
MONITORING_INTERVAL = "30s"
SCRATCH_VOLUME, CACHE_VOLUME, COMPILED_VOLUME = "ephemeral-volume", "models", "compiled"

S_co = TypeVar("S_co", bound=Server, covariant=True)


class ServerArguments(WorkloadArguments):
    """The arguments of every model server."""

    image: Input[str] | None = None
    wait: bool = True
    """Whether an update waits for the first replica."""
    autoscaled: bool = False
    """An autoscaler sets the number of replicas, so updates leave it."""
    api_key: bool = False
    """Require the API key in the Secret `gateway-api-key` of the namespace from clients."""


class ModelServer(Component, Generic[S_co]):
    """A Deployment and its Service, with optional probes, disruption budget, PodMonitoring and scratch volume.

    All engines share it. The component of an engine adds `containers`.

    The Deployment and its pods have the queue's label: for Kueue, each replica is a workload.

    An update ends when one replica is ready, and logs why it waits. Replicas that wait for quota or capacity are no
    failure. With `surge: false`, a rollout deletes a replica before it creates the new one. At full quota no other
    rollout is possible; with one replica it is an outage.

    Replicas that you scale by hand stay until a refresh; the next update then resets them. With `autoscaled`, the
    Deployment begins with its `replicas`, and the autoscaler owns them from then on: turning it on or off changes none.

    A change of the engine updates the Deployment and the Service in place, because the components of all engines are
    aliases of each other. So the servers of a program need different names.

    Refused: RunError if no replica is ready in time.

    Sources: https://kueue.sigs.k8s.io/docs/tasks/run/deployment/,
    https://kubernetes.io/docs/concepts/storage/ephemeral-volumes/#generic-ephemeral-volumes,
    https://cloud.google.com/stackdriver/docs/managed-prometheus/setup-managed
    """

    url: pulumi.Output[str]
    """Address inside the cluster. Known once `ready` is."""
    ready: pulumi.Output[bool]
    """Known once a replica is ready. False if nothing waits for one."""

    # Give the pods environment variables for each Service of the namespace.
    service_links = True

    def __init__(self, name: str, args: ServerArguments, kind: type[S_co]) -> None:
        title = f"{type(self).__name__} {name}"
        placed = self.placed = args.workload(kind, title)
        super().__init__(name, args, pulumi.ResourceOptions(aliases=former_types(self)))
        self.cluster, self.requires_key = args.place(), args.api_key
        self.space = args.space
        if placed.section.keeps_compiled and not args.is_checked:
            cause = "needs a role on a folder that nothing else may write, and only the program of a stack creates it"
            raise Refused(title, Problem("modelCache.compileCache", cause, "Remove it, or use gke-ai:serving"))
        server, disks = with_storage_class(placed, self)
        self.server = server
        node_selector = args.selected(placed)
        autoscaled = self.autoscaled = args.autoscaled or placed.max_replicas is not None
        namespace, service = server.namespace, server.service_name
        selector = {"app": server.app or server.name}
        containers = self.containers()
        if args.api_key:
            variables: Any = containers[0].get("env", [])
            containers[0]["env"] = [*variables, api_key_variable(server, title)]
        if (server.pod_monitoring or autoscaled) and engine_of(server).metrics_port is None:
            containers[0]["ports"] = [{"name": HTTP_PORT, "container_port": server.port}]

        spec_of_pods: Any = pod(server, containers, node_selector, self.service_links)
        spec: k8s.apps.v1.DeploymentSpecArgsDict = {
            "replicas": server.replicas,
            "selector": {"match_labels": selector},
            "strategy": {
                "type": "RollingUpdate",
                "rolling_update": {"max_surge": int(server.surge), "max_unavailable": int(not server.surge)},
            },
            "template": {
                "metadata": {
                    "labels": {**server.labels, **selector, **workload.queue_label(server)},
                    **cache_metadata(server),
                },
                "spec": cast(Any, args.pod.added_to(spec_of_pods)),
            },
        }
        deployment = k8s.apps.v1.Deployment(
            *self.main_child(
                f"{namespace}/{server.name}",
                depends_on=disks,
                # The plugin leaves an ignored field to the manager that set it, and a creation still states it.
                ignore_changes=["spec.replicas"] if autoscaled else None,
                # Kueue's webhook sees every Deployment in its namespaces, with or without a queue.
                hooks=kueue_hook(f"{type(self).__name__} {name}"),
            ),
            metadata={
                "name": server.name,
                "namespace": namespace,
                "labels": {**selector, **workload.queue_label(server)},
                "annotations": {**SKIP_AWAIT, **FORCE},
            },
            spec=spec,
        )
        k8s.core.v1.Service(
            *self.child(f"{namespace}/{service}"),
            # Its endpoint exists once a replica does, which `ready` waits for. The plugin would wait too, and a
            # refresh would record a missing endpoint as an error.
            metadata={"name": service, "namespace": namespace, "annotations": SKIP_AWAIT},
            spec={"type": "ClusterIP", "selector": selector, "ports": self.service_ports()},
        )
        if server.disruption_budget:
            k8s.policy.v1.PodDisruptionBudget(
                *self.child(f"{namespace}/{server.name}"),
                metadata={"name": server.name, "namespace": namespace},
                spec={"max_unavailable": 1, "selector": {"match_labels": selector}},
            )
        if server.pod_monitoring:
            engine = engine_of(server)
            port, path = engine.metrics_port_name, engine.metrics_path
            scraped = {"port": port, "path": path, "interval": MONITORING_INTERVAL}
            scrape = {"selector": {"matchLabels": selector}, "endpoints": [scraped]}
            inside = pulumi.ResourceOptions(parent=self)
            custom_object(POD_MONITORING_API, "PodMonitoring", server.name, scrape, inside, namespace=namespace)

        self.ready = first_replica(server, deployment, args.watched() if args.wait else None)
        self.url = self.ready.apply(lambda _: f"http://{service}.{namespace}.svc.cluster.local:{server.port}")
        self.register_outputs({"url": self.url})

    @property
    def called(self) -> str:
        return self.server.name

    def containers(self) -> "list[k8s.core.v1.ContainerArgsDict]":
        """The containers of a pod. The one with the model comes first."""
        raise NotImplementedError

    def service_ports(self) -> "list[k8s.core.v1.ServicePortArgsDict]":
        """The ports of the Service."""
        return [{"protocol": "TCP", "port": self.server.port, "target_port": self.server.port}]


def with_storage_class(placed: Placed[S_co], component: Component) -> tuple[S_co, list[pulumi.Resource]]:
    """The server, and a StorageClass of its own if its nodes cannot attach the disks of GKE's class. GKE has no class
    of Hyperdisk: https://cloud.google.com/kubernetes-engine/docs/how-to/persistent-volumes/hyperdisk
    """
    server, kind = placed.section, placed.scratch_disk
    if server.scratch is None or kind in (None, STORAGE_CLASSES[USUAL_STORAGE_CLASS]):
        return server, []
    name = f"{server.namespace}-{server.name}-scratch"
    child, inside = component.child(name)
    # Stacks until 0.4 have it beside the server.
    former = pulumi.ResourceOptions(aliases=[pulumi.Alias(name=name, parent=pulumi.ROOT_STACK_RESOURCE)])
    storage_class = k8s.storage.v1.StorageClass(
        child,
        metadata={"name": name},
        provisioner="pd.csi.storage.gke.io",
        parameters={"type": kind},
        volume_binding_mode="WaitForFirstConsumer",
        reclaim_policy="Delete",
        opts=pulumi.ResourceOptions.merge(inside, former),
    )
    scratch = server.scratch.model_copy(update={"storage_class": name})
    return server.model_copy(update={"scratch": scratch}), [storage_class]


def former_types(server: ModelServer[S_co]) -> list[pulumi.Alias]:
    """The types of the other engines. The type of a component is part of the identity of its Deployment.

    https://www.pulumi.com/docs/iac/concepts/resources/options/aliases/
    """
    others = {engine.component for engine in ENGINES.values()} - {type(server).__name__}
    return [pulumi.Alias(type_=f"gke-ai:index:{component}") for component in sorted(others)]


def api_key_variable(server: Server, component: str) -> Any:
    """The variable with the API key that the engine requires from clients. Raises Refused if it can require none."""
    variable = engine_of(server).api_key_variable
    if not variable:
        cause = f"{engine_of(server).title} cannot require an API key"
        raise Refused(component, Problem("apiKey", cause, "Remove it, or use another engine"))
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": API_KEY_SECRET, "key": API_KEY}}}


def engine_of(server: Server) -> Engine:
    """The engine of a server."""
    return ENGINES[server.engine]


def container_of(
    server: Server, accelerators: int, variables: dict[str, str], *token_variables: str
) -> "k8s.core.v1.ContainerArgsDict":
    """The only container of a server, with its accelerators, the token and shared memory."""
    container: k8s.core.v1.ContainerArgsDict = {
        "name": server.container,
        "image": engine_of(server).image if server.image is None else server.image,
        "resources": workload.resources(server, accelerators, server.accelerator_resource),
        "env": workload.environment(server, {**variables, **server.command_line.cache_variables}, token_variables),
        "volume_mounts": [*shared_memory_mount(server), *scratch_mount(server), *cache_mount(server)],
    }
    if server.probes:
        add_probes(container, server, {"http_get": {"path": engine_of(server).health_path, "port": server.port}})
    return container


def shared_memory_mount(server: Server) -> "list[k8s.core.v1.VolumeMountArgsDict]":
    """The mount of shared memory, if the processes of the server use it."""
    return [workload.SHARED_MEMORY_MOUNT] if server.shares_memory else []


def add_probes(container: "k8s.core.v1.ContainerArgsDict", server: Server, check: "k8s.core.v1.ProbeArgsDict") -> None:
    """Add probes whose check passes once the model is loaded. Kubernetes starts with the startup probe."""
    probe: k8s.core.v1.ProbeArgsDict = {**check, "period_seconds": PROBE_SECONDS, "timeout_seconds": 5}
    # Loading may take as long as an update waits for it.
    patience = ceil(server.ready_timeout_seconds / PROBE_SECONDS)
    container["startup_probe"] = {**probe, "failure_threshold": patience}
    container["readiness_probe"] = {**probe, "failure_threshold": 3}
    container["liveness_probe"] = {**probe, "failure_threshold": 6}


def pod(
    server: Server,
    containers: "list[k8s.core.v1.ContainerArgsDict]",
    node_selector: Mapping[str, str],
    service_links: bool,
) -> "k8s.core.v1.PodSpecArgsDict":
    """Spec of the server's pods.

    Each container delays its termination: the pod receives requests until all proxies know that it terminates.
    https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination-flow
    """
    if server.drain_seconds:
        # The kubelet sleeps, because an image may have no sleep command. Needs Kubernetes 1.30 or newer.
        lifecycle: k8s.core.v1.LifecycleArgsDict = {"pre_stop": {"sleep": {"seconds": server.drain_seconds}}}
        containers = [{**container, "lifecycle": lifecycle} for container in containers]
    spec: k8s.core.v1.PodSpecArgsDict = {
        "containers": containers,
        "termination_grace_period_seconds": server.termination_grace_period_seconds,
    }
    volumes: list[k8s.core.v1.VolumeArgsDict] = [workload.shared_memory()] if server.shares_memory else []
    if server.scratch is not None:
        volumes.append(scratch_volume(server.scratch))
    volumes += cache_volumes(server)
    if volumes:
        spec["volumes"] = volumes
    if server.priority_class:
        spec["priority_class_name"] = server.priority_class
    if server.service_account != "default":
        spec["service_account_name"] = server.service_account
    if node_selector:
        spec["node_selector"] = node_selector
    if tolerations := workload.arm_tolerations(node_selector):
        spec["tolerations"] = tolerations
    if not service_links:
        spec["enable_service_links"] = False
    return spec


def scratch_mount(server: Server) -> "list[k8s.core.v1.VolumeMountArgsDict]":
    """The mount of the server's scratch volume, if it has one."""
    return [{"name": SCRATCH_VOLUME, "mount_path": server.scratch.mount_path}] if server.scratch else []


def cache_metadata(server: Server) -> "k8s.meta.v1.ObjectMetaArgsDict":
    """Annotations of pods that read the model from a mounted bucket. Empty for others."""
    annotations = fuse_annotations(server)
    return {"annotations": annotations} if annotations else {}


def cache_mount(server: Server) -> "list[k8s.core.v1.VolumeMountArgsDict]":
    """The mounts of the bucket with the model, and of its folder for compiled code, if the pods have them."""
    mounts: list[k8s.core.v1.VolumeMountArgsDict] = []
    if server.bucket_mounts:
        mounts.append({"name": CACHE_VOLUME, "mount_path": MOUNT_PATH, "read_only": True})
    if server.keeps_compiled:
        mounts.append({"name": COMPILED_VOLUME, "mount_path": COMPILED_PATH})
    return mounts


def cache_volumes(server: Server) -> "list[k8s.core.v1.VolumeArgsDict]":
    """The bucket with the model, its folder for compiled code, and its file cache if that is in memory."""
    cached = server.cached_model
    if cached is None or cached.mount is None:
        return []
    volumes: list[k8s.core.v1.VolumeArgsDict] = [
        workload.bucket_volume(CACHE_VOLUME, cached.mount.bucket, cached.mount_options, read_only=True)
    ]
    if server.keeps_compiled:
        options = f"{fuse.MOUNT_OPTIONS},only-dir={compiled_folder(server.namespace, server.name)}"
        volumes.append(workload.bucket_volume(COMPILED_VOLUME, cached.mount.bucket, options, read_only=False))
    if cached.section.file_cache_medium == "memory":
        size = f"{cached.file_cache_gib}Gi"
        volumes.append({"name": fuse.CACHE_VOLUME, "empty_dir": {"medium": "Memory", "size_limit": size}})
    return volumes


def scratch_volume(scratch: ScratchVolume) -> "k8s.core.v1.VolumeArgsDict":
    """A generic ephemeral volume. Its claim is created and deleted with the pod."""
    return {
        "name": SCRATCH_VOLUME,
        "ephemeral": {
            "volume_claim_template": {
                "metadata": {"labels": {"type": "ephemeral"}},
                "spec": {
                    "access_modes": ["ReadWriteOnce"],
                    "storage_class_name": scratch.storage_class or USUAL_STORAGE_CLASS,
                    "resources": {"requests": {"storage": scratch.size}},
                },
            }
        },
    }
