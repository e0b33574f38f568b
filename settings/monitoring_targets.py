"""Objects that dashboards and alerts monitor: the stack's servers, Jobs and accelerators."""

from __future__ import annotations

from catalog.dashboards import MonitoredServer
from catalog.metrics import TPU_MEMORY
from settings.model import Server, Settings
from settings.plan import autoscaler_of, namespaces, tpu_workloads, workloads
from settings.scaling import scaled


def servers(settings: Settings) -> list[MonitoredServer]:
    """Deployments of servers that need a ready replica, including existing ones that the stack autoscales."""
    own = [
        MonitoredServer(server.namespace, server.name, server.engine if _collected(server, settings) else None)
        for server in settings.serving
        if server.replicas
    ]
    others = [
        MonitoredServer(target.namespace, target.name, target.engine)
        for autoscaler in settings.autoscaling
        if autoscaler.deployment is not None and (target := scaled(autoscaler, settings))
    ]
    return [*own, *others]


def _collected(server: Server, settings: Settings) -> bool:
    """Whether the server's own metrics are collected: by a PodMonitoring, or for its autoscaler."""
    autoscaler = autoscaler_of(server, settings)
    by_them = autoscaler is not None and any(metric.metric != TPU_MEMORY for metric in autoscaler.metrics)
    return server.pod_monitoring or by_them


def job_namespaces(settings: Settings) -> list[str]:
    """Namespaces with Jobs: those of the stack's runs, and those to which others submit."""
    submitted = [local_queue.namespace for local_queue in settings.queues.local_queues] if settings.queues else []
    tenants = [tenant.name for tenant in settings.tenants]
    runs = {run.namespace for run in (*settings.training, *settings.batch)}
    return [
        namespace
        for namespace in namespaces(settings)
        if namespace in runs or namespace in tenants or namespace in submitted
    ]


def accelerators(settings: Settings) -> bool:
    """Whether the stack has GPUs or TPUs."""
    return bool(settings.gpu_pools or settings.tpu_pools or settings.compute_classes or workloads(settings))


def tpus(settings: Settings) -> bool:
    """Whether the stack has TPUs."""
    flavors = settings.queues.flavors if settings.queues else []
    return bool(settings.tpu_pools or tpu_workloads(settings)) or any(flavor.tpu is not None for flavor in flavors)


def anything(settings: Settings) -> bool:
    """Whether the stack has anything to monitor."""
    queues = bool(settings.queues and settings.queues.cluster_queues)
    return queues or bool(servers(settings) or job_namespaces(settings) or accelerators(settings))
