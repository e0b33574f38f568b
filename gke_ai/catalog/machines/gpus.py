"""Memory and compute capability of each GPU type.

Memory is what CUDA reports as the GPU's total, in GiB. Engines multiply this figure by their utilization. It is below
the figure on the data sheet: an L4 has 24 GB, `nvidia-smi` shows 23,034 MiB (22.5 GiB), and CUDA reports 22.05 GiB.
Drivers differ by up to 0.3 GiB. The table has the highest reported value, so that no model that fits is refused.

Sources:
- data sheet sizes: https://cloud.google.com/compute/docs/gpus
- nvidia-tesla-t4: https://github.com/Zheng-Chong/CatVTON/issues/133 (14.56; 14.74 is the highest reported)
- nvidia-l4: https://github.com/NVIDIA/TensorRT-LLM/issues/2398
- nvidia-tesla-a100: https://github.com/vllm-project/vllm/issues/16570 (39.38; 39.59 is the highest reported)
- nvidia-a100-80gb: https://github.com/MoonshotAI/Kimi-VL/issues/54
- nvidia-h100-80gb: https://github.com/vllm-project/vllm/pull/10511
- nvidia-h200-141gb, nvidia-b200, nvidia-rtx-pro-6000: totals in public out-of-memory messages of PyTorch
- nvidia-gb200, nvidia-gb300: 189,471 and 284,208 MiB, as `nvidia-smi` shows them in public logs
- compute capability: https://developer.nvidia.com/cuda-gpus
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    """A GPU type: `memory_gib` as CUDA reports it, and the compute capability that kernels are compiled for."""

    name: str
    memory_gib: float
    compute_capability: tuple[int, int]


GPU_TYPES: Mapping[str, Gpu] = {
    gpu.name: gpu
    for gpu in (
        Gpu("nvidia-tesla-t4", 14.74, (7, 5)),
        Gpu("nvidia-l4", 22.05, (8, 9)),
        Gpu("nvidia-tesla-a100", 39.59, (8, 0)),
        Gpu("nvidia-a100-80gb", 79.35, (8, 0)),
        Gpu("nvidia-h100-80gb", 79.22, (9, 0)),
        Gpu("nvidia-h100-mega-80gb", 79.22, (9, 0)),
        Gpu("nvidia-rtx-pro-6000", 94.97, (12, 0)),
        Gpu("nvidia-h200-141gb", 139.81, (9, 0)),
        Gpu("nvidia-b200", 178.35, (10, 0)),
        Gpu("nvidia-gb200", 185.03, (10, 0)),
        Gpu("nvidia-gb300", 277.55, (10, 3)),
    )
}
