"""Only here: the commands of a checkout whose folder, state and home have a space and an umlaut in their names."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, STDOUT

import pytest

from emulator.machine.paths import CACHE
from tests.support.emulator import Emulator
from tests.support.repository import copy_to

OF_THE_CHECKOUT = ("GKE_AI_STATE", "GKE_AI_ROOT", "PYTHONPATH")


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Path]:
    """A copy of the checkout. What its emulator runs ends with the test."""
    folder = copy_to(tmp_path / "w ü" / "main")
    yield folder
    Emulator(folder / ".local").delete_clusters()


def make(checkout: Path, target: str) -> str:
    """The output of a target, with the state in the checkout and an empty home."""
    home = checkout.parent / "home"
    home.mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if name not in OF_THE_CHECKOUT}
    env = kept | {"HOME": str(home), "GKE_AI_CACHE": str(CACHE)}
    make = ["make", "--no-print-directory", target]
    done = subprocess.run(make, cwd=checkout, env=env, stdout=PIPE, stderr=STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_a_preview_works_in_a_folder_with_a_space_and_an_umlaut(checkout: Path) -> None:
    output = make(checkout, "preview")
    assert re.search(r"^Resources:\n    \+ \d+ to create$", output, re.M), output
    assert "Policy Packs run:" in output


@pytest.mark.nightly
def test_a_stack_works_in_a_folder_with_a_space_and_an_umlaut(checkout: Path) -> None:
    assert "Servers" in make(checkout, "up")
    assert "llm/gemma" in make(checkout, "status")
    assert "dev is deleted." in make(checkout, "down")
