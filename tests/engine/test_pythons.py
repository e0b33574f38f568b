"""The project states one range of Pythons, and its workflow runs both ends of it."""

import re
import tomllib

import yaml

from gke_ai.ops.doctor.machine import NEWEST_PYTHON, OLDEST_PYTHON
from tests.support.repository import ROOT, tracked

OLDEST, NEWEST = OLDEST_PYTHON[1], NEWEST_PYTHON[1]
FOLDERS = ("", "emulator", "gke_ai_outputs")


def test_the_packages_and_the_checks_are_for_this_range() -> None:
    """Other teams choose their Python for gke_ai_outputs, which is plain code."""
    projects = [tomllib.loads((ROOT / folder / "pyproject.toml").read_text()) for folder in FOLDERS]
    required = [project["project"]["requires-python"] for project in projects]
    assert required == [f">=3.{OLDEST},<3.{NEWEST + 1}"] * 2 + [f">=3.{OLDEST}"]
    whole = projects[0]
    pythons = [f"Programming Language :: Python :: 3.{minor}" for minor in range(OLDEST, NEWEST + 1)]
    assert whole["project"]["classifiers"] == pythons
    assert whole["tool"]["ruff"]["target-version"] == f"py3{OLDEST}"
    assert whole["tool"]["mypy"]["python_version"] == f"3.{OLDEST}"


def test_pages_state_this_range() -> None:
    needs = {}
    for page in tracked("**/*.md"):
        stated = {*re.findall(r"Python 3\.\d+ (?:to|or) (?:[\d.]*\d|\w+)", page.read_text())}
        if stated and page.name != "CHANGELOG.md":
            needs[str(page.relative_to(ROOT))] = stated
    assert {"README.md", "CONTRIBUTING.md", "docs/package.md"} < needs.keys()
    assert {name: texts for name, texts in needs.items() if texts != {f"Python 3.{OLDEST} to 3.{NEWEST}"}} == {}


def test_the_workflow_runs_the_oldest_and_the_newest_python() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "pythons.yml").read_text())
    pythons = workflow["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert pythons == sorted(pythons)
    assert (pythons[0], pythons[-1]) == (f"3.{OLDEST}", f"3.{NEWEST}")
    assert f"on Python {', '.join(pythons[:-1])} and {pythons[-1]}" in (ROOT / "docs" / "github.md").read_text()
