"""What dashboards and alerts are about: the stack's servers, Jobs and accelerators."""

from __future__ import annotations

from catalog.dashboards import MonitoredServer
from catalog.metrics import METRICS
from settings.model import JetStream, Multislice, Server, Settings, TpuBatch
from settings.plan import autoscaler_of, namespaces, workloads
from settings.scaling import scaled


def servers(settings: Settings) -> list[MonitoredServer]:
    """The Deployments of servers that are to have a ready replica; those that an autoscaler scales, too, whoever made
    them."""
    own = [
        MonitoredServer(server.namespace, server.name, server.engine if _collected(server, settings) else None)
        for server in settings.serving
        if server.replicas
    ]
    others = [
        MonitoredServer(target.namespace, target.name, "jetstream")
        for autoscaler in settings.autoscaling
        if autoscaler.deployment is not None and (target := scaled(autoscaler, settings))
    ]
    return [*own, *others]


def _collected(server: Server, settings: Settings) -> bool:
    """Whether the server's own metrics are collected: it has a PodMonitoring, or is scaled by one of them."""
    autoscaler = autoscaler_of(server, settings)
    by_them = autoscaler is not None and any(METRICS[one.metric].of_server for one in autoscaler.metrics)
    return server.pod_monitoring or by_them


def job_namespaces(settings: Settings) -> list[str]:
    """Namespaces in which Jobs run: those of the stack's own, and those that others submit to."""
    submitted = [one.namespace for one in settings.queues.local_queues] if settings.queues else []
    tenants = [one.name for one in settings.tenants]
    runs = {one.namespace for one in (*settings.training, *settings.batch)}
    return [one for one in namespaces(settings) if one in runs or one in tenants or one in submitted]


def accelerators(settings: Settings) -> bool:
    """Whether the stack has GPUs or TPUs."""
    return bool(settings.gpu_pools or settings.tpu_pools or settings.compute_classes or workloads(settings))


def tpus(settings: Settings) -> bool:
    """Whether the stack has TPUs."""
    flavors = settings.queues.flavors if settings.queues else []
    users = [one for one in workloads(settings) if isinstance(one, JetStream | TpuBatch | Multislice)]
    return bool(settings.tpu_pools or users) or any(flavor.tpu is not None for flavor in flavors)


def anything(settings: Settings) -> bool:
    """Whether the stack has anything to monitor."""
    queues = bool(settings.queues and settings.queues.cluster_queues)
    return queues or bool(servers(settings) or job_namespaces(settings) or accelerators(settings))
