"""An emulator of a test's own: a state folder, the commands on it, and what is left of it."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emulator.paths import ROOT as ROOT

RUN = str(ROOT / "emulator" / "run")


@dataclass(frozen=True)
class Emulator:
    """One emulated cloud."""

    state: Path
    extra: tuple[tuple[str, str], ...] = ()

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a command: this state, whatever the test run's own is."""
        return {**os.environ, "GKE_AI_STATE": str(self.state), **dict(self.extra)}

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Begins a command under `emulator/run`, its output in one stream."""
        return subprocess.Popen(
            [RUN, *command],
            cwd=ROOT,
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )

    def run(self, *command: str, fails: bool = False) -> str:
        """Runs a command to its end and returns its output; the outcome must be the expected one."""
        process = self.start(*command)
        output = process.communicate()[0]
        assert (process.returncode != 0) == fails, f"{' '.join(command)} ended with {process.returncode}:\n{output}"
        return output

    def processes(self) -> dict[int, str]:
        """The processes that belong to this emulator, by the state that their environment names."""
        mark = f"GKE_AI_STATE={self.state}".encode()
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue  # it ended meanwhile, or is somebody else's
        return found


@dataclass(frozen=True)
class Project:
    """A Pulumi project with a stack on an emulator of its own."""

    folder: Path
    state: Path

    def write(self, path: str, text: str) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        environment = os.environ | {"GKE_AI_STATE": str(self.state)}
        return subprocess.Popen(
            [ROOT / "emulator" / "run", "pulumi", *arguments],
            cwd=self.folder,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def pulumi(self, *arguments: str) -> tuple[int, str]:
        process = self.start(*arguments)
        said, _ = process.communicate(timeout=60)
        return process.returncode, said

    def up(self) -> tuple[int, str]:
        return self.pulumi("up", "--yes", "--skip-preview", "--color=never")

    def output(self, name: str) -> str:
        status, said = self.pulumi("stack", "output", name)
        assert status == 0, said
        return said.strip()

    def running(self) -> list[int]:
        """Ids of the host, the program and the program's child, once the program has written them to `running`."""
        file = self.folder / "running"
        for _ in range(200):
            if file.exists():
                host, program, started = json.loads(file.read_text())
                return [host, program, started]
            time.sleep(0.1)
        raise AssertionError("the program didn't start within 20 s")


def eventually(check: Callable[[], Any], what: str, seconds: float = 60) -> Any:
    """Waits until `check` gives something true; what it gave last is in the failure."""
    end = time.monotonic() + seconds
    while True:
        found = check()
        if found:
            return found
        assert time.monotonic() < end, f"not within {seconds} s: {what}; last seen: {found!r}"
        time.sleep(0.3)


def until_none(check: Callable[[], Any], what: str, seconds: float = 60) -> None:
    """Waits until `check` finds nothing; what it still found at the end is in the failure."""
    end = time.monotonic() + seconds
    while found := check():
        assert time.monotonic() < end, f"not within {seconds} s: {what}; last seen: {found!r}"
        time.sleep(0.3)
