"""Which files of a folder stay at home: hidden ones, bytecode, and what its file of patterns names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

# The first that exists counts, with whether a pattern without a slash matches in every folder.
# https://docs.cloud.google.com/sdk/gcloud/reference/topic/gcloudignore, https://docs.docker.com/build/concepts/context/
FILES = {".gcloudignore": True, ".dockerignore": False, ".gitignore": True}
# Tools (.git, .venv) and secrets (.env, .netrc) are hidden; bytecode differs after each start. `!NAME` keeps one.
DEFAULTS = (".*", "__pycache__")
INCLUDE = "#!include:"


@dataclass(frozen=True)
class _Rule:
    pattern: re.Pattern[str]
    keeps: bool
    only_folders: bool


@dataclass(frozen=True)
class Rules:
    """Patterns as git reads them. The last one that matches decides."""

    rules: Sequence[_Rule]

    def leave_out(self, name: str, is_folder: bool) -> bool:
        """Whether a file or a folder is left out, a folder with all in it. `name` is its path below the folder."""
        matching = (
            rule
            for rule in reversed(self.rules)
            if (is_folder or not rule.only_folders) and rule.pattern.fullmatch(name)
        )
        rule = next(matching, None)
        return rule is not None and not rule.keeps


def read_rules(folder: Path) -> Rules:
    """Returns the rules of a folder."""
    rules = [rule for line in DEFAULTS for rule in _parsed(line, True)]
    file = file_of(folder)
    if file.is_file():
        rules += [rule for line in _lines(file) for rule in _parsed(line, FILES[file.name])]
    return Rules(rules)


def file_of(folder: Path) -> Path:
    """The file of patterns that counts, or would count."""
    return next((folder / name for name in FILES if (folder / name).is_file()), folder / next(iter(FILES)))


def _lines(file: Path) -> Iterator[str]:
    """Yields the lines of a file, and of those that it includes."""
    for line in file.read_text(errors="replace").splitlines():
        included = line.removeprefix(INCLUDE).strip()
        if line.startswith(INCLUDE) and included in FILES and (file.parent / included).is_file():
            yield from (file.parent / included).read_text(errors="replace").splitlines()
        else:
            yield line


def _parsed(line: str, everywhere: bool) -> Iterator[_Rule]:
    """Yields the rule of a line: https://git-scm.com/docs/gitignore#_pattern_format"""
    line = line.rstrip()
    if not line or line.startswith("#"):
        return
    keeps = line.startswith("!")
    text = line.removeprefix("!").removeprefix("./")
    only_folders, text = text.endswith("/"), text.rstrip("/")
    anywhere = everywhere and "/" not in text
    pattern = ("(?:.*/)?" if anywhere else "") + _translated(text.lstrip("/"))
    try:
        yield _Rule(re.compile(pattern, re.DOTALL), keeps, only_folders)
    except re.error:
        return  # such as [z-a], which matches nothing


# Parts of a pattern, the longest first.
_PARTS = re.compile(r"(^|(?<=/))\*\*/|(?<=/)\*\*$|\*+|\?|\[[!^]?\]?[^\]]*\]|\\.|.", re.DOTALL)


def _translated(pattern: str) -> str:
    """A pattern as a regular expression."""

    def translated(match: re.Match[str]) -> str:
        text = match[0]
        if text == "**/":
            return "(?:.*/)?"
        if text == "**":
            return ".*"
        if text.startswith("*"):
            return "[^/]*"
        if text == "?":
            return "[^/]"
        if text.startswith("[") and len(text) > 1:
            negated = text[1] in "!^"
            return "(?!/)[" + "^" * negated + re.sub(r"[\\[&~|]", r"\\\g<0>", text[1 + negated : -1]) + "]"
        return re.escape(text[1:] if text.startswith("\\") and len(text) > 1 else text)

    return _PARTS.sub(translated, pattern)
