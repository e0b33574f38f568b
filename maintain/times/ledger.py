"""Charges the CPU time of processes to the test file that ran meanwhile, each second once.

The kernel counts the time of a child twice: in the child, and in its parent once the parent has waited for it. So what
a parent's count grows by is charged only beyond what its children were already charged with: the last moments of a
child, and children that lived between two scans. The last moments of a process that no process of the run waits for,
such as a daemon, are lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from maintain.times.programs import API_SERVER, OTHER


@dataclass(frozen=True)
class Reading:
    """A process at one moment. Times are in seconds of the CPU."""

    pid: int
    started: int
    parent: int
    own: float
    """Time of the process itself."""
    waited: float
    """Time of its descendants that were waited for."""
    program: str
    engine_run: bool = False

    @property
    def key(self) -> tuple[int, int]:
        return self.pid, self.started


@dataclass
class Use:
    """What a test file used."""

    seconds: float = 0.0
    cpu: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """CPU time by program, in seconds."""
    clusters: int = 0
    engine_runs: int = 0

    @property
    def cpu_seconds(self) -> float:
        return sum(self.cpu.values())

    def add(self, other: Use) -> None:
        """Adds what another one used."""
        self.seconds += other.seconds
        for program, seconds in other.cpu.items():
            self.cpu[program] += seconds
        self.clusters += other.clusters
        self.engine_runs += other.engine_runs


@dataclass
class _Ended:
    """An ended child: the time that it was charged with, which is still to arrive in its parent's count."""

    program: str
    due: float
    scans: int = 0


@dataclass
class _Process:
    """A running process, and its children that ended lately."""

    last: Reading
    counted: bool = False
    ended: list[_Ended] = field(default_factory=list)

    def forget(self) -> None:
        """Forgets each child whose time can't arrive any more: it does so at the latest one scan after its end."""
        for child in self.ended:
            child.scans += 1
        self.ended = [child for child in self.ended if child.scans < 2]

    def take(self, growth: float) -> float:
        """Settles what is due from what `waited` grew by. Returns the rest."""
        for child in self.ended:
            part = min(growth, child.due)
            child.due -= part
            growth -= part
        return growth


class Ledger:
    """The uses of all test files by one worker."""

    def __init__(self) -> None:
        self.uses: dict[str, Use] = {}
        self._running: dict[int, _Process] = {}

    def of(self, file: str) -> Use:
        """The use of a test file."""
        return self.uses.setdefault(file, Use())

    def add(self, file: str, readings: Sequence[Reading]) -> None:
        """Charges to `file` what the processes used since the last readings. Parents come before their children."""
        use = self.of(file)
        self._end_processes({reading.key for reading in readings})
        for reading in readings:
            process = self._running.get(reading.pid)
            if process is None:
                process = self._running[reading.pid] = _Process(_before(reading))
            use.cpu[reading.program] += reading.own - process.last.own
            rest = process.take(reading.waited - process.last.waited)
            programs = [child.program for child in process.ended] or [OTHER]
            for program in programs:
                use.cpu[program] += rest / len(programs)
            # A process has its name only after `exec`, so it may be counted later than it was first seen.
            if not process.counted and (reading.engine_run or reading.program == API_SERVER):
                process.counted = True
                use.engine_runs += reading.engine_run
                use.clusters += not reading.engine_run
            process.last = reading

    def _end_processes(self, running: set[tuple[int, int]]) -> None:
        """Moves what ended processes were charged with to their parents, the youngest process first."""
        for process in self._running.values():
            process.forget()
        ended = [process for process in self._running.values() if process.last.key not in running]
        for process in sorted(ended, key=lambda process: process.last.key[::-1], reverse=True):
            last = process.last
            del self._running[last.pid]
            parent = self._running.get(last.parent)
            if parent is not None:
                due = last.own + last.waited + sum(child.due for child in process.ended)
                parent.ended.append(_Ended(last.program, due))


def _before(reading: Reading) -> Reading:
    """A new process before it used any time."""
    return Reading(reading.pid, reading.started, reading.parent, 0.0, 0.0, reading.program)
