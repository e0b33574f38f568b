"""The target of an autoscaler, and the values that its metrics can have."""

from __future__ import annotations

from collections.abc import Mapping

from catalog.engines import ENGINES
from catalog.metrics import TPU_CONTAINERS, TPU_MEMORY, Metric, Range, metrics_of, range_of
from catalog.quantities import GI
from catalog.tpus import VERSIONS
from settings.model import AnyServer, Autoscaler, ExistingDeployment, ScaledMetric, Settings, TpuWorkload
from settings.plan import workload_slice


def server_of(autoscaler: Autoscaler, settings: Settings) -> AnyServer | None:
    """The server of this stack that is scaled, or None for an existing Deployment."""
    return next((server for server in settings.serving if server.name == autoscaler.server), None)


def scaled(autoscaler: Autoscaler, settings: Settings) -> ExistingDeployment | None:
    """The Deployment that is scaled, of this stack or an existing one; None if the server does not exist."""
    if autoscaler.deployment is not None:
        return autoscaler.deployment
    server = server_of(autoscaler, settings)
    if server is None:
        return None
    return ExistingDeployment(
        name=server.name,
        namespace=server.namespace,
        app=server.app or server.name,
        engine=server.engine,
        metrics_port=ENGINES[server.engine].metrics_port_name,
    )


def known_metrics(autoscaler: Autoscaler, settings: Settings) -> Mapping[str, Metric]:
    """Metrics by which the target can be scaled, by name. Empty for an unknown server or engine."""
    target = scaled(autoscaler, settings)
    return metrics_of(target.engine) if target is not None and target.engine in ENGINES else {}


def values(metric: ScaledMetric, autoscaler: Autoscaler, settings: Settings) -> Range:
    """Range of the metric's values on one replica."""
    slots = memory = waiting = None
    server = server_of(autoscaler, settings)
    if server is not None:
        waiting = server.accepted_limit
        try:
            slots = server.running_limit(settings.pools, settings.compute_classes)
            if isinstance(server, TpuWorkload):
                tpu_slice = workload_slice(server, settings)
                memory = tpu_slice.chips * VERSIONS[tpu_slice.version].memory_gib * GI
        except LookupError:  # other rules report the missing slice
            pass
    return range_of(metric.metric, autoscaler.adapter, slots, memory, waiting)


def tpu_containers(autoscaler: Autoscaler, settings: Settings) -> list[str]:
    """Containers whose TPU memory counts; a pod has one of them."""
    if autoscaler.tpu_container is not None:
        return [autoscaler.tpu_container]
    server = server_of(autoscaler, settings)
    return list(dict.fromkeys([*([server.container] if server else []), *TPU_CONTAINERS]))


def scaled_engines(settings: Settings) -> list[str]:
    """Engines of the servers that autoscalers scale, in the order of the configuration."""
    targets = (scaled(autoscaler, settings) for autoscaler in settings.autoscaling)
    return list(dict.fromkeys(target.engine for target in targets if target is not None))


def reads_tpu_metrics(settings: Settings) -> bool:
    """Whether an autoscaler needs the metrics of the TPU device plugin."""
    return any(metric.metric == TPU_MEMORY for autoscaler in settings.autoscaling for metric in autoscaler.metrics)
