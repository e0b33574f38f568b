"""Pools of a cluster, and pods that wait for their nodes."""

from typing import Any

from emulator.cloud.records import ClusterRecord, PoolRecord
from emulator.nodes import objects as nodes
from gke_ai.catalog.machines.capacity import MODES
from gke_ai.catalog.machines.tpus import GOOGLE_TPU
from gke_ai.catalog.nodes.shape import GKE_ACCELERATOR, GKE_TPU_ACCELERATOR, GKE_TPU_TOPOLOGY, NVIDIA_GPU

Object = dict[str, Any]
ZONES = ["us-central1-a", "us-central1-b"]
STANDARD = ClusterRecord("c", "p", "us-central1", "standard", ZONES, "1.36.1-gke.1")
GPU_POOL = PoolRecord("gpu", "g2-standard-24", ZONES, gpu="nvidia-l4", gpus=2, max_nodes=3)
# The toleration that the admission plugin adds to a pod that requests GPUs.
GPU_TOLERATION = {"key": NVIDIA_GPU, "operator": "Exists", "effect": "NoSchedule"}


def pod(uid: str, gpus: int = 0, on: str | None = None, **spec: Any) -> Object:
    requests = {"cpu": "1", "memory": "1Gi"} | ({NVIDIA_GPU: str(gpus)} if gpus else {})
    conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    return {
        "metadata": {"uid": uid, "name": uid, "namespace": "n", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "containers": [{"name": "c", "resources": {"requests": requests}}],
            "tolerations": [GPU_TOLERATION] if gpus else [],
            **({"nodeName": on} if on else {}),
            **spec,
        },
        "status": {"phase": "Running"} if on else {"phase": "Pending", "conditions": conditions},
    }


def l4_pod(uid: str, gpus: int = 2, **spec: Any) -> Object:
    return pod(uid, gpus, nodeSelector={GKE_ACCELERATOR: "nvidia-l4"} | spec.pop("nodeSelector", {}), **spec)


def nodes_of(pool: PoolRecord, count: int, cluster: ClusterRecord = STANDARD) -> list[Object]:
    return nodes.new_nodes(cluster, pool, [], count)


MULTI_HOST = PoolRecord("multi", "ct6e-standard-4t", ZONES[:1], capacity="flexStart", max_nodes=4, topology="4x4")
TPU_TOLERATION = {"key": GOOGLE_TPU, "operator": "Exists", "effect": "NoSchedule"}


def tpu_pod(uid: str, topology: str, on: str | None = None, flex: bool = True, chips: int = 4, **spec: Any) -> Object:
    selector = {GKE_TPU_ACCELERATOR: "tpu-v6e-slice", GKE_TPU_TOPOLOGY: topology}
    selector |= MODES["flexStart"].labels if flex else {}
    tpu = pod(uid, on=on, nodeSelector=selector | spec.pop("nodeSelector", {}), tolerations=[TPU_TOLERATION], **spec)
    tpu["spec"]["containers"][0]["resources"]["requests"][GOOGLE_TPU] = str(chips)
    return tpu


QUEUED = PoolRecord("queued", "g2-standard-24", ZONES, gpu="nvidia-l4", gpus=2, capacity="queuedFlexStart", max_nodes=3)
