"""Deploys a configuration to the scratch emulator with Pulumi, as `make up` does."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from gke_ai.catalog.nodes.shape import RUNS_OF
from gke_ai.forecast.rehearse.scratch import Scratch
from gke_ai.settings.estimates.cold_start import COLD_START
from gke_ai.terminal import Stop

# The scratch emulator is discarded afterwards, so nothing must be finished.
STOP_SECONDS = 5
# Pulumi adds it to each error of the program.
_UNHANDLED = "an unhandled error occurred: the program ended with exit status"
# Lines that are no reason of a failure: passed policies, and estimates of the program.
_NO_REASON = ("✅", COLD_START)
# Lines of Pulumi's display that say nothing about a failure.
_NOISE = re.compile(
    r"^(@ |\s*[+~-]+ .*(created|updated|deleted|creating|updating|deleting)|Resources:|Duration:|\s*\d+ )"
)
_STEP = re.compile(r"\s*[+~-]+\s+(?P<kind>\S+)\s+(?P<name>\S+)\s+(?P<verb>\w+)\b(?P<rest>.*)")
_URN = re.compile(r"urn:pulumi:\S+?::\S+?::(?P<kind>\S+?)::(?P<name>[^\s:'\",)]+)")
_DONE = ("created", "updated", "replaced", "deleted")
# The plugins of resources that exist outside Pulumi.
_WARNING = "warning: "
_CLOUD = ("kubernetes:", "gcp:")


# What the display adds to the deletion of a resource that stays outside Pulumi.
_RETAIN = "[retain]"
_RUNS = (":Job", ":JobSet")


class Update:
    """A running `up` of a stack, or another command that changes the cluster, with its output in a file."""

    def __init__(self, scratch: Scratch, stack: str, config: Path, command: tuple[str, ...] = ()) -> None:
        self._file = scratch.state / f"{config.stem}.log"
        self._output: TextIO = self._file.open("w")
        command = command or ("gke-ai", "up", "--stack", stack, "--config", str(config))
        self._process: subprocess.Popen[str] = scratch.start(self._output, *command)
        self._seen: list[str] = []
        self._since = time.monotonic()

    @property
    def runs(self) -> bool:
        """Whether the update has not ended."""
        return self._process.poll() is None

    @property
    def quiet(self) -> float:
        """Seconds since the update printed something besides dots."""
        lines = self.lines()
        if lines != self._seen:
            self._seen, self._since = lines, time.monotonic()
        return time.monotonic() - self._since

    def lines(self) -> list[str]:
        """The lines that the update printed, without the dots of Pulumi's display."""
        lines = self._file.read_text(errors="replace").splitlines()
        return [line.rstrip() for line in lines if not line.startswith("@")]

    def wait(self) -> bool:
        """Waits until the update has ended. Returns whether it succeeded."""
        return self._process.wait() == 0

    def succeeded(self) -> bool:
        """Whether the update has ended without an error."""
        return self._process.poll() == 0

    def stop(self) -> None:
        """Ends the update."""
        if self.runs:
            os.killpg(self._process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS)
            with contextlib.suppress(ProcessLookupError):  # the engine may outlive the command that started it
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._output.close()

    def notes(self) -> list[str]:
        """What a reader of the result must know: which runs leave the stack and stay, and the program's warnings."""
        deleted = [step for step in self._steps() if step["verb"] == "deleted"]
        ended = {step["name"].partition(f"/{RUNS_OF}")[0] for step in deleted if step["kind"].endswith(":ConfigMap")}
        kept = (
            step["name"]
            for step in deleted
            if step["kind"].endswith(_RUNS) and _is_retained(step) and step["name"].partition("/")[0] not in ended
        )
        return [
            f"Run {run} leaves the stack and stays in the cluster. Only kubectl ends a run that is active."
            for run in dict.fromkeys(kept)
        ] + [f"The program warns: {text}" for text in dict.fromkeys(self._warnings())]

    def _warnings(self) -> Iterator[str]:
        lines = self.lines()
        shown = lines[lines.index("Diagnostics:") :] if "Diagnostics:" in lines else []
        yield from (line.partition(_WARNING)[2] for line in shown if line.lstrip().startswith(_WARNING))

    def _steps(self) -> Iterator[re.Match[str]]:
        yield from filter(None, map(_STEP.match, self.lines()))

    def waits_for(self) -> str:
        """The resource that Pulumi was creating or changing when it stood still."""
        open_steps: dict[str, str] = {}
        for step in self._steps():
            if step["verb"] in ("creating", "updating", "replacing", "deleting") and "failed" not in step["rest"]:
                open_steps[step["name"]] = step["kind"]
            elif step["verb"] in _DONE:
                open_steps.pop(step["name"], None)
        return ", ".join(f"{kind.rpartition(':')[2]} {name}" for name, kind in open_steps.items())

    def done(self) -> list[str]:
        """What the update did in the cluster and in Google Cloud, such as `created Job train`."""
        done: dict[tuple[str, str], str] = {}
        for step in self._steps():
            if step["verb"] not in _DONE or not step["kind"].startswith(_CLOUD) or _is_retained(step):
                continue
            resource = step["kind"].rpartition(":")[2], step["name"]
            # A replacement has three steps in either order. Without `created replacement`, its object is only deleted.
            if step["verb"] == "created" and step["rest"].startswith(" replacement"):
                done[resource] = "replaced"
            elif step["verb"] != "replaced":
                done.setdefault(resource, step["verb"])
        return [f"{verb} {kind} {name}" for (kind, name), verb in done.items()]

    def errors(self) -> str:
        """The part of the output that says why the update failed."""
        lines = self.lines()
        start = next((i for i, line in enumerate(lines) if line.startswith(("Diagnostics:", "Policies:"))), None)
        if start is None:
            shown = [line for line in lines if line and not _NOISE.match(line)][-20:]
        else:
            end = next((i for i, line in enumerate(lines) if i > start and line.startswith("Resources:")), len(lines))
            shown = [line for line in lines[start + 1 : end] if line.strip() and _UNHANDLED not in line]
            shown = [line for line in shown if not line.lstrip().startswith(_NO_REASON)]
        return _URN.sub(lambda urn: f"{urn['kind'].rpartition(':')[2]} {urn['name']}", "\n".join(shown))


def _is_retained(step: re.Match[str]) -> bool:
    return step["verb"] == "deleted" and step["rest"].startswith(_RETAIN)


def deploy(scratch: Scratch, stack: str, config: Path) -> None:
    """Deploys a configuration and waits until that has ended. Stops with the reason if it fails."""
    update = Update(scratch, stack, config)
    try:
        succeeded = update.wait()
    finally:
        update.stop()
    if not succeeded:
        raise Stop(update.errors())
