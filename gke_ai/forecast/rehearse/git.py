"""Reads files of a git checkout as they were where its branch left `main`.

The checkout may be a stranger's, and git runs programs that the configuration of a repository names, such as
`core.fsmonitor` or the `uploadpack` of a remote: https://git-scm.com/docs/git-config. So git never runs inside it: a
private repository links to its references and objects, and has a configuration of its own.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from gke_ai.terminal import Stop

MAIN = ("refs/remotes/origin/main", "refs/heads/main")
MAX_BYTES = 4 * 2**20  # no manifest is larger
SECONDS = 60
_FILES = ("100644", "100755")  # modes of files: neither links nor submodules
_CONFIG = "[core]\n\trepositoryformatversion = 0\n\tbare = true\n"
_LINKED = ("refs", "packed-refs", "shallow", "objects")
_MAX_POINTER = 4096  # bytes of HEAD, and of files that name a folder


class _Entry(NamedTuple):
    mode: str
    blob: str
    size: int
    path: str


@dataclass(frozen=True)
class Checkout:
    """A checkout, and the private repository through which its commits are read."""

    top: Path
    _repository: Path

    def merge_bases(self) -> list[str]:
        """Returns the commits at which the branch left `main`: of the remote first, then of the checkout."""
        found = (self._git("merge-base", branch, "HEAD").decode().strip() for branch in MAIN)
        return [commit for commit in found if commit]

    def names(self, commit: str, folder: str) -> set[str]:
        """Returns the names of the files that a folder had at a commit, without those of its subfolders."""
        return {Path(entry.path).name for entry in self._entries(commit, f"{folder}/")}

    def text(self, commit: str, file: str) -> str | None:
        """Returns the text that a file had at a commit; None if it did not exist."""
        found = [entry for entry in self._entries(commit, file) if entry.path == file]
        return self._contents(found)[0].decode() if found else None

    def export(self, commit: str, folder: str, target: Path) -> None:
        """Writes the files that a folder had at a commit, except links, submodules and large files."""
        entries = [
            entry
            for entry in self._entries(commit, folder, "-r")
            if entry.size <= MAX_BYTES and (target / entry.path).resolve().is_relative_to(target.resolve())
        ]
        for entry, content in zip(entries, self._contents(entries), strict=True):
            file = target / entry.path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)

    def _entries(self, commit: str, path: str, *options: str) -> list[_Entry]:
        listed = self._git("ls-tree", *options, "-l", "-z", "--full-tree", commit, "--", path, needed=True)
        entries = []
        for line in filter(None, listed.decode(errors="surrogateescape").split("\0")):
            about, _, name = line.partition("\t")
            mode, _, blob, size = about.split()
            if mode in _FILES and not size.isdecimal():  # the file is not fetched: `BAD`
                raise self._incomplete()
            if mode in _FILES:
                entries.append(_Entry(mode, blob, int(size), name))
        return entries

    def _contents(self, entries: list[_Entry]) -> list[bytes]:
        names = "".join(f"{entry.blob}\n" for entry in entries).encode()
        answer, contents = BytesIO(self._git("cat-file", "--batch", stdin=names, needed=True)), []
        for entry in entries:
            answer.readline()  # about the object
            contents.append(answer.read(entry.size))
            answer.readline()
        return contents

    def _git(self, *arguments: str, stdin: bytes = b"", needed: bool = False) -> bytes:
        """Returns the output of a git command; empty if it fails and is not needed."""
        own = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_LITERAL_PATHSPECS": "1"}
        try:
            done = subprocess.run(
                ["git", f"--git-dir={self._repository}", *arguments],
                cwd=self._repository,
                env={"PATH": os.environ["PATH"], **own},  # nothing else, such as GIT_DIR
                input=stdin,
                capture_output=True,
                timeout=SECONDS,
                check=False,
            )
        except FileNotFoundError:
            raise Stop(
                f"Git is not on PATH, and it reads what {self.top} had before the change. "
                "Install git, or name what was there before: --base"
            ) from None
        except subprocess.TimeoutExpired:
            raise Stop(f"git {arguments[0]} on {self.top} does not end in {SECONDS} s. Set --base folder.") from None
        if done.returncode and needed:
            raise self._incomplete()
        return b"" if done.returncode else done.stdout

    def _incomplete(self) -> Stop:
        return Stop(
            f"Git cannot read files of {self.top} where its branch left main. Fetch the whole history of main, "
            "or name the folder before the change: --base folder"
        )


def top_level(folder: Path) -> Path | None:
    """Returns the folder of the checkout in which a folder lies; None if it lies in none.

    A folder with the files of a bare repository is none.
    """
    folder = folder.resolve()
    return next((parent for parent in (folder, *folder.parents) if _repository(parent)), None)


@contextmanager
def checkout(folder: Path) -> Iterator[Checkout | None]:
    """The checkout in which a folder lies; None if it lies in none."""
    top = top_level(folder)
    source = _repository(top) if top else None
    if not top or not source:
        yield None
        return
    common = source / (_pointer(source / "commondir") or ".")  # of `git worktree`: it shares all but HEAD
    with tempfile.TemporaryDirectory() as private:
        own = Path(private).resolve()
        (own / "config").write_text(_CONFIG)
        (own / "HEAD").write_text(f"{_pointer(source / 'HEAD')}\n")
        for name in _LINKED:
            if (common / name).exists():
                (own / name).symlink_to((common / name).resolve())
        yield Checkout(top, own)


def _repository(top: Path) -> Path | None:
    """The folder `.git` of a checkout, or the one that its file `.git` names: https://git-scm.com/docs/gitrepository-layout."""
    place = top / ".git"
    if (named := _pointer(place)).startswith("gitdir: "):
        place = top / named.removeprefix("gitdir: ")
    return place.resolve() if (place / "HEAD").is_file() else None


def _pointer(file: Path) -> str:
    """The text of a small file; empty if it is none."""
    if not file.is_file() or file.stat().st_size > _MAX_POINTER:
        return ""
    return file.read_text(errors="replace").strip()
