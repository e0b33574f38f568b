"""Kueue's own test tables are read whole, and a difference from them is found."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

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
from tests.support.rehearsal.tables.cases import COMPARED, NOT_COMPARED, TableCase, at, cases, left_out
from tests.support.rehearsal.tables.clusters import Result
from tests.support.rehearsal.tables.configuration import Configuration
from tests.support.rehearsal.tables.decisions import Decision, decisions, eviction
from tests.support.rehearsal.tables.questions import questions
from tests.support.rehearsal.tables.source import TESTS, tables
from tests.support.rehearsal.tables.topology import CASE_LABEL, assignment, in_cluster
from tests.support.timelines import named

Object = dict[str, Any]
# Kueue's test packages compile in half a minute, once for a version.
compiled = pytest.mark.slow
NOW = datetime(2026, 1, 1, tzinfo=UTC)


# ------------------------------------------------------------------------------------------------------ the tables
@compiled
def test_every_table_is_printed_and_compared_or_left_out_for_a_reason() -> None:
    assert {table["test"] for table in tables()} == set(TESTS) == {*COMPARED, *NOT_COMPARED}
    assert all(table["cases"] for table in tables())


@compiled
def test_cases_share_no_object() -> None:
    assert len({case.id for case in cases()}) == len({case.title for case in cases()}) == len(cases())
    for case in cases():
        names = [item["metadata"]["name"] for item in (*case.queues, *case.workloads, case.gate)]
        assert {name.partition("-")[0] for name in names} == {case.id}


@compiled
def test_no_queue_of_a_case_is_active_before_its_gate_opens() -> None:
    for case in cases():
        gate = case.gate["metadata"]["name"]
        for queue in (item for item in case.queues if item["kind"] == "ClusterQueue"):
            flavors = [flavor["name"] for group in queue["spec"]["resourceGroups"] for flavor in group["flavors"]]
            assert flavors[-1] == gate
        assert gate not in {item["metadata"]["name"] for item in case.queues}


@compiled
def test_uids_order_workloads_as_in_the_table() -> None:
    case = _case("TestFairPreemptions: reclaim nominal from user using the most")
    assert [case.names[uid] for uid in sorted(case.names)][:4] == ["/a1", "/a2", "/a3", "/b1"]


@compiled
def test_a_case_says_who_is_preempted_for_whom_and_why() -> None:
    case = _case("TestFairPreemptions: reclaim nominal from user using the most")
    assert case.expected == {Decision("/b1", "preempted", reason="InCohortReclamation", preemptor="/c_incoming")}
    case = _case("TestPreemption: preempt lowest priority")
    assert case.expected == {Decision("/low", "preempted", reason="InClusterQueue", preemptor="/in")}


@compiled
def test_a_case_says_who_is_admitted_to_which_flavors() -> None:
    case = _case("TestSchedule: admit in different cohorts")
    assert case.expected == {
        Decision("sales/new", "admitted", f"one×1: cpu {case.id}-default"),
        Decision("eng-alpha/new", "admitted", f"one×51: cpu {case.id}-on-demand"),
    }


@compiled
def test_a_case_says_on_which_nodes_the_pods_are_placed() -> None:
    case = _case("TestFindTopologyAssignments: block required; 4 pods fit into one host each; BestFit")
    hosts = " ".join(f"{case.id}-{host}×1" for host in ("x1", "x3", "x5", "x6"))
    assert case.expected == {Decision("default/workload", "admitted", f"main×4: cpu {case.id}-tas {hosts}")}
    flavor = next(item for item in case.queues if item["kind"] == "ResourceFlavor")
    assert {node["metadata"]["labels"][CASE_LABEL] for node in case.nodes} == {case.id}
    assert flavor["spec"]["nodeLabels"][CASE_LABEL] == case.id


@compiled
def test_a_case_says_which_node_replaces_a_lost_one_and_when_none_does() -> None:
    case = _case("TestScheduleForTAS: workload with unhealthyNode annotation; second pass; required rack; fit")
    places = f"{case.id}-x2×1 {case.id}-x3×1"
    assert [decision.flavors.partition("default ")[2] for decision in case.expected] == [places]
    assert case.workloads[0]["status"]["unhealthyNodes"] == [{"name": f"{case.id}-x0"}]
    case = _case("TestScheduleForTAS: workload with unhealthyNode annotation; second pass; preferred; no fit; FailFast")
    assert case.expected == {eviction("default/foo")}
    case = _case("TestScheduleForTAS: workload with unhealthyNode annotation; second pass; preferred; no fit")
    assert case.expected == frozenset()


@compiled
def test_the_scheduler_and_the_simulated_kubelet_leave_a_case_as_it_is() -> None:
    case = _case("TestFindTopologyAssignments: don't consider unscheduled Pods when computing capacity; BestFit")
    (pod,) = (item for item in case.nodes if item["kind"] == "Pod")
    assert pod["spec"]["schedulingGates"]
    case = _case("TestFindTopologyAssignments: no assignment as node is not ready; BestFit")
    assert [item["spec"]["unschedulable"] for item in case.nodes if item["kind"] == "Node"] == [True]


@compiled
def test_a_snapshot_can_hold_the_workloads_of_every_case() -> None:
    for case in cases():
        workloads = at(case, case.printed)
        snapshot = build("test", {"Workload": workloads, "ClusterQueue": list(_of(case, "ClusterQueue"))}, case.printed)
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
def test_a_case_is_a_question_if_one_workload_waits_and_no_other_is_newer() -> None:
    asked = {question.case.title: question for question in questions()}
    assert len(asked) >= 40
    question = asked["TestPreemption: preempt lowest priority"]
    assert question.queue == f"{question.case.id}-standalone"
    assert question.run not in question.case.workloads


@compiled
@pytest.mark.parametrize("is_right", [True, False])
def test_an_answer_is_compared_with_its_table(is_right: bool) -> None:
    question = next(q for q in questions() if q.case.title == "TestPreemption: preempt lowest priority")
    run, victim = (f"table-default/workload/{question.case.id}-{name}" for name in ("in", "low" if is_right else "mid"))
    evicted = Eviction(named(victim), "queue", 0, "Preempted", "InClusterQueue", named(run))
    decided = question.decided(Answer(run, question.queue, preempts=(evicted,)))
    assert (decided == question.expected) is is_right


def _case(title: str) -> TableCase:
    (case,) = (case for case in cases() if case.title == title)
    return case


def _of(case: TableCase, kind: str) -> list[Object]:
    return [item for item in case.queues if item["kind"] == kind]


# -------------------------------------------------------------------------------------------------------- assignments
def test_a_compressed_assignment_is_read_and_written_again() -> None:
    individual = {"prefix": "x-", "suffix": ".a", "roots": ["1", "2"]}
    part = {"domainCount": 2, "valuesPerLevel": [{"universal": "b"}, {"individual": individual}]}
    found = {"levels": ["block", HOSTNAME], "slices": [{**part, "podCounts": {"universal": 3}}]}
    assert [*assigned(found)] == [(("b", "x-1.a"), 3), (("b", "x-2.a"), 3)]
    renamed = in_cluster(found, lambda name: f"t-{name}")
    assert [*assigned(renamed)] == [(("b", "t-x-1.a"), 3), (("b", "t-x-2.a"), 3)]


def test_hosts_have_other_names_wherever_an_object_names_them() -> None:
    expression = {"key": HOSTNAME, "operator": "In", "values": ["x1"]}
    spec = {"nodeSelector": {HOSTNAME: "x1", "rack": "x1"}, "matchExpressions": [expression]}
    assert in_cluster({**spec, "unhealthyNodes": [{"name": "x1"}]}, str.upper) == {
        "nodeSelector": {HOSTNAME: "X1", "rack": "x1"},
        "matchExpressions": [{**expression, "values": ["X1"]}],
        "unhealthyNodes": [{"name": "X1"}],
    }


# ----------------------------------------------------------------------------------------- differences, planted by hand
UIDS = {"1": "/victim", "2": "/other", "9": "/in"}
BY_IN = "Preempted to accommodate a workload (UID: 9, JobUID: UNKNOWN) due to prioritization; preemptor path: /q"
TAKEN = Decision("/victim", "preempted", reason="InClusterQueue", preemptor="/in")
ADMITTED = Decision("/in", "admitted", "main×1: cpu t000-spot")


def workload(uid: str, flavor: str = "", preempted: str = "", reason: str = "InClusterQueue") -> Object:
    """A Workload that has quota in a flavor, is preempted with a message, or waits."""
    assigned = {"podSetAssignments": [{"name": "main", "count": 1, "flavors": {"cpu": flavor}}]}
    condition = {"type": "Preempted", "status": "True", "reason": reason, "message": preempted}
    status = {**({"admission": assigned} if flavor else {}), "conditions": [condition] if preempted else []}
    return {"metadata": {"uid": uid}, "status": status}


def test_a_preemption_is_read_with_its_reason_and_preemptor() -> None:
    before = [workload("1", "t000-spot"), workload("9")]
    assert decisions(before, [workload("1", "t000-spot", BY_IN), workload("9")], UIDS) == {TAKEN}


def test_an_admission_is_read_with_its_flavors_and_counts_of_pods() -> None:
    assert decisions([workload("9")], [workload("9", "t000-spot")], UIDS) == {ADMITTED}


def test_another_place_is_a_decision_and_so_is_an_eviction_without_a_spare_node() -> None:
    def on(host: str) -> Object:
        item = workload("9", "t000-spot")
        item["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"] = assignment(
            [HOSTNAME], [([host], 1)]
        )
        return item

    assert decisions([on("x1")], [on("x2")], UIDS) == {ADMITTED._replace(flavors="main×1: cpu t000-spot x2×1")}
    assert decisions([on("x1")], [on("x1")], UIDS) == frozenset()
    lost = {**on("x1"), "status": {"conditions": [{"type": "Evicted", "status": "True", "reason": "NodeFailures"}]}}
    assert decisions([on("x1")], [lost], UIDS) == {eviction("/in")}


def test_what_was_decided_before_is_no_decision() -> None:
    state = [workload("1", "t000-spot", BY_IN), workload("2", "t000-spot")]
    assert decisions(state, state, UIDS) == frozenset()


CASE = TableCase(
    "TestSchedule",
    "made up",
    "t000",
    Configuration(),
    NOW,
    (),
    (),
    (),
    frozenset({TAKEN}),
    frozenset({"/in", "/next"}),
    {},
)


def test_what_the_table_says_is_no_difference() -> None:
    assert list(differences(Result(CASE, frozenset({TAKEN}), frozenset()))) == []


def test_what_a_later_cycle_decides_for_a_workload_in_a_queue_is_no_difference() -> None:
    later = {Decision("/next", "admitted", "main×1: cpu t000-spot"), TAKEN._replace(workload="/x", preemptor="/next")}
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


def test_another_flavor_is_found() -> None:
    case = replace(CASE, expected=frozenset({ADMITTED}))
    other = frozenset({ADMITTED._replace(flavors="main×1: cpu t000-on-demand")})
    assert list(differences(Result(case, other, other)))


def test_a_copy_that_decides_otherwise_in_any_cycle_is_found() -> None:
    more = TAKEN._replace(workload="/x", preemptor="/next")
    assert list(copy_differences(Result(CASE, frozenset({TAKEN, more}), frozenset({TAKEN})))) == [
        f"only in the original: {more}"
    ]
    assert list(copy_differences(Result(CASE, frozenset({TAKEN}), frozenset({TAKEN})))) == []


def test_a_case_that_the_api_server_refuses_is_a_difference() -> None:
    assert list(differences(Result(CASE, CASE.expected, CASE.expected, refused="no such quota")))


@compiled
def test_the_page_says_how_many_cases_are_compared_and_how_many_are_not_by_reason() -> None:
    page = (ROOT / "docs" / "evidence.md").read_text()
    compared, all_cases = sum(not case.reason for case in cases()), sum(len(table["cases"]) for table in tables())
    assert f"| {compared} | {compared - len(exceptions())} as the table says; all {compared} in a copy" in page
    assert f"In {len(exceptions())} cases Kueue decides otherwise" in page
    assert f"Of the {all_cases} cases, {all_cases - compared} are not compared: " in page
    numbers = page.partition(" are not compared: ")[2].partition("\n\n")[0]
    assert sorted(map(int, re.findall(r"\d+", numbers))) == sorted(left_out().values())
