"""Published floors of all-reduce between nodes: what the largest message should reach.

Only A3 Mega has one. For A3 Ultra, A4, A4X and A4X Max, NVIDIA states none until a measurement exists (recipes/overlays
of https://github.com/NVIDIA/aicr, `b200-gke-cos-training.yaml` and `gb300-gke-cos-training.yaml`). Cluster Toolkit's
daily tests of A3 High, A3 Ultra and A4 bound the average of an all-gather over all sizes, which is another figure:
https://github.com/GoogleCloudPlatform/cluster-toolkit/tree/develop/tools/cloud-build/daily-tests
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Floor:
    """Bus bandwidth that an all-reduce of the largest message should reach, in GB/s.

    `bytes` is the size of that message, and `tolerance` the share by which the source lets a result be lower.
    """

    gb_per_s: float
    bytes: int
    tolerance: float
    source: str

    @property
    def accepted(self) -> float:
        """The lowest accepted figure, in GB/s."""
        return self.gb_per_s * (1 - self.tolerance)


FLOORS: Mapping[str, Floor] = {
    # By GPUDirect-TCPXO. demos/cuj1-gke.md there expects about 340 GB/s at 16 GB, and about 4 without TCPXO. The
    # tolerance is that of validators/performance/nccl_all_reduce_bw_constraint.go.
    "a3-megagpu-8g": Floor(
        250, 2**34, 0.1, "https://github.com/NVIDIA/aicr/blob/bc05c6be7859/recipes/overlays/h100-gke-cos-training.yaml"
    )
}
