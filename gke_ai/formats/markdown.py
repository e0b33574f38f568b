"""Markdown of the page: tables, folded parts, and text that cannot become anything else."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gke_ai.terminal import printable

# A table with more rows is folded.
LONG = 8


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a Markdown table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def long(title: str, body: str, rows: int) -> str:
    """Folds a part that has many rows."""
    return folded(title, body) if rows > LONG else body


def folded(title: str, body: str) -> str:
    """Returns a part that readers expand."""
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"


def text(value: str) -> str:
    """Escapes Markdown and HTML in plain text for a table cell or a line."""
    escaped = printable(value).replace("&", "&amp;").replace("<", "&lt;").replace("\\", "&#92;")
    escaped = escaped.replace("|", "\\|").replace("\n", " ")
    escaped = escaped.replace("](", "]\\(").replace("@", "@\u200b")  # no links and no mentions
    return "".join(f"\\{c}" if c in "*_`" else c for c in escaped)


def block(value: str) -> str:
    """Formats text as a block of code, which no line of the text can end."""
    fence = "`" * max(3, longest_run(value) + 1)
    return f"{fence}\n{printable(value)}\n{fence}"


def longest_run(value: str) -> int:
    """Returns the length of the longest run of backticks in a text. A longer fence encloses the text."""
    return max(map(len, re.findall("`+", value)), default=0)


def code(value: str) -> str:
    """Formats a name or a value as inline code."""
    if not value or value in ("–", "(secret)", "(known after an up)"):
        return value
    if "\\|" in value:  # in a table, an escaped bar after a backslash would end the cell
        return f"<code>{text(value)}</code>"
    fence = "`" * (longest_run(value) + 1)
    pad = " " if "`" in value else ""
    return f"{fence}{pad}{printable(value)}{pad}{fence}".replace("|", "\\|").replace("\n", " ")
