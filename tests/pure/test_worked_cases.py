"""The hand-worked cases are complete, and fates are read from Workloads as Kueue writes them."""

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
    scenarios = [scenario for case in cases() for scenario in (case.scenario, case.changed)]
    sections = [queue for scenario in scenarios for queue in scenario.queues["clusterQueues"]]
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
    first, second = (queue_objects(case.scenario, case.namespace) for case in cases()[:2])
    assert {*map(name_of, first)} & {*map(name_of, second)} == set()


def name_of(item: Object) -> tuple[str, str | None, str]:
    return item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"]


def workload(
    name: str, flavor: str | None = None, kind: str = "Job", uid: str = "", **more: tuple[str, str, str]
) -> Object:
    """A Workload that is admitted to a flavor, or waits. `more`: status, time and message of conditions."""
    keys = ("type", "status", "lastTransitionTime", "message")
    states = {"Admitted": ("True" if flavor else "False", T0, ""), **more}
    conditions = [dict(zip(keys, (kind, *state), strict=True)) for kind, state in states.items()]
    admission = {"admission": {"podSetAssignments": [{"flavors": {"nvidia.com/gpu": flavor}}]}} if flavor else {}
    owners = [{"kind": kind, "name": name, "uid": f"owner-{name}"}]
    metadata = {"namespace": "team", "name": f"w-{name}", "uid": uid or name, "ownerReferences": owners}
    return {"metadata": metadata, "status": {**admission, "conditions": conditions}}


def evicted(by: str, time: str = T1) -> tuple[str, str, str]:
    uids = f"(UID: {by}, JobUID: owner-{by})"
    return ("True", time, f"Preempted to accommodate a workload {uids} due to prioritization; preemptor path: /q")


A, B, Z = workload("a", "l4"), workload("b", "l4"), workload("z", "l4")
A_WAITS, A_EVICTED = workload("a"), workload("a", Evicted=evicted("z"))
OLD, FINISHED = workload("a", Evicted=evicted("z", T0)), workload("b", "l4", Finished=("True", T2, ""))
EVICTED = [Fate("team/a", "evicted", "team/z"), Fate("team/a", "waits")]
POD, NEW = workload("gemma-5d4f8c-x2x4z", "l4", "Pod", "old"), workload("gemma-5d4f8c-abcde", None, "Pod", "new")
POD_EVICTED = workload("gemma-5d4f8c-x2x4z", kind="Pod", uid="old", Evicted=evicted("z"))
A_STARTS, Z_STARTS = (Fate(name, "starts", flavor="l4") for name in ("team/a", "team/z"))


@pytest.mark.parametrize(
    ("before", "between", "after", "expected"),
    [
        pytest.param([A], [], [A], [Fate("team/a", "runs", flavor="l4")], id="admitted before and after"),
        pytest.param([A_WAITS], [], [A], [A_STARTS], id="admitted only after"),
        pytest.param([], [], [Z], [Z_STARTS], id="new and admitted"),
        pytest.param([workload("b")], [], [workload("b")], [Fate("team/b", "waits")], id="never admitted"),
        pytest.param([A], [], [A_EVICTED, Z], [*EVICTED, Z_STARTS], id="an eviction names its preemptor"),
        pytest.param([OLD], [OLD], [OLD], [Fate("team/a", "waits")], id="an eviction before the change"),
        pytest.param(
            *([A, workload("z")], [A_EVICTED, A_EVICTED], [workload("a", "spot"), Z]),
            [EVICTED[0], Fate("team/a", "starts", flavor="spot"), Z_STARTS],
            id="evicted and admitted again",
        ),
        pytest.param(
            *([POD], [POD_EVICTED], [NEW, Z]),
            [Fate("team/gemma", "evicted", "team/z"), Fate("team/gemma", "waits"), Z_STARTS],
            id="an evicted replica that was deleted counts for its server",
        ),
        pytest.param(
            [A, B], [], [FINISHED], [Fate("team/a", "ended"), Fate("team/b", "ended")], id="deleted or finished"
        ),
    ],
)
def test_fates_are_read_from_workloads(
    before: list[Object], between: list[Object], after: list[Object], expected: list[Fate]
) -> None:
    assert fates(before, between, after) == Counter(expected)
