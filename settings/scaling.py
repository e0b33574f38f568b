"""What follows from an autoscaler and the rest of a stack: what it scales, and which values its metrics can have."""

from __future__ import annotations

from catalog.metrics import TPU_CONTAINERS, TPU_MEMORY, Range, range_of
from catalog.quantities import GI
from catalog.tpus import VERSIONS
from settings.model import Autoscaler, ExistingDeployment, JetStream, ScaledMetric, Settings
from settings.plan import workload_slice


def server_of(autoscaler: Autoscaler, settings: Settings) -> JetStream | None:
    """The JetStream server of this stack that is scaled; none where it is an existing Deployment."""
    servers = (one for one in settings.serving if isinstance(one, JetStream))
    return next((one for one in servers if one.name == autoscaler.server), None)


def scaled(autoscaler: Autoscaler, settings: Settings) -> ExistingDeployment | None:
    """The Deployment that is scaled, whoever made it; none where the autoscaler names none that there is."""
    if autoscaler.deployment is not None:
        return autoscaler.deployment
    server = server_of(autoscaler, settings)
    if server is None:
        return None
    return ExistingDeployment(name=server.name, namespace=server.namespace, app=server.app or server.name)


def values(metric: ScaledMetric, autoscaler: Autoscaler, settings: Settings) -> Range:
    """The values that the metric can have on one replica."""
    slots = memory = None
    server = server_of(autoscaler, settings)
    if server is not None:
        try:
            tpu_slice = workload_slice(server, settings)
        except LookupError:  # other rules say what is wrong with the server's slice
            pass
        else:
            slots = server.batch_size * tpu_slice.chips
            memory = tpu_slice.chips * VERSIONS[tpu_slice.version].memory_gib * GI
    return range_of(metric.metric, autoscaler.adapter, slots, memory)


def tpu_containers(autoscaler: Autoscaler, settings: Settings) -> list[str]:
    """The containers one of which the TPUs' memory is said to be of."""
    if autoscaler.tpu_container is not None:
        return [autoscaler.tpu_container]
    server = server_of(autoscaler, settings)
    return list(dict.fromkeys([*([server.container] if server else []), *TPU_CONTAINERS]))


def reads_tpu_metrics(settings: Settings) -> bool:
    """Whether an autoscaler needs the metrics of the TPU device plugin."""
    return any(one.metric == TPU_MEMORY for autoscaler in settings.autoscaling for one in autoscaler.metrics)
