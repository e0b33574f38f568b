"""Imports go one way: the emulator imports only the program's catalog, and the program never imports the emulator."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from docs.repository import ROOT, tracked

FILES = tracked("**/*.py")
# The project's own packages and modules: those in the root of the repository.
OWN = {file.relative_to(ROOT).parts[0].removesuffix(".py") for file in FILES}
EMULATOR = [file for file in FILES if file.is_relative_to(ROOT / "emulator")]
PROGRAM = [file for file in FILES if file.relative_to(ROOT).parts[0] not in ("emulator", "tests")]


def imported(source: str) -> set[str]:
    """The top-level packages that a module imports anywhere."""
    names: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.module, "an import relative to its package"
            names.append(node.module)
    return {name.partition(".")[0] for name in names}


def name(file: Path) -> str:
    """The path of a file in the repository."""
    return str(file.relative_to(ROOT))


@pytest.mark.parametrize("file", EMULATOR, ids=name)
def test_emulator_imports_nothing_of_the_project_but_the_catalog(file: Path) -> None:
    assert imported(file.read_text()) & OWN <= {"catalog", "emulator"}


@pytest.mark.parametrize("file", PROGRAM, ids=name)
def test_program_does_not_import_the_emulator(file: Path) -> None:
    assert "emulator" not in imported(file.read_text())


def test_every_form_of_import_is_found() -> None:
    assert {"catalog", "components", "emulator", "ops", "settings"} <= OWN
    source = "import ops.stack\nfrom report import page\ndef late():\n    from settings.model import Vpc\n"
    assert imported(source) == {"ops", "report", "settings"}
