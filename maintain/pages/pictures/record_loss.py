"""Records the loss of a training run that Kueue preempts and resumes, for the loss curve.

    emulator/run program add us-docker.pkg.dev/emulator-project/training/pretrain examples/training \\
        --env JAX_PLATFORMS=cpu -- python train_jax.py ...
    make up CONFIG=examples/training-job.yaml
    emulator/run python -m maintain.pages.pictures.record_loss
    make pictures

The script scales the server to two replicas, which preempt the run, and back to one. The figures are those of the run's
own log. Then it runs the same program again without Kueue and undisturbed, for a comparison.
"""

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from itertools import groupby
from typing import Any

import yaml

from maintain.pages.pictures import RECORDINGS
from tests.support.repository import ROOT

RECORDING = RECORDINGS / "training_resumes.json"
EXAMPLE, RUN, SERVER, NAMESPACE = "examples/training-job.yaml", "pretrain", "gemma", "llm"
# Steps before the preemption and after the resumption, and the seconds between the two.
BEFORE, AFTER, PAUSE_SECONDS = 120, 150, 15.0
PROCESSES = 2
Line = tuple[float, str, str]


def main() -> None:
    """Records both runs and writes them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="interpreter with JAX. Default: this one")
    python = parser.parse_args().python
    wait(lambda: last_step() >= BEFORE)
    events = [scale(2)]
    wait(lambda: any("which is saved" in text for _, _, text in log_lines()))
    time.sleep(PAUSE_SECONDS)
    events.append(scale(1))
    wait(lambda: len(attempts()) == 2 and len(attempts()[1]["steps"]) >= AFTER)
    recorded = attempts()
    losses = undisturbed(python, recorded[1]["steps"][-1][1])
    begin = recorded[0]["steps"][0][0]
    for attempt in recorded:
        attempt["steps"] = [(round(at - begin, 2), step, loss) for at, step, loss in attempt["steps"]]
    content = {
        "attempts": recorded,
        "events": [{"at": round(at - begin, 1), "replicas": replicas} for at, replicas in events],
        "undisturbed": losses,
    }
    RECORDING.write_text(json.dumps(content) + "\n")
    print(f"The recording is {RECORDING.relative_to(ROOT)}. Next: make pictures")


def scale(replicas: int) -> tuple[float, int]:
    """Scales the server. Returns the time and the replicas."""
    command = ["kubectl", "-n", NAMESPACE, "scale", f"deployment/{SERVER}", f"--replicas={replicas}"]
    subprocess.run(command, check=True, capture_output=True)
    return time.time(), replicas


def log_lines() -> list[Line]:
    """The lines of the run's log: time, pod and text."""
    command = ["emulator/run", "logs", RUN, "-n", NAMESPACE]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    split = [line.split(" ", 2) for line in output.splitlines()]
    return [(datetime.fromisoformat(at).timestamp(), pod, text) for at, pod, text in split]


def attempts() -> list[dict[str, Any]]:
    """The steps of each pod that printed some, in order: time, step and loss."""
    steps = [
        (pod, (at, int(match[1]), float(match[2])))
        for at, pod, text in log_lines()
        if (match := re.fullmatch(r"step (\d+) loss (\S+)", text))
    ]
    return [{"pod": pod, "steps": [step for _, step in group]} for pod, group in groupby(steps, lambda item: item[0])]


def last_step() -> int:
    """The last step in the log."""
    found = attempts()
    return int(found[-1]["steps"][-1][1]) if found else 0


def undisturbed(python: str, steps: int) -> list[float]:
    """The losses of the same program in as many processes, from step 1."""
    (run,) = yaml.safe_load((ROOT / EXAMPLE).read_text())["config"]["gke-ai:training"]
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    words = [python, *run["command"][1:], *run["args"], f"--steps={steps}"]
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "CHECKPOINT_DIR": folder,
            "JAX_PLATFORMS": "cpu",
            "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
            "JAX_NUM_PROCESSES": str(PROCESSES),
        }
        started = [
            subprocess.Popen(
                words,
                cwd=ROOT / "examples" / "training",
                env={**environment, "JAX_PROCESS_ID": str(number)},
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(PROCESSES)
        ]
        outputs = [process.communicate()[0] for process in started]
    return [float(loss) for loss in re.findall(r"^step \d+ loss (\S+)$", outputs[0], re.M)]


def wait(condition: Callable[[], bool], seconds: float = 300) -> None:
    """Waits for a condition."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds:.0f} s"
        time.sleep(0.5)


if __name__ == "__main__":
    main()
