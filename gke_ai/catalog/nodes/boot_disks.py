"""Boot disks of nodes that GKE creates by itself.

https://github.com/GoogleCloudPlatform/cluster-autoscaler, at 7d250507339b. The sizes are in
pkg/cloudprovider/gke/machinetypes/disks.go, and what a pod needs is in pkg/estimator/disk_size.go.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from fractions import Fraction

from gke_ai.catalog.machines.types import machine
from gke_ai.catalog.nodes.shape import NodeShape, free

DEFAULT_GB, MAX_GB = 100, 64 * 1024


def autopilot_disk(shape: NodeShape, storage: Fraction) -> int:
    """Returns the GB of the boot disk of a node that Autopilot creates for a pod, by its ephemeral storage in bytes.

    The smallest disk with room for it, plus a margin, but the default at least. Local SSDs replace the boot disk's
    storage. So no request is too large for a boot disk: Google's Gemma 2 27B requests 80Gi on L4
    (https://github.com/GoogleCloudPlatform/kubernetes-engine-samples, ai-ml/llm-serving-gemma/vllm/vllm-2-27b-it.yaml).
    """
    if machine(shape.machine_type).local_ssds:
        return DEFAULT_GB

    def left(disk_gb: int) -> Fraction:
        return free(replace(shape, disk_gb=disk_gb))["ephemeral-storage"]

    size = DEFAULT_GB + bisect_left(range(DEFAULT_GB, MAX_GB), storage, key=left)
    return size if size == DEFAULT_GB else size + min(size // 20, 100)
