"""The target of an autoscaler, and the values that its metrics can have."""

from __future__ import annotations

from catalog.metrics import TPU_CONTAINERS, TPU_MEMORY, Range, range_of
from catalog.quantities import GI
from catalog.tpus import VERSIONS
from settings.model import Autoscaler, ExistingDeployment, JetStream, ScaledMetric, Settings
from settings.plan import jetstreams, workload_slice


def server_of(autoscaler: Autoscaler, settings: Settings) -> JetStream | None:
    """The JetStream server of this stack that is scaled, or None for an existing Deployment."""
    return next((server for server in jetstreams(settings) if server.name == autoscaler.server), None)


def scaled(autoscaler: Autoscaler, settings: Settings) -> ExistingDeployment | None:
    """The Deployment that is scaled, of this stack or an existing one; None if the server does not exist."""
    if autoscaler.deployment is not None:
        return autoscaler.deployment
    server = server_of(autoscaler, settings)
    if server is None:
        return None
    return ExistingDeployment(name=server.name, namespace=server.namespace, app=server.app or server.name)


def values(metric: ScaledMetric, autoscaler: Autoscaler, settings: Settings) -> Range:
    """Range of the metric's values on one replica."""
    slots = memory = None
    server = server_of(autoscaler, settings)
    if server is not None:
        try:
            tpu_slice = workload_slice(server, settings)
        except LookupError:  # other rules report the missing slice
            pass
        else:
            slots = server.batch_size * tpu_slice.chips
            memory = tpu_slice.chips * VERSIONS[tpu_slice.version].memory_gib * GI
    return range_of(metric.metric, autoscaler.adapter, slots, memory)


def tpu_containers(autoscaler: Autoscaler, settings: Settings) -> list[str]:
    """Containers whose TPU memory counts; a pod has one of them."""
    if autoscaler.tpu_container is not None:
        return [autoscaler.tpu_container]
    server = server_of(autoscaler, settings)
    return list(dict.fromkeys([*([server.container] if server else []), *TPU_CONTAINERS]))


def reads_tpu_metrics(settings: Settings) -> bool:
    """Whether an autoscaler needs the metrics of the TPU device plugin."""
    return any(metric.metric == TPU_MEMORY for autoscaler in settings.autoscaling for metric in autoscaler.metrics)
