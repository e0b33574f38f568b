"""Prints the sizes of the product and its emulator. The emulator must stay smaller."""

import io
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("__main__.py", "components", "gke_ai", "gke_ai_outputs", "policy")
EMULATOR = ("emulator",)


def lines_of_code(file: Path) -> int:
    """Counts lines of code, without blank lines, comments and docstrings."""
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    code: set[int] = set()
    fresh = True  # a string at the beginning of a logical line is a docstring
    for token in tokenize.generate_tokens(io.StringIO(file.read_text()).readline):
        if token.type in skipped:
            fresh = fresh or token.type == tokenize.NEWLINE
        elif not (fresh and token.type == tokenize.STRING):
            code.update(range(token.start[0], token.end[0] + 1))
            fresh = False
    return len(code)


def files_of(*places: str) -> list[Path]:
    files = [
        file for place in places for file in ([ROOT / place] if place.endswith(".py") else (ROOT / place).rglob("*.py"))
    ]
    return [file for file in files if "tests" not in file.relative_to(ROOT).parts]


def size(*places: str) -> tuple[int, int]:
    """Returns the number of files and lines of code in these files and folders, without tests."""
    files = files_of(*places)
    return len(files), sum(lines_of_code(file) for file in files)


if __name__ == "__main__":
    for name, places in (("product", PRODUCT), ("emulator", EMULATOR)):
        files, lines = size(*places)
        print(f"{name:>9}: {lines:>5} lines of code in {files} files")
