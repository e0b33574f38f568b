"""`gke-ai init`: writes a repository that depends on this package."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from gke_ai.kube.client import ApiClient
from gke_ai.ops.repository import configuration, template
from gke_ai.ops.repository.answers import Answers, Place
from gke_ai.ops.repository.from_cluster import describe
from gke_ai.terminal import Stop
from gke_ai.workspace.emulation import INSTALLED, PACKAGES, RUN

STACK = "dev"


def init(folder: Path, answers: Answers) -> None:
    """Writes a repository with a stack from answers, and prints the next steps."""
    write(folder, configuration.configuration(answers))
    _print_next(folder, next_steps(folder))


def init_beside(folder: Path, place: Place, api: ApiClient) -> None:
    """Writes a repository with a stack for a cluster that has a Kueue, and prints what it leaves out."""
    found = describe(api)
    if not found.queues:
        raise Stop(f"{' '.join(found.left_out)} Nothing was written. Leave --from-cluster out: the stack installs one.")
    write(folder, configuration.beside(place, found.queues))
    for line in found.left_out:
        print(f"Left out: {line}")
    doctor = f"gke-ai doctor --stack {STACK}     # what is missing"
    _print_next(folder, [*in_folder(folder), doctor, f"gke-ai preview --stack {STACK}    # creates nothing"])


def _print_next(folder: Path, steps: Iterable[str]) -> None:
    print(f"Written: {folder}\nNext:")
    for step in steps:
        print(f"  {step}")


def write(folder: Path, config: Mapping[str, object]) -> None:
    """Writes a repository with this configuration. Refuses an invalid one, and a folder that has one of the files."""
    written = template.files([STACK])
    record = template.Record.of(written).text()
    texts = {**written, f"Pulumi.{STACK}.yaml": configuration.written(config), template.RECORD: record}
    if there := sorted(name for name in texts if is_taken(folder, name)):
        raise Stop(f"{folder} has {', '.join(there)}. Nothing was written. Name an empty folder, or move these files.")
    try:
        for name, text in texts.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("x") as opened:
                opened.write(text)
    except OSError as error:
        refused = f"{error.filename} can't be written: {error.strerror}"
        raise Stop(f"{refused}. Name a folder that you may write to.") from None


def is_taken(folder: Path, name: str) -> bool:
    """Whether a file, or something that is no folder on the way to it, exists."""
    file = folder / name
    above = [parent for parent in file.parents if parent.is_relative_to(folder)]
    return os.path.lexists(file) or any(os.path.lexists(parent) and not parent.is_dir() for parent in above)


def next_steps(folder: Path) -> Iterator[str]:
    """Yields the commands that follow."""
    yield from in_folder(folder)
    if not RUN.is_file():
        yield "python -m pip install --requirement requirements-emulator.txt    # the emulator"
    yield f"gke-ai up --emulator --stack {STACK}    # this machine, without a cloud account"
    yield f"gke-ai rehearse --stack {STACK}         # after an edit of Pulumi.{STACK}.yaml: what it does in the queue"
    yield f"gke-ai doctor --stack {STACK}           # what is missing for Google Cloud"


def in_folder(folder: Path) -> Iterator[str]:
    """Yields the commands that begin a repository in a folder."""
    if folder != Path.cwd():
        yield f"cd {shlex.quote(str(folder))}"
    if template.copy_wheels(folder):
        checkout = "CHECKOUT" if INSTALLED else shlex.quote(str(PACKAGES))
        yield f"python3 -m pip wheel --no-deps --wheel-dir wheels {checkout} {checkout}/emulator    # what it installs"
    yield "git init --initial-branch main && git add . && git commit --message 'Begin with gke-ai init'"
