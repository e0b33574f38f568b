"""Model servers, their autoscaling, and monitoring."""

from __future__ import annotations

from typing import Any

from gke_ai import components
from gke_ai.components.serving.server import ModelServer
from gke_ai.program.cluster import after
from gke_ai.program.prerequisites import Prerequisites
from gke_ai.settings import ResolvedStack, model
from gke_ai.settings.model import serving
from gke_ai.settings.resolved import Placed, needs

ENGINES: dict[type[model.Server], Any] = {
    serving.Vllm: components.VllmServer,
    serving.VllmTpu: components.VllmTpuServer,
    serving.Tgi: components.TgiServer,
    serving.JetStream: components.JetStreamServer,
}


def create_servers(
    stack: ResolvedStack, cluster: components.GkeCluster, prerequisites: Prerequisites
) -> dict[str, ModelServer[model.Server]]:
    """The model servers by name."""
    return {server.section.name: create_server(server, stack, cluster, prerequisites) for server in stack.servers}


def create_server(
    placed: Placed[model.AnyServer], stack: ResolvedStack, cluster: components.GkeCluster, prerequisites: Prerequisites
) -> ModelServer[model.Server]:
    """The component of a server's engine, with the nodes that the server runs on."""
    server = placed.section
    component: ModelServer[model.Server] = ENGINES[type(server)].of(
        f"{server.namespace}/{server.name}",
        after(*prerequisites.of(placed)),
        section=server,
        cluster=cluster,
        namespace=prerequisites.namespaces[server.namespace],
        placed=placed,
        wait=is_awaited(server.name, stack),
        api_key=server in stack.keyed_servers,
    )
    return component


def is_awaited(name: str, stack: ResolvedStack) -> bool:
    """Whether an update waits for a server: not if the gateway names it, always with weight 0.

    So a rollback from a server that never gets ready ends at once.
    """
    routed = (routed for route in stack.routes for routed in route.section.servers)
    weights = [item.weight for item in routed if item.server == name]
    return not weights or any(weights)


def create_autoscaling(
    stack: ResolvedStack,
    cluster: components.GkeCluster,
    namespaces: dict[str, components.WorkloadNamespace],
    servers: dict[str, ModelServer[model.Server]],
) -> None:
    """The metrics adapter and the autoscalers, if the stack has any."""
    if not stack.scaled:
        return
    # Deleted before any namespace: without a server, an API of the adapter blocks the deletion of namespaces.
    adapter = components.MetricsAdapter(
        "metrics-adapter",
        opts=after(*namespaces.values()),
        cluster=cluster,
        adapter=stack.scaled[0].section.adapter,  # all autoscalers share the cluster's only adapter
        tpu_metrics=any(scaled.reads_tpu_memory for scaled in stack.scaled),
        wakes=any(scaled.section.sleeps for scaled in stack.scaled),
        engines=list(dict.fromkeys(scaled.target.engine for scaled in stack.scaled if scaled.target)),
    )
    for scaled in stack.scaled:
        autoscaler = scaled.section
        components.ServerAutoscaling.of(
            autoscaler.name,
            None,
            section=autoscaler,
            cluster=cluster,
            adapter=adapter,
            server=servers.get(autoscaler.server or ""),
        )


def create_monitoring(
    stack: ResolvedStack,
    cluster: components.GkeCluster,
    kueue: components.KueueStack | None,
    servers: dict[str, ModelServer[model.Server]],
) -> components.SystemMonitoring | None:
    """Dashboards and alerts, if the stack has them."""
    if stack.settings.monitoring is None:
        return None
    return components.SystemMonitoring.of(
        "monitoring",
        # Created after everything that it monitors and deleted before it, so neither raises an alert.
        after(*([kueue] if kueue else []), *servers.values()),
        section=stack.settings.monitoring,
        cluster=cluster,
        queues=bool(stack.cluster_queues) and stack.queues.kueue == "install",
        cohorts=any(queue.section.cohort for queue in stack.cluster_queues),
        fair_sharing=stack.queues.fair_sharing is not None,
        past_usage=stack.queues.admission_fair_sharing is not None,
        servers=needs.monitored_servers(stack),
        job_namespaces=needs.job_namespaces(stack),
        jobsets=bool(stack.jobsets),
        accelerators=needs.has_accelerators(stack),
        tpus=needs.has_tpus(stack),
        tenants=[space.section.name for space in stack.spaces],
    )
