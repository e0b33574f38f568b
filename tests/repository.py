"""Lists the files of this repository that documentation and tests cover.

It excludes what a user adds: their own stacks, and files that are not committed.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STACKS = ("Pulumi.prod.yaml", "Pulumi.dev.yaml")


def tracked(pattern: str, root: Path = ROOT) -> list[Path]:
    """The files of the repository that match a glob.

    Without git, all files that match.
    """
    command = ["git", "-C", str(root), "ls-files", "-z", "--", f":(glob){pattern}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False) if shutil.which("git") else None
    names = done.stdout.split("\0")[:-1] if done else []
    files = [root / name for name in names] or [
        file
        for file in root.glob(pattern)
        if not any(part.startswith(".") for part in file.relative_to(root).parts)  # such as .local and .venv
    ]
    return sorted(file for file in files if file.exists())


def examples(root: Path = ROOT) -> list[Path]:
    """The examples' configurations."""
    return tracked("examples/*.yaml", root)


def configurations(root: Path = ROOT) -> list[Path]:
    """The configurations of the repository's own stacks, and of the examples."""
    return [*(root / stack for stack in STACKS), *examples(root)]
