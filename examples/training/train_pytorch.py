"""Fine-tuning with PyTorch, FSDP and LoRA that continues where a preempted run stopped.

FSDP divides the weights among the GPUs; LoRA trains small matrices beside frozen weights. Each process saves its part
of those matrices, so a checkpoint is small and fits only the number of processes that wrote it. The frozen weights are
random here and follow from the seed; a real run loads a model.

    CHECKPOINT_DIR=/tmp/run torchrun --standalone --nproc-per-node 2 train_pytorch.py --steps 200
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
from peers import Peers

CHARACTERS = 128  # ASCII


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
        self.embedding, self.position = (nn.Embedding(rows, options.width) for rows in (CHARACTERS, options.context))
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
    options, device = arguments(), connect()
    # The same sums in the same order, so that a resumed run repeats the undisturbed one exactly.
    torch.use_deterministic_algorithms(True)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    stop = StopSignal()
    checkpoints = Checkpoints.from_environment()
    rank, processes = dist.get_rank(), dist.get_world_size()
    peers = Peers(rank, gather)
    if options.batch % processes:
        sys.exit(f"--batch is {options.batch}, which {processes} processes can't share equally.")

    torch.manual_seed(options.seed)  # every process makes the same weights; FSDP keeps its part of them
    model = LanguageModel(options).to(device)
    precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16 if device.type == "cuda" else torch.float32)
    for module in (*model.blocks, model):
        fully_shard(module, mp_policy=precision)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=options.learning_rate)

    begin = restore(checkpoints, trained, optimizer)
    text = torch.tensor(list(options.text.read_bytes())) % CHARACTERS
    started, every = time.monotonic(), options.checkpoint_every
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
        if stops or (every and (step % every == 0 or step == options.steps)):
            save(checkpoints, step, trained, optimizer, peers)
        if stops and step < options.steps:
            peers.leave()
            return EXIT_SAVED
        if step == begin + options.warmup:  # the throughput leaves out the first steps
            started = time.monotonic()
    if rank == 0:
        tokens = max(options.steps - begin - options.warmup, 0) * options.batch * options.context
        print(f"finished: {tokens / (time.monotonic() - started):.0f} tokens per second", flush=True)
    peers.leave()
    return 0


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser()
    numbers = {"steps": 200, "checkpoint-every": 50, "batch": 8, "context": 128, "seed": 0, "warmup": 5}
    for name, default in (numbers | {"layers": 2, "width": 128, "heads": 4, "rank": 8}).items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--text", type=Path, default=Path(__file__))  # it learns its own text: nothing to download
    return parser.parse_args()


def connect() -> torch.device:
    """Connects the processes by the variables that torchrun sets, and returns this process's device."""
    gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if gpu else "gloo", device_id=device if gpu else None)
    return device


def my_part(text: Tensor, options: argparse.Namespace, step: int) -> Tensor:
    """This process's part of a step's batch. The whole batch follows from seed and step alone."""
    random = torch.Generator().manual_seed(options.seed * 1_000_003 + step)
    starts = torch.randint(len(text) - options.context, (options.batch,), generator=random).tolist()
    mine = starts[dist.get_rank() :: dist.get_world_size()]
    return torch.stack([text[start : start + options.context + 1] for start in mine])


def save(
    checkpoints: Checkpoints, step: int, trained: list[Any], optimizer: torch.optim.Optimizer, peers: Peers
) -> None:
    """Every process writes its part; process 0 writes the marker once all parts are written."""
    folder = broadcast(checkpoints.begin(step) if dist.get_rank() == 0 else None)
    state = {"parameters": trained, "optimizer": [dict(optimizer.state[parameter]) for parameter in trained]}
    # tree_map reaches the tensors in lists and dictionaries: of a divided tensor, this process saves its own part.
    part = tree_map_only(DTensor, DTensor.to_local, state)
    name = f"rank-{dist.get_rank():05d}.pt"
    files = gather((name, write_file(folder, name, lambda file: torch.save(part, file))))
    if dist.get_rank() == 0:
        with peers.completing():
            checkpoints.complete(folder, dict(files), len(files))
    dist.barrier()


def restore(checkpoints: Checkpoints, trained: list[Any], optimizer: torch.optim.Optimizer) -> int:
    """Reads the newest complete checkpoint, which process 0 chooses, and returns its step; else 0."""
    newest = checkpoints.resume() if dist.get_rank() == 0 else None
    if (folder := broadcast(newest.folder if newest else None)) is None:
        return 0
    checkpoint = read_marker(folder)
    checkpoint.require_world_size(dist.get_world_size())
    part = torch.load(checkpoint.path(f"rank-{dist.get_rank():05d}.pt"), map_location="cpu", weights_only=True)
    with torch.no_grad():
        for parameter, local, moments in zip(trained, part["parameters"], part["optimizer"], strict=True):
            parameter.to_local().copy_(local)
            # Adam's moments are divided like the parameter; its count of steps is not.
            divided = {key: torch.zeros_like(parameter) for key in moments if key != "step"}
            for key, moment in divided.items():
                moment.to_local().copy_(moments[key])
            optimizer.state[parameter] = {"step": moments["step"], **divided}
    print(f"process {dist.get_rank()} resumed from step {checkpoint.step}", flush=True)
    return checkpoint.step


def gather(value: Any) -> list[Any]:
    """Returns the values of all processes, by rank."""
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def broadcast(folder: Path | None) -> Any:
    """Gives every process the folder that process 0 chose."""
    dist.broadcast_object_list(folders := [folder], src=0)
    return folders[0]


if __name__ == "__main__":
    status = main()
    dist.destroy_process_group()
    sys.exit(status)
