"""Shows progress: the running steps, the time left, and the last lines of a command that fails.

Everything goes to standard error: standard output belongs to the command that the user runs. Standard library only.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

LIVE = sys.stderr.isatty() and not os.environ.get("CI")
REDRAW_SECONDS = 0.5
HEARTBEAT_SECONDS = 30  # between lines in a log without a terminal
NOTICE_SECONDS = 3  # before a wait is mentioned
LAST_LINES = 15


class Stop(Exception):
    """Set-up can't continue. The text names the cause and the remedy for the user."""


class CommandFailed(Exception):
    """A command failed. `last_lines` are the last lines of its output."""

    def __init__(self, last_lines: Sequence[str]) -> None:
        super().__init__("\n".join(last_lines))
        self.last_lines = last_lines


class Canceled(Exception):
    """This step was ended because another step failed or the user interrupted."""


def duration(seconds: float) -> str:
    """Formats a duration: `41 s`, `3 min 05 s`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def roughly(seconds: float) -> str:
    """Formats an estimate: `under a minute`, `about 4 min`."""
    minutes = round(seconds / 60)
    return f"about {minutes} min" if minutes else "under a minute"


@contextmanager
def noticed(text: str) -> Iterator[None]:
    """Prints a text if the block takes longer than a moment, and again while it goes on."""
    began, ended = time.monotonic(), threading.Event()

    def tick() -> None:
        pause = NOTICE_SECONDS
        while not ended.wait(pause):
            print(f"{text} ({duration(time.monotonic() - began)})", file=sys.stderr, flush=True)
            pause = HEARTBEAT_SECONDS

    ticker = threading.Thread(target=tick, daemon=True)
    ticker.start()
    try:
        yield
    finally:
        ended.set()
        ticker.join()


class Progress:
    """Steps that run in parallel.

    A terminal shows one line that is redrawn; a log gets a line every 30 seconds.

    Args:
        usual: Seconds that all steps together usually take on two cores.
    """

    def __init__(self, usual: float = 0) -> None:
        self._usual = usual
        self._began = time.monotonic()
        self._running: list[Step] = []
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self.canceled = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Progress:
        self._ticker.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._ticker.join()

    def step(self, title: str) -> Step:
        """Begins a step."""
        step = Step(self, title)
        with self._lock:
            self._running.append(step)
        return step

    def end(self, step: Step, how: str) -> None:
        """Ends a step and prints a permanent line: `kubernetes 1.36.1 built in 3 min 41 s`."""
        with self._lock:
            if step in self._running:
                self._running.remove(step)
        self._show(f"  {step.title} {how} {duration(time.monotonic() - step.started)}", lasting=True)

    def line(self) -> str:
        """The running steps, the elapsed time and an estimate of the time left."""
        elapsed = time.monotonic() - self._began
        left = self._usual - elapsed
        rest = f", {roughly(left)} left" if left > 0 else ", longer than usual" if self._usual else ""
        with self._lock:
            running = [f"{step.title} ({step.now})" if step.now else step.title for step in self._running]
        return f"  {duration(elapsed)}{rest}: {'; '.join(running)}"

    def _tick(self) -> None:
        while not self._ended.wait(REDRAW_SECONDS if LIVE else HEARTBEAT_SECONDS):
            if self._running:
                self._show(self.line(), lasting=not LIVE)

    def _show(self, line: str, *, lasting: bool) -> None:
        if LIVE:
            columns = os.get_terminal_size(sys.stderr.fileno()).columns or 80
            line = "\r\033[K" + (line if lasting else line[: columns - 1])
        print(line, end="\n" if lasting else "", file=sys.stderr, flush=True)


class Step:
    """One piece of work of a `Progress`."""

    def __init__(self, progress: Progress, title: str) -> None:
        self.title = title
        self.started = time.monotonic()
        self.now = ""
        self._progress = progress

    def note(self, text: str) -> None:
        """Sets the current activity, which the next redraw shows."""
        self.now = text

    def done(self, how: str) -> None:
        """Ends the step. A duration follows `how`: `built in`."""
        self._progress.end(self, how)

    def run(
        self,
        command: Sequence[str],
        *,
        parse_line: Callable[[str], str | None],
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Runs a command and shows its progress in the step.

        Args:
            command: Program and arguments.
            parse_line: Called with each line of output. Returns a note if the line is progress. Returns None if not;
                the last of these lines are kept for the error.
            cwd: Working directory. Default: that of this process.
            env: The complete environment. Default: that of this process.

        Raises:
            CommandFailed: The command failed.
            Canceled: The command was ended because another step failed.
        """
        kept: deque[str] = deque(maxlen=LAST_LINES)
        process = subprocess.Popen(
            command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )

        def read_output() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                note = parse_line(line.rstrip())
                if note is None:
                    kept.append(line.rstrip())
                else:
                    self.note(note)

        reader = threading.Thread(target=read_output, daemon=True)
        reader.start()
        try:
            while process.poll() is None:
                if self._progress.canceled.wait(0.1):
                    raise Canceled
        except BaseException:
            process.kill()
            process.wait()
            raise
        reader.join()
        if process.returncode != 0:
            self.done("failed after")
            raise CommandFailed(list(kept) or [f"it ended with status {process.returncode} and printed nothing"])
