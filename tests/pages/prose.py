"""Checks what people read against the rules of docs/prose.yaml: Markdown pages, docstrings, and descriptions of keys.

python -m tests.pages.prose      prints every mistake, and the number per folder of code
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import yaml

from tests.repository import ROOT, tracked

TABLE = ROOT / "docs" / "prose.yaml"
# Arguments whose text people read: of `Field`, of an option of a command.
DESCRIPTIONS = {"description", "help"}
# What is not prose in Markdown and in docstrings.
FENCE = re.compile(r"^(?P<indent> *)(?P<fence>```+).*?^(?P=indent)(?P=fence) *$", re.M | re.S)
NOT_PROSE = (re.compile(r"<!--.*?-->", re.S), re.compile(r"(`+).+?\1"), re.compile(r"https?://[^\s)>\]]+"))
LINK_TARGET = re.compile(r"(?<=\]\()[^)\s]+")
BLANK = "\0"  # no rule matches it, nor a text across it


@dataclass(frozen=True)
class Rule:
    """A word that the project does not use, and what to write instead."""

    word: str
    use: str
    example: str
    fine: str = ""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Matches the word as a whole, also across the end of a line."""
        return re.compile(rf"(?<![\w-])(?:{self.word.replace(' ', chr(92) + 's+')})(?!\w)", re.I)


@dataclass(frozen=True)
class Mistake:
    """A word in a file that a rule replaces."""

    file: str
    line: int
    word: str
    use: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.word!r}. Write: {self.use}."


def table() -> dict[str, Any]:
    """The content of docs/prose.yaml."""
    content: dict[str, Any] = yaml.safe_load(TABLE.read_text())
    return content


@cache
def rules() -> tuple[Rule, ...]:
    """The rules of docs/prose.yaml."""
    return tuple(Rule(**rule) for rule in table()["rules"])


def pages(root: Path = ROOT) -> list[Path]:
    """The Markdown pages that people write."""
    generated = {file for pattern in table()["generated"] for file in tracked(pattern, root)}
    return [file for file in tracked("**/*.md", root) if file not in generated]


def code(root: Path = ROOT) -> dict[str, list[Path]]:
    """The Python files of each folder, without tests.

    A file in the root of the repository is a folder of its own.
    """
    folders: dict[str, list[Path]] = {}
    for file in tracked("**/*.py", root):
        parts = file.relative_to(root).parts
        if "tests" not in parts:
            folders.setdefault(parts[0], []).append(file)
    return folders


def mistakes(file: Path, root: Path = ROOT) -> list[Mistake]:
    """Every mistake in a file."""
    name, content = str(file.relative_to(root)), file.read_text()
    texts = [(1, content)] if file.suffix == ".md" else python_texts(content)
    mistakes_found = [
        Mistake(name, line + prose[: match.start()].count("\n"), " ".join(match[0].split()), rule.use)
        for line, text in texts
        for prose in [only_prose(text)]
        for rule in rules()
        for match in rule.pattern.finditer(prose)
    ]
    return sorted(mistakes_found, key=lambda mistake: mistake.line)


def only_prose(text: str) -> str:
    """The text with everything else blanked out, line by line."""
    for pattern in (FENCE, *NOT_PROSE, LINK_TARGET):
        text = pattern.sub(lambda match: re.sub(r"[^\n]", BLANK, match[0]), text)
    return text


def python_texts(source: str) -> Iterator[tuple[int, str]]:
    """The docstrings and descriptions of a module, each with the line that it begins in."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value
        elif isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg in DESCRIPTIONS and (text := literal(keyword.value)):
                    yield keyword.value.lineno, text


def literal(node: ast.expr) -> str:
    """The text of a string, with the values of an f-string blanked out.

    Otherwise empty.
    """
    if isinstance(node, ast.JoinedStr):
        return "".join(literal(part) or BLANK for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def main() -> None:
    """Prints every mistake, and the number per folder of code."""
    counts: Counter[str] = Counter()
    for folder, files in {"pages": pages(), **code()}.items():
        for mistake in (mistake for file in files for mistake in mistakes(file)):
            counts[folder] += 1
            print(mistake)
    print(dict(counts))


if __name__ == "__main__":
    main()
