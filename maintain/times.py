"""Starts the longest test files first, and prints where the time went: `python -m pytest -p maintain.times`."""

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from _pytest.terminal import TerminalReporter

SLOWEST = 15
# Files that take minutes, the longest first. Then come the others that need a cluster, and quick ones fill the end.
LONGEST = (
    *("dev", "streams", "convergence", "tenants", "rehearse", "jetstream", "multislice", "training_job"),
    *("cost_optimized", "tutorials", "model_cache", "flex_start"),
)
# User, nice, system, interrupts and stolen time of all cores, in ticks: proc_stat(5).
_BUSY = (0, 1, 2, 5, 6, 7)
_began: list[float] = []


def pytest_sessionstart() -> None:
    _began[:] = [time.monotonic(), cpu_seconds()]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the longest test files first. `--no-loadscope-reorder` keeps this order."""

    def place(item: pytest.Item) -> tuple[bool, int]:
        name = item.path.stem.removeprefix("test_")
        rank = LONGEST.index(name) if name in LONGEST and item.path.parent.name == "cluster" else len(LONGEST)
        return item.get_closest_marker("cluster") is None, rank

    items.sort(key=place)


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Prints the test files that took longest, and the CPU time of this machine during the run."""
    if _began:
        reports = (report for group in terminalreporter.stats.values() for report in group)
        measured = [report for report in reports if isinstance(report, pytest.TestReport)]
        terminalreporter.section(f"slowest {SLOWEST} test files")
        for line in lines(measured, time.monotonic() - _began[0], cpu_seconds() - _began[1]):
            terminalreporter.write_line(line)


def lines(reports: Iterable[pytest.TestReport], seconds: float, cpu: float) -> Iterator[str]:
    """Yields a line for each of the slowest files, and one for the whole run."""
    by_file: dict[str, float] = defaultdict(float)
    for report in reports:
        by_file[report.nodeid.partition("::")[0]] += report.duration
    for file, spent in sorted(by_file.items(), key=lambda item: -item[1])[:SLOWEST]:
        yield f"{spent:7.0f} s  {file}"
    cores = os.cpu_count() or 1
    share = f"{cpu / seconds / cores:.0%} of {cores} cores"
    yield f"{seconds / 60:.1f} minutes, {cpu / 60:.1f} CPU-minutes of this machine: {share}"


def cpu_seconds() -> float:
    """The time that the cores of this machine were busy; nothing where the system does not say."""
    file = Path("/proc/stat")
    ticks = file.read_text().split("\n", 1)[0].split()[1:] if file.exists() else []
    return sum(int(ticks[number]) for number in _BUSY) / os.sysconf("SC_CLK_TCK") if ticks else 0.0
