"""Model servers, their autoscaling, and monitoring."""

from __future__ import annotations

import pulumi

from components import (
    GkeCluster,
    JetStreamServer,
    KueueStack,
    MetricsAdapter,
    ServerAutoscaling,
    SystemMonitoring,
    VllmTpuServer,
    WorkloadNamespace,
)
from components.build.cluster import in_cluster
from components.build.prerequisites import Prerequisites
from components.server import ModelServer, component_of
from settings import Settings, model, monitoring_targets, plan, scaling


def create_servers(
    stack: Settings, cluster: GkeCluster, prerequisites: Prerequisites
) -> list[ModelServer[model.Server]]:
    """The model servers, in the order of the settings."""
    return [
        create_server(server, stack, cluster, in_cluster(cluster, *prerequisites.of(server)))
        for server in stack.serving
    ]


def create_server(
    server: model.Server, stack: Settings, cluster: GkeCluster, opts: pulumi.ResourceOptions
) -> ModelServer[model.Server]:
    """The component of a server's engine, with the nodes that the server runs on."""
    name, node_selector = f"{server.namespace}/{server.name}", plan.node_selector(server, stack)
    autoscaled = plan.autoscaler_of(server, stack) is not None
    kubeconfig = cluster.kubeconfig if plan.awaits_replica(server, stack) else None
    if isinstance(server, model.JetStream):
        return JetStreamServer(
            name,
            server,
            opts,
            chips=plan.accelerators(server, stack)[1],
            node_selector=node_selector,
            kubeconfig=kubeconfig,
            autoscaled=autoscaled,
        )
    if isinstance(server, model.VllmTpu):
        return VllmTpuServer(
            name,
            server,
            opts,
            chips=plan.accelerators(server, stack)[1],
            devices=server.shards(stack.pools),
            node_selector=node_selector,
            kubeconfig=kubeconfig,
            autoscaled=autoscaled,
            api_key=plan.requires_api_key(server, stack),
        )
    return component_of(server)(
        name,
        server,
        opts,
        node_selector=node_selector,
        kubeconfig=kubeconfig,
        autoscaled=autoscaled,
        api_key=plan.requires_api_key(server, stack),
    )


def create_autoscaling(
    stack: Settings,
    project: str,
    cluster: GkeCluster,
    namespaces: dict[str, WorkloadNamespace],
    servers: list[ModelServer[model.Server]],
) -> None:
    """The metrics adapter and the autoscalers, if the stack has any."""
    if not stack.autoscaling:
        return
    # Deleted before any namespace: without a server, an API of the adapter blocks the deletion of namespaces.
    adapter = MetricsAdapter(
        "metrics-adapter",
        in_cluster(cluster, cluster, *namespaces.values()),
        adapter=stack.autoscaling[0].adapter,  # all autoscalers share the cluster's only adapter
        project=project,
        cluster=stack.cluster.name,
        workload_pool=cluster.workload_pool,
        tpu_metrics=scaling.reads_tpu_metrics(stack),
        engines=scaling.scaled_engines(stack),
    )
    for autoscaler in stack.autoscaling:
        targets = [server for server in servers if server.server.name == autoscaler.server]
        target = scaling.server_of(autoscaler, stack)
        ServerAutoscaling(
            autoscaler.name,
            autoscaler.model_copy(update={"deployment": scaling.scaled(autoscaler, stack)}),
            in_cluster(cluster, adapter, *targets),
            cluster=stack.cluster.name,
            tpu_containers=scaling.tpu_containers(autoscaler, stack),
            monitored=target is not None and target.pod_monitoring,
        )


def create_monitoring(
    stack: Settings,
    project: str,
    cluster: GkeCluster,
    kueue: KueueStack | None,
    servers: list[ModelServer[model.Server]],
) -> SystemMonitoring | None:
    """Dashboards and alerts, if the stack has them."""
    if stack.monitoring is None:
        return None
    return SystemMonitoring(
        "monitoring",
        stack.monitoring,
        # Created after everything that it monitors and deleted before it, so neither raises an alert.
        in_cluster(cluster, cluster, *([kueue] if kueue else []), *servers),
        project=project,
        cluster=stack.cluster.name,
        queues=bool(stack.queues and stack.queues.cluster_queues),
        servers=monitoring_targets.servers(stack),
        job_namespaces=monitoring_targets.job_namespaces(stack),
        jobsets=bool(plan.jobsets(stack)),
        accelerators=monitoring_targets.accelerators(stack),
        tpus=monitoring_targets.tpus(stack),
    )
