"""The console that the commands print to, text that cannot control a terminal, and how a command stops."""

from __future__ import annotations

import sys
from collections.abc import Container, Iterable, Mapping
from pathlib import Path

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

LOG_WIDTH = 160  # columns, without a terminal
# Columns of tables with reasons. Names must not wrap.
REASONS = ("why", "waits for", "source", "newest checkpoint")
# Control characters, and those that change the direction of text: https://www.unicode.org/reports/tr36/
_CONTROL = (*range(9), *range(11, 32), *range(127, 160), *range(0x2028, 0x202F), *range(0x2066, 0x206A))
_PLAIN = {**dict.fromkeys(_CONTROL, "\N{REPLACEMENT CHARACTER}"), ord("\r"): " "}


def printable(text: str) -> str:
    """Returns a text, which may be a stranger's, without control characters except tabs and line feeds."""
    return text.translate(_PLAIN)


class Stop(Exception):
    """Ends a command with a message for the user, without a traceback."""

    def __str__(self) -> str:
        return printable(super().__str__())


def write(files: Mapping[Path, str]) -> None:
    """Writes the results of a command to files, creates their folders, and prints where they are."""
    for file, content in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        print(f"Written: {file}")


class PlainConsole(Console):
    """A console on which a text cannot move the cursor, change colors or write to the clipboard."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yields the segments of something that is printed."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def new_console(log_width: int = LOG_WIDTH) -> Console:
    """Returns a console as wide as the terminal. Without a terminal, as in a log, it has `log_width` columns."""
    return PlainConsole(highlight=False, width=None if sys.stdout.isatty() else log_width)


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
