"""Prints how large the product and its emulator are: the emulator has to stay the smaller one."""

from __future__ import annotations

import io
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = (
    "__main__.py",
    "catalog",
    "components",
    "composition",
    "ops",
    "outputs",
    "package",
    "policy",
    "report",
    "settings",
)
EMULATOR = ("emulator",)


def lines_of_code(file: Path) -> int:
    """Lines that hold code: blank lines, comments and docstrings don't count."""
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    held: set[int] = set()
    fresh = True  # a string that begins a logical line is a docstring
    for token in tokenize.generate_tokens(io.StringIO(file.read_text()).readline):
        if token.type in skipped:
            fresh = fresh or token.type == tokenize.NEWLINE
        elif not (fresh and token.type == tokenize.STRING):
            held.update(range(token.start[0], token.end[0] + 1))
            fresh = False
    return len(held)


def size(*places: str) -> tuple[int, int]:
    """Files and lines of code in these files and folders, their tests left out."""
    files = [
        file for place in places for file in ([ROOT / place] if place.endswith(".py") else (ROOT / place).rglob("*.py"))
    ]
    files = [file for file in files if "tests" not in file.relative_to(ROOT).parts]
    return len(files), sum(lines_of_code(file) for file in files)


if __name__ == "__main__":
    for name, places in (("product", PRODUCT), ("emulator", EMULATOR)):
        files, lines = size(*places)
        print(f"{name:>9}: {lines:>5} lines of code in {files} files")
