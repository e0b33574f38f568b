"""The project states one range of Pythons, and its workflow runs both ends of it."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
import yaml

from gke_ai.ops.doctor.machine import NEWEST_PYTHON, OLDEST_PYTHON
from tests.support.repository import ROOT, tracked

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
OLDEST, NEWEST = OLDEST_PYTHON[1], NEWEST_PYTHON[1]
RANGE = f">=3.{OLDEST},<3.{NEWEST + 1}"


@pytest.mark.parametrize("folder", ["", "emulator"])
def test_each_package_is_for_this_range(folder: str) -> None:
    project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())
    assert project["project"]["requires-python"] == RANGE


def test_the_package_for_other_teams_has_no_upper_end() -> None:
    """They choose their Python, and it is plain code."""
    project = tomllib.loads((ROOT / "gke_ai_outputs" / "pyproject.toml").read_text())
    assert project["project"]["requires-python"] == f">=3.{OLDEST}"


def test_the_classifiers_name_each_python() -> None:
    pythons = [f"Programming Language :: Python :: 3.{minor}" for minor in range(OLDEST, NEWEST + 1)]
    assert PROJECT["project"]["classifiers"] == pythons


def test_code_is_checked_for_the_oldest_python() -> None:
    assert PROJECT["tool"]["ruff"]["target-version"] == f"py3{OLDEST}"
    assert PROJECT["tool"]["mypy"]["python_version"] == f"3.{OLDEST}"


def test_pages_state_this_range() -> None:
    pages = [page for page in tracked("**/*.md") if page.name != "CHANGELOG.md"]
    stated = {
        str(page.relative_to(ROOT)): set(re.findall(r"Python 3\.\d+ (?:to|or) (?:[\d.]*\d|\w+)", page.read_text()))
        for page in pages
    }
    needs = {name: texts for name, texts in stated.items() if texts}
    assert {"README.md", "CONTRIBUTING.md", "docs/package.md"} < needs.keys()
    assert {name: texts for name, texts in needs.items() if texts != {f"Python 3.{OLDEST} to 3.{NEWEST}"}} == {}


def test_the_workflow_runs_the_oldest_and_the_newest_python() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "pythons.yml").read_text())
    pythons = workflow["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert pythons == sorted(pythons)
    assert (pythons[0], pythons[-1]) == (f"3.{OLDEST}", f"3.{NEWEST}")
    assert f"on Python {', '.join(pythons[:-1])} and {pythons[-1]}" in (ROOT / "docs" / "github.md").read_text()
