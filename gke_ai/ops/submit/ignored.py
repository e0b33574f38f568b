"""Which files of a folder stay at home: hidden ones, bytecode, credentials, and what its file of patterns names."""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from gke_ai.terminal import Stop

# The first that exists counts.
# https://docs.cloud.google.com/sdk/gcloud/reference/topic/gcloudignore, https://docs.docker.com/build/concepts/context/
DOCKER = ".dockerignore"
FILES = (".gcloudignore", DOCKER, ".gitignore")
INCLUDE = "#!include:"
# Far above those of a folder of code. A pattern is compared with every name.
MAX_BYTES, MAX_PATTERNS, MAX_CHARACTERS = 128 * 1024, 1_000, 1_000
# Tools and settings are hidden; bytecode differs after each start. `!NAME` keeps one.
_HIDDEN = r"\.|__pycache__\Z"
# Names that have credentials. No pattern keeps them: the file of patterns may be a stranger's.
_NEVER = re.compile(
    r"\.(git|env|env\..*|envrc|ssh|gnupg|aws|azure|boto|docker|dockercfg|kube|pulumi|terraform|terraform\.d|netrc|pgpass"
    r"|npmrc|yarnrc|yarnrc\.yml|pypirc|git-credentials|vault-token|s3cfg|\w+_history|huggingface|kaggle"
    r"|cache/huggingface|config/(gcloud|gh|git|containers|pip|rclone|doctl|wandb))",
    re.IGNORECASE,
)


def is_hidden(name: str) -> bool:
    """Whether a file or a folder stays at home unless a pattern keeps it."""
    return re.match(_HIDDEN, name) is not None


@dataclass(frozen=True)
class _Rule:
    names: Sequence[re.Pattern[str] | None]
    """What the names in a path match, from its first one. None stands for any folders, and no two follow each other."""
    keeps: bool
    only_folders: bool

    def opened(self, place: int) -> Set[int]:
        """A place in `names`, with the next one if no folder is needed here."""
        return {place, place + 1} if place < len(self.names) and self.names[place] is None else {place}

    def after(self, places: Set[int], name: str, over_any: bool = True) -> Set[int]:
        """The places after a further name. All ways at once: a pattern of a stranger must not take years.

        Args:
            places: Those before it.
            name: The name of a file or a folder.
            over_any: Whether it may be one of any folders.
        """
        reached = set[int]()
        for place in places:
            if place < len(self.names):
                pattern = self.names[place]
                if over_any if pattern is None else pattern.match(name):
                    reached |= self.opened(place if pattern is None else place + 1)
        return reached


@dataclass(frozen=True)
class Rules:
    """Patterns in a folder, as git or Docker reads them. The last one that matches decides."""

    rules: Sequence[tuple[_Rule, Set[int], bool]]
    """With the places that the path of the folder reaches, and whether the pattern matches it: Docker's then match what
    is in it."""
    of_docker: bool
    folder: str = ""
    """Name of the folder; empty for the first one."""

    def leave_out(self, name: str, is_folder: bool) -> tuple[bool, Rules | None]:
        """Whether a file or a folder is left out, and the rules in it; None if nothing in it is kept."""
        if _NEVER.fullmatch(name) or _NEVER.fullmatch(f"{self.folder}/{name}"):
            return True, None
        hidden = left_out = is_hidden(name)
        below = list[tuple[_Rule, Set[int], bool]]()
        for rule, places, inherited in self.rules:
            reached = rule.after(places, name)
            # One that would change nothing here is not looked at, nor later for what is in the folder, as in Docker.
            looks = rule.keeps == left_out if self.of_docker else is_folder or not rule.only_folders
            matches = looks and len(rule.names) in reached
            if matches or (inherited and not (hidden and rule.keeps)):
                left_out = not rule.keeps
            if is_folder:
                below.append((rule, reached, self.of_docker and (matches or inherited)))
        if left_out and is_folder and self.of_docker:
            # What is kept in a hidden folder is kept by its whole name.
            below = [
                (rule, rule.after(places, name, over_any=False), False) if hidden and rule.keeps else after
                for (rule, places, _), after in zip(self.rules, below, strict=True)
            ]
            is_folder = any(rule.keeps and any(place < len(rule.names) for place in at) for rule, at, _ in below)
        elif left_out:
            is_folder = False  # git keeps nothing in it
        return left_out, Rules(below, self.of_docker, name) if is_folder else None


def read_rules(folder: Path) -> Rules:
    """Returns the rules of a folder. Stops if its file is larger than any file for a folder of code."""
    file = file_of(folder)
    of_docker = file.name == DOCKER
    lines = list(_lines(file)) if file.is_file() else []
    rules = [rule for line in lines for rule in _parsed(line, of_docker)]
    if len(rules) > MAX_PATTERNS or any(len(line) > MAX_CHARACTERS for line in lines):
        raise _too_large(file, f"{MAX_PATTERNS:,} patterns, or a line of more than {MAX_CHARACTERS:,} characters")
    return Rules([(rule, rule.opened(0), False) for rule in rules], of_docker)


def file_of(folder: Path) -> Path:
    """The file of patterns that counts, or would count."""
    return next((folder / name for name in FILES if (folder / name).is_file()), folder / FILES[0])


def _too_large(file: Path, most: str) -> Stop:
    return Stop(f"--workdir: {file} has more than {most}. Reading the folder could take hours. Shorten it.")


def _lines(file: Path) -> Iterator[str]:
    """Yields the lines of a file, and of those that it includes."""
    for line in _text(file).split("\n"):
        included = line.removeprefix(INCLUDE).strip()
        if line.startswith(INCLUDE) and included in FILES and (file.parent / included).is_file():
            yield from _text(file.parent / included).split("\n")
        else:
            yield line


def _text(file: Path) -> str:
    with file.open("rb") as opened:
        content = opened.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise _too_large(file, f"{MAX_BYTES // 1024} KiB")
    return content.decode("utf-8-sig", errors="replace").replace("\r\n", "\n")


def _parsed(line: str, of_docker: bool) -> Iterator[_Rule]:
    """Yields the rule of a line.

    Sources: https://git-scm.com/docs/gitignore#_pattern_format, https://github.com/moby/patternmatcher/tree/v0.6.1.
    """
    if line.startswith("#"):
        return
    line = line.strip() if of_docker else re.sub(r"(?<!\\) +$", "", line)
    keeps = line.startswith("!")
    text = line[keeps:]
    if of_docker:
        text = posixpath.normpath(text.strip() or ".").lstrip("/")
    only_folders, text = text.endswith("/"), text.removesuffix("/")
    if not text or (of_docker and text == "."):
        return
    names = [*(["**"] if not of_docker and "/" not in text else []), *text.removeprefix("/").split("/")]
    if names[-1] == "**":
        names.append("*")  # what is in a folder, and not the folder itself
    patterns = [
        None if name == "**" else _translated(name, of_docker, keeps)
        for name, before in zip(names, ["", *names], strict=False)
        if (name, before) != ("**", "**")
    ]
    yield _Rule(patterns, keeps, only_folders)


# Parts of the name of a file or a folder in a pattern, the longest first.
_PARTS = re.compile(r"\[[!^]?\]?(?:\[:\w+:\]|[^\]])*\]|\\.|.", re.DOTALL)
_SETS = {"[:alnum:]": "a-zA-Z0-9", "[:alpha:]": "a-zA-Z", "[:digit:]": "0-9", "[:lower:]": "a-z", "[:upper:]": "A-Z"}


def _translated(name: str, of_docker: bool, keeps: bool) -> re.Pattern[str]:
    """A part of a pattern between slashes, as a regular expression that fails in bounded time: `fnmatch` makes such."""

    def translated(match: re.Match[str]) -> str:
        text = match[0]
        if text.startswith("[") and len(text) > 1:
            text = re.sub(r"\[:\w+:\]", lambda known: _SETS.get(known[0], ""), text)
            # In Docker, `!` is one of the characters.
            text = re.sub(r"^\[!(.+)\]$", r"[\1!]", text) if of_docker else text
            return text.replace("[^", "[!", 1)
        return f"[{text[-1]}]" if text[0] == "\\" and text[-1] in "*?[" else text[-1]

    by_name = f"(?!{_HIDDEN})" if keeps and name[0] in "*?[" else ""  # as in a shell
    return re.compile(by_name + fnmatch.translate(_PARTS.sub(translated, name)))
