"""The console that the commands print to."""

from __future__ import annotations

import sys

from rich.console import Console

LOG_WIDTH = 160  # columns, without a terminal


def new_console(log_width: int = LOG_WIDTH) -> Console:
    """Returns a console as wide as the terminal. Without a terminal, as in a log, it has `log_width` columns."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else log_width)
