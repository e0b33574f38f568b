"""Model servers, their autoscaling, and monitoring."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from components import (
    GkeCluster,
    JetStreamAutoscaling,
    JetStreamAutoscalingArgs,
    JetStreamServer,
    KueueStack,
    MetricsAdapter,
    MetricsAdapterArgs,
    SystemMonitoring,
    SystemMonitoringArgs,
    TgiServer,
    VllmServer,
    WorkloadNamespace,
)
from components.base import arguments
from components.server import ModelServer
from composition.cluster import in_cluster
from composition.prerequisites import Prerequisites
from settings import Settings, model, monitoring_targets, plan, scaling

# The component of each engine.
SERVERS: dict[str, Callable[..., ModelServer]] = {"tgi": TgiServer, "vllm": VllmServer, "jetstream": JetStreamServer}


def create_servers(stack: Settings, cluster: GkeCluster, prerequisites: Prerequisites) -> list[ModelServer]:
    """The model servers, in the order of the settings."""
    return [
        SERVERS[server.engine](
            f"{server.namespace}/{server.name}",
            server_arguments(server, stack, cluster),
            in_cluster(cluster, *prerequisites.of(server)),
        )
        for server in stack.serving
    ]


def server_arguments(server: model.Server, stack: Settings, cluster: GkeCluster) -> dict[str, Any]:
    """Arguments of a server's component: its section, and what follows from other sections."""
    args: dict[str, Any] = arguments(
        server,
        node_selector=plan.node_selector(server, stack),
        kubeconfig=cluster.kubeconfig,
        autoscaled=plan.autoscaler_of(server, stack) is not None,
    )
    if isinstance(server, model.TpuWorkload):
        args["chips"] = plan.accelerators(server, stack)[1]
    return args


def create_autoscaling(
    stack: Settings,
    project: str,
    cluster: GkeCluster,
    namespaces: dict[str, WorkloadNamespace],
    servers: list[ModelServer],
) -> None:
    """The metrics adapter and the autoscalers, if the stack has any."""
    if not stack.autoscaling:
        return
    # Deleted before any namespace: without a server, an API of the adapter blocks the deletion of namespaces.
    adapter = MetricsAdapter(
        "metrics-adapter",
        adapter_arguments(stack, project, cluster),
        in_cluster(cluster, cluster, *namespaces.values()),
    )
    for autoscaler in stack.autoscaling:
        targets = [
            server for section, server in zip(stack.serving, servers, strict=True) if section.name == autoscaler.server
        ]
        JetStreamAutoscaling(
            autoscaler.name, autoscaler_arguments(autoscaler, stack), in_cluster(cluster, adapter, *targets)
        )


def adapter_arguments(stack: Settings, project: str, cluster: GkeCluster) -> MetricsAdapterArgs:
    """Arguments of the cluster's only `MetricsAdapter`, which all autoscalers share."""
    return {
        "adapter": stack.autoscaling[0].adapter,
        "project": project,
        "cluster": stack.cluster.name,
        "workload_pool": cluster.workload_pool,
        "tpu_metrics": scaling.reads_tpu_metrics(stack),
    }


def autoscaler_arguments(autoscaler: model.Autoscaler, stack: Settings) -> JetStreamAutoscalingArgs:
    """Arguments of a `JetStreamAutoscaling`: its section, and the Deployment of its server."""
    server, deployment = scaling.server_of(autoscaler, stack), scaling.scaled(autoscaler, stack)
    assert deployment is not None
    args: JetStreamAutoscalingArgs = arguments(
        autoscaler,
        deployment=deployment.model_dump(),
        cluster=stack.cluster.name,
        monitored=server is not None and server.pod_monitoring,
        tpu_containers=scaling.tpu_containers(autoscaler, stack),
    )
    return args


def create_monitoring(
    stack: Settings, project: str, cluster: GkeCluster, kueue: KueueStack | None, servers: list[ModelServer]
) -> SystemMonitoring | None:
    """Dashboards and alerts, if the stack has them."""
    if stack.monitoring is None:
        return None
    # Created after everything that it monitors and deleted before it, so neither raises an alert.
    opts = in_cluster(cluster, cluster, *([kueue] if kueue else []), *servers)
    return SystemMonitoring("monitoring", monitoring_arguments(stack.monitoring, stack, project), opts)


def monitoring_arguments(monitoring: model.Monitoring, stack: Settings, project: str) -> SystemMonitoringArgs:
    """Arguments of a `SystemMonitoring`: its section, and the parts of the stack to monitor."""
    args: SystemMonitoringArgs = arguments(
        monitoring,
        project=project,
        cluster=stack.cluster.name,
        queues=bool(stack.queues and stack.queues.cluster_queues),
        servers=[
            {"namespace": server.namespace, "name": server.name, **({"engine": server.engine} if server.engine else {})}
            for server in monitoring_targets.servers(stack)
        ],
        job_namespaces=monitoring_targets.job_namespaces(stack),
        jobsets=bool(plan.jobsets(stack)),
        accelerators=monitoring_targets.accelerators(stack),
        tpus=monitoring_targets.tpus(stack),
    )
    return args
