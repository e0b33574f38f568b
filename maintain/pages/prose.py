"""Checks the words and the spelling of what people read: pages, code, pictures, workflows and configurations.

Of code, that is docstrings, comments, and strings with a sentence: descriptions, errors and output. docs/prose.yaml has
words that the project does not use, and docs/words.txt words that the dictionary lacks.

python -m maintain.pages.prose      prints every mistake, and the number per folder
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from html import unescape
from pathlib import Path
from typing import Any

import yaml
from spellchecker import SpellChecker

from tests.support.repository import ROOT, tracked

TABLE = ROOT / "docs" / "prose.yaml"
WORDS = ROOT / "docs" / "words.txt"
# Arguments whose text people read, however short: of `Field`, of an option of a command.
DESCRIPTIONS = {"description", "help"}
# A string with four words in a row is a sentence, or a part of one.
SENTENCE = re.compile(r"(?<![\w-])[A-Za-z][a-z']*(?:,? [a-z']+){3}\b")
# What people read of workflows and configurations: comments, names, and lines that are printed.
READ = re.compile(r"(?:^|\s)#+ (.*)|^[ -]*(?:name|description): (.*)|\becho \"(.*)\"")
PRINTED = re.compile(r"(?<=>)[^<>]+(?=<)|(?<=aria-label=\")[^\"]+")
# A word that is not a part of a name, a path, a variable or an address.
WORD = re.compile(r"(?<![\w./@:_{\\$-])[A-Za-z][a-z']++(?![\w_/:@{\\(\[-]|\.\w)")
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


def others(root: Path = ROOT) -> dict[str, list[Path]]:
    """Pictures, workflows and configurations."""
    patterns = {
        "pictures": ("docs/**/*.svg",),
        "workflows": (".github/**/*.yml", "examples/**/*.yml", "Makefile"),
        "configurations": ("Pulumi.yaml", "tests/data/environments/*.yaml", "examples/**/*.yaml"),
    }
    return {name: [file for pattern in globs for file in tracked(pattern, root)] for name, globs in patterns.items()}


def mistakes(file: Path, root: Path = ROOT) -> list[Mistake]:
    """Every mistake in a file."""
    name = str(file.relative_to(root))
    found = {
        Mistake(name, line + prose[: match.start()].count("\n"), " ".join(match[0].split()), use)
        for line, text in texts(file)
        for prose in [only_prose(text)]
        for match, use in [*replaced(prose), *misspelled(prose)]
    }
    return sorted(found, key=lambda mistake: (mistake.line, mistake.word))


def replaced(prose: str) -> Iterator[tuple[re.Match[str], str]]:
    """The words of a text that the project does not use, each with what to write instead."""
    for rule in rules():
        yield from ((match, rule.use) for match in rule.pattern.finditer(prose))


def misspelled(prose: str) -> Iterator[tuple[re.Match[str], str]]:
    """The words of a text that are in no list of words."""
    for match in WORD.finditer(prose):
        if not is_word(match[0].lower().strip("'").removesuffix("'s")):
            yield match, "a word of the dictionary, or add it to docs/words.txt"


@cache
def is_word(word: str) -> bool:
    """Whether a word is English, or in docs/words.txt."""
    return len(word) <= 2 or word in dictionary()


@cache
def dictionary() -> SpellChecker:
    """The words of English, and those of docs/words.txt."""
    checker = SpellChecker()
    checker.word_frequency.load_words(WORDS.read_text().split())
    return checker


def only_prose(text: str) -> str:
    """The text with everything else blanked out, line by line."""
    for pattern in (FENCE, *NOT_PROSE, LINK_TARGET):
        text = pattern.sub(lambda match: re.sub(r"[^\n]", BLANK, match[0]), text)
    return text


def texts(file: Path) -> Iterator[tuple[int, str]]:
    """What people read of a file, each text with the line that it begins in."""
    content = file.read_text()
    if file.suffix == ".md":
        yield 1, content
    elif file.suffix == ".py":
        yield from python_texts(content)
    elif file.suffix == ".svg":
        without_style = re.sub(r"<style>.*?</style>", "", content, flags=re.S)
        yield from (
            (without_style[: match.start()].count("\n") + 1, unescape(match[0]))
            for match in PRINTED.finditer(without_style)
        )
    else:
        for number, line in enumerate(content.splitlines(), 1):
            yield from ((number, text) for match in READ.finditer(line) for text in match.groups() if text)


def python_texts(source: str) -> Iterator[tuple[int, str]]:
    """The docstrings, comments, descriptions and sentences of a module, each with the line that it begins in."""
    nodes = list(ast.walk(ast.parse(source)))
    parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    described = {id(node.value) for node in nodes if isinstance(node, ast.keyword) and node.arg in DESCRIPTIONS}
    described |= {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and id(node) not in parts):
            text = literal(node)
            if id(node) in described or SENTENCE.search(text):
                yield node.lineno, text
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def literal(node: ast.expr) -> str:
    """The text of a string, with the values of an f-string blanked out.

    Otherwise empty.
    """
    if isinstance(node, ast.JoinedStr):
        return "".join(literal(part) or BLANK for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def main() -> None:
    """Prints every mistake, and the number per folder."""
    counts: Counter[str] = Counter()
    for folder, files in {"pages": pages(), **code(), **others()}.items():
        for mistake in (mistake for file in files for mistake in mistakes(file)):
            counts[folder] += 1
            print(mistake)
    print(dict(counts))


if __name__ == "__main__":
    main()
