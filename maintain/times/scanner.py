"""Reads the processes of one worker of a test run from /proc."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass

from maintain.times.ledger import Reading
from maintain.times.programs import PYTEST, is_engine_run, is_warm_server, program_of

# With the prefix of the project, so that processes of a cluster and of pods inherit it (emulator/cluster/processes.py).
MARK = "GKE_AI_TEST_WORKER"
TICKS = os.sysconf("SC_CLK_TCK")
# A process has the command line and environment of its parent until it calls `exec`.
YOUNG_SECONDS = 2.0
# A client of a server that forks for it has this name, with the id of the forked process, which is then the client's.
FORKED = re.compile(r"fork-(\d+)")


@dataclass
class _Known:
    """What is known of a process of this worker."""

    started: int
    name: str
    program: str
    engine_run: bool


class Scanner:
    """Finds the processes of a worker: its own, its descendants, and all with its mark.

    Args:
        mark: The value of MARK in the environment of the worker's processes.
        worker: Id of the worker's own process.
    """

    def __init__(self, mark: str, worker: int) -> None:
        self._mark = f"{MARK}={mark}".encode()
        self._worker = worker
        self._known: dict[int, _Known] = {}
        self._foreign: set[int] = set()
        self._forked: dict[int, str] = {}

    def scan(self) -> list[Reading]:
        """All processes of the worker at this moment, parents before their children."""
        pids = {int(name) for name in os.listdir("/proc") if name.isdigit()}
        self._known = {pid: process for pid, process in self._known.items() if pid in pids}
        self._forked = {pid: program for pid, program in self._forked.items() if pid in pids}
        # An id is reused only long after the next scan.
        self._foreign &= pids
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        readings = []
        # A child's id is greater than its parent's, except when the ids start again.
        for pid in sorted(pids - self._foreign, key=self._order):
            reading = self._read(pid, now)
            if reading:
                readings.append(reading)
        return readings

    def _order(self, pid: int) -> tuple[float, int]:
        known = self._known.get(pid)
        return (known.started if known else float("inf")), pid

    def _read(self, pid: int, now: float) -> Reading | None:
        stat = _content(pid, "stat", once=True)
        if not stat:
            return None
        head, _, tail = stat.rpartition(b")")
        name = head.partition(b"(")[2].decode(errors="replace")
        fields = tail.split()
        parent, started = int(fields[1]), int(fields[19])
        age = now - started / TICKS
        known = self._known.get(pid)
        if known is None or known.started != started or known.name != name or age < YOUNG_SECONDS:
            known = self._identify(pid, parent, started, name, known)
            if known is None:
                self._known.pop(pid, None)
                if age >= YOUNG_SECONDS:
                    self._foreign.add(pid)
                return None
            self._known[pid] = known
        own, waited = (int(fields[11]) + int(fields[12])) / TICKS, (int(fields[13]) + int(fields[14])) / TICKS
        return Reading(pid, started, parent, own, waited, known.program, known.engine_run)

    def _identify(self, pid: int, parent: int, started: int, name: str, before: _Known | None) -> _Known | None:
        """Reads whose process it is and its program. Returns None for one of others."""
        if pid == self._worker:
            return _Known(started, name, PYTEST, False)
        if pid in self._forked:
            return _Known(started, name, self._forked[pid], False)
        ours = parent in self._known or (before is not None and before.started == started)
        command = _content(pid, "cmdline").decode(errors="replace").split("\0")[:-1]
        if not command and ours:  # it has ended, and its parent has not waited for it yet
            return before or _Known(started, name, program_of([name], ()), False)
        if is_warm_server(command):
            return None
        variables = _content(pid, "environ").split(b"\0")
        if not ours and self._mark not in variables:
            return None
        program = program_of(command, variables)
        if forked := FORKED.fullmatch(name):
            self._forked[int(forked[1])] = program
            self._foreign.discard(int(forked[1]))
        return _Known(started, name, program, is_engine_run(command))


def _content(pid: int, name: str, once: bool = False) -> bytes:
    """A file of a process, empty if the process has ended or belongs to another user."""
    try:
        descriptor = os.open(f"/proc/{pid}/{name}", os.O_RDONLY)
    except OSError:
        return b""
    try:
        first = os.read(descriptor, 65536)
        return first if once else b"".join([first, *iter(lambda: os.read(descriptor, 65536), b"")])
    except OSError:
        return b""
    finally:
        os.close(descriptor)
