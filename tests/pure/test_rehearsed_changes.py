"""The changes to rehearse are changes, and a result that differs from the expectation is found."""

import re

import pytest
import yaml

from gke_ai.forecast.result.forecast import End, Forecast, Interruption, Start
from tests.support.rehearsal.changes import FURTHER, Change, changes, configured, judged, objects, with_sections
from tests.support.timelines import named

ALL = [*changes(), *changes(FURTHER)]
CHANGE = Change("c", {}, {}, "", ("job/a starts",), ("job/b *",), ("\\bstarts 1 run",), ("restarts",))


def forecast(**parts: object) -> Forecast:
    return Forecast("s", "c", settled=True, seconds=10, horizon=1800, **parts)  # type: ignore[arg-type]


START = Start(named("team/job/a"), "q", 0, "l4")


@pytest.mark.parametrize("change", ALL, ids=lambda change: change.name)
def test_a_change_changes_its_base_and_says_why_it_does_what_it_does(change: Change) -> None:
    assert change.because.endswith((".", "go", ")"))
    assert change.expect or change.says
    for pattern in (*change.says, *change.never):
        re.compile(pattern)
    if change.example:
        base = configured(change.example, change.base)
        assert bool(change.upgrade) != (base != with_sections(base, change.change))
    else:
        for side in (objects(change.base), objects(change.base, change.change)):
            names = [(item["kind"], item["metadata"]["name"]) for item in side]
            assert len(set(names)) == len(names)
        assert yaml.safe_dump_all(objects(change.base)) != yaml.safe_dump_all(objects(change.base, change.change))


def test_the_changes_have_names_of_their_own() -> None:
    assert [len(changes()), len(changes(FURTHER))] == [35, 40]
    assert len({change.name for change in ALL}) == len(ALL)


def test_a_result_with_the_expected_facts_is_right() -> None:
    assert list(judged(CHANGE, forecast(starts=(START,), ends=(End(named("team/job/b"), "Deleted"),)), "")) == []


def test_missing_and_unexpected_facts_and_words_are_found() -> None:
    lost = Interruption(named("team/job/a"), "deleted", 1)
    assert list(judged(CHANGE, forecast(interruptions=(lost,)), "")) == [
        "missing: job/a starts",
        "unexpected: job/a interrupted: deleted (1 pods)",
        "does not say: \\bstarts 1 run",
        "says: restarts",
    ]
    assert list(judged(CHANGE, None, "it failed")) == ["no result: it failed"]
