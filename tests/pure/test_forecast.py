"""Forecasts are read from timelines: evictions, starts, waits, servers, nodes and interruptions, with stable names."""

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from gke_ai.catalog.machines.capacity import UNTIL
from gke_ai.catalog.nodes.shape import RESERVATION_NAME
from gke_ai.forecast.compare.comparison import AS_FORECAST, Fact, facts
from gke_ai.forecast.outcome.outcome import outcome
from gke_ai.forecast.outcome.reasons import OVERTAKEN, plain, why_evicted
from gke_ai.forecast.outcome.timeline import Timeline
from gke_ai.forecast.result.forecast import (
    Count,
    Duration,
    End,
    Eviction,
    Forecast,
    Interruption,
    Lane,
    Nodes,
    OverQuota,
    Server,
    Stake,
    Start,
    parse,
    read,
)
from gke_ai.workspace.emulation import CAPACITY
from tests.support.rehearsal.outcomes import compare, differences
from tests.support.timelines import (
    GEMMA,
    JOB,
    RUN,
    RUNS,
    UNUSED,
    Observed,
    cluster_queue,
    cohort,
    conditions,
    deployment,
    evicted,
    named,
    node,
    owned,
    pod,
    replica,
    timeline,
    waiting,
    workload,
)

EVICTED = (3, "workload", evicted("wj", JOB, "other", "unknown"))
POD_A, POD_B = owned("Pod", "gemma-abc-1", "a"), owned("Pod", "gemma-abc-2", "b")


def scaled_up(suffix: str = "1") -> Timeline:
    """A server is scaled from one replica to two, and its second replica preempts a run."""
    second = replica(f"b{suffix}")
    owner = owned("Pod", f"gemma-abc-{suffix}", f"b{suffix}")
    return timeline(
        (-1, "workload", workload("wa", POD_A, 30, flavor="l4")),
        RUNS,
        (-1, "pod", replica("a", node="node-1")),
        (-1, "pod", pod("j1", JOB, node="node-2")),
        (-1, "node", node("1")),
        (-1, "node", node("2")),
        (-1, "deployment", deployment("gemma", 1, 1)),
        (2, "deployment", deployment("gemma", 2, 1)),
        (2, "pod", second),
        (2.1, "workload", waiting(f"wb{suffix}", owner, 30)),
        (3, "workload", evicted("wj", JOB, f"wb{suffix}", f"b{suffix}")),
        (3.2, "pod", pod("j1", JOB, node="node-2", deleted=True)),
        (3.4, "pod", pod("j1", JOB, node="node-2", deleted=True), "gone"),
        (4, "workload", workload(f"wb{suffix}", owner, 30, flavor="l4")),
        (4.2, "pod", replica(f"b{suffix}", node="node-2", ready=False, delay=5)),
        (9.2, "pod", replica(f"b{suffix}", node="node-2", delay=5)),
        (9.3, "deployment", deployment("gemma", 2, 2)),
    )


def test_second_replica_preempts_the_run() -> None:
    forecast = outcome(scaled_up(), compression=60, horizon=3600)
    assert forecast.evictions == (Eviction(RUN, "lq", 20, "Preempted", "InClusterQueue", GEMMA, "l4", 3),)
    assert forecast.starts == (Start(GEMMA, "lq", 30, "l4", 4, 2),)
    (wait,) = forecast.waits
    assert (wait.workload, wait.text, wait.before) == (RUN, "2 more GPUs in flavor l4", False)
    assert (forecast.ends, forecast.interruptions) == ((), ()), "Kueue's eviction is no other interruption"
    assert forecast.servers == (Server("llm/gemma", "lq", 1, 2, 1, 2, 1, 0),)
    (accelerators,) = forecast.accelerators
    assert (accelerators.accelerator, accelerators.capacity, accelerators.nodes_before) == ("nvidia-l4", "onDemand", 2)
    assert (accelerators.used_before, accelerators.used_after) == (4, 4)
    assert (accelerators.node_hours_before, accelerators.node_hours_after) == (2.0, 2.0)


# The pods of a timeline became ready two hours before it begins.
BEGAN = datetime.fromisoformat("2026-11-22T11:00:00Z")
WORKED = Stake(RUN, "nvidia-l4", "onDemand", "g2-standard-24", 2, 2, 7203, 4.002)


def test_evicted_run_can_lose_what_its_pods_worked_since_they_were_ready() -> None:
    assert outcome(replace(scaled_up(), began=BEGAN)).stakes == (WORKED,)
    assert outcome(scaled_up()).stakes == (), "nobody knows when"


def test_deleted_run_can_lose_its_work_and_one_that_ends_or_goes_on_or_a_server_loses_none() -> None:
    runs = (RUNS, (-1, "node", node("2")), (-1, "pod", pod("j1", JOB, node="node-2")))
    gone = ((3, "pod", pod("j1", JOB, node="node-2", deleted=True)), (3, "workload", RUNS[2], "gone"))
    deleted = timeline(*runs, *gone)
    assert outcome(replace(deleted, began=BEGAN)).stakes == (WORKED,)
    done = pod("j1", JOB, node="node-2")
    done["status"]["phase"] = "Succeeded"
    finished = workload("wj", JOB, 20, flavor="l4", Finished=("True", "Succeeded", "Job finished successfully"))
    ended = timeline(*runs, (2, "pod", done), (2, "workload", finished), (3, "pod", done, "gone"))
    replicas = ((-1, "pod", replica("a", node="node-1")), (-1, "workload", workload("wa", POD_A, 30, flavor="l4")))
    server = timeline((-1, "node", node("1")), *replicas, *((3, kind, item, "gone") for _, kind, item in replicas))
    assert [end.how for end in outcome(server).ends] == ["Deleted"]
    for kept in (timeline(*runs), ended, server):
        assert outcome(replace(kept, began=BEGAN)).stakes == ()


def test_pod_that_was_not_ready_before_the_change_has_no_work_to_lose() -> None:
    runs = (RUNS, (-1, "node", node("2")), (-1, "pod", pod("j1", JOB, node="node-2", ready=False)))
    stopped = (EVICTED, (3.2, "pod", pod("j1", JOB, node="node-2", deleted=True)))
    assert outcome(replace(timeline(*runs, *stopped), began=BEGAN)).stakes == ()


def test_pod_without_the_time_of_its_readiness_ends_in_no_error() -> None:
    """Kubernetes does not require the time, so a snapshot may lack it."""
    before = pod("j1", JOB, node="node-2")
    for condition in before["status"]["conditions"]:
        del condition["lastTransitionTime"]
    stopped = (EVICTED, (3.2, "pod", pod("j1", JOB, node="node-2", deleted=True)))
    forecast = outcome(replace(timeline(RUNS, (-1, "node", node("2")), (-1, "pod", before), *stopped), began=BEGAN))
    assert [entry.workload for entry in forecast.evictions] == [RUN]
    assert forecast.stakes == ()


def test_interrupted_run_can_lose_its_work() -> None:
    runs = (RUNS, (-1, "node", node("2")), (-1, "pod", pod("j1", JOB, node="node-2")))
    drained = ((2, "node", node("2", closed=True)), (3, "pod", pod("j1", JOB, node="node-2", deleted=True)))
    forecast = outcome(replace(timeline(*runs, *drained), began=BEGAN))
    assert [entry.cause for entry in forecast.interruptions] == ["node pool l4"]
    assert forecast.stakes == (WORKED,)


def test_time_of_delays_is_stretched_and_time_of_decisions_is_not() -> None:
    run = Lane("workload", "llm/job/finetune", ((0, "running"), (3, "evicted")))
    # The pod is held back for 5 s, from 4.2 s to 9.2 s: 5 minutes on Google Cloud.
    for compression, ready in ((60, 304), (1, 9)):
        server = Lane("server", "llm/gemma", ((0, Count(1, 1)), (2, Count(1, 2)), (ready, Count(2, 2))))
        lanes = outcome(scaled_up(), compression=compression).lanes
        assert [lane for lane in lanes if lane.group != "nodes"] == [run, server]


def test_what_kueue_decides_while_a_node_starts_is_not_stretched() -> None:
    """A node takes 10 minutes on Google Cloud, and meanwhile Kueue starts a run that needs no new node."""
    recorded = timeline(
        (-1, "workload", waiting("wj", JOB)),
        (1, "node", node("1", ready=False, delay=10)),
        (3, "workload", workload("wj", JOB, flavor="l4")),
        (11, "node", node("1", delay=10)),
        (12, "workload", workload("wa", POD_A, 30, flavor="l4")),
    )
    starts = outcome(recorded, compression=60).starts
    assert {start.workload.kind: start.seconds for start in starts} == {"job": 3, "pod": 602}


def test_the_seconds_of_a_restore_are_no_waiting() -> None:
    """A run that had waited for 49 s at the snapshot starts 2 s after the change, which begins 60 s later."""
    waits, runs = waiting("wj", JOB), workload("wj", JOB, flavor="l4")
    for item in (waits, runs):
        item["metadata"]["creationTimestamp"] = "2026-11-22T08:58:09Z"  # 111 s before it starts
    recorded = timeline((-1, "workload", waits), (2, "workload", runs))
    assert [start.waited for start in outcome(recorded).starts] == [111]
    assert [start.waited for start in outcome(replace(recorded, restored=60.0)).starts] == [51]


def test_random_names_change_nothing() -> None:
    assert outcome(scaled_up("x9z")) == outcome(scaled_up("1"))


def test_evicted_and_admitted_again_is_both_and_evicted_twice_is_one_run() -> None:
    forecast = outcome(timeline(RUNS, EVICTED, (13, "workload", workload("wj", JOB, 20, flavor="spot"))))
    assert [(entry.workload, str(entry.preemptor)) for entry in forecast.evictions] == [(RUN, "")]
    assert forecast.starts == (Start(RUN, "lq", 20, "spot", 13, 10),)
    assert forecast.waits == ()
    twice = timeline(RUNS, EVICTED, (13, "workload", RUNS[2]), (20, *EVICTED[1:]))
    (eviction,) = outcome(twice).evictions
    assert (eviction.seconds, eviction.count) == (3, 1)


def test_an_eviction_from_before_the_change_is_no_result_of_it() -> None:
    item = evicted("wj", JOB, "x", "y")
    forecast = outcome(timeline((-1, "workload", item), (5, "workload", item)))
    assert forecast.evictions == ()
    assert [(wait.workload, wait.before) for wait in forecast.waits] == [(RUN, True)]


def test_replicas_of_a_server_are_counted_together() -> None:
    evicts = timeline(
        (-1, "workload", workload("wa", POD_A, 10, flavor="l4")),
        (-1, "workload", workload("wb", POD_B, 10, flavor="l4")),
        (-1, "pod", replica("a", node="node-1")),
        (-1, "pod", replica("b", node="node-1")),
        (1, "workload", waiting("wj", JOB, 20)),
        (3, "workload", evicted("wa", POD_A, "wj", "job-uid", 10)),
        (4, "workload", evicted("wb", POD_B, "wj", "job-uid", 10)),
        (5, "workload", evicted("wa", POD_A, "wj", "job-uid", 10), "gone"),
        (5, "workload", evicted("wb", POD_B, "wj", "job-uid", 10), "gone"),
    )
    (eviction,) = outcome(evicts).evictions
    assert (eviction.workload, eviction.preemptor, eviction.count) == (GEMMA, RUN, 2)
    assert eviction.seconds == 3
    assert outcome(evicts).ends == (), "their server creates evicted replicas again"


def test_a_replica_that_kueue_admits_while_it_is_deleted_does_not_start() -> None:
    """Seen with three replicas, of which one waits, that become one: Kueue gave the freed quota to the deleted one."""
    fewer = timeline(
        (-1, "workload", workload("wa", POD_A, 10, flavor="l4")),
        (-1, "workload", waiting("wb", POD_B, 10)),
        (-1, "pod", replica("a", node="node-1")),
        (-1, "pod", replica("b")),
        (1, "pod", replica("a", node="node-1", deleted=True)),
        (1, "pod", replica("b", deleted=True)),
        (1.1, "workload", workload("wa", POD_A, 10, flavor="l4", Finished=("True", "OwnerNotFound", ""))),
        (1.2, "workload", workload("wb", POD_B, 10, flavor="l4")),
        (1.3, "workload", workload("wa", POD_A, 10, flavor="l4"), "gone"),
        (1.3, "workload", workload("wb", POD_B, 10, flavor="l4"), "gone"),
        (1.4, "pod", replica("a", deleted=True), "gone"),
        (1.4, "pod", replica("b", deleted=True), "gone"),
    )
    assert outcome(fewer).starts == ()
    assert [(end.workload, end.how, end.count) for end in outcome(fewer).ends] == [(GEMMA, "Deleted", 2)]


SUCCEEDED = workload("wj", JOB, 20, flavor="l4", Finished=("True", "Succeeded", ""))
ORPHANED = workload("wj", JOB, 20, flavor="l4", Finished=("True", "OwnerNotFound", ""))


@pytest.mark.parametrize(
    ("observed", "ends"),
    [
        ([RUNS, (3, "workload", SUCCEEDED)], (End(RUN, "Succeeded", 3),)),
        ([RUNS, (4, "workload", RUNS[2], "gone")], (End(RUN, "Deleted", 4),)),
        ([RUNS, (3, "workload", ORPHANED), (4, "workload", ORPHANED, "gone")], (End(RUN, "Deleted", 3),)),
        ([(-1, *EVICTED[1:]), (3, *EVICTED[1:], "gone")], (End(RUN, "Deleted", 3),)),
        ([RUNS, (3, "workload", RUNS[2], "gone"), (3, "workload", waiting("w2", JOB, 20))], ()),
    ],
    ids=["finished", "deleted", "its Workload finishes as its Job is deleted", "evicted and deleted", "a new Workload"],
)
def test_the_end_of_a_run_has_its_cause(observed: list[Observed], ends: tuple[End, ...]) -> None:
    assert outcome(timeline(*observed)).ends == ends


def test_what_ends_before_the_change_is_no_result_of_it() -> None:
    gone = timeline(
        (-9, "workload", workload("wj", JOB, 20, flavor="l4")),
        (-9, "pod", replica("a", node="node-1")),
        (-9, "node", node("1")),
        (-8, "workload", workload("wj", JOB, 20, flavor="l4"), "gone"),
        (-8, "pod", replica("a", node="node-1"), "gone"),
        (-8, "node", node("1"), "gone"),
        (2, "pod", replica("b", template="new", node="node-2")),
    )
    forecast = outcome(gone, durations=[Duration("nodeIdle", "", 600, "docs")])
    assert (forecast.ends, forecast.interruptions, forecast.nodes, forecast.accelerators) == ((), (), (), ())


def queue(*amounts: str, at: float = 1, **limits: str) -> Observed:
    return (at, "queue", cluster_queue(*amounts, **limits))


def group(*amounts: str, **limits: str) -> Observed:
    return (1, "cohort", cohort(*amounts, **limits))


def over(queues: str, used: str, quota: str, before: bool = False) -> OverQuota:
    return OverQuota(queues, "l4", "nvidia.com/gpu", used, quota, before=before)


LENDS, BORROWS = queue("serving", "4", "0", "all", at=-1, lendingLimit="4"), queue("b", "4", "8", "all", at=-1)
NO_LONGER_LENDS = queue("serving", "4", "0", "all", at=2, lendingLimit="0")
USES_ITS_OWN = queue("serving", "4", "4", "all", lendingLimit="0")
FREE, SHARES = queue("serving", "8", "0", "all"), queue("serving", "4", "3", "all", lendingLimit="1")
ALONE, TEAM = queue("training", "4", "8", "all", lendingLimit="0"), queue("b", "0", "24", "team")
IN_ALL, LIMITED = group("team", "8", "all"), group("team", "8", "all", borrowingLimit="2")
OTHER = group("other", "16", "all", lendingLimit="10")
CYCLE = [group("a", "1", "b"), group("b", "1", "a")]
OVER_QUOTA: dict[str, tuple[list[Observed], list[OverQuota]]] = {
    "lowered, beside one that was over it before": (
        [queue("a", "8", "6", at=-1), queue("a", "4", "6", at=2), queue("old", "1", "2", at=-1)],
        [over("a", "6", "4"), over("old", "2", "1", before=True)],
    ),
    "further over it": ([queue("a", "4", "6", at=-1), queue("a", "2", "6", at=2)], [over("a", "6", "2")]),
    "it borrows from its cohort": ([queue("a", "2", "5", "all"), queue("b", "4", "1", "all")], []),
    "the cohort has less": ([queue("a", "2", "5", "all"), queue("b", "2", "1", "all")], [over("a, b", "6", "4")]),
    "it borrows what another lends": ([LENDS, BORROWS], []),
    "the other lends nothing any more": ([LENDS, BORROWS, NO_LONGER_LENDS], [over("b", "8", "4")]),
    "what another keeps does not count": ([USES_ITS_OWN, queue("b", "4", "4", "all")], []),
    "it shares nothing": ([ALONE], [over("training", "8", "4")]),
    "with all that they use, not only what they share": ([ALONE, SHARES], [over("serving, training", "11", "8")]),
    "at its limit": ([FREE, queue("b", "2", "6", "all", borrowingLimit="4")], []),
    "above its limit": ([FREE, queue("b", "2", "6", "all", borrowingLimit="3")], [over("b", "6", "5")]),
    "its cohort has quota": ([TEAM, group("team", "24")], []),
    "the cohort above has quota": ([TEAM, IN_ALL, group("all", "16")], []),
    "the cohort above has too little": ([TEAM, IN_ALL, group("all", "15")], [over("b", "24", "23")]),
    "its cohort has a limit": ([TEAM, LIMITED, group("all", "16")], [over("b", "24", "10")]),
    "another cohort has a limit": ([TEAM, IN_ALL, OTHER, group("all")], [over("b", "24", "18")]),
    "a cycle of cohorts": ([*CYCLE, queue("b", "1", "9", "a")], [over("b", "9", "2")]),
}


@pytest.mark.parametrize("case", OVER_QUOTA)
def test_a_queue_is_over_its_quota_with_what_its_cohort_lends(case: str) -> None:
    observed, expected = OVER_QUOTA[case]
    assert outcome(timeline(*observed)).over_quota == tuple(expected)


def test_a_flavor_that_a_queue_no_longer_lists_is_over_its_quota_while_a_run_holds_it() -> None:
    """The status of the queue has the flavors of its spec alone."""
    run = workload("w", owned("Job", "finetune", "j"), flavor="spot")
    run["status"]["admission"]["podSetAssignments"][0] |= {"count": 2, "resourceUsage": {"nvidia.com/gpu": "2"}}
    queue = cluster_queue("cluster-queue", "8", "0")
    found = outcome(timeline((1, "queue", queue), (-1, "workload", run))).over_quota
    assert found == (OverQuota("cluster-queue", "spot", "nvidia.com/gpu", "2", "0"),)
    run["status"]["conditions"] += conditions(Finished=("True", "Succeeded", ""))
    assert outcome(timeline((1, "queue", queue), (-1, "workload", run))).over_quota == ()


def test_fewest_ready_replicas_and_their_time_are_measured() -> None:
    rollout = timeline(
        (-1, "deployment", deployment("gemma", 3, 3)),
        (-1, "pod", replica("a", node="node-1")),
        (1, "pod", replica("a", node="node-1", deleted=True)),
        (1, "deployment", deployment("gemma", 3, 2)),
        (2, "pod", replica("b", template="new", node="node-1", ready=False, delay=6)),
        (8, "pod", replica("b", template="new", node="node-1", delay=6)),
        (8, "deployment", deployment("gemma", 3, 3)),
    )
    forecast = outcome(rollout, compression=60)
    (server,) = forecast.servers
    assert (server.fewest, server.below) == (2, 361)
    assert forecast.interruptions == (Interruption(GEMMA, "rollout", 1, 1, lasted=361),)


PODLESS = workload("wa", POD_A, 30, flavor="l4", Finished=("True", "PodDeleted", "The pod is gone"))


def test_a_rolled_out_replica_is_interrupted_and_has_not_ended() -> None:
    rollout = timeline(
        (-1, "deployment", deployment("gemma", 1, 1)),
        (-1, "pod", replica("a", node="node-1")),
        (-1, "workload", workload("wa", POD_A, 30, flavor="l4")),
        (1, "pod", replica("a", node="node-1", deleted=True)),
        (1.1, "workload", PODLESS),
        (2, "workload", PODLESS, "gone"),
        (2, "pod", replica("a", node="node-1", deleted=True), "gone"),
        (2, "pod", replica("b", template="new", node="node-1")),
        (2, "workload", workload("wb", POD_B, 30, flavor="l4")),
    )
    forecast = outcome(rollout)
    assert (forecast.interruptions, forecast.ends) == ((Interruption(GEMMA, "rollout", 1, 1, lasted=1),), ())


def test_a_replica_on_a_drained_node_is_interrupted_and_has_not_ended() -> None:
    drained = timeline(
        (-1, "deployment", deployment("gemma", 1, 1)),
        (-1, "node", node("1")),
        (-1, "pod", replica("a", node="node-1")),
        (-1, "workload", workload("wa", POD_A, 30, flavor="l4")),
        (1, "node", node("1", closed=True)),
        (1.1, "pod", replica("a", node="node-1"), "gone"),
        (1.2, "workload", PODLESS),
        (2, "workload", PODLESS, "gone"),
        (2, "pod", replica("b", node="node-2")),
    )
    forecast = outcome(drained)
    assert (forecast.interruptions, forecast.ends) == ((Interruption(GEMMA, "node pool l4", 1, 1, lasted=1),), ())


def test_a_replaced_pool_interrupts_the_runs_on_it() -> None:
    drained = timeline(
        RUNS,
        (-1, "node", node("1")),
        (-1, "pod", pod("j1", JOB, node="node-1")),
        (2, "node", node("1", closed=True)),
        (3, "pod", pod("j1", JOB, node="node-1"), "gone"),
        (4, "node", node("1", closed=True), "gone"),
        (5, "node", node("2", ready=False, delay=3)),
        (8, "node", node("2", delay=3)),
    )
    forecast = outcome(drained, compression=60)
    until_the_end = 97 + 3 * 59  # the start of the node is compressed
    expected = Interruption(RUN, "node pool l4", 1, 3, lasted=until_the_end, missing=1)
    assert forecast.interruptions == (expected,)
    (pool,) = forecast.nodes
    assert pool == Nodes("l4", "onDemand", "g2-standard-24", "nvidia-l4", 2, 1, 1, 1, 1)


def test_an_idle_node_stays_for_the_time_that_gke_waits() -> None:
    idle = timeline(
        (-1, "node", node("1")),
        (-1, "pod", pod("j1", JOB, node="node-1")),
        (2, "pod", pod("j1", JOB, node="node-1", deleted=True)),
        (3, "pod", pod("j1", JOB, node="node-1", deleted=True), "gone"),
        (13.5, "node", node("1"), "gone"),
        ended=14,
    )
    forecast = outcome(idle, compression=60, horizon=3600, durations=[Duration("nodeIdle", "", 600, "docs")])
    (accelerators,) = forecast.accelerators
    assert 600 <= accelerators.node_hours_after * 3600 <= 610
    assert forecast.lanes == (Lane("nodes", "l4", ((0, Count(1, 1)), (603, Count(0, 0)))),)
    assert forecast.seconds == 603, "it is settled when the node is gone"


@pytest.mark.parametrize(("field", "key"), [("annotations", CAPACITY), ("labels", UNTIL), ("labels", RESERVATION_NAME)])
def test_nodes_of_a_reservation_are_not_called_on_demand(field: str, key: str) -> None:
    reserved = node("1", pool="mine")
    reserved["metadata"][field][key] = "reservation"
    found = outcome(timeline((1, "node", reserved)))
    assert [pool.capacity for pool in found.nodes] == ["reservation"]
    assert [entry.capacity for entry in found.accelerators] == ["reservation"]
    (pool,) = outcome(timeline((1, "node", node("1", pool="cheap", spot=True)))).nodes
    assert (pool.pool, pool.capacity, pool.came, pool.after) == ("cheap", "spot", 1, 1)


def test_a_pod_without_a_node_waits_for_one_with_the_reason_of_the_autoscaler() -> None:
    reason = "l4: max node group size reached (3)"
    event = {
        "metadata": {"uid": "e", "name": "e", "namespace": "llm"},
        "involvedObject": {"uid": "a"},
        "reason": "NotTriggerScaleUp",
        "message": f"pod didn't trigger scale-up: {reason}",
    }
    (wait,) = outcome(timeline((1, "pod", replica("a", unschedulable=True)), (2, "event", event))).waits
    assert (wait.workload, wait.reason, wait.text) == (GEMMA, "NoNode", f"a node: {reason}")


def test_a_run_without_nodes_is_one_workload_and_replicas_that_waited_before_are_apart() -> None:
    run = timeline(*((1, "pod", pod(uid, JOB, unschedulable=True)) for uid in ("j1", "j2")))
    assert [(wait.workload, wait.count) for wait in outcome(run).waits] == [(RUN, 1)]
    server = timeline((-1, "pod", replica("a", unschedulable=True)), (1, "pod", replica("b", unschedulable=True)))
    assert [(wait.before, wait.count) for wait in outcome(server).waits] == [(False, 1), (True, 1)]


def test_a_smaller_server_is_not_interrupted() -> None:
    smaller = timeline(
        (-1, "deployment", deployment("gemma", 2, 2)),
        (-1, "pod", replica("a", node="node-1")),
        (-1, "workload", workload("wa", POD_A, 30, flavor="l4")),
        (1, "pod", replica("a", node="node-1", deleted=True)),
        (1, "deployment", deployment("gemma", 1, 1)),
        (2, "workload", workload("wa", POD_A, 30, flavor="l4"), "gone"),
    )
    forecast = outcome(smaller)
    assert forecast.interruptions == ()
    assert forecast.ends == (End(GEMMA, "Deleted", 2),)
    assert [(server.wanted_after, server.below) for server in forecast.servers] == [(1, 0)]


# ------------------------------------------------------------------------------------------------------------- words
NO_FLAVOR = "couldn't assign flavors to pod set main"
UNUSED_OF = f"{NO_FLAVOR}: insufficient unused quota for"
NEVER = (
    f"{NO_FLAVOR}: insufficient quota for google.com/tpu in flavor v5e, previously considered podsets requests (0) + "
    "current podset request (32) > maximum capacity (16)"
)
TWO = "cpu in flavor l4, 4 more needed, insufficient unused quota for nvidia.com/gpu in flavor l4, 1 more needed"


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (UNUSED, "2 more GPUs in flavor l4"),
        (f"{NO_FLAVOR}: resource cpu unavailable in ClusterQueue", "a quota for cpu, which its cluster queue lacks"),
        (NEVER, "32 TPU chips in flavor v5e, which never has more than 16"),
        (f"{UNUSED_OF} memory in flavor l4, 64Gi more needed", "64Gi more memory in flavor l4"),
        (f"{UNUSED_OF} {TWO}", "4 more cpu, 1 more GPU in flavor l4"),
        ("LocalQueue lq doesn't exist", "LocalQueue lq, which does not exist"),
        ("Workload no longer fits after processing another workload", OVERTAKEN),
    ],
)
def test_reasons_of_kueue_are_put_into_plain_words(message: str, words: str) -> None:
    assert plain(message) == words


def test_an_eviction_is_explained_in_plain_words() -> None:
    text = why_evicted("Preempted", "InCohortReclamation", "llm/deployment/gemma")
    assert text == "preempted by llm/deployment/gemma: the cohort takes back the quota that it borrows"
    assert why_evicted("PodsReadyTimeout", "", "") == "its pods were not ready in time"


# -------------------------------------------------------------------------------------------------------------- file
def test_a_forecast_is_written_and_read_without_loss(tmp_path: Path) -> None:
    durations = [Duration("nodeReady", "spot", 240, "assumption")]
    forecast = outcome(scaled_up(), "prod", "replicas", 60, durations=durations, notes=["a note"])
    (tmp_path / "out.json").write_text(forecast.written())
    assert read(tmp_path / "out.json") == forecast


def test_the_file_has_names_as_texts_and_is_in_their_order() -> None:
    names = ["a-b/job/x", "a/job/x"]  # as texts; by namespace, kind and name it would be the other order
    ends = tuple(sorted(End(named(name), "Deleted") for name in reversed(names)))
    written = replace(outcome(scaled_up()), evictions=(Eviction(named("a/job/x"), "lq", 1, "r"),), ends=ends).written()
    content = json.loads(written)
    assert [end["workload"] for end in content["ends"]] == names
    assert (content["evictions"][0]["workload"], content["evictions"][0]["preemptor"]) == ("a/job/x", "")
    assert parse(written).written() == written


NOT_A_RESULT, NO_FORM = "not the result of `gke-ai rehearse`", "does not have the form"
HEAD = '{"version": 2, "stack": "s", "change": "c", "settled": true, "seconds": 1, "horizon": 1, '
EVICTS = HEAD + '"evictions": [{"workload": %s, "queue": "q", "priority": 1, "reason": "r"}]}'
IS_NO_NAME = r"does not have the form .*evictions.0.workload: .*%s is no NAMESPACE/KIND/NAME"
LANES = HEAD + '"evictions": [], "lanes": [{"group": "server", "name": "a", "steps": [[0, ["x", []]]]}]}'


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("no", "not JSON"),
        ("[]", NOT_A_RESULT),
        ('{"version": 1, "configurations": []}', NOT_A_RESULT),
        ('{"version": 1, "evictions": []}', "its version is 1, and this program reads version 2"),
        ('{"version": 2, "stack": "s", "evictions": []}', "does not have the form .*change: Field required"),
        ('{"version": 2, "evictions": [{"who": 1}]}', NO_FORM),
        (EVICTS % '"gemma"', IS_NO_NAME % "'gemma'"),
        (EVICTS % "1", IS_NO_NAME % "1"),
        (LANES, "does not have the form .*lanes"),
    ],
)
def test_a_file_that_is_no_forecast_is_refused(text: str, cause: str) -> None:
    with pytest.raises(ValueError, match=cause):
        parse(text)


# -------------------------------------------------------------------------------------------------------- comparison
def test_equal_outcomes_compare_as_forecast_and_times_are_not_compared() -> None:
    forecast = outcome(scaled_up("1"))
    lines = compare(forecast, outcome(scaled_up("2"), compression=60))
    assert [(line.name, line.verdict) for line in lines] == [(str(GEMMA), AS_FORECAST), (str(RUN), AS_FORECAST)]
    later = replace(forecast, starts=tuple(replace(start, seconds=99, waited=98) for start in forecast.starts))
    assert differences(forecast, later) == []


def starts(**more: Any) -> dict[str, tuple[Start, ...]]:
    return {"starts": (replace(Start(GEMMA, "lq", 30, "l4"), **more),)}


PREEMPTED_BY_ANOTHER = Eviction(RUN, "lq", 20, "Preempted", preemptor=named("llm/job/x"), flavor="l4")


@pytest.mark.parametrize(
    ("changed", "name", "verdict"),
    [
        ({"evictions": ()}, "llm/job/finetune", "otherwise"),
        ({"starts": ()}, "llm/deployment/gemma", "not seen"),
        (starts(flavor="spot"), "llm/deployment/gemma", "otherwise"),
        (starts(count=2), "llm/deployment/gemma", "otherwise"),
        ({"evictions": (PREEMPTED_BY_ANOTHER,)}, "llm/job/finetune", "otherwise"),
        ({"ends": (End(named("llm/job/new"), "Deleted"),)}, "llm/job/new", "not forecast"),
        ({"nodes": (Nodes("l4", "spot", "g2-standard-24", came=2, after=2),)}, "pool l4 (spot)", "not forecast"),
    ],
)
def test_each_difference_is_found(changed: dict[str, tuple[object, ...]], name: str, verdict: str) -> None:
    forecast: Forecast = outcome(scaled_up())
    happened = replace(forecast, **changed)  # type: ignore[arg-type]
    assert [(line.name, line.verdict) for line in differences(forecast, happened)] == [(name, verdict)]


def test_facts_name_workload_outcome_preemptor_and_flavor() -> None:
    starts = Fact(GEMMA, "starts", named(""), "l4")
    assert set(facts(outcome(scaled_up()))) == {Fact(RUN, "evicted", GEMMA, "l4"), Fact(RUN, "waits"), starts}
