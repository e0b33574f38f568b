"""Lists the files of this repository that documentation and tests cover.

It excludes what a user adds: their own stacks, and files that are not committed.
"""

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STACKS = ("Pulumi.prod.yaml", "Pulumi.dev.yaml")
# The environments as the repository ships them. Users edit those at the root, and tests must hold for them, too.
ENVIRONMENTS = ROOT / "tests" / "data" / "environments"
# What the packages `gke_ai` and `emulator` have from the root.
LINKS = ("gke_ai/program/__main__.py", "gke_ai/components", "emulator/requirements.lock")


def tracked(pattern: str, root: Path = ROOT) -> list[Path]:
    """The files of the repository that match a glob, except LINKS.

    Without git, all files that match.
    """
    command = ["git", "-C", str(root), "ls-files", "-z", "--", f":(glob){pattern}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False) if shutil.which("git") else None
    if done and not done.returncode:
        files = [root / name for name in done.stdout.split("\0")[:-1]]
    else:
        parts_of = (file.relative_to(root).parts for file in root.glob(pattern))
        files = [root.joinpath(*parts) for parts in parts_of if not any(part.startswith(".") for part in parts)]
    return sorted(file for file in files if file.is_file() and not file.is_symlink())


def copy_to(folder: Path) -> Path:
    for file in [*tracked("**"), *(ROOT / link for link in LINKS)]:
        target = folder / file.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, target, follow_symlinks=False)
    return folder


def source(name: str, root: Path = ROOT) -> Path:
    """The file of a configuration. For an environment, it is the tests' own copy, which earlier versions lack."""
    copy = root / ENVIRONMENTS.relative_to(ROOT) / name
    return copy if copy.exists() else root / name


def name_of(file: Path) -> str:
    """The name by which `source` finds the file of a configuration."""
    return file.name if file.name in STACKS else str(file.relative_to(ROOT))


def examples(root: Path = ROOT) -> list[Path]:
    return tracked("examples/*.yaml", root)


def configurations(root: Path = ROOT) -> list[Path]:
    return [*(source(stack, root) for stack in STACKS), *examples(root)]


def stacks_of_the_user() -> list[Path]:
    """The configurations at the root, which users edit and add to."""
    return sorted(ROOT.glob("Pulumi.*.yaml"))


# The names of the configurations, as `source` takes them.
CONFIGURATIONS = [name_of(file) for file in configurations()]
