"""Servers that monitoring watches."""

from __future__ import annotations

from gke_ai.catalog.engines.dashboards import MonitoredServer
from gke_ai.settings.resolved.stack import ResolvedStack


def monitored_servers(stack: ResolvedStack) -> list[MonitoredServer]:
    """Deployments of servers that need a ready replica, including existing ones that the stack autoscales."""
    read = {scaled.server.section.name for scaled in stack.scaled if scaled.server and scaled.reads_server}
    own = [
        MonitoredServer(
            server.namespace, server.name, server.engine if server.pod_monitoring or server.name in read else None
        )
        for server in stack.settings.serving
        if server.replicas
    ]
    targets = [scaled.target for scaled in stack.scaled if scaled.section.deployment and scaled.target]
    return [*own, *(MonitoredServer(target.namespace, target.name, target.engine) for target in targets)]


def job_namespaces(stack: ResolvedStack) -> list[str]:
    """Namespaces with Jobs: those of the stack's runs, and those to which others submit."""
    submitted = {local_queue.namespace for local_queue in stack.queues.local_queues}
    own = {run.namespace for run in stack.runs} | {tenant.name for tenant in stack.settings.tenants}
    return [namespace for namespace in stack.namespaces if namespace in own | submitted]


def has_accelerators(stack: ResolvedStack) -> bool:
    """Whether the stack has GPUs or TPUs."""
    return bool(stack.pools or stack.settings.compute_classes or stack.workloads)
