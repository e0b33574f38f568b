"""Checks on GPUs that train_pytorch.py keeps the checkpoint contract, and measures its throughput.

    python gpu_check.py --gpus 2 --json result.json
    python gpu_check.py --jax

Each run is a real torchrun: one undisturbed, one with SIGTERM in mid-step, one with SIGKILL in mid-save, and one in
which a process of several dies in mid-step. Those that are killed resume. Every loss and the last checkpoint must then
be those of the undisturbed run, bit for bit. Then it measures the throughput, and the time of a save to a local
directory, which is not a bucket: the time between the losses before and after the save, less that of a step. Takes up
to eight minutes. `--cpu` needs no GPU. `--jax` checks train_jax.py, in one process with all GPUs, and measures nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Container
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from checkpoints import is_complete, newest_first, read_marker, step_of

HERE = Path(__file__).resolve().parent
PROGRAM, JAX_PROGRAM, KILLER = (str(HERE / f"{name}.py") for name in ("train_pytorch", "train_jax", "kill_in_save"))
# torchrun waits 30 s for the processes that are left before it kills them.
SECONDS_AFTER_A_DEATH = 10


@dataclass(frozen=True)
class Size:
    """A model, and the steps of the runs."""

    model: dict[str, int]
    steps: int
    every: int
    """Steps between two checkpoints."""
    program: str = PROGRAM

    def command(self, every: int) -> list[str]:
        """The program with its arguments."""
        arguments = self.model | {"steps": self.steps, "checkpoint-every": every}
        return [self.program, *(text for name, value in arguments.items() for text in (f"--{name}", str(value)))]

    @property
    def tokens(self) -> int:
        """Tokens of a step, of all processes together."""
        return self.model["batch"] * self.model["context"]


# Short runs for the checks: 150 million frozen and 13 million trained parameters. The throughput is measured on a model
# whose steps are more work for the GPU.
GPU = Size({"layers": 12, "width": 1024, "heads": 16, "rank": 64, "context": 1024, "batch": 16}, 120, 40)
MEASURED = Size({"layers": 12, "width": 2048, "heads": 16, "rank": 64, "context": 1024, "batch": 32}, 100, 25)
CPU = Size({"layers": 2, "width": 64, "heads": 4, "rank": 8, "context": 64, "batch": 8}, 60, 20)
JAX = Size({"width": 16384, "batch": 8192}, 240, 80, JAX_PROGRAM)
JAX_CPU = Size({"width": 1024, "batch": 128}, 240, 80, JAX_PROGRAM)


@dataclass
class Run:
    """What a run printed, and how it ended."""

    status: int
    losses: dict[int, str]
    resumed_from: int | None
    printed: dict[int, float] = field(repr=False)
    """When each step's loss was printed, in seconds."""
    ended: float
    seconds: float
    output: str = field(repr=False)

    def step_seconds(self, after: Container[int], warmup: int = 10) -> float | None:
        """Median time from the loss of one of these steps to the next loss, without the first steps."""
        times = [
            self.printed[step + 1] - self.printed[step]
            for step in self.printed
            if step > warmup and step in after and step + 1 in self.printed
        ]
        return statistics.median(times) if times else None


def main() -> int:
    """Runs everything, prints a table, and returns 0 if every check passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=1, help="number of processes, each with a GPU")
    parser.add_argument("--jax", action="store_true", help="check train_jax.py")
    parser.add_argument("--cpu", action="store_true", help="use the CPU and a small model")
    parser.add_argument("--repetitions", type=int, default=3, help="measurements of the throughput")
    parser.add_argument("--seconds", type=float, default=440, help="begin no measurement after this time")
    parser.add_argument("--json", type=Path, help="file for the results")
    options = parser.parse_args()
    began = time.monotonic()
    work = Path(tempfile.mkdtemp(prefix="gpu-check-"))
    size, measured = (CPU, CPU) if options.cpu else (GPU, MEASURED)
    if options.jax:
        size = JAX_CPU if options.cpu else JAX
    training, killed_after, killed_save = size.command(size.every), size.every + 7, 2 * size.every

    def run(directory: str, command: list[str], disturb: Callable[[Any, str], None] | None = None) -> Run:
        processes = 0 if options.jax else options.gpus
        result = launch(work / directory, processes, command, disturb, options.cpu)
        print(f"  {directory}: status {result.status} after {result.seconds:.0f} s", flush=True)
        return result

    print("Checks", flush=True)
    undisturbed = run("undisturbed", training)
    terminated = run("sigterm", training, sigterm_after(killed_after))
    saved = [step_of(folder) for folder in newest_first(work / "sigterm")]
    after_sigterm = run("sigterm", training)
    killed = run("sigkill", [KILLER, str(killed_save), *training], sigkill_with_its_save(work / "sigkill"))
    left = {step_of(folder): is_complete(folder) for folder in newest_first(work / "sigkill")}
    after_sigkill = run("sigkill", training)
    runs = [undisturbed, terminated, after_sigterm, killed, after_sigkill]
    checks = {
        "undisturbed: ends with status 0 and has a loss for every step": undisturbed.status == 0
        and sorted(undisturbed.losses) == list(range(1, size.steps + 1)),
        "SIGTERM in mid-step: ends early, and not with status 0": terminated.status != 0
        and killed_after < max(terminated.losses, default=0) < size.steps,
        "SIGTERM in mid-step: the last step is saved": saved[:1] == [max(terminated.losses, default=0)],
        "SIGTERM in mid-step: resumes from it and ends with status 0": after_sigterm.status == 0
        and [after_sigterm.resumed_from] == saved[:1],
        "SIGTERM in mid-step: every loss is that of the undisturbed run": terminated.losses | after_sigterm.losses
        == undisturbed.losses,
        "SIGKILL in mid-save: leaves an incomplete checkpoint beside a complete one": killed.status != 0
        and left == {killed_save: False, size.every: True},
        "SIGKILL in mid-save: resumes from the complete one and ends with status 0": after_sigkill.status == 0
        and after_sigkill.resumed_from == size.every,
        "SIGKILL in mid-save: every loss is that of the undisturbed run, also of repeated steps": (
            killed.losses.items() <= undisturbed.losses.items()
            and after_sigkill.losses.items() <= undisturbed.losses.items()
            and killed.losses.keys() | after_sigkill.losses.keys() == undisturbed.losses.keys()
        ),
    }
    if not options.jax and options.gpus > 1:
        died = run("death", training, sigkill_last_process_after(killed_after, work / "death", options.gpus))
        after_death = run("death", training)
        runs += [died, after_death]
        idle = died.ended - max(died.printed.values(), default=0.0)
        print(f"  The others end {idle:.1f} s after a process dies", flush=True)
        checks |= {
            f"a process dies: the others end within {SECONDS_AFTER_A_DEATH} s": died.status != 0
            and idle < SECONDS_AFTER_A_DEATH,
            "a process dies: the run resumes, and every loss is that of the undisturbed run": (
                after_death.status == 0 and died.losses | after_death.losses == undisturbed.losses
            ),
        }
    last = {run.name: [folder for folder in newest_first(run)[:1] if is_complete(folder)] for run in work.iterdir()}
    files = {name: [dict(read_marker(folder).files) for folder in folders] for name, folders in last.items()}
    checks["the last checkpoint of each run is that of the undisturbed run"] = all(
        of_run and of_run == files["undisturbed"] for of_run in files.values()
    )
    for check, passed in checks.items():
        print(f"  {'pass' if passed else 'FAIL'}  {check}", flush=True)
    if not all(checks.values()):
        for run_shown in runs:
            print(f"--- status {run_shown.status}\n{run_shown.output[-2000:]}", flush=True)

    if options.jax:
        shutil.rmtree(work)
        return 0 if all(checks.values()) else 1

    print("Throughput", flush=True)
    results: list[dict[str, float]] = []
    saves = range(measured.every, measured.steps, measured.every)
    others = [step for step in range(1, measured.steps) if step not in saves]
    for number in range(options.repetitions):
        if time.monotonic() - began < options.seconds:
            speed = run(f"speed-{number}", measured.command(measured.every))
            step, with_save = speed.step_seconds(others), speed.step_seconds(saves)
            if step and with_save:
                results.append({"tokens_per_second": measured.tokens / step, "save_seconds": with_save - step})
    newest = newest_first(work / "speed-0") if results else []
    megabytes = sum(about["bytes"] for folder in newest[:1] for about in read_marker(folder).files.values()) / 1e6
    print(f"\nProcesses: {options.gpus}. Machine: {machine()}. Size of a checkpoint: {megabytes:.1f} MB.\n")
    print("| repetition | tokens per second | a save takes | so every 1,000 steps slow the run by |")
    print("| --- | --- | --- | --- |")
    for number, result in enumerate(results, 1):
        share = result["save_seconds"] * result["tokens_per_second"] / measured.tokens / 1000
        print(f"| {number} | {result['tokens_per_second']:,.0f} | {result['save_seconds']:.2f} s | {share:.2%} |")
    print(f"\n{sum(checks.values())} of {len(checks)} checks passed, in {time.monotonic() - began:.0f} s.")
    if options.json:
        about = {"processes": options.gpus, "machine": machine(), "checked": asdict(size), "measured": asdict(measured)}
        about |= {"checks": checks, "throughput": results, "megabytes": megabytes, "losses": undisturbed.losses}
        options.json.write_text(json.dumps(about, indent=1))
    shutil.rmtree(work)
    return 0 if all(checks.values()) else 1


def launch(
    directory: Path, processes: int, command: list[str], disturb: Callable[[Any, str], None] | None, cpu: bool
) -> Run:
    """Runs a program, and calls `disturb` with its first process and each line that it prints.

    With processes it is one of PyTorch, which torchrun starts.
    """
    environment = os.environ | {"CHECKPOINT_DIR": str(directory), "PYTHONPATH": str(HERE), "PYTHONUNBUFFERED": "1"}
    environment |= {"OMP_NUM_THREADS": "1", **({"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"} if cpu else {})}
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    launcher = [sys.executable, *(torchrun if processes else [])]
    began, lines, printed = time.monotonic(), [], {}
    with subprocess.Popen(
        [*launcher, *command], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout
        limit = threading.Timer(150, kill, (process, directory))
        limit.start()
        for line in process.stdout:
            lines.append(line)
            if step := re.match(r"step (\d+) ", line):
                printed[int(step[1])] = time.monotonic()
            if disturb:
                disturb(process, line)
        limit.cancel()
    ended = time.monotonic()
    output = "".join(lines)
    resumed = re.search(r"resumed from step (\d+)", output)
    return Run(
        process.returncode,
        {int(step): loss for step, loss in re.findall(r"^step (\d+) loss (\S+)$", output, re.M)},
        int(resumed[1]) if resumed else None,
        printed,
        ended,
        ended - began,
        output,
    )


def sigterm_after(step: int) -> Callable[[Any, str], None]:
    """Sends SIGTERM to torchrun in the step after this one, as the kubelet does with a container's first process."""

    def disturb(process: Any, line: str) -> None:
        if line.startswith(f"step {step} "):
            process.send_signal(signal.SIGTERM)

    return disturb


def sigkill_with_its_save(directory: Path) -> Callable[[Any, str], None]:
    """Kills torchrun and its processes once one was killed in its save, as a node's loss kills all of a pod."""

    def disturb(process: Any, line: str) -> None:
        if line.startswith("killed while"):
            kill(process, directory)

    return disturb


def sigkill_last_process_after(step: int, directory: Path, processes: int) -> Callable[[Any, str], None]:
    """Kills the last process of the run in the step after this one, as the kernel does if memory is short."""

    def disturb(_: Any, line: str) -> None:
        if line.startswith(f"step {step} "):
            kill_processes(f"CHECKPOINT_DIR={directory}", f"RANK={processes - 1}")

    return disturb


def kill(process: Any, directory: Path) -> None:
    """Kills torchrun and every process that it started for this run."""
    process.kill()
    kill_processes(f"CHECKPOINT_DIR={directory}")


def kill_processes(*variables: str) -> None:
    """Kills the processes that have all of these variables."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if {variable.encode() for variable in variables} <= set((entry / "environ").read_bytes().split(b"\0")):
                os.kill(int(entry.name), signal.SIGKILL)
        except OSError:
            continue  # it ended, or belongs to somebody else


def machine() -> str:
    """The GPU and the version of PyTorch."""
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    return f"{device}, PyTorch {torch.__version__}"


if __name__ == "__main__":
    sys.exit(main())
