"""Shows long work: what runs now and for how long, about how long is left, and a failing command's last lines.

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
from types import TracebackType

LIVE = sys.stderr.isatty() and not os.environ.get("CI")
REDRAW_SECONDS = 0.5
HEARTBEAT_SECONDS = 30  # a log without a terminal still shows that something moves
LAST_LINES = 15


class Stop(Exception):
    """Set-up can't go on; the text is for a person: the cause and the remedy."""


class CommandFailed(Exception):
    """A command ended with an error; `said` holds the last lines of its output."""

    def __init__(self, said: Sequence[str]) -> None:
        super().__init__("\n".join(said))
        self.said = said


class Canceled(Exception):
    """Another step failed or the user interrupted; this one was ended."""


def duration(seconds: float) -> str:
    """`41 s`, `3 min 05 s`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def roughly(seconds: float) -> str:
    """`under a minute`, `about 4 min`: for an estimate."""
    minutes = round(seconds / 60)
    return f"about {minutes} min" if minutes else "under a minute"


class Progress:
    """Steps that run side by side: on a terminal one line that is redrawn, elsewhere a line every half a minute.

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
        """Ends a step with a line that stays: `kubernetes 1.36.1 built in 3 min 41 s`."""
        with self._lock:
            if step in self._running:
                self._running.remove(step)
        self._show(f"  {step.title} {how} {duration(time.monotonic() - step.began)}", lasting=True)

    def line(self) -> str:
        """What runs now, for how long, and about how long is left."""
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
        self.began = time.monotonic()
        self.now = ""
        self._progress = progress

    def note(self, text: str) -> None:
        """What is being done right now; shown with the next redraw."""
        self.now = text

    def done(self, how: str) -> None:
        """Ends the step; `how` reads on with a duration: `built in`."""
        self._progress.end(self, how)

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
            Canceled: It was ended because another step failed.
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
            while process.poll() is None:
                if self._progress.canceled.wait(0.1):
                    raise Canceled
        except BaseException:
            process.kill()
            process.wait()
            raise
        listener.join()
        if process.returncode != 0:
            self.done("failed after")
            raise CommandFailed(list(kept) or [f"it ended with status {process.returncode} and said nothing"])
