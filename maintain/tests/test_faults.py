"""The faults of `make faults` apply to today's code, and each is found only by an assertion about it."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from maintain.faults import Fault, read
from maintain.faults.__main__ import Case, Copy, Result, cases, problem_of, table

FAULTS = read()
FAULT = Fault("a lost wait", "a.py", "wait()", "pass", ("tests/test_a.py::test_waits",), r"0 == \d+")
CASE = "tests/test_a.py::test_waits"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_still_applies_and_its_tests_exist(fault: Fault) -> None:
    assert fault.problems() == []


def test_without_git_there_is_no_copy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match=r"Git is not on PATH.*Install git"):
        Copy(tmp_path)


def test_a_third_of_the_faults_is_found_end_to_end_and_they_are_spread_over_product_and_emulator() -> None:
    assert len(FAULTS) >= 24
    assert sum(fault.end_to_end for fault in FAULTS) * 3 >= len(FAULTS)
    assert [name for name, count in Counter(fault.name for fault in FAULTS).items() if count > 1] == []

    places = Counter(fault.file.removeprefix("gke_ai/").partition("/")[0] for fault in FAULTS)
    assert places["emulator"] >= 6
    assert {"catalog", "settings", "components", "review", "forecast", "ops"} <= places.keys()


@pytest.mark.parametrize(
    ("text", "change", "problem"),
    [
        ("wait()", {}, ""),
        ("", {}, "has its old text 0 times"),
        ("wait()\nwait()", {}, "has its old text 2 times"),
        ("wait()", {"new": "wait()"}, "its new text is its old text"),
        ("wait()", {"new": "if:"}, "invalid syntax"),
        ("wait()", {"expected": "("}, "unterminated subpattern"),
        ("wait()", {"tests": ("tests/test_a.py::test_starts",)}, "there is no test tests/test_a.py::test_starts"),
        ("wait()", {"tests": ("tests/test_b.py::test_waits",)}, "there is no test tests/test_b.py::test_waits"),
        ("wait()", {"file": "b.py"}, "No such file"),
    ],
)
def test_outdated_fault_is_reported(text: str, change: dict[str, str], problem: str, tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text("def test_waits() -> None: ...\n")
    (tmp_path / "a.py").write_text(text)
    problems = replace(FAULT, **change).problems(tmp_path)  # type: ignore[arg-type]
    assert problem in "".join(problems)
    assert bool(problems) is bool(problem)


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        ([Case(CASE, "assert 0 == 3")], ""),
        ([Case(f"{CASE}[a]", ""), Case(f"{CASE}[b]", "AssertionError: it waits\nassert 0 == 3")], ""),
        ([Case(CASE, "")], "passes"),
        ([], "did not run"),
        ([Case("tests/test_a.py::test_waits_longer", "assert 0 == 3")], "did not run"),
        ([Case(CASE, "assert None is True")], "fails with another message"),
        ([Case(CASE, "NameError: 0 == 3")], "fails by no assertion"),
        ([Case(f"{CASE}[a]", "assert 0 == 3"), Case(f"{CASE}[b]", "NameError: x")], "fails by no assertion"),
    ],
)
def test_fault_is_found_only_by_an_assertion_about_it(found: list[Case], problem: str) -> None:
    assert problem in problem_of(FAULT, found)
    assert bool(problem_of(FAULT, found)) is bool(problem)


REPORT = """<testsuites><testsuite>
<testcase classname="tests.test_a" name="test_passes"/>
<testcase classname="tests.test_a" name="test_fails[a]"><failure message="ignored">tests/test_a.py:3: in test_fails
    assert f() == 1
E   KeyError: 'a'

During handling of the above exception, another exception occurred:
tests/test_a.py:5: in test_fails
    raise AssertionError("first\\n\\nlast")
E   AssertionError: first
E
E   last</failure></testcase>
<testcase classname="tests.test_a" name="test_errors"><error message="ignored">E   OSError: no</error></testcase>
<testcase classname="tests.test_a" name="test_crashes"><failure message="ignored">the worker died</failure></testcase>
</testsuite></testsuites>"""


def test_message_of_a_case_is_that_of_its_last_exception(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT)
    assert [(case.test.partition("::")[2], case.message) for case in cases(tmp_path / "report.xml")] == [
        ("test_passes", ""),
        ("test_fails[a]", "AssertionError: first\n\nlast"),
        ("test_errors", "OSError: no"),
        ("test_crashes", "it failed without a message"),
    ]


def test_table_has_a_row_for_each_fault_and_counts_those_found() -> None:
    rows = table([Result(FAULT, "", 3.2), Result(replace(FAULT, name="another"), "passes", 1)]).splitlines()
    assert rows[1].split() == ["a", "lost", "wait", "a.py", "test_a.py", "found", "3"]
    assert rows[2].split()[-3:] == ["NOT", "FOUND", "1"]
    assert rows[-1] == "1 of 2 faults are found."
