"""An emulator for a test: its state folder, its commands and its processes."""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emulator.machine.paths import ROOT as ROOT
from emulator.machine.polling import poll_until

RUN = str(ROOT / "emulator" / "run")


@dataclass(frozen=True)
class Emulator:
    """One emulated cloud."""

    state: Path
    extra: tuple[tuple[str, str], ...] = ()

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a command, with this emulator's state folder."""
        return {**os.environ, "GKE_AI_STATE": str(self.state), **dict(self.extra)}

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Starts a command under `emulator/run`, with its output in one stream."""
        return _start([RUN, *command], ROOT, self.environment, stdin=subprocess.DEVNULL)

    def run(self, *command: str, fails: bool | None = False) -> str:
        """Runs a command and returns its output. Asserts that it succeeds, or fails if `fails`. None: either."""
        process = self.start(*command)
        output = process.communicate()[0]
        as_expected = fails in (None, process.returncode != 0)
        assert as_expected, f"{' '.join(command)} ended with {process.returncode}:\n{output}"
        return output

    def processes(self) -> dict[int, str]:
        """Command lines of this emulator's processes by id, found by the state folder in their environment."""
        mark = f"GKE_AI_STATE={self.state}".encode()
        result = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    result[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue  # the process has ended or belongs to another user
        return result


@dataclass(frozen=True)
class Project:
    """A Pulumi project, `sample`, with a stack, `dev`, and its own emulator."""

    folder: Path
    state: Path

    @classmethod
    def create(cls, folder: Path, state: Path) -> Project:
        """A project without a program. Its stack is a copy of one that Pulumi created for all tests."""
        stack = Path(_new_stack().name)
        shutil.copytree(stack / "sample", folder)
        shutil.copytree(stack / "state" / "backend", state / "backend")
        return cls(folder, state)

    def write(self, path: str, text: str) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [RUN, "pulumi", *arguments, "--stack", "dev"]
        return _start(command, self.folder, Emulator(self.state).environment)

    def pulumi(self, *arguments: str) -> tuple[int, str]:
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=60)
        return process.returncode, output

    def up(self) -> tuple[int, str]:
        return self.pulumi("up", "--yes", "--skip-preview", "--color=never")

    def output(self, name: str) -> str:
        status, output = self.pulumi("stack", "output", name)
        assert status == 0, output
        return output.strip()

    def running(self) -> list[int]:
        """Ids of the language host, and of the program and its child, which the program writes to `running`."""
        file = self.folder / "running"
        assert poll_until(file.exists, timeout=120, pause=0.1), "the program did not start within 120 s"
        commands = Emulator(self.state).processes()
        (host,) = (pid for pid, command in commands.items() if "-m emulator.pulumi.language_host" in command)
        program, child = json.loads(file.read_text())
        return [host, program, child]


def _start(
    command: list[str], folder: Path, environment: Mapping[str, str], stdin: int | None = None
) -> subprocess.Popen[str]:
    """Starts a command with its output in one stream."""
    pipe, out = subprocess.PIPE, subprocess.STDOUT
    return subprocess.Popen(command, cwd=folder, env=environment, text=True, stdin=stdin, stdout=pipe, stderr=out)


def restore_interrupts() -> None:
    """Lets the programs of tests be interrupted also if this process ignores it: a shell's background job does."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def fork_of(pid: int) -> int:
    """The process that the warm process forked for a program, or the program's own."""
    name = Path(f"/proc/{pid}/comm").read_text().strip()
    return int(name.removeprefix("fork-")) if name.startswith("fork-") else pid


@functools.cache
def _new_stack() -> tempfile.TemporaryDirectory[str]:
    """A folder, deleted at the end, with a project and the state of its stack.

    Pulumi needs half a second of CPU time to create a stack, mostly for the key from its passphrase.
    """
    parent = tempfile.TemporaryDirectory(prefix="gke-ai-")
    project = Project(Path(parent.name, "sample"), Path(parent.name, "state"))
    project.write("Pulumi.yaml", "name: sample\nruntime: python\n")
    status, output = project.pulumi("stack", "init")
    assert status == 0, output
    return parent


def eventually(check: Callable[[], Any], description: str, seconds: float = 60, wanted: bool = True) -> Any:
    """Waits until `check` returns a true value and returns it. The failure shows the last value."""
    last: Any = None

    def is_wanted() -> bool:
        nonlocal last
        last = check()
        return bool(last) == wanted

    assert poll_until(is_wanted, seconds, pause=0.3), f"not within {seconds} s: {description}; last seen: {last!r}"
    return last


def until_none(check: Callable[[], Any], description: str, seconds: float = 60) -> None:
    """Waits until `check` returns nothing. The failure shows the last value."""
    eventually(check, description, seconds, wanted=False)


def run(*command: str, state: Path, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    whole = os.environ | {"GKE_AI_STATE": str(state)} | environment
    return subprocess.run([RUN, *command], cwd=cwd, env=whole, capture_output=True, text=True)
