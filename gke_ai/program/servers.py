"""Model servers, their autoscaling, and monitoring."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

import pulumi
import pulumi_kubernetes as k8s

from gke_ai import components
from gke_ai.catalog.machines.disks import STORAGE_CLASSES, USUAL_STORAGE_CLASS
from gke_ai.components.serving.server import ModelServer
from gke_ai.program.cluster import in_cluster
from gke_ai.program.prerequisites import Prerequisites
from gke_ai.settings import ResolvedStack, model
from gke_ai.settings.model import serving
from gke_ai.settings.resolved import Placed, needs


class OfEveryServer(TypedDict):
    """The arguments that the components of all engines take."""

    node_selector: Mapping[str, str]
    kubeconfig: pulumi.Input[str] | None
    autoscaled: bool


def create_servers(
    stack: ResolvedStack, cluster: components.GkeCluster, prerequisites: Prerequisites
) -> list[ModelServer[model.Server]]:
    """The model servers, in the order of the settings."""
    return [
        create_server(server, stack, cluster, in_cluster(cluster, *prerequisites.of(server)))
        for server in stack.servers
    ]


def create_server(
    placed: Placed[model.AnyServer], stack: ResolvedStack, cluster: components.GkeCluster, opts: pulumi.ResourceOptions
) -> ModelServer[model.Server]:
    """The component of a server's engine, with the nodes that the server runs on."""
    server, opts = with_storage_class(placed, opts)
    name, key, chips = f"{server.namespace}/{server.name}", placed.section in stack.keyed_servers, placed.accelerators
    shared: OfEveryServer = {
        "node_selector": placed.node_selector,
        "kubeconfig": cluster.kubeconfig if is_awaited(server.name, stack) else None,
        "autoscaled": placed.max_replicas is not None,
    }
    match server:
        case serving.Vllm():
            return components.VllmServer(name, server, opts, **shared, api_key=key)
        case serving.VllmTpu():
            devices = server.shards(placed.nodes)
            return components.VllmTpuServer(name, server, opts, **shared, api_key=key, chips=chips, devices=devices)
        case serving.Tgi():
            return components.TgiServer(name, server, opts, **shared, api_key=key)
        case serving.JetStream():  # requires no key: no gateway can be in front of it
            return components.JetStreamServer(name, server, opts, **shared, chips=chips)


def is_awaited(name: str, stack: ResolvedStack) -> bool:
    """Whether an update waits for a server: not if the gateway names it, always with weight 0.

    So a rollback from a server that never gets ready ends at once.
    """
    routed = (routed for route in stack.routes for routed in route.section.servers)
    weights = [item.weight for item in routed if item.server == name]
    return not weights or any(weights)


def with_storage_class(
    placed: Placed[model.AnyServer], opts: pulumi.ResourceOptions
) -> tuple[model.AnyServer, pulumi.ResourceOptions]:
    """The server with a StorageClass of its own, if its nodes cannot attach the disks of GKE's class. GKE has no class
    of Hyperdisk: https://cloud.google.com/kubernetes-engine/docs/how-to/persistent-volumes/hyperdisk
    """
    server, kind = placed.section, placed.scratch_disk
    if server.scratch is None or kind in (None, STORAGE_CLASSES[USUAL_STORAGE_CLASS]):
        return server, opts
    name = f"{server.namespace}-{server.name}-scratch"
    storage_class = k8s.storage.v1.StorageClass(
        name,
        metadata={"name": name},
        provisioner="pd.csi.storage.gke.io",
        parameters={"type": kind},
        volume_binding_mode="WaitForFirstConsumer",
        reclaim_policy="Delete",
        opts=opts,
    )
    scratch = server.scratch.model_copy(update={"storage_class": name})
    after = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=[storage_class]))
    return server.model_copy(update={"scratch": scratch}), after


def create_autoscaling(
    stack: ResolvedStack,
    project: str,
    cluster: components.GkeCluster,
    namespaces: dict[str, components.WorkloadNamespace],
    servers: list[ModelServer[model.Server]],
) -> None:
    """The metrics adapter and the autoscalers, if the stack has any."""
    if not stack.scaled:
        return
    # Deleted before any namespace: without a server, an API of the adapter blocks the deletion of namespaces.
    adapter = components.MetricsAdapter(
        "metrics-adapter",
        in_cluster(cluster, cluster, *namespaces.values()),
        adapter=stack.scaled[0].section.adapter,  # all autoscalers share the cluster's only adapter
        project=project,
        cluster=stack.cluster.name,
        workload_pool=cluster.workload_pool,
        tpu_metrics=any(scaled.reads_tpu_memory for scaled in stack.scaled),
        engines=list(dict.fromkeys(scaled.target.engine for scaled in stack.scaled if scaled.target)),
    )
    for scaled in stack.scaled:
        autoscaler = scaled.section
        targets = [server for server in servers if server.server.name == autoscaler.server]
        components.ServerAutoscaling(
            autoscaler.name,
            autoscaler.model_copy(update={"deployment": scaled.target}),
            in_cluster(cluster, adapter, *targets),
            cluster=stack.cluster.name,
            tpu_containers=scaled.tpu_containers,
            monitored=scaled.server is not None and scaled.server.section.pod_monitoring,
        )


def create_monitoring(
    stack: ResolvedStack,
    project: str,
    cluster: components.GkeCluster,
    kueue: components.KueueStack | None,
    servers: list[ModelServer[model.Server]],
) -> components.SystemMonitoring | None:
    """Dashboards and alerts, if the stack has them."""
    if stack.settings.monitoring is None:
        return None
    return components.SystemMonitoring(
        "monitoring",
        stack.settings.monitoring,
        # Created after everything that it monitors and deleted before it, so neither raises an alert.
        in_cluster(cluster, cluster, *([kueue] if kueue else []), *servers),
        project=project,
        cluster=stack.cluster.name,
        queues=bool(stack.cluster_queues) and stack.queues.kueue == "install",
        servers=needs.monitored_servers(stack),
        job_namespaces=needs.job_namespaces(stack),
        jobsets=bool(stack.jobsets),
        accelerators=needs.has_accelerators(stack),
        tpus=needs.has_tpus(stack),
        tenants=[space.section.name for space in stack.spaces],
    )
