"""The console that the commands print to, and their tables. Apart from terminal.py, because rich takes long to load."""

from __future__ import annotations

import sys
from collections.abc import Container, Iterable
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from gke_ai.terminal import printable

if TYPE_CHECKING:
    from rich.progress import Progress

LOG_WIDTH = 160  # columns, without a terminal
# Columns of tables with reasons. Names must not wrap.
REASONS = ("why", "waits for", "source", "newest checkpoint")


class PlainConsole(Console):
    """A console on which a text cannot move the cursor, change colors or write to the clipboard."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yields the segments of something that is printed."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def new_console(log_width: int = LOG_WIDTH) -> Console:
    """Returns a console as wide as the terminal. Without a terminal, as in a log, it has `log_width` columns."""
    return PlainConsole(highlight=False, width=None if sys.stdout.isatty() else log_width)


def new_progress(console: Console) -> Progress:
    """Returns a bar that counts up to a total, for a terminal alone."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal)


def show(parts: Iterable[RenderableType]) -> None:
    """Prints parts of a result, each after an empty line."""
    console = new_console()
    for part in parts:
        console.print()
        console.print(part)


def new_table(
    columns: Iterable[str], rows: Iterable[Iterable[str | Text]], title: str = "", wrapped: Container[str] = REASONS
) -> Table:
    """Returns a table. Its texts have no markup, because names in them may be other people's."""
    table = Table(title=title or None, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in columns:
        wraps = column in wrapped
        table.add_column(Text(column), no_wrap=not wraps, overflow="fold" if wraps else "ellipsis")
    for row in rows:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    return table
