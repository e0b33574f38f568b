"""Names of Compute Engine's accelerator quotas, which are per project and region.

Source: https://cloud.google.com/compute/docs/reference/rest/v1/regions/get (metrics),
https://cloud.google.com/compute/resource-usage#gpu_quota, https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus
(TPUs in GKE use Compute Engine's quota). Newer generations (H100 on demand and later, v5p, v6e, tpu7x) have one quota
per family instead, in Cloud Quotas: https://cloud.google.com/compute/resource-usage#gpus_per_gpu_family
"""

from __future__ import annotations

from collections.abc import Mapping

# All GPUs of the project in all regions; a quota of the project, not of a region.
GPUS_ALL_REGIONS = "GPUS_ALL_REGIONS"
# By GPU type or TPU version. The unit for TPUs is a chip.
ON_DEMAND: Mapping[str, str] = {
    "nvidia-l4": "NVIDIA_L4_GPUS",
    "nvidia-tesla-t4": "NVIDIA_T4_GPUS",
    "nvidia-tesla-a100": "NVIDIA_A100_GPUS",
    "nvidia-a100-80gb": "NVIDIA_A100_80GB_GPUS",
    "v5e": "TPU_LITE_PODSLICE_V5",
    "v4": "TPU_PODSLICE_V4",
}
# Quota for Spot and flex-start: https://cloud.google.com/kubernetes-engine/docs/concepts/dws#quota
PREEMPTIBLE: Mapping[str, str] = {
    **{accelerator: f"PREEMPTIBLE_{metric}" for accelerator, metric in ON_DEMAND.items()},
    "nvidia-h100-80gb": "PREEMPTIBLE_NVIDIA_H100_GPUS",
}


def metric(accelerator: str, capacity: str) -> str | None:
    """Returns the regional quota for these accelerators; None if their family has one quota instead."""
    return (ON_DEMAND if capacity == "onDemand" else PREEMPTIBLE).get(accelerator)
