"""The nightly tests are all in one part, and each part is a job of the workflow."""

import re
from collections import Counter
from datetime import date
from pathlib import Path

import pytest
import yaml

from gke_ai.catalog.versions import KUEUE_VERSION
from maintain import nightly
from maintain.nightly import PARTS
from maintain.pages import proven_page
from maintain.pages.proven_page import RUNS
from tests.support.repository import ROOT, tracked


def test_each_file_with_nightly_tests_is_in_one_part_and_a_file_without_in_none() -> None:
    marked = {
        str(file.relative_to(ROOT))
        for folder in ("tests", "emulator/tests", "maintain/tests")
        for file in tracked(f"{folder}/**/test_*.py")
        if file.parent.name == "nightly" or re.search(r"pytest\.mark\.nightly", file.read_text())
    }
    assert Counter(file for part in PARTS.values() for file in part.files) == Counter(marked)


def test_the_workflow_runs_each_part() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/nightly.yml").read_text())
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["part"] == [*PARTS]


@pytest.mark.parametrize(("arguments", "failing", "ran"), [(["kills"], "", ["kills"]), ([""], "changes", [*PARTS])])
def test_one_part_or_all_run_and_a_failed_one_is_named(
    arguments: list[str], failing: str, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], **_: object) -> object:
        commands.append(command)
        return type("Done", (), {"returncode": int(bool(failing) and command[-1] == PARTS[failing].files[-1])})

    monkeypatch.setattr("subprocess.run", run)
    monkeypatch.setattr("sys.argv", ["nightly", *arguments])
    if failing:
        with pytest.raises(SystemExit, match=f"failed: {failing}.*make test-nightly PART={failing}"):
            nightly.main()
    else:
        nightly.main()
    assert [command[-1] for command in commands] == [PARTS[name].files[-1] for name in ran]


def test_a_part_that_passes_is_recorded_for_the_page_on_what_is_proven(tmp_path: Path) -> None:
    runs = tmp_path / "runs.yaml"
    runs.write_text("# head\ntest_a: [2026-11-28, 0.18.4]\n")
    nightly.record(["tests/nightly/test_b.py", "tests/cluster/test_c.py"], date(2026, 12, 1), runs)
    assert runs.read_text().startswith("# head\n")
    assert yaml.safe_load(runs.read_text()) == {
        "test_a": [date(2026, 11, 28), "0.18.4"],
        "test_b": [date(2026, 12, 1), KUEUE_VERSION],
        "test_c": [date(2026, 12, 1), KUEUE_VERSION],
    }


def test_records_are_of_files_with_nightly_tests() -> None:
    files = {Path(file).stem for part in PARTS.values() for file in part.files}
    assert yaml.safe_load(RUNS.read_text()).keys() <= files
    known = proven_page.records()
    assert {hand.subject for hand in known.hands} <= known.subjects.keys()


def test_the_page_says_what_is_not_covered_and_what_nobody_recorded() -> None:
    page = proven_page.page()
    assert "Nothing has run on Google Cloud yet." in page
    rows = [line for line in page.splitlines() if line.endswith(" | – |")]
    assert len(rows) == len(proven_page.records().subjects)
    assert "| no recorded run |" in page
