"""A trace: the submissions of a day as typed rows of a CSV file. Pure.

Every mistake names its line and column. A file may be a stranger's: its size and every value have limits.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from gke_ai.catalog.fabric.topology import LEVELS, TOPOLOGY_KINDS
from gke_ai.terminal import Stop

MAX_BYTES, MAX_ROWS = 32 * 2**20, 100_000
# A Workload object of Kueue has at most 1,000 pods or so in practice; the limits are far above any real run.
MAX_PODS, MAX_PER_POD, MAX_SECONDS = 10_000, 100_000.0, 366 * 86_400.0
SHOWN_MISTAKES, SHOWN_TEXT = 10, 60
_NAME = "[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"


@dataclass(frozen=True)
class Submission:
    """A run that somebody submits. The names of the fields are the columns of the file.

    Attributes:
        time: Seconds from the beginning of the trace.
        queue: Local queue, as NAMESPACE/NAME.
        priority: Priority class. Empty: the priority of pods that name none.
        pods: Number of pods, which Kueue admits together.
        accelerators: GPUs or TPU chips of each pod.
        cpu: CPU cores of each pod.
        memory: Memory of each pod, in GiB.
        duration: Seconds from start to end, without interruption.
        checkpoint: Seconds between checkpoints. 0: no checkpoints, so an evicted run starts from the beginning.
        spot: Whether the run tolerates Spot nodes.
        topology: Where its pods are in the network, as `required=block`. Empty: anywhere.
    """

    time: float
    queue: str
    priority: str
    pods: int
    accelerators: int
    cpu: float
    memory: float
    duration: float
    checkpoint: float = 0.0
    spot: bool = False
    topology: str = ""


Trace = tuple[Submission, ...]


class Mistake(ValueError):
    """A value that a column does not take. The message says what the column takes."""


def number(low: float, high: float) -> Callable[[str], float]:
    """Returns a reader of numbers in a range."""

    def read_number(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            raise Mistake(f"use a number from {low:g} to {high:g}")
        return value

    return read_number


def integer(low: int, high: int) -> Callable[[str], int]:
    """Returns a reader of whole numbers in a range."""

    def read_integer(text: str) -> int:
        if not re.fullmatch(r"\d{1,9}", text, re.ASCII) or not low <= int(text) <= high:
            raise Mistake(f"use a whole number from {low} to {high}")
        return int(text)

    return read_integer


def matching(pattern: str, wanted: str) -> Callable[[str], str]:
    """Returns a reader of texts with a pattern."""

    def read_text(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise Mistake(f"use {wanted}")
        return text

    return read_text


def _spot(text: str) -> bool:
    if text not in ("yes", "no", ""):
        raise Mistake("use yes or no")
    return text == "yes"


COLUMNS: Mapping[str, Callable[[str], object]] = {
    "time": number(0, MAX_SECONDS),
    "queue": matching(f"{_NAME}/{_NAME}", "NAMESPACE/NAME of a local queue"),
    "priority": matching(f"({_NAME})?", "the name of a priority class, or nothing"),
    "pods": integer(1, MAX_PODS),
    "accelerators": integer(0, int(MAX_PER_POD)),
    "cpu": number(0, MAX_PER_POD),
    "memory": number(0, MAX_PER_POD),
    "duration": number(1, MAX_SECONDS),
    "checkpoint": lambda text: number(0, MAX_SECONDS)(text or "0"),
    "spot": _spot,
    "topology": matching(
        f"(({'|'.join(TOPOLOGY_KINDS)})=({'|'.join(LEVELS)}))?", "required=LEVEL or preferred=LEVEL, or nothing"
    ),
}
OPTIONAL = ("checkpoint", "spot", "topology")
assert list(COLUMNS) == [field.name for field in fields(Submission)]


def text_of(path: Path, limit: int = MAX_BYTES) -> str:
    """Returns the text of a file that may be a stranger's. Stops if it is none, or too large."""
    if not path.is_file():
        raise Stop(f"{path} is not a file.")
    if path.stat().st_size > limit:
        raise Stop(f"{path} has more than {limit >> 20} MiB. Replay a part of it.")
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Stop(f"{path} cannot be read as text: {error}.") from None


def read(path: Path) -> Trace:
    """Reads a trace, in order of time. Stops with every mistake, up to ten, by line and column."""
    mistakes: list[str] = []
    rows: list[Submission] = []
    for line, row in rows_of(path, tuple(COLUMNS), OPTIONAL):
        values: dict[str, object] = {}
        for column, reader in COLUMNS.items():
            try:
                values[column] = reader(row.get(column, ""))
            except Mistake as mistake:
                mistakes.append(f"line {line}, column {column}: {shown(row.get(column, ''))}: {mistake}.")
        if len(values) == len(COLUMNS):
            rows.append(Submission(**values))  # type: ignore[arg-type] # each reader returns its field's type
        if len(mistakes) >= SHOWN_MISTAKES:
            break
    if mistakes:
        raise Stop("\n".join(f"{path}, {mistake}" for mistake in mistakes[:SHOWN_MISTAKES]))
    if not rows:
        raise Stop(f"{path} has no submissions, so there is nothing to simulate.")
    return tuple(sorted(rows, key=lambda row: row.time))


def rows_of(path: Path, columns: Iterable[str], optional: Iterable[str] = ()) -> Iterator[tuple[int, dict[str, str]]]:
    """Yields the rows of a CSV file with their lines. Stops if a column is missing or a row has too many values."""
    reader = csv.DictReader(io.StringIO(text_of(path)), strict=True)
    try:
        header = [name.strip() for name in reader.fieldnames or ()]
        reader.fieldnames = header
        if missing := [name for name in columns if name not in header and name not in optional]:
            raise Stop(f"{path}, line 1: there is no column {', '.join(missing)}. Add it to the header.")
        for count, row in enumerate(reader):
            if count == MAX_ROWS:
                raise Stop(f"{path} has more than {MAX_ROWS:,} rows. Replay a part of it.")
            if None in row or None in row.values():
                raise Stop(f"{path}, line {reader.line_num}: the row does not have {len(header)} values as the header.")
            yield reader.line_num, {name: value.strip() for name, value in row.items()}
    except csv.Error as error:
        raise Stop(f"{path}, line {reader.reader.line_num}: this is no CSV: {error}.") from None


def shown(text: str) -> str:
    """Returns a value for a message: quoted, on one line, and short."""
    return repr(text if len(text) <= SHOWN_TEXT else text[:SHOWN_TEXT] + "…")


def written(trace: Iterable[Submission]) -> str:
    """Returns a trace as CSV. Without a run that states a topology, it has no such column."""
    file, rows = io.StringIO(), list(trace)
    columns = [name for name in COLUMNS if name != "topology" or any(row.topology for row in rows)]
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        values = (getattr(row, column) for column in columns)
        writer.writerow([_written(value) for value in values])
    return file.getvalue()


def _written(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
