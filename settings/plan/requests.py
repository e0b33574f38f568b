"""Resource requests of a workload's pods, and how many must run at the same time."""

from __future__ import annotations

from fractions import Fraction

from catalog.engines import JETSTREAM_HTTP_REQUEST
from catalog.nodes import NVIDIA_GPU
from catalog.quantities import parse_quantity
from catalog.tpus import GOOGLE_TPU
from settings.model import (
    FineTune,
    GpuServer,
    JetStream,
    Multislice,
    Server,
    Settings,
    TpuBatch,
    TrainingRun,
    Workload,
)
from settings.plan.placement import workload_slice

# Default requests of the sidecar, set by the webhook of the FUSE driver:
# https://cloud.google.com/kubernetes-engine/docs/how-to/cloud-storage-fuse-csi-driver-sidecar
_SIDECAR_DEFAULTS = {"cpu": "250m", "memory": "256Mi", "ephemeral-storage": "5Gi"}


def accelerators(workload: Workload, settings: Settings) -> tuple[str, int]:
    """Accelerator resource of one pod of the workload, and its number."""
    match workload:
        case GpuServer():
            return NVIDIA_GPU, workload.gpus
        case FineTune() | TrainingRun():
            return NVIDIA_GPU, workload.gpus_per_pod
        case JetStream() | TpuBatch() | Multislice():
            return GOOGLE_TPU, workload_slice(workload, settings).chips_per_host
    raise TypeError(type(workload).__name__)


def pod_request(workload: Workload, settings: Settings) -> dict[str, Fraction]:
    """Requests of one pod's containers by resource, which Kueue counts."""
    stated = {
        "cpu": workload.resources.cpu,
        "memory": workload.resources.memory,
        "ephemeral-storage": workload.resources.ephemeral_storage,
    }
    request = {resource: parse_quantity(text) for resource, text in stated.items() if text is not None}
    if isinstance(workload, JetStream):  # plus the container that translates HTTP to gRPC
        for resource in request.keys() & JETSTREAM_HTTP_REQUEST.keys():
            request[resource] += parse_quantity(JETSTREAM_HTTP_REQUEST[resource])
    resource, count = accelerators(workload, settings)
    request[resource] = Fraction(count)
    return request


def node_request(workload: Workload, settings: Settings) -> dict[str, Fraction]:
    """Requests of one pod on its node: those of its containers, and of the FUSE sidecar if it mounts a bucket."""
    request = pod_request(workload, settings)
    if (stated := workload.sidecar) is not None:
        sidecar = dict(_SIDECAR_DEFAULTS)
        sidecar["cpu"] = stated.cpu or sidecar["cpu"]
        sidecar["memory"] = stated.memory or sidecar["memory"]
        for resource, text in sidecar.items():
            request[resource] = request.get(resource, Fraction(0)) + parse_quantity(text)
    return request


def pods_at_once(workload: Workload, settings: Settings) -> int:
    """Pods that must run at the same time: all pods of a Job, one pod of a server."""
    match workload:
        case FineTune() | TrainingRun():
            return workload.pods
        case TpuBatch():
            return workload_slice(workload, settings).hosts
        case Multislice():
            return workload_slice(workload, settings).hosts * workload.slices
        case Server():
            return min(workload.replicas, 1)
    raise TypeError(type(workload).__name__)
