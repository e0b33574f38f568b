"""Tables of a test run."""

from __future__ import annotations

from maintain.times.ledger import Use
from maintain.times.programs import PROGRAMS
from maintain.times.record import Record

COLUMNS = ("test file", "seconds", "CPU", *PROGRAMS, "clusters", "engine runs")


def rows(record: Record, files: int | None = None) -> list[list[str]]:
    """A row for each test file, the one with most CPU time first, and the total.

    Args:
        record: The run.
        files: Number of files with a row of their own. Default: all.
    """
    uses = sorted(record.share.uses.items(), key=lambda entry: -entry[1].cpu_seconds)
    shown, others = uses[:files], uses[len(uses[:files]) :]
    if others:
        shown.append((f"{len(others)} others", _total(others)))
    return [_row(file, use) for file, use in [*shown, ("total", _total(uses))]]


def _total(uses: list[tuple[str, Use]]) -> Use:
    total = Use()
    for _, use in uses:
        total.add(use)
    return total


def _row(file: str, use: Use) -> list[str]:
    cpu = [use.cpu_seconds, *(use.cpu.get(program, 0.0) for program in PROGRAMS)]
    counts = (use.clusters, use.engine_runs)
    return [file, f"{use.seconds:.0f}", *(f"{seconds:.0f}" for seconds in cpu), *map(str, counts)]


def summary(record: Record) -> str:
    """The run in three sentences: what it was, what it used, what no file was charged with."""
    used = record.share.uses.values()
    cpu = sum(use.cpu_seconds for use in used)
    rest = max(0.0, record.busy - cpu)
    outcome = f"{record.failed} failed" if record.failed else "none failed"
    return (
        f"Commit {record.commit}, {record.date}: {record.tests} tests, {outcome}, "
        f"{record.seconds / 60:.1f} minutes in {record.workers} processes. "
        f"CPU time: {cpu / 60:.1f} minutes, of which the measuring took {record.share.sampling:.0f} seconds. "
        f"The machine was busy for {record.busy / 60:.1f} CPU-minutes: {rest / (record.busy or 1):.0%} are charged to "
        "no file, because of other work on the machine or because a process ended before it was seen."
    )


def plain(record: Record) -> str:
    """The table for a terminal."""
    lines = [list(COLUMNS), *rows(record)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip() for line in lines
    )


def markdown(record: Record, files: int) -> str:
    """The table for a page, with the files that used the most CPU time and all others in one row."""
    lines = [COLUMNS, ["---", *["--:"] * (len(COLUMNS) - 1)], *rows(record, files)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def legend() -> str:
    """What each column of CPU time counts."""
    return "\n".join(f"{program}: {meaning}" for program, meaning in PROGRAMS.items())
