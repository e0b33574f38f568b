"""Text that cannot control a terminal, and how a command stops."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

# Control characters, and those that change the direction of text: https://www.unicode.org/reports/tr36/
_CONTROL = (*range(9), *range(11, 32), *range(127, 160), *range(0x2028, 0x202F), *range(0x2066, 0x206A))
_PLAIN = {**dict.fromkeys(_CONTROL, "\N{REPLACEMENT CHARACTER}"), ord("\r"): " "}


def printable(text: str) -> str:
    """Returns a text, which may be a stranger's, without control characters except tabs and line feeds."""
    return text.translate(_PLAIN)


def echo(text: str, file: TextIO | None = None, end: str = "\n") -> None:
    """Prints a text that may be a stranger's, such as a log, a message of a cluster, or a name in a file."""
    print(printable(text), end=end, file=file, flush=True)


# Packages that only an extra of the wheel brings.
EXTRAS = {"click": "command", "rich": "command", "pulumi_policy": "policies"}


def without_extra(missing: ModuleNotFoundError) -> BaseException:
    """Returns what ends a program that lacks a package of an extra: a sentence that names the extra."""
    if not (extra := EXTRAS.get(missing.name or "")):
        return missing
    return SystemExit(f"{missing.name} is missing: install gke-ai with its extra,  pip install 'WHEEL[{extra}]'")


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
