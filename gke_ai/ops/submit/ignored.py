"""Which files of a folder stay at home: hidden ones, bytecode, and what its file of patterns names."""

from __future__ import annotations

import fnmatch
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
    names: Sequence[re.Pattern[str] | None]
    """What the names in a path match, from its first one. None stands for any folders."""
    keeps: bool
    only_folders: bool

    def matches(self, path: str) -> bool:
        """Whether the whole path matches. Follows all ways at once: a pattern of a stranger must not take years."""
        places = self._open({0})
        for name in path.split("/"):
            places = self._open({place for at in places for place in self._after(at, name)})
        return len(self.names) in places

    def _after(self, at: int, name: str) -> Iterator[int]:
        if at < len(self.names):
            pattern = self.names[at]
            if pattern is None:
                yield at
            elif pattern.match(name):
                yield at + 1

    def _open(self, places: set[int]) -> set[int]:
        """These places, and those that follow where no folder is needed."""
        opened = set(places)
        for place in places:
            while place < len(self.names) and self.names[place] is None:
                place += 1
                opened.add(place)
        return opened


@dataclass(frozen=True)
class Rules:
    """Patterns as git reads them. The last one that matches decides."""

    rules: Sequence[_Rule]

    def leave_out(self, name: str, is_folder: bool) -> bool:
        """Whether a file or a folder is left out, a folder with all in it. `name` is its path below the folder."""
        matching = (
            rule for rule in reversed(self.rules) if (is_folder or not rule.only_folders) and rule.matches(name)
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
    names = [*(["**"] if everywhere and "/" not in text else []), *text.lstrip("/").split("/")]
    if names[-1] == "**":
        names.append("*")  # what is in a folder, and not the folder itself
    yield _Rule([None if name == "**" else _translated(name) for name in names], keeps, only_folders)


# Parts of the name of a file or a folder in a pattern, the longest first.
_PARTS = re.compile(r"\[[!^]?\]?[^\]]*\]|\\.|.", re.DOTALL)


def _translated(name: str) -> re.Pattern[str]:
    """A part of a pattern between slashes, as a regular expression that fails in bounded time: `fnmatch` makes such."""

    def translated(match: re.Match[str]) -> str:
        text = match[0]
        if text.startswith("[^"):
            return f"[!{text[2:]}"
        if text.startswith("\\") and len(text) > 1:
            return f"[{text[1]}]" if text[1] in "*?[" else text[1]
        return text

    return re.compile(fnmatch.translate(_PARTS.sub(translated, name)))
