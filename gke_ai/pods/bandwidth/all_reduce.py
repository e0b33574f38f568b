"""Measures the all-reduce of PyTorch by message size: NCCL's on GPUs, and that of `gloo` on CPUs.

    torchrun --nproc-per-node 2 all_reduce.py

The first process prints a JSON line for each size: the seconds of an all-reduce in the slowest process, the bandwidth
of the algorithm and of the bus, and whether the sums were right. Bus bandwidth is defined as in nccl-tests:
https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
A process that fails prints a line with its error, which torchrun's summary lacks. NEED_GPUS=1: without GPUs it fails.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from datetime import timedelta
from typing import Any

MIB = 2**20
SMALLEST = MIB
# The largest of NVIDIA's measurement on A3 Mega (gke_ai/catalog/fabric/bandwidth.py), or half of a GPU's memory.
LARGEST, LARGEST_WITHOUT_GPU = 2**34, 64 * MIB
# Repetitions of a size, as long as they take no longer than this: a slow network would take minutes.
WARM_UPS, TIMES, SECONDS = 5, 20, 3.0
START_SECONDS = 600


def main() -> int:
    """Measures all sizes. Returns 1 in the process that prints the lines if a sum is wrong."""
    torch: Any = importlib.import_module("torch")
    ranks: Any = importlib.import_module("torch.distributed")
    if os.environ.get("NEED_GPUS"):
        torch.cuda.init()  # its error says why there are none
    on_gpus: bool = torch.cuda.is_available()
    if on_gpus and (found := torch.cuda.device_count()) < (needed := int(os.environ["LOCAL_WORLD_SIZE"])):
        raise RuntimeError(f"PyTorch sees {found} of {needed} GPUs")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpus else torch.device("cpu")
    if on_gpus:
        torch.cuda.set_device(device)
    ranks.init_process_group("nccl" if on_gpus else "gloo", timeout=timedelta(seconds=START_SECONDS))
    count, nodes = ranks.get_world_size(), ranks.get_world_size() // int(os.environ["LOCAL_WORLD_SIZE"])
    total = torch.cuda.get_device_properties(device).total_memory if on_gpus else 2 * LARGEST_WITHOUT_GPU
    about = {
        "backend": ranks.get_backend(),
        "device": torch.cuda.get_device_name(device) if on_gpus else "cpu",
        "library": ".".join(map(str, torch.cuda.nccl.version())) if on_gpus else torch.__version__,
        "nodes": nodes,
        "ranks": count,
        "path": "between nodes" if nodes > 1 else "inside one node",
    }
    # The same largest size everywhere, also if machines differ.
    largest = torch.tensor([min(LARGEST, total // 2)], dtype=torch.int64, device=device)
    ranks.all_reduce(largest, op=ranks.ReduceOp.MIN)
    size, right = SMALLEST, True
    while size <= int(largest.item()):
        buffer = torch.full((size // 4,), ranks.get_rank() + 1.0, dtype=torch.float32, device=device)
        ranks.all_reduce(buffer)  # NCCL connects at the first use of an algorithm
        finish(torch, ranks, on_gpus)
        start = time.perf_counter()
        ranks.all_reduce(buffer)
        finish(torch, ranks, on_gpus)
        # All processes repeat it as often: as the slowest one can in the time for a size.
        first = torch.tensor([time.perf_counter() - start], dtype=torch.float64, device=device)
        ranks.all_reduce(first, op=ranks.ReduceOp.MAX)
        times = max(2, min(TIMES, int(SECONDS / max(float(first.item()), 1e-9))))
        for _ in range(min(WARM_UPS, times - 2)):
            ranks.all_reduce(buffer)
        finish(torch, ranks, on_gpus)
        start = time.perf_counter()
        for _ in range(times):
            ranks.all_reduce(buffer)
        if on_gpus:
            torch.cuda.synchronize()
        spent = torch.tensor([(time.perf_counter() - start) / times], dtype=torch.float64, device=device)
        ranks.all_reduce(spent, op=ranks.ReduceOp.MAX)
        buffer.fill_(ranks.get_rank() + 1.0)
        ranks.all_reduce(buffer)
        expected = count * (count + 1) / 2
        wrong = torch.tensor([int(not bool((buffer == expected).all()))], dtype=torch.int64, device=device)
        ranks.all_reduce(wrong)
        del buffer
        seconds = float(spent.item())
        right = right and not int(wrong.item())
        line = {
            "bytes": size,
            "seconds": seconds,
            "algorithm_gb_per_s": round(size / seconds / 1e9, 3),
            "bus_gb_per_s": round(size / seconds / 1e9 * 2 * (count - 1) / count, 3),
            "correct": not int(wrong.item()),
        }
        if ranks.get_rank() == 0:
            print(f"{json.dumps({**about, **line})}\n", end="", flush=True)
        size *= 2
    # If the pod of another process failed first, Kubernetes would delete the one whose log has the lines.
    ranks.destroy_process_group()
    return 0 if right or os.environ["RANK"] != "0" else 1


def finish(torch: Any, ranks: Any, on_gpus: bool) -> None:
    """Waits until all processes have done what was asked of them."""
    if on_gpus:
        torch.cuda.synchronize()
    ranks.barrier()
    if on_gpus:
        torch.cuda.synchronize()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception as error:
        line = json.dumps({"error": f"{type(error).__name__}: {error}", "host": os.uname().nodename})
        print(f"\n{line}\n", end="", flush=True)  # in one write, because others write to the same log
        raise
