"""What pages say about commands, paths, keys, names, counts and durations is true of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from maintain.pages.statements import CHECKS, DURATION, DURATIONS, Page
from tests.support import repository
from tests.support.recorded import versions
from tests.support.recorder import configuration, run_program
from tests.support.repository import ROOT

PAGES = repository.tracked("**/*.md")
# Former names are true of former versions.
HISTORY = {ROOT / "CHANGELOG.md"}
# One statement of each form that is wrong, in a page that is otherwise empty, and what the check reports.
PLANTED = [
    ("commands", "Run `make chek`.", "make chek"),
    ("commands", "```\nmake up STAK=dev\n```", "up: no variable STAK"),
    ("commands", "Run `gke-ai docter`.", "gke-ai docter"),
    (
        "commands",
        "```\ngke-ai doctor --stak dev   # lists what is missing\n```",
        "gke-ai doctor --stak",
    ),
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
    ("counts", "See the eleven tutorials.", "the eleven tutorials: there are"),
    ("counts", "It has all 3 components.", "all 3 components: there are"),
    ("counts", "## Deploy with three commands\n\n```\nmake up\nmake test\n```", "the block has 2"),
    ("counts", "A configuration passes three steps:\n\n1. It is read.\n2. It is checked.", "the list has 2"),
    ("durations", "`make test` runs every test, in about 30 minutes.", "make test: about 30 minutes"),
    ("durations", "```\nmake setup    # about two hours\n```", "make setup: about two hours"),
    ("durations", "| `make coverage` | takes ten minutes |", "make coverage: ten minutes"),
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


def test_duration_of_make_test_is_that_of_the_last_record() -> None:
    recorded = re.findall(r"\([\d,]+ tests, ([\d.]+) minutes", (ROOT / "CONTRIBUTING.md").read_text())
    (words,) = DURATIONS["make test"]
    stated = re.search(r"\d+", words)
    assert stated
    assert abs(float(recorded[-1]) - int(stated[0])) <= 0.1 * int(stated[0])


@pytest.mark.parametrize("command", DURATIONS)
def test_a_page_states_each_duration(command: str) -> None:
    texts = [" ".join(path.read_text().split()) for path in PAGES]
    for words in DURATIONS[command]:
        assert DURATION.fullmatch(words)
        assert any(command in text and words in text for text in texts), words


def test_limits_state_the_size_of_the_largest_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    stated = re.search(r"`Pulumi.prod.yaml`, about (\d+) resources", (ROOT / "docs" / "limits.md").read_text())
    record = run_program(configuration("Pulumi.prod.yaml"), preview=True, monkeypatch=monkeypatch)
    plugins = [resource for resource in record.resources.values() if resource.type.startswith(("gcp:", "kubernetes:"))]
    assert stated
    assert abs(len(plugins) - int(stated[1])) <= 0.1 * int(stated[1])


def test_upgrading_names_the_recorded_versions() -> None:
    text = " ".join((ROOT / "docs" / "upgrading.md").read_text().split())
    assert f"Only {' and '.join(versions())} is recorded." in text
