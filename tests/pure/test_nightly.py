"""The nightly tests are all in one part, and each part is a job of the workflow."""

from __future__ import annotations

import re
from collections import Counter

import pytest
import yaml

from maintain import nightly
from maintain.nightly import PARTS
from tests.repository import ROOT, tracked


def test_each_file_with_nightly_tests_is_in_one_part_and_a_file_without_in_none() -> None:
    marked = {
        str(file.relative_to(ROOT))
        for folder in ("tests", "emulator/tests")
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
