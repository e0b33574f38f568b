"""Fine-tuning with PyTorch, FSDP and LoRA that continues where a preempted run stopped.

FSDP divides the weights among the GPUs; LoRA trains small matrices beside frozen weights. Each process saves its part of
those matrices, so a checkpoint is small and fits only the number of processes that wrote it.

    CHECKPOINT_DIR=/tmp/run torchrun --standalone --nproc-per-node 2 train_pytorch.py --steps 200

Without a GPU it runs on the CPU. The frozen weights are random and depend on the seed; a real run would load a model.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_map_only

from checkpoints import EXIT_SAVED, Checkpoints, StopSignal, read_marker, write_file

CHARACTERS = 128  # ASCII
PART = "rank-{:05d}.pt"  # a process's file in a checkpoint


class LoraLinear(nn.Module):
    """A frozen linear layer, and the product of two small matrices that is trained."""

    def __init__(self, inputs: int, outputs: int, rank: int) -> None:
        super().__init__()
        self.frozen = nn.Linear(inputs, outputs, bias=False).requires_grad_(False)
        self.down = nn.Linear(inputs, rank, bias=False)
        self.up = nn.Linear(rank, outputs, bias=False)
        nn.init.zeros_(self.up.weight)  # so that training begins at the frozen model

    def forward(self, x: Tensor) -> Tensor:
        return self.frozen(x) + self.up(self.down(x))


class Block(nn.Module):
    """A layer of the transformer."""

    def __init__(self, width: int, heads: int, rank: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention, self.project = LoraLinear(width, 3 * width, rank), LoraLinear(width, width, rank)
        self.widen, self.narrow = LoraLinear(width, 4 * width, rank), LoraLinear(4 * width, width, rank)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.attention(self.norm1(x)).view(batch, length, 3 * self.heads, -1).transpose(1, 2).chunk(3, 1)
        mixed = F.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2).reshape(batch, length, width)
        x = x + self.project(mixed)
        return x + self.narrow(F.gelu(self.widen(self.norm2(x))))


class LanguageModel(nn.Module):
    """A causal language model over characters. Only its LoRA matrices are trained."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        self.embedding = nn.Embedding(CHARACTERS, options.width)
        self.position = nn.Embedding(options.context, options.width)
        self.blocks = nn.ModuleList(Block(options.width, options.heads, options.rank) for _ in range(options.layers))
        self.output = nn.Linear(options.width, CHARACTERS, bias=False)
        for name, parameter in self.named_parameters():
            parameter.requires_grad_(".up." in name or ".down." in name)

    def forward(self, text: Tensor) -> Tensor:
        x = self.embedding(text[:, :-1]) + self.position.weight
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.output(x).flatten(0, 1).float(), text[:, 1:].flatten())


def main() -> int:
    """Trains, and returns the exit status."""
    options = arguments()
    device = connect()
    # The same sums in the same order, so that a resumed run repeats the undisturbed one exactly.
    torch.use_deterministic_algorithms(True)
    stop = StopSignal()
    checkpoints = Checkpoints.from_environment()
    rank, processes = dist.get_rank(), dist.get_world_size()
    if options.batch % processes:
        sys.exit(f"--batch is {options.batch}, which {processes} processes can't share equally.")

    torch.manual_seed(options.seed)  # every process makes the same weights; FSDP keeps its part of them
    model = LanguageModel(options).to(device)
    precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16 if device.type == "cuda" else torch.float32)
    for block in model.blocks:
        fully_shard(block, mp_policy=precision)
    fully_shard(model, mp_policy=precision)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=options.learning_rate)

    begin = restore(checkpoints, trained, optimizer)
    text = torch.frombuffer(bytearray(options.text.read_bytes()), dtype=torch.uint8) % CHARACTERS
    started, saving = time.monotonic(), 0.0
    for step in range(begin + 1, options.steps + 1):
        loss = model(my_part(text, options, step).to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        # Loss and stop request of all processes in one exchange: all stop after the same step, and save together.
        summary = torch.stack([loss.detach(), torch.tensor(float(stop.received), device=device)])
        dist.all_reduce(summary)
        total, stops = summary.tolist()
        if rank == 0:  # repr keeps every digit, so that two runs can be compared exactly
            print(f"step {step} loss {total / processes!r}", flush=True)
        last, before = step == options.steps, time.monotonic()
        if (every := options.checkpoint_every) and (stops or last or step % every == 0):
            save(checkpoints, step, trained, optimizer)
            saving += time.monotonic() - before
        if stops and not last:
            return EXIT_SAVED
        if step == begin + options.warmup:  # the throughput leaves out the first steps
            started, saving = time.monotonic(), 0.0
    seconds = time.monotonic() - started
    tokens = (options.steps - begin - options.warmup) * options.batch * options.context
    if rank == 0:
        print(f"finished: {tokens / seconds:.0f} tokens per second, {saving:.2f} of {seconds:.2f} s saving", flush=True)
    return 0


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    numbers = {"steps": 200, "checkpoint-every": 50, "batch": 8, "context": 128, "seed": 0, "warmup": 5}
    model = {"layers": 2, "width": 128, "heads": 4, "rank": 8}  # the rank is that of LoRA's matrices
    for name, default in (numbers | model).items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    # This program is its own data, so that nothing has to be downloaded.
    parser.add_argument("--text", type=Path, default=Path(__file__), help="text to learn")
    return parser.parse_args()


def connect() -> torch.device:
    """Connects the processes by the variables that torchrun sets, and returns this process's device."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic matrix products need it
    if not torch.cuda.is_available():
        dist.init_process_group("gloo")
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    return device


def my_part(text: Tensor, options: argparse.Namespace, step: int) -> Tensor:
    """This process's part of a step's batch. The whole batch follows from seed and step alone."""
    random = torch.Generator().manual_seed(options.seed * 1_000_003 + step)
    starts = torch.randint(len(text) - options.context, (options.batch,), generator=random).tolist()
    mine = starts[dist.get_rank() :: dist.get_world_size()]
    return torch.stack([text[start : start + options.context + 1] for start in mine]).long()


def save(checkpoints: Checkpoints, step: int, trained: list[Any], optimizer: torch.optim.Optimizer) -> None:
    """Every process writes its part; process 0 writes the marker once all parts are written."""
    rank, processes = dist.get_rank(), dist.get_world_size()
    folder = broadcast(checkpoints.begin(step) if rank == 0 else None)
    moments = [dict(optimizer.state[parameter]) for parameter in trained]
    # tree_map reaches the tensors in lists and dictionaries: of a divided tensor, this process saves its own part.
    part = tree_map_only(DTensor, DTensor.to_local, {"parameters": trained, "optimizer": moments})
    written: list[Any] = [None] * processes
    name = PART.format(rank)
    dist.all_gather_object(written, (name, write_file(folder, name, lambda file: torch.save(part, file))))
    if rank == 0:
        checkpoints.complete(folder, dict(written), processes)
    dist.barrier()


def restore(checkpoints: Checkpoints, trained: list[Any], optimizer: torch.optim.Optimizer) -> int:
    """Reads the newest complete checkpoint, which process 0 chooses, and returns its step; else 0."""
    newest = None
    if dist.get_rank() == 0:
        checkpoints.start_writing()
        newest = checkpoints.newest()
    if (folder := broadcast(newest and newest.folder)) is None:
        return 0
    checkpoint = read_marker(folder)
    checkpoint.require_world_size(dist.get_world_size())
    part = torch.load(checkpoint.path(PART.format(dist.get_rank())), map_location=trained[0].device, weights_only=True)
    with torch.no_grad():
        for parameter, local, moments in zip(trained, part["parameters"], part["optimizer"], strict=True):
            parameter.to_local().copy_(local)
            optimizer.state[parameter] = {key: like(parameter, value) for key, value in moments.items()}
    if dist.get_rank() == 0:
        print(f"resumed from step {checkpoint.step}", flush=True)
    return checkpoint.step


def broadcast(folder: Path | None) -> Any:
    """Gives every process the folder that process 0 chose."""
    dist.broadcast_object_list(folders := [folder], src=0)
    return folders[0]


def like(parameter: Any, local: Tensor) -> Tensor:
    """A tensor that is divided like the parameter, made of the parts. Adam's count of steps is not divided."""
    if local.dim() == 0:
        return local
    shape = {"shape": parameter.shape, "stride": parameter.stride()}
    return DTensor.from_local(local, parameter.device_mesh, parameter.placements, run_check=False, **shape)


if __name__ == "__main__":
    status = main()
    dist.destroy_process_group()
    sys.exit(status)
