"""A scratch emulator: an emulated cloud of its own, which a rehearsal starts and discards.

It lies in the folder `rehearsal` of the emulator's state, so the user's own clouds never see it, and a rehearsal that
was killed leaves only what the next one discards.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from gke_ai.settings.secrets import is_secret
from gke_ai.terminal import Stop
from gke_ai.workspace.configuration_file import read_keys, write_keys
from gke_ai.workspace.emulation import RUN
from gke_ai.workspace.stack import ROOT


@dataclass(frozen=True)
class Scratch:
    """The scratch emulator, with its state folder."""

    state: Path

    @property
    def environment(self) -> dict[str, str]:
        """The environment of commands on the scratch emulator. Its time is compressed, preStop hooks are not."""
        return {**os.environ, "GKE_AI_STATE": str(self.state), "GKE_AI_PRE_STOP_SECONDS": "0"}

    def kubeconfig(self) -> str:
        """Returns the kubeconfig of the stack that was deployed last."""
        return (self.state / "kubeconfig").read_text()

    def run(self, *command: str, stdin: str | None = None) -> str:
        """Runs a command of the emulator and returns its output. Stops with its error if it fails."""
        done = subprocess.run(
            [RUN, *command], env=self.environment, cwd=ROOT, input=stdin, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise Stop(f"emulator/run {shlex.join(command)} failed:\n{(done.stderr or done.stdout).strip()}")
        return done.stdout

    def start(self, output: TextIO, *command: str) -> subprocess.Popen[str]:
        """Starts a command, with its output in a file."""
        return subprocess.Popen(
            [RUN, *command],
            env=self.environment,
            cwd=ROOT,
            text=True,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # so that its whole group can be ended
        )

    def copy(self, name: str, source: Path, more: Mapping[str, object] | None = None) -> Path:
        """Writes a copy of a configuration that the scratch emulator can use: its values without encrypted secrets.

        Pulumi would ask the secrets provider and the environments that other keys of a file name.
        """
        kept = {key: value for key, value in read_keys(source).items() if not is_secret(value)} | dict(more or {})
        return write_keys(self.state / "rehearsed" / f"{name}.yaml", kept, source)

    def prepare(self, name: str, source: Path, more: Mapping[str, object] | None = None) -> Path:
        """Writes a copy of a configuration, with `more` keys, and creates what it expects to exist."""
        copy = self.copy(name, source, more)
        for _ in range(10):
            missing = json.loads(self.run("ready", str(copy)))["missing"]
            if not missing:
                return copy
            # The command as a person would type it: `emulator/run existing create …`.
            self.run(*shlex.split(missing["command"])[1:])
        raise Stop(f"The scratch emulator cannot create what {source} expects to exist: {missing['what']}.")

    def create(self) -> None:
        """Creates the folder of an empty emulator."""
        (self.state / "backend").mkdir(parents=True)

    def discard(self) -> None:
        """Ends every process of the scratch emulator and deletes its state."""
        if self.state.exists():
            self.run("discard")


@contextmanager
def scratch() -> Iterator[Scratch]:
    """A fresh scratch emulator, discarded at the end. Only one exists in an emulator's state at a time."""
    parent = Path(os.environ["GKE_AI_STATE"])
    parent.mkdir(parents=True, exist_ok=True)
    with (parent / "rehearsal.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Stop("Another rehearsal runs on this emulator. Wait for it, or set another GKE_AI_STATE.") from None
        emulator = Scratch(parent / "rehearsal")
        emulator.discard()  # what a killed rehearsal left
        outside = dict(os.environ)
        try:
            emulator.create()
            # This process signs in to the scratch emulator's clusters: its plugin and its authorities lie there.
            os.environ |= {
                "GKE_AI_STATE": str(emulator.state),
                "SSL_CERT_FILE": str(emulator.state / "authorities.pem"),
            }
            yield emulator
        finally:
            os.environ.update(outside)
            emulator.discard()
