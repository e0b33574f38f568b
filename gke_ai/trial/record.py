"""The record of a trial: what must be deleted if its process is killed, and the lock against a second one."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from gke_ai.terminal import Stop
from gke_ai.workspace.emulated import state
from gke_ai.workspace.emulation import on_emulator
from gke_ai.workspace.stack import ROOT


def folder() -> Path:
    """The folder of records and configurations: in the emulator's state, else beside it in the project."""
    return state("trials") if on_emulator() else ROOT / ".local" / "trials"


@dataclass(frozen=True)
class Process:
    """A process by id and start, because ids are used again."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> Process:
        """Returns a process as it is now."""
        return cls(pid, started(pid))

    @property
    def runs(self) -> bool:
        """Whether this very process runs."""
        return bool(self.started) and started(self.pid) == self.started


def started(pid: int) -> str:
    """When a process started, in clock ticks; empty if it does not run. Without /proc, only whether it runs."""
    if not Path("/proc/self/stat").exists():
        try:
            os.kill(pid, 0)
        except OSError:
            return ""
        return "runs"
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


@dataclass(frozen=True)
class Record:
    """What a trial has begun: the stack, its configuration, the process of the trial, and that of its update."""

    stack: str
    config: str
    trial: Process
    update: Process | None = None

    @property
    def file(self) -> Path:
        """The file of the record."""
        return folder() / f"{self.stack}.json"

    def create(self) -> None:
        """Writes the record. Stops if there is one: a trial of this stack runs, or was killed."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        written = self.file.with_suffix(f".{self.trial.pid}")
        written.write_text(json.dumps(asdict(self)))
        try:
            os.link(written, self.file)  # complete from the first moment
        except FileExistsError:
            earlier = read(self.stack)
            raise Stop(refusal(earlier) if earlier else f"Another trial of {self.stack} has just ended.") from None
        finally:
            written.unlink()

    def update_is(self, update: Process) -> None:
        """Adds the process of the update, in one step: a reader finds the old record or the new one."""
        written = self.file.with_suffix(".new")
        written.write_text(json.dumps({**asdict(self), "update": asdict(update)}))
        written.replace(self.file)

    def remove(self) -> None:
        """Removes the record and the configuration of the trial: nothing is left to delete."""
        shutil.rmtree(folder() / self.stack, ignore_errors=True)
        self.file.unlink(missing_ok=True)


def refusal(record: Record) -> str:
    """Why there can be no other trial of a stack yet."""
    name = record.stack.removeprefix("trial-")
    if record.trial.runs:
        return f"A trial of {name} runs (process {record.trial.pid}). Wait until it ends, or interrupt it with Ctrl-C."
    flag = " --emulator" if on_emulator() else ""
    return (
        f"A trial of {name} did not delete what it deployed, which may still cost money. "
        f"Delete it first:  gke-ai trial {name} --clean{flag}"
    )


def read(stack: str) -> Record | None:
    """Returns the record of a stack's trial, if there is one. Stops if it is damaged."""
    file = folder() / f"{stack}.json"
    try:
        content = json.loads(file.read_text())
        update = Process(**content["update"]) if content["update"] else None
        return Record(content["stack"], content["config"], Process(**content["trial"]), update)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        raise Stop(f"{file} is damaged. Delete the stack {stack} with gke-ai down, then remove the file.") from None
