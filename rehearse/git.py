"""Reads files of a git checkout as they were where its branch left `main`."""

from __future__ import annotations

import subprocess
from io import BytesIO
from pathlib import Path

MAIN = ("origin/main", "main")
MAX_BYTES = 4 * 2**20  # no manifest is larger
_FILES = ("100644", "100755")  # modes of files: neither links nor submodules


def git(folder: Path, *arguments: str) -> str | None:
    """Returns the output of a git command in a folder; None if it fails."""
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def merge_bases(folder: Path) -> list[str]:
    """Returns the commits at which the branch of a checkout left `main`: of the remote first, then of the checkout."""
    found = (git(folder, "merge-base", branch, "HEAD") for branch in MAIN)
    return [commit.strip() for commit in found if commit]


def top_level(folder: Path) -> Path | None:
    """Returns the folder of the checkout in which a folder lies; None if it lies in none."""
    top = git(folder, "rev-parse", "--show-toplevel")
    return Path(top.rstrip("\n")).resolve() if top else None


def export(checkout: Path, commit: str, path: str, target: Path) -> None:
    """Writes the files that a folder had at a commit, except links, submodules and large files. Runs no hook."""
    listed = git(checkout, "ls-tree", "-r", "-l", "-z", "--full-tree", commit, "--", path) or ""
    files = []
    for entry in filter(None, listed.split("\0")):
        about, _, name = entry.partition("\t")
        mode, _, blob, size = about.split()
        if mode in _FILES and int(size) <= MAX_BYTES and (target / name).resolve().is_relative_to(target.resolve()):
            files.append((target / name, blob, int(size)))
    names = "".join(f"{blob}\n" for _, blob, _ in files).encode()
    command = ["git", "cat-file", "--batch"]
    contents = BytesIO(subprocess.run(command, cwd=checkout, input=names, capture_output=True, check=True).stdout)
    for file, _, length in files:
        contents.readline()  # about the file
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(contents.read(length))
        contents.readline()
