"""Long work made visible: which step of how many, for how long, and what a failing command said last.

Everything goes to standard error: standard output belongs to the command that set-up runs for. Standard library only.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

LIVE = sys.stderr.isatty() and not os.environ.get("CI")
REDRAW_SECONDS = 0.5
HEARTBEAT_SECONDS = 30  # a log without a terminal still shows that something moves
LAST_LINES = 15


class Stop(Exception):
    """Set-up can't go on; the text says why and what to do, for a person."""


class CommandFailed(Exception):
    """A command ended with an error; `said` holds the last lines of its output."""

    def __init__(self, said: Sequence[str]) -> None:
        super().__init__("\n".join(said))
        self.said = said


def duration(seconds: float) -> str:
    """`41 s`, `3 min 05 s`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


class Step:
    """One of several steps: a line that lives while it lasts on a terminal, a line now and then elsewhere.

    Args:
        number: Which step this is, from 1.
        total: Of how many.
        title: What it makes, as shown.
    """

    def __init__(self, number: int, total: int, title: str) -> None:
        self._title = f"[{number}/{total}] {title}"
        self._began = time.monotonic()
        self._note = ""
        self._show(f"{self._title} …", lasting=not LIVE)

    def note(self, text: str) -> None:
        """What is being done right now; shown with the next redraw."""
        self._note = text

    def done(self, how: str) -> None:
        """Ends the step: `[3/7] kubernetes 1.35.4 built in 41 s`."""
        self._show(f"{self._title} {how} in {duration(time.monotonic() - self._began)}", lasting=True)

    def run(
        self,
        command: Sequence[str],
        *,
        hear: Callable[[str], str | None],
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Runs a command while the step shows what it does.

        Args:
            command: Program and arguments.
            hear: Given each line of output: a note when the line is progress, else None; those lines are kept.
            cwd: Its working directory.
            env: Its whole environment.

        Raises:
            CommandFailed: It ended with an error.
        """
        kept: deque[str] = deque(maxlen=LAST_LINES)
        process = subprocess.Popen(
            command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )

        def listen() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                note = hear(line.rstrip())
                if note is None:
                    kept.append(line.rstrip())
                else:
                    self.note(note)

        listener = threading.Thread(target=listen, daemon=True)
        listener.start()
        try:
            while True:
                try:
                    status = process.wait(REDRAW_SECONDS if LIVE else HEARTBEAT_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    self._alive()
        except BaseException:
            process.kill()
            raise
        listener.join()
        if status != 0:
            self._show(f"{self._title} failed after {duration(time.monotonic() - self._began)}", lasting=True)
            raise CommandFailed(list(kept) or [f"it ended with status {status} and said nothing"])

    def _alive(self) -> None:
        elapsed = duration(time.monotonic() - self._began)
        self._show(f"{self._title} … {elapsed}" + (f", {self._note}" if self._note else ""), lasting=not LIVE)

    def _show(self, line: str, *, lasting: bool) -> None:
        if LIVE:
            columns = os.get_terminal_size(sys.stderr.fileno()).columns or 80
            line = "\r\033[K" + (line if lasting else line[: columns - 1])
        print(line, end="\n" if lasting else "", file=sys.stderr, flush=True)
