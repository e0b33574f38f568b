"""examples/training/peers.py: when a process of a run dies, the others end soon, also in a call that never returns."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import peers

COUNT = 3
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


class Group:
    """Processes of a run, by rank."""

    def __init__(self, folder: Path, roles: list[str]) -> None:
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str(rank), str(len(roles)), str(folder), role],
                env={"PYTHONPATH": str(Path(peers.__file__).parent)},
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            for rank, role in enumerate(roles)
        ]
        for process in self.processes:
            assert process.stdout
            assert process.stdout.readline() == "ready\n"

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()


@pytest.fixture
def groups() -> Iterator[list[Group]]:
    started: list[Group] = []
    yield started
    for group in started:
        group.end()


@pytest.mark.parametrize("dead", range(COUNT))
def test_the_others_end_soon_after_a_process_dies(dead: int, tmp_path: Path, groups: list[Group]) -> None:
    groups.append(group := Group(tmp_path, ["waits"] * COUNT))
    began = time.monotonic()
    group.processes[dead].kill()
    assert [process.wait(10) for process in group.processes] == [-signal.SIGKILL] * COUNT
    assert time.monotonic() - began < 3 * peers.SECONDS + 3


def test_a_process_completes_its_checkpoint_first(tmp_path: Path, groups: list[Group]) -> None:
    groups.append(group := Group(tmp_path, ["completes", "waits", "waits"]))
    group.processes[1].kill()
    assert group.processes[2].wait(10) == -signal.SIGKILL
    assert not (tmp_path / "COMPLETE").exists()
    assert group.processes[0].wait(20) == -signal.SIGKILL
    assert (tmp_path / "COMPLETE").exists()


def test_a_process_that_leaves_ends_no_other_one(tmp_path: Path, groups: list[Group]) -> None:
    groups.append(group := Group(tmp_path, ["leaves", "waits", "waits"]))
    assert group.processes[0].wait(10) == 0
    time.sleep(2 * peers.SECONDS)
    assert [process.poll() for process in group.processes[1:]] == [None, None]


def test_a_process_alone_has_no_guard() -> None:
    alone = peers.Peers(0, lambda value: [value])
    with alone.completing():
        assert alone.guard is None
    alone.leave()
