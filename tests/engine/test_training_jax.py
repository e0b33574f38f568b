"""examples/training/train_jax.py, killed in mid-step and in mid-save, ends exactly like a run that nobody disturbed.

Every run consists of two processes that exchange gradients over gloo, on the CPU.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

import checkpoints
from checkpoints import EXIT_SAVED, is_complete, newest_first, step_of
from tests.support.repository import ROOT

FOLDER = Path(checkpoints.__file__).parent
PROGRAM, KILLER = str(FOLDER / "train_jax.py"), str(FOLDER / "kill_in_save.py")
STEPS, EVERY = 40, 10
SECONDS = 180  # for a run, on a busy machine

pytestmark = pytest.mark.slow


@dataclass
class Run:
    """The losses that process 0 printed, with all digits, and how the processes ended."""

    losses: dict[int, str]
    statuses: list[int]
    output: str

    @property
    def resumed_from(self) -> list[int]:
        return [int(step) for step in re.findall(r"resumed from step (\d+)", self.output)]


Processes = list["subprocess.Popen[str]"]


def train(
    directory: Path,
    disturb: Callable[[str, Processes], None] = lambda *_: None,
    first: list[str] | None = None,
    count: int = 2,
    steps: int = STEPS,
    size: Sequence[str] = (),
) -> Run:
    """Runs the program, and calls `disturb` with each line of process 0 and with the processes.

    `first` is the command of process 0, `size` has arguments that say how large the model is.
    """
    arguments = ["--steps", str(steps), "--checkpoint-every", str(EVERY), *size]
    variables = {"CHECKPOINT_DIR": str(directory), "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(FOLDER)}
    if count > 1:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            address = f"127.0.0.1:{listener.getsockname()[1]}"  # which is free
        variables |= {"JAX_COORDINATOR_ADDRESS": address, "JAX_NUM_PROCESSES": str(count)}
    directory.parent.mkdir(exist_ok=True)
    processes, logs = [], [directory.parent / f"{directory.name}.{index}.log" for index in range(count)]
    for index, log in enumerate(logs):
        command = [sys.executable, *(first if first and index == 0 else [PROGRAM]), *arguments]
        env = os.environ | variables | {"JAX_PROCESS_ID": str(index)}
        with log.open("w") as errors:
            output_to = subprocess.PIPE if index == 0 else errors
            processes.append(subprocess.Popen(command, env=env, stdout=output_to, stderr=errors, text=True))
    lines = []
    with ended_after(SECONDS, processes):
        for line in processes[0].stdout or []:
            lines.append(line)
            disturb(line, processes)
        statuses = [process.wait() for process in processes]
    output = "".join(lines + [log.read_text() for log in logs])
    losses = re.findall(r"^step (\d+) loss (\S+)$", "".join(lines), re.M)
    return Run({int(step): value for step, value in losses}, statuses, output)


@contextmanager
def ended_after(seconds: float, processes: Processes) -> Iterator[None]:
    """Kills the processes at the end, or after a time."""

    def end() -> None:
        for process in processes:
            process.kill()

    timer = threading.Timer(seconds, end)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        end()


def test_the_recorded_losses_are_those_of_the_program(tmp_path: Path) -> None:
    recorded = json.loads((ROOT / "tests/data/pictures/training_resumes.json").read_text())["undisturbed"]
    (example,) = yaml.safe_load((ROOT / "examples/training-job.yaml").read_text())["config"]["gke-ai:training"]
    size = [argument for argument in example["args"] if argument.startswith(("--width=", "--batch="))]
    run = train(tmp_path / "recorded", steps=5, size=size)
    # Another machine's sums may be in another order.
    assert [float(value) for value in run.losses.values()] == pytest.approx(recorded[:5], rel=1e-4), run.output


# The program on a CPU that says it is a GPU, so that XLA checks the name of the option.
ON_GPU = """
import runpy, sys
import jax
original = jax.jit
def jit(function, **options):
    print(function.__name__, options.get("compiler_options"), flush=True)
    return original(function, **options)
jax.default_backend, jax.jit = lambda: "gpu", jit
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_sums_on_gpus_are_in_the_same_order_in_each_run(tmp_path: Path) -> None:
    run = train(tmp_path / "run", first=["-c", ON_GPU, PROGRAM], count=1, steps=2)
    assert run.statuses == [0], run.output
    assert "training_step {'xla_gpu_deterministic_ops': True}" in run.output


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = train(tmp_path_factory.mktemp("undisturbed") / "run")
    assert run.statuses == [0, 0], run.output
    assert list(run.losses) == list(range(1, STEPS + 1))
    assert float(run.losses[STEPS]) < float(run.losses[1]) - 1, "the model learns nothing"
    return run


def test_a_run_that_gets_sigterm_in_mid_step_ends_with_the_same_loss(undisturbed: Run, tmp_path: Path) -> None:
    def terminate(line: str, processes: Processes) -> None:
        # One process alone, as when its node is drained, and not the one that writes.
        if line.startswith(f"step {EVERY + 2} "):
            processes[1].send_signal(signal.SIGTERM)

    terminated = train(tmp_path / "run", terminate)
    assert terminated.statuses == [EXIT_SAVED, EXIT_SAVED], terminated.output
    last = max(terminated.losses)
    assert EVERY + 2 < last < STEPS
    assert step_of(newest_first(tmp_path / "run")[0]) == last

    resumed = train(tmp_path / "run")
    assert resumed.statuses == [0, 0], resumed.output
    assert resumed.resumed_from == [last, last]
    assert terminated.losses | resumed.losses == undisturbed.losses
    assert not terminated.losses.keys() & resumed.losses.keys(), "work was repeated"


def test_a_run_that_gets_sigkill_in_mid_save_ends_with_the_same_loss(undisturbed: Run, tmp_path: Path) -> None:
    def kill_the_others(line: str, processes: Processes) -> None:
        if line.startswith("killed while"):
            processes[1].kill()

    killed = train(tmp_path / "run", kill_the_others, first=[KILLER, str(2 * EVERY), PROGRAM])
    assert killed.statuses == [-signal.SIGKILL, -signal.SIGKILL], killed.output
    left = {step_of(folder): is_complete(folder) for folder in newest_first(tmp_path / "run")}
    assert left == {2 * EVERY: False, EVERY: True}

    resumed = train(tmp_path / "run")
    assert resumed.statuses == [0, 0], resumed.output
    assert resumed.resumed_from == [EVERY, EVERY]
    assert killed.losses | resumed.losses == undisturbed.losses
    assert all(resumed.losses[step] == killed.losses[step] for step in range(EVERY + 1, 2 * EVERY + 1))
    assert {step_of(folder): is_complete(folder) for folder in newest_first(tmp_path / "run")} == {40: True, 30: True}


def test_another_number_of_processes_continues_with_the_same_data(undisturbed: Run, tmp_path: Path) -> None:
    """The sums are in another order then, so losses agree only up to rounding."""
    half = train(tmp_path / "run", count=1, steps=STEPS // 2)
    assert half.statuses == [0], half.output
    resumed = train(tmp_path / "run")
    assert resumed.resumed_from == [STEPS // 2, STEPS // 2]
    losses = half.losses | resumed.losses
    assert losses.keys() == undisturbed.losses.keys()
    for step, value in losses.items():
        assert float(value) == pytest.approx(float(undisturbed.losses[step]), rel=1e-4), step
