"""Measures a test run: `python -m pytest -p maintain.times.plugin`.

Each worker measures the processes that it starts, and the controller writes the record.
A test that starts a process with an environment of its own, without the mark, is measured only while this process's
parent is one of the run.
"""

from __future__ import annotations

import datetime
import os
import resource
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from emulator.paths import ROOT
from maintain.times.ledger import Ledger
from maintain.times.programs import PYTEST
from maintain.times.record import BEFORE, CONTROLLER, PART, WHOLE, Record, Share, merge
from maintain.times.scanner import MARK, TICKS, Scanner

INTERVAL = 0.25
# Options that select tests, besides the paths and the markers.
SELECTING = ("keyword", "deselect", "ignore", "ignore_glob", "lf", "stepwise")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.collectonly:
        return
    is_controller = bool(config.getoption("tx", None) or config.getoption("numprocesses", None))
    is_worker = hasattr(config, "workerinput")
    if is_worker or not is_controller:
        config.pluginmanager.register(worker := Worker(), "times of a worker")
    if not is_worker:
        config.pluginmanager.register(Controller(None if is_controller else worker), "times of the run")


class Worker:
    """Measures the process that runs tests and all that it starts."""

    def __init__(self) -> None:
        pid = os.getpid()
        # Unlike the worker's name, it is unique among all test runs of this machine.
        mark = f"{pid}-{time.time_ns()}"
        os.environ[MARK] = mark
        self._scanner = Scanner(mark, pid)
        self._ledger = Ledger()
        self._file = BEFORE
        self._since = time.monotonic()
        self._sampling = 0.0
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        threading.Thread(target=self._run, name="times", daemon=True).start()

    def _run(self) -> None:
        while not self._stopped.wait(INTERVAL):
            self._sample()

    def _sample(self, next_file: str | None = None) -> None:
        """Charges what was used since the last sample to the current file."""
        with self._lock:
            before = time.thread_time()
            self._ledger.add(self._file, self._scanner.scan())
            self._file = next_file or self._file
            self._sampling += time.thread_time() - before

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        file = item.nodeid.partition("::")[0]
        if file != self._file:
            if self._file == BEFORE:
                self._ledger.of(BEFORE).seconds += self._pass_time()
            self._sample(file)
        self._pass_time()
        try:
            return (yield)
        finally:
            self._ledger.of(file).seconds += self._pass_time()

    def _pass_time(self) -> float:
        """Seconds since the last call."""
        before, self._since = self._since, time.monotonic()
        return self._since - before

    def share(self) -> Share:
        """What was measured, at the end of the run."""
        self._stopped.set()
        self._sample()
        return Share(self._ledger.uses, self._sampling)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["times"] = self.share().as_json()


class Controller:
    """Merges what the workers measured, and keeps the record.

    Args:
        worker: The worker, if it is this process.
    """

    def __init__(self, worker: Worker | None) -> None:
        self._worker = worker
        self._shares: list[Share] = []
        self._began = time.monotonic()
        self._busy = busy_seconds()

    @pytest.hookimpl(optionalhook=True)  # of xdist
    def pytest_testnodedown(self, node: Any) -> None:
        # A worker that crashed has no output.
        if "times" in (output := getattr(node, "workeroutput", {})):
            self._shares.append(Share.from_json(output["times"]))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._worker:
            self._shares.append(self._worker.share())
        else:
            used = resource.getrusage(resource.RUSAGE_SELF)
            own = Ledger()
            own.of(CONTROLLER).cpu[PYTEST] = used.ru_utime + used.ru_stime
            self._shares.append(Share(own.uses))
        Record(
            commit=commit(),
            date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            seconds=time.monotonic() - self._began,
            workers=max(1, len(self._shares) - (self._worker is None)),
            tests=session.testscollected,
            failed=session.testsfailed,
            busy=busy_seconds() - self._busy,
            share=merge(self._shares),
        ).write(kind_of(session))


def kind_of(session: pytest.Session) -> str:
    """The whole run that this was, or a part: one that selected tests or ended early."""
    option = session.config.option
    selected = any(getattr(option, name, None) for name in SELECTING)
    if selected or session.config.args_source != pytest.Config.ArgsSource.TESTPATHS:
        return PART
    if session.shouldstop or session.shouldfail:
        return PART
    return WHOLE.get(option.markexpr, PART)


def commit() -> str:
    """The commit of the checkout, with a plus sign if files differ from it."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    return git("rev-parse", "--short=10", "HEAD") + (
        "+" if git("status", "--porcelain", "--untracked-files=no") else ""
    )


def busy_seconds() -> float:
    """CPU time of the whole machine since its start."""
    with open("/proc/stat") as file:
        user, nice, system, _idle, _waiting, interrupts, soft, *_ = map(int, file.readline().split()[1:])
    return (user + nice + system + interrupts + soft) / TICKS
