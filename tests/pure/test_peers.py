"""examples/training/peers.py: when a process of a run dies, the others end soon, also in a call that never returns."""

import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

import pytest

import peers

# A process that exchanges addresses by files, and then does what its arguments say. PyDLL keeps Python's lock, as some
# calls of PyTorch do that wait for a GPU.
PROGRAM = """
import ctypes, json, pathlib, sys, time
from peers import Peers

rank, count, folder, role = int(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3]), sys.argv[4]

def gather(value):
    file = folder / f"{rank}.new"
    file.write_text(json.dumps(value))
    file.rename(folder / f"{rank}.json")
    files = [folder / f"{other}.json" for other in range(count)]
    while not all(file.exists() for file in files):
        time.sleep(0.01)
    return [json.loads(file.read_text()) for file in files]

others = Peers(rank, gather)
print("ready", flush=True)
if role == "leaves":
    others.leave()
elif role == "completes":
    with others.completing():
        time.sleep(3)
        (folder / "COMPLETE").touch()
if role != "leaves":
    ctypes.PyDLL(None).sleep(60)
"""


Start = Callable[..., list[Popen[str]]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the processes of a run by their roles, and returns them once they are ready."""
    processes: list[Popen[str]] = []

    def started(*roles: str) -> list[Popen[str]]:
        for rank, role in enumerate(roles):
            command = [sys.executable, "-c", PROGRAM, str(rank), str(len(roles)), str(tmp_path), role]
            path = {"PYTHONPATH": str(Path(peers.__file__).parent)}
            processes.append(Popen(command, env=path, text=True, stdout=PIPE, stderr=DEVNULL))
        assert [process.stdout and process.stdout.readline() for process in processes] == ["ready\n"] * len(roles)
        return processes

    yield started
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("dead", range(3))
def test_the_others_end_soon_after_a_process_dies(dead: int, start: Start) -> None:
    processes = start("waits", "waits", "waits")
    began = time.monotonic()
    processes[dead].kill()
    assert [process.wait(10) for process in processes] == [-signal.SIGKILL] * 3
    assert time.monotonic() - began < 3 * peers.SECONDS + 3


def test_a_process_completes_its_checkpoint_first(tmp_path: Path, start: Start) -> None:
    completes, dead, waits = start("completes", "waits", "waits")
    dead.kill()
    assert waits.wait(10) == -signal.SIGKILL
    assert not (tmp_path / "COMPLETE").exists()
    assert completes.wait(20) == -signal.SIGKILL
    assert (tmp_path / "COMPLETE").exists()


def test_a_process_that_leaves_ends_no_other_one(start: Start) -> None:
    leaves, *others = start("leaves", "waits", "waits")
    assert leaves.wait(10) == 0
    time.sleep(2 * peers.SECONDS)
    assert [process.poll() for process in others] == [None, None]


def test_a_process_alone_has_no_guard() -> None:
    alone = peers.Peers(0, lambda value: [value])
    with alone.completing():
        assert alone.guard is None
    alone.leave()
