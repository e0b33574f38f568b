"""The hand-worked cases are complete, and fates are read from Workloads as Kueue writes them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.support.rehearsal.fates import Fate, fates
from tests.support.rehearsal.scenario import Scenario, queue_objects
from tests.support.rehearsal.worked_cases import Case, cases

Object = dict[str, Any]
T0, T1, T2 = (f"2026-01-01T00:00:0{second}Z" for second in range(3))


def test_the_cases_cover_every_policy_that_the_configuration_can_set() -> None:
    assert len({case.name for case in cases()}) == len(cases()) >= 15
    sections = [
        queue
        for case in cases()
        for scenario in (case.scenario, case.changed)
        for queue in scenario.queues["clusterQueues"]
    ]
    policies = {(key, value) for queue in sections for key, value in queue.get("preemption", {}).items()}
    within = {"Never", "LowerOrNewerEqualPriority"}  # LowerPriority is the default
    assert {value for key, value in policies if key == "withinClusterQueue"} == within
    assert {value for key, value in policies if key == "reclaimWithinCohort"} == {"Never", "LowerPriority", "Any"}
    assert {queue.get("queueingStrategy") for queue in sections} == {None, "StrictFIFO", "BestEffortFIFO"}
    limits = {key for queue in sections for flavor in queue["flavors"] for key in flavor if key.endswith("Limit")}
    assert limits == {"borrowingLimit", "lendingLimit"}


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_a_case_names_its_source_and_the_fate_of_every_workload(case: Case) -> None:
    assert case.source.startswith("https://kueue.sigs.k8s.io/docs/concepts/")
    assert "#" in case.source
    assert case.reasoning.endswith(".")

    def final(expected: Counter[Fate]) -> Counter[str]:
        # An eviction is an additional fate of a workload that waits or starts.
        return Counter(fate.workload for fate in expected.elements() if fate.outcome != "evicted")

    def workloads(scenario: Scenario) -> Counter[str]:
        return Counter({f"{case.namespace}/{run.name}": run.replicas for run in scenario.runs})

    assert final(case.before) == workloads(case.scenario)
    assert final(case.expected) == workloads(case.changed)
    assert case.scenario != case.changed


def test_worlds_in_one_cluster_share_no_object() -> None:
    first, second = (
        {
            (obj["kind"], obj["metadata"].get("namespace"), obj["metadata"]["name"])
            for obj in queue_objects(case.scenario, case.namespace)
        }
        for case in cases()[:2]
    )
    assert first & second == set()


# -------------------------------------------------------------------------------------------------- fates of workloads
def workload(
    name: str, flavor: str | None = None, kind: str = "Job", uid: str = "", **more: tuple[str, str, str]
) -> Object:
    """A Workload that is admitted to a flavor, or waits. `more`: status, time and message of conditions."""
    conditions = {"Admitted": ("True" if flavor else "False", T0, ""), **more}
    admission = {"admission": {"podSetAssignments": [{"flavors": {"nvidia.com/gpu": flavor}}]}} if flavor else {}
    return {
        "metadata": {
            "namespace": "team",
            "name": f"w-{name}",
            "uid": uid or name,
            "ownerReferences": [{"kind": kind, "name": name, "uid": f"owner-{name}"}],
        },
        "status": {
            **admission,
            "conditions": [
                {"type": type_, "status": status, "lastTransitionTime": time, "message": message}
                for type_, (status, time, message) in conditions.items()
            ],
        },
    }


def evicted(by: str, time: str = T1) -> tuple[str, str, str]:
    message = (
        f"Preempted to accommodate a workload (UID: {by}, JobUID: owner-{by}) due to prioritization; preemptor path: /q"
    )
    return ("True", time, message)


def test_what_is_admitted_before_and_after_runs() -> None:
    assert fates([workload("a", "l4")], [], [workload("a", "l4")]) == {Fate("team/a", "runs", flavor="l4"): 1}


def test_what_is_admitted_only_after_starts_and_what_is_never_admitted_waits() -> None:
    outcome = fates([workload("a"), workload("b")], [], [workload("a", "l4"), workload("b"), workload("new", "l4")])
    assert outcome == Counter(
        [Fate("team/a", "starts", flavor="l4"), Fate("team/b", "waits"), Fate("team/new", "starts", flavor="l4")]
    )


def test_an_eviction_names_its_preemptor() -> None:
    outcome = fates([workload("a", "l4")], [], [workload("a", Evicted=evicted("z")), workload("z", "l4")])
    assert outcome == Counter(
        [Fate("team/a", "evicted", "team/z"), Fate("team/a", "waits"), Fate("team/z", "starts", flavor="l4")]
    )


def test_an_eviction_before_the_change_is_not_counted() -> None:
    old = workload("a", Evicted=evicted("z", T0))
    assert fates([old], [old], [old]) == {Fate("team/a", "waits"): 1}


def test_what_is_evicted_and_admitted_again_has_both_fates() -> None:
    between = workload("a", Evicted=evicted("z"))
    outcome = fates(
        [workload("a", "l4"), workload("z")], [between, between], [workload("a", "spot"), workload("z", "l4")]
    )
    assert outcome[Fate("team/a", "evicted", "team/z")] == 1
    assert outcome[Fate("team/a", "starts", flavor="spot")] == 1


def test_an_evicted_replica_that_was_deleted_counts_for_its_server() -> None:
    old = workload("gemma-5d4f8c-x2x4z", "l4", "Pod", "old")
    new = workload("gemma-5d4f8c-abcde", None, "Pod", "new")
    outcome = fates(
        [old], [workload("gemma-5d4f8c-x2x4z", kind="Pod", uid="old", Evicted=evicted("z"))], [new, workload("z", "l4")]
    )
    assert outcome == Counter(
        [Fate("team/gemma", "evicted", "team/z"), Fate("team/gemma", "waits"), Fate("team/z", "starts", flavor="l4")]
    )


def test_what_is_deleted_or_finished_has_ended() -> None:
    finished = workload("b", "l4", Finished=("True", T2, ""))
    outcome = fates([workload("a", "l4"), workload("b", "l4")], [], [finished])
    assert outcome == Counter([Fate("team/a", "ended"), Fate("team/b", "ended")])
