"""Kueue's own test tables are read whole, and a difference from them is found."""

import re
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from emulator.machine.paths import ROOT
from gke_ai.catalog.fabric.topology import HOSTNAME
from gke_ai.catalog.kueue.configuration import RELEASES
from gke_ai.forecast.result.forecast import Eviction
from gke_ai.forecast.snapshot.format import build
from gke_ai.forecast.snapshot.format import read as read_snapshot
from gke_ai.forecast.when.answer import Answer
from gke_ai.kube.blocks import assigned
from tests.support.rehearsal.tables.agreement import copy_differences, differences, exceptions, listed
from tests.support.rehearsal.tables.cases import COMPARED, TableCase, at, cases, left_out
from tests.support.rehearsal.tables.clusters import Result
from tests.support.rehearsal.tables.configuration import Configuration
from tests.support.rehearsal.tables.decisions import Decision
from tests.support.rehearsal.tables.questions import questions
from tests.support.rehearsal.tables.source import TESTS, tables
from tests.support.rehearsal.tables.topology import in_cluster
from tests.support.timelines import named

# Kueue's test packages compile in half a minute, once for a version.
compiled = pytest.mark.slow
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@compiled
def test_every_table_is_printed_and_compared_or_left_out_for_a_reason() -> None:
    assert {table["test"] for table in tables()} == set(TESTS) == {*COMPARED}
    assert all(table["cases"] for table in tables())


@compiled
def test_a_snapshot_can_hold_the_workloads_of_every_case() -> None:
    for case in cases():
        workloads = at(case, case.printed)
        queues = [item for item in case.queues if item["kind"] == "ClusterQueue"]
        snapshot = build("test", {"Workload": workloads, "ClusterQueue": queues}, case.printed)
        assert len(read_snapshot(snapshot.to_json()).of("Workload")) == len(workloads)


@compiled
def test_every_exception_names_a_case_and_a_reason_in_words() -> None:
    of_releases = listed()["exceptions"]
    assert set(of_releases) == set(RELEASES)
    assert set(exceptions()) <= {case.title for case in cases() if not case.reason}
    for groups in of_releases.values():
        assert max(Counter(title for group in groups.values() for title in group).values(), default=1) == 1
    assert {reason for groups in of_releases.values() for reason in groups} == set(listed()["reasons"])
    assert all(text.endswith(".") for text in listed()["reasons"].values())


@compiled
def test_an_answer_about_a_workload_that_waits_is_compared_with_its_table() -> None:
    asked = {question.case.title: question for question in questions()}
    assert len(asked) >= 40
    question = asked["TestPreemption: preempt lowest priority"]
    assert question.queue == f"{question.case.id}-standalone"
    assert question.run not in question.case.workloads
    for name, is_right in (("low", True), ("mid", False)):
        run, victim = (f"table-default/workload/{question.case.id}-{workload}" for workload in ("in", name))
        evicted = Eviction(named(victim), "queue", 0, "Preempted", "InClusterQueue", named(run))
        decided = question.decided(Answer(run, question.queue, preempts=(evicted,)))
        assert (decided == question.expected) is is_right


def test_a_compressed_assignment_is_read_and_written_again() -> None:
    individual = {"prefix": "x-", "suffix": ".a", "roots": ["1", "2"]}
    part = {"domainCount": 2, "valuesPerLevel": [{"universal": "b"}, {"individual": individual}]}
    found = {"levels": ["block", HOSTNAME], "slices": [{**part, "podCounts": {"universal": 3}}]}
    assert [*assigned(found)] == [(("b", "x-1.a"), 3), (("b", "x-2.a"), 3)]
    renamed = in_cluster(found, lambda name: f"t-{name}")
    assert [*assigned(renamed)] == [(("b", "t-x-1.a"), 3), (("b", "t-x-2.a"), 3)]


TAKEN = Decision("/victim", "preempted", reason="InClusterQueue", preemptor="/in")
ADMITTED = Decision("/in", "admitted", "main×1: cpu t000-spot")
LATER = frozenset({"/in", "/next"})
CASE = TableCase("TestSchedule", "a", "t000", Configuration(), NOW, (), (), (), frozenset({TAKEN}), LATER, {})
BY_NEXT = TAKEN._replace(workload="/x", preemptor="/next")


def test_what_the_table_says_and_what_a_later_cycle_decides_for_a_queued_workload_are_no_differences() -> None:
    for later in (set[Decision](), {Decision("/next", "admitted", "main×1: cpu t000-spot"), BY_NEXT}):
        assert list(differences(Result(CASE, frozenset({TAKEN, *later}), frozenset()))) == []


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(frozenset[Decision](), id="nobody is preempted"),
        pytest.param(frozenset({TAKEN._replace(workload="/other")}), id="another victim"),
        pytest.param(frozenset({TAKEN, TAKEN._replace(workload="/other")}), id="one victim too many"),
        pytest.param(frozenset({TAKEN._replace(reason="InCohortReclamation")}), id="another reason"),
        pytest.param(frozenset({TAKEN._replace(preemptor="/next")}), id="another preemptor"),
        pytest.param(frozenset({TAKEN, ADMITTED}), id="the preemptor starts at once"),
        pytest.param(frozenset({TAKEN, ADMITTED._replace(workload="/idle")}), id="an inadmissible workload starts"),
    ],
)
def test_a_wrong_decision_is_found(wrong: frozenset[Decision]) -> None:
    assert list(differences(Result(CASE, wrong, wrong)))


def test_another_flavor_a_refusal_and_a_copy_that_decides_otherwise_in_any_cycle_are_found() -> None:
    other = frozenset({ADMITTED._replace(flavors="main×1: cpu t000-on-demand")})
    assert list(differences(Result(replace(CASE, expected=frozenset({ADMITTED})), other, other)))
    assert list(differences(Result(CASE, CASE.expected, CASE.expected, refused="no such quota")))
    found = [*copy_differences(Result(CASE, frozenset({TAKEN, BY_NEXT}), frozenset({TAKEN})))]
    assert found == [f"only in the original: {BY_NEXT}"]
    assert list(copy_differences(Result(CASE, frozenset({TAKEN}), frozenset({TAKEN})))) == []


@compiled
def test_the_page_says_how_many_cases_are_compared_and_how_many_are_not_by_reason() -> None:
    page = (ROOT / "docs" / "evidence.md").read_text()
    compared, all_cases = sum(not case.reason for case in cases()), sum(len(table["cases"]) for table in tables())
    assert f"| {compared} | {compared - len(exceptions())} as the table says; all {compared} in a copy" in page
    assert f"In {len(exceptions())} cases Kueue decides otherwise" in page
    assert f"Of the {all_cases} cases, {all_cases - compared} are not compared: " in page
    numbers = page.partition(" are not compared: ")[2].partition("\n\n")[0]
    assert sorted(map(int, re.findall(r"\d+", numbers))) == sorted(left_out().values())
