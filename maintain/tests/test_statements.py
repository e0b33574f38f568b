"""What pages say about commands, paths, keys and names is true of the code."""

from pathlib import Path

import pytest

from maintain.pages.statements import CHECKS, Page
from tests.support import repository
from tests.support.recorded import versions
from tests.support.repository import ROOT

PAGES = repository.tracked("**/*.md")
# Former names are true of former versions.
HISTORY = {ROOT / "CHANGELOG.md"}
# One statement of each form that is wrong, in a page that is otherwise empty, and what the check reports.
PLANTED = [
    ("commands", "Run `make chek`.", "make chek"),
    ("commands", "```\nmake up STAK=dev\n```", "up: no variable STAK"),
    ("commands", "Run `gke-ai docter`.", "gke-ai docter"),
    ("commands", "```\ngke-ai doctor --stak dev   # lists what is missing\n```", "gke-ai doctor --stak"),
    ("commands", "Run `emulator/run capcity spot=0`.", "emulator/run capcity"),
    ("paths", "It is in `gke_ai/catalog/gpu.py`.", "gke_ai/catalog/gpu.py"),
    ("paths", "| `components/` | has `progam/` |", "progam/"),
    ("paths", "```\nemulator/run pytest tests/test_setings.py -q\n```", "tests/test_setings.py"),
    ("paths", "```\nmake up CONFIG=x.yaml && cat examples/missing.yaml\n```", "examples/missing.yaml"),
    ("keys", "Set `gke-ai:gpuPool`.", "gke-ai:gpuPool"),
    ("keys", "Set `gke-ai:tenants[].quotas`.", "gke-ai:tenants[].quotas"),
    ("keys", "Set `cluster.vpc.podCidr`.", "cluster.vpc.podCidr"),
    ("keys", "Set `mode: auto-pilot`.", "mode: auto-pilot"),
    ("keys", "```yaml\ngke-ai:cluster: {nam: dev}\n```", "Additional properties"),
    ("keys", "```yaml\ngke-ai:cluster: a: b\n```", "no YAML"),
    ("names", "Set `scaleInPodz`.", "scaleInPodz"),
]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_page_is_true(path: Path) -> None:
    page, left_out = Page(path, path.read_text()), {"keys", "names"} if path in HISTORY else set()
    assert {name: wrong for name in CHECKS.keys() - left_out if (wrong := list(CHECKS[name](page)))} == {}


@pytest.mark.parametrize(("check", "text", "report"), PLANTED)
def test_planted_error_is_found(check: str, text: str, report: str) -> None:
    (found,) = CHECKS[check](Page(ROOT / "docs" / "page.md", f"# Page\n\n{text}\n"))
    assert report in found
    others = [name for name in CHECKS if name != check]
    assert [error for name in others for error in CHECKS[name](Page(ROOT / "docs" / "page.md", text))] == []


def test_upgrading_names_the_recorded_versions() -> None:
    text = " ".join((ROOT / "docs" / "upgrading.md").read_text().split())
    assert f"Only {' and '.join(versions())} is recorded." in text
