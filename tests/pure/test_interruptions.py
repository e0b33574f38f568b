"""Interruptions in a timeline: in what order they begin, how often, for how long, and despite what."""

from typing import Any

import pytest

from gke_ai.forecast.outcome.interruptions import CHANGED
from gke_ai.forecast.outcome.outcome import outcome
from gke_ai.forecast.outcome.timeline import Timeline
from gke_ai.forecast.render.rehearsal import tables
from gke_ai.forecast.render.rehearsal_headline import sentence
from gke_ai.forecast.result.forecast import Eviction, Forecast, Interruption
from gke_ai.kube.names import WorkloadName
from gke_ai.workspace.emulation import UPGRADED
from tests.support.timelines import (
    GEMMA,
    JOB,
    RUN,
    RUNS,
    Item,
    Observed,
    conditions,
    deployment,
    job,
    named,
    node,
    owned,
    pod,
    replica,
    timeline,
    workload,
)


def marked(uid: str, state: str) -> Item:
    """A cordoned node of an upgrade."""
    item = node(uid, closed=True)
    item["metadata"]["annotations"] = {UPGRADED: state}
    return item


def preempted(uid: str = "j1", **more: Any) -> Item:
    """A pod that the scheduler deletes."""
    item = pod(uid, JOB, node="node-1", deleted=True, **more)
    item["status"]["conditions"] += conditions(DisruptionTarget=("True", "PreemptionByScheduler", ""))
    return item


def test_interruptions_are_listed_in_order_with_their_number_and_duration() -> None:
    """The nodes of a pool are drained one after the other: a run loses its pod twice, a server a replica once."""
    drained = timeline(
        RUNS,
        (-1, "deployment", deployment("gemma", 2, 2)),
        *((-1, "node", node(uid)) for uid in "12"),
        (-1, "pod", pod("j1", JOB, node="node-1")),
        (-1, "pod", replica("a", node="node-2")),
        (-1, "pod", replica("b", node="node-other")),
        (1, "node", marked("1", "drains")),
        (2, "pod", pod("j1", JOB, node="node-1", deleted=True)),
        (2.1, "pod", pod("j1", JOB, node="node-1", deleted=True), "gone"),
        (4, "pod", pod("j2", JOB, node="node-2")),
        (10, "node", marked("2", "drains")),
        (11, "pod", replica("a", node="node-2", deleted=True)),
        (12, "pod", pod("j2", JOB, node="node-2", deleted=True)),
        (15, "pod", pod("j3", JOB, node="node-3")),
        (16, "pod", replica("c", node="node-3")),
    )
    assert outcome(drained).interruptions == (
        Interruption(RUN, "node pool l4", 2, 2, times=2, lasted=5),
        Interruption(GEMMA, "node pool l4", 1, 11, times=1, lasted=5),
    )


def test_pods_that_end_together_interrupt_their_run_once() -> None:
    together = timeline(
        RUNS,
        *((-1, "node", node(uid)) for uid in "12"),
        *((-1, "pod", pod(f"j{uid}", JOB, node=f"node-{uid}")) for uid in "12"),
        *((1, "node", marked(uid, "drains")) for uid in "12"),
        (2, "pod", pod("j1", JOB, node="node-1", deleted=True)),
        (3, "pod", pod("j2", JOB, node="node-2", deleted=True)),
        (8, "pod", pod("j3", JOB, node="node-3")),
        (9, "pod", pod("j4", JOB, node="node-3")),
    )
    assert outcome(together).interruptions == (Interruption(RUN, "node pool l4", 2, 2, 1, 7),)


def test_a_rollout_that_starts_a_replica_first_interrupts_for_no_time() -> None:
    surge = timeline(
        (-1, "deployment", deployment("gemma", 1, 1)),
        (-1, "pod", replica("a", node="node-1")),
        (2, "pod", replica("b", template="new", node="node-1")),
        (3, "pod", replica("a", node="node-1", deleted=True)),
    )
    assert outcome(surge).interruptions == (Interruption(GEMMA, "rollout", 1, 3, 1, 0),)


def test_a_server_that_is_scaled_in_meanwhile_is_whole_again_with_the_replicas_that_it_wants() -> None:
    smaller = timeline(
        (-1, "deployment", deployment("gemma", 3, 3)),
        (-1, "node", node("1")),
        (-1, "pod", replica("a", node="node-1")),
        *((-1, "pod", replica(uid, node="node-9")) for uid in "bc"),
        (1, "node", marked("1", "drains")),
        (2, "pod", replica("a", node="node-1", deleted=True)),
        (2, "deployment", deployment("gemma", 2, 2)),
    )
    (entry,) = outcome(smaller).interruptions
    assert entry.lasted == 0


def test_google_s_time_passes_while_a_budget_holds_a_drain_and_the_deletion_then_says_so() -> None:
    held = timeline(
        (-1, "deployment", deployment("gemma", 1, 1)),
        (-1, "node", node("1")),
        (-1, "pod", replica("a", node="node-1")),
        (2, "node", marked("1", "waits")),
        (62, "node", marked("1", "forced")),
        (62.3, "pod", replica("a", node="node-1", deleted=True)),
        (63, "node", marked("1", "forced"), "gone"),
        (64, "pod", replica("b", node="node-2")),
    )
    (entry,) = outcome(held, compression=60).interruptions
    assert (entry.cause, entry.seconds) == ("node pool l4, despite its disruption budget", 3602)
    assert entry.lasted == 2
    soaks = [(-1.0, "node", node("1")), (1.0, "node", marked("1", "soaks")), (11.0, "node", marked("1", "drains"))]
    assert outcome(timeline(*soaks, ended=12), compression=60).seconds == 602


def test_a_pod_that_the_scheduler_preempts_says_so_unless_its_containers_have_not_started() -> None:
    taken = timeline(
        RUNS,
        (-1, "node", node("1")),
        (-1, "pod", pod("j1", JOB, node="node-1")),
        (2, "pod", preempted()),
        (5, "pod", pod("j2", JOB, node="node-2")),
    )
    assert outcome(taken).interruptions == (Interruption(RUN, "preempted by the scheduler", 1, 2, 1, 3),)
    not_started = timeline(
        RUNS,
        (-1, "node", node("1")),
        (1, "pod", pod("j1", JOB, node="node-1", ready=False)),
        (2, "pod", preempted(ready=False)),
        (2.5, "pod", preempted(ready=False), "gone"),
        (5, "pod", pod("j2", JOB, node="node-1")),
    )
    assert outcome(not_started).interruptions == ()


# -------------------------------------------------------------------- the state when a pod ends, not what follows later
def ended(forecast: Forecast) -> list[tuple[WorkloadName, str, int]]:
    """What ends, where nothing is interrupted."""
    assert forecast.interruptions == ()
    return [(end.workload, end.how, end.count) for end in forecast.ends]


def test_a_replica_that_is_scaled_in_is_not_drained_because_its_node_is_removed_later() -> None:
    smaller = timeline(
        (-1, "deployment", deployment("gemma", 2, 2)),
        *((-1, "node", node(uid)) for uid in "12"),
        *((-1, "pod", replica(uid, node=f"node-{number}")) for number, uid in enumerate("ab", 1)),
        (-1, "workload", workload("wb", owned("Pod", "gemma-abc-b", "b"), 30, flavor="l4")),
        (1, "deployment", deployment("gemma", 1, 2)),
        (1.1, "pod", replica("b", node="node-2", deleted=True)),
        (1.2, "pod", replica("b", node="node-2", deleted=True), "gone"),
        (1.3, "workload", workload("wb", owned("Pod", "gemma-abc-b", "b"), 30, flavor="l4"), "gone"),
        (1.4, "deployment", deployment("gemma", 1, 1)),
        (12, "node", node("2", closed=True)),
        (13, "node", node("2", closed=True), "gone"),
    )
    assert ended(outcome(smaller)) == [(GEMMA, "Deleted", 1)]


def test_pods_of_a_removed_server_are_deleted_with_it() -> None:
    removed = timeline(
        (-1, "deployment", deployment("gemma", 1, 1)),
        (-1, "node", node("1")),
        (-1, "pod", replica("a", node="node-1")),
        (-1, "workload", workload("wa", owned("Pod", "gemma-abc-a", "a"), 30, flavor="l4")),
        (1, "deployment", deployment("gemma", 1, 1), "gone"),
        (1.2, "node", node("1", closed=True)),
        (1.3, "pod", replica("a", node="node-1", deleted=True)),
        (1.4, "workload", workload("wa", owned("Pod", "gemma-abc-a", "a"), 30, flavor="l4"), "gone"),
        (2, "node", node("1", closed=True), "gone"),
    )
    assert ended(outcome(removed)) == [(GEMMA, "Deleted", 1)]


def test_a_run_whose_namespace_is_deleted_is_not_interrupted_although_its_pods_end_first() -> None:
    deleted = timeline(
        RUNS,
        (-1, "job", job()),
        (-1, "pod", pod("j1", JOB, node="node-1")),
        (2, "pod", pod("j1", JOB, node="node-1", deleted=True)),
        (4, "job", job(), "gone"),
        (4.1, "workload", RUNS[2], "gone"),
    )
    assert ended(outcome(deleted)) == [(RUN, "Deleted", 1)]


def test_a_run_that_is_restarted_and_deleted_later_was_interrupted() -> None:
    later = timeline(
        RUNS,
        (-1, "job", job()),
        (-1, "pod", pod("j1", JOB, node="node-1")),
        (2, "pod", pod("j1", JOB, node="node-1", deleted=True), "gone"),
        (3, "pod", pod("j2", JOB, node="node-1")),
        (20, "job", job(), "gone"),
        (20.1, "workload", RUNS[2], "gone"),
        (20.2, "pod", pod("j2", JOB, node="node-1"), "gone"),
    )
    assert outcome(later).interruptions == (Interruption(RUN, "deleted", 1, 2, 1, 1),)


def test_a_jobset_that_replaces_its_job_because_of_a_drained_pod_is_interrupted() -> None:
    name = {"jobset.sigs.k8s.io/jobset-name": "train"}
    owner, again = owned("Job", "train-w-0", "job-uid"), owned("Job", "train-w-0", "new-uid")
    restarted = timeline(
        (-1, "workload", workload("wj", owned("JobSet", "train", "set-uid"), 20, flavor="l4")),
        (-1, "node", node("1")),
        (-1, "job", job("train-w-0")),
        (-1, "pod", pod("j1", owner, node="node-1", labels=name)),
        (1, "node", node("1", closed=True)),
        (2, "pod", pod("j1", owner, node="node-1", labels=name, deleted=True)),
        (2.1, "job", job("train-w-0"), "gone"),
        (2.2, "job", job("train-w-0", "new-uid")),
        (3, "pod", pod("j2", again, node="node-2", labels=name)),
    )
    assert outcome(restarted).interruptions == (Interruption(named("llm/jobset/train"), "node pool l4", 1, 2, 1, 1),)


def test_the_pods_of_a_stateful_set_are_replaced_one_after_the_other() -> None:
    """Kueue has one Workload for all of them."""
    web = owned("StatefulSet", "web", "web-uid")

    def member(uid: str, revision: str, **more: Any) -> Item:
        return pod(uid, web, node="node-1", gpus=0, labels={"controller-revision-hash": revision}, **more)

    def state(ready: int) -> Item:
        item = deployment("web", 3, ready)
        item["metadata"] |= {"uid": "web-uid", "labels": {"kueue.x-k8s.io/queue-name": "lq"}}
        return item

    def of_three(owners: list[Item], flavor: str) -> Item:
        item = workload("ww", owners, 30, flavor=flavor)
        item["spec"]["podSets"] = [{"name": "main", "count": 3}]
        return item

    admitted = of_three([*web, {"kind": "Pod", "name": "pod-a2", "uid": "a2"}], "l4")
    admitted["metadata"]["ownerReferences"][0].pop("controller")
    replaced = [
        observed
        for number in (2, 1, 0)
        for begin in [3 * (3 - number)]
        for observed in (
            (begin, "pod", member(f"a{number}", "one", deleted=True)),
            (begin, "statefulset", state(2)),
            (begin + 0.5, "pod", member(f"a{number}", "one", deleted=True), "gone"),
            (begin + 1, "pod", member(f"b{number}", "two", ready=False)),
            (begin + 2, "pod", member(f"b{number}", "two")),
            (begin + 2, "statefulset", state(3)),
        )
    ]
    pods = [(-1.0, "pod", member(f"a{number}", "one")) for number in range(3)]
    forecast = outcome(timeline((-1, "workload", admitted), (-1, "statefulset", state(3)), *pods, *replaced))
    assert forecast.interruptions == (Interruption(named("llm/statefulset/web"), "rollout", 3, 3, times=3, lasted=6),)
    assert [(server.name, server.queue, server.fewest) for server in forecast.servers] == [("llm/web", "lq", 2)]
    assert (forecast.ends, forecast.starts, forecast.evictions) == ((), (), ())
    web = owned("StatefulSet", "web", "web-uid")
    started = timeline((-1, "workload", of_three(web, "")), (2, "workload", of_three(web, "l4")))
    (start,) = outcome(started).starts
    assert (str(start.workload), start.count) == ("llm/statefulset/web", 3), "it starts with all its replicas"


def test_pods_of_a_run_without_accelerators_that_the_scheduler_preempts_are_named() -> None:
    """Pods of Jobs lack the label of their queue."""
    before, taken = pod("j1", JOB, node="node-1", gpus=0), preempted(gpus=0)
    again = pod("j2", JOB, gpus=0, unschedulable=True)
    for item in (before, taken, again):
        item["metadata"]["labels"] = {}
    runs = (-1, "workload", workload("wj", JOB, 20, flavor="f"))
    pods: list[Observed] = [(-1, "pod", before), (2, "pod", taken), (2.5, "pod", taken, "gone"), (3, "pod", again)]
    forecast = outcome(timeline(runs, *pods))
    (entry,) = forecast.interruptions
    assert (entry.workload, entry.cause, entry.missing) == (RUN, "preempted by the scheduler", 1)
    assert [(wait.workload, wait.reason) for wait in forecast.waits] == [(RUN, "NoNode")]
    (lane,) = forecast.lanes
    assert lane.steps == ((0, "running"), (2, "interrupted"), (3, "no nodes"))


# ------------------------------------------------------------------------------------------------- the picture's states
@pytest.mark.parametrize(
    ("observed", "steps"),
    [
        (
            [
                (-1, "workload", workload("wj", JOB, 20)),
                (2, "workload", RUNS[2]),
                (4, "pod", pod("j1", JOB, unschedulable=True)),
                (20, "pod", pod("j1", JOB, node="node-1", ready=False)),
                (30, "pod", pod("j1", JOB, node="node-1")),
            ],
            ((0, "waiting"), (2, "starting"), (4, "no nodes"), (20, "starting"), (30, "running")),
        ),
        (
            [
                RUNS,
                *((-1, "pod", pod(uid, JOB, node="node-1")) for uid in ("j1", "j2")),
                (2, "pod", pod("j1", JOB, node="node-1"), "gone"),
                (9, "pod", pod("j3", JOB, node="node-1")),
            ],
            ((0, "running"), (2, "interrupted"), (9, "running")),
        ),
    ],
    ids=["it does not start without nodes", "it lacks one of its pods until that is replaced"],
)
def test_the_states_of_a_run(observed: list[Observed], steps: tuple[tuple[int, str], ...]) -> None:
    (lane,) = outcome(timeline(*observed)).lanes
    assert lane.steps == steps


def test_the_time_that_a_run_waited_before_the_change_counts() -> None:
    waits, admitted = workload("wj", JOB, 20), workload("wj", JOB, 20, flavor="l4")
    for item in (waits, admitted):
        item["metadata"]["creationTimestamp"] = "2026-11-22T07:20:00Z"
    admitted["status"]["conditions"][-1]["lastTransitionTime"] = "2026-11-22T09:00:06Z"
    (start,) = outcome(timeline((-1, "workload", waits), (6, "workload", admitted))).starts
    assert (start.seconds, start.waited) == (6, 6006)


# ------------------------------------------------------------------------------- changed runs, and runs without a queue
def changed(pods: int, **again: Any) -> Timeline:
    """Two pods of a run end because Kueue replaces its Workload by one with another number of pods."""
    old, new = workload("old", JOB, flavor="f"), workload("new", JOB, **again)
    new["spec"]["podSets"] = [{"name": "main", "count": pods}]
    suspended: list[Observed] = [(-1, "job", job(pods=2)), (1, "job", job(pods=pods, suspend=True))]
    if again:
        suspended.append((1.2, "job", job(pods=pods)))
    old_pods: list[Observed] = [(-1, "pod", pod(f"p{number}", JOB, "n")) for number in range(2)]
    ended: list[Observed] = [(1.1, "pod", entry[2], "gone") for entry in old_pods]
    started: list[Observed] = [(2.0, "pod", pod(f"q{number}", JOB, "n")) for number in range(pods if again else 0)]
    workloads: list[Observed] = [(-1, "workload", old), (1.05, "workload", old, "gone"), (1.1, "workload", new)]
    return timeline(*suspended, *old_pods, *ended, *started, *workloads)


@pytest.mark.parametrize("pods", [1, 3])
def test_a_changed_run_is_stopped_and_starts_again(pods: int) -> None:
    forecast = outcome(changed(pods, flavor="f"))
    (stopped,) = forecast.interruptions
    assert (stopped.workload, stopped.cause, stopped.pods, stopped.missing) == (RUN, CHANGED, 2, 0)
    assert [str(start.workload) for start in forecast.starts] == ["llm/job/finetune"]
    assert (forecast.evictions, forecast.ends) == ((), ())
    assert sentence(forecast) == "Merging this restarts 1 run."


def test_a_changed_run_that_then_can_never_start_is_said_to_stop_too() -> None:
    forecast = outcome(changed(5))
    assert [(entry.cause, entry.missing) for entry in forecast.interruptions] == [(CHANGED, 2)]
    assert [str(wait.workload) for wait in forecast.waits] == ["llm/job/finetune"]
    assert "interrupts 1 run (out at the end)" in sentence(forecast)


def test_a_run_that_is_evicted_and_interrupted_counts_once() -> None:
    evictions, interruptions = (Eviction(RUN, "lq", 0, "Preempted"),), (Interruption(RUN, "x", 1),)
    forecast = Forecast("s", "c", True, 1, 1, evictions=evictions, interruptions=interruptions)
    assert sentence(forecast) == "Merging this evicts 1 run."


def unqueued(uid: str = "p", **more: Any) -> Item:
    item = pod(uid, JOB, "n", gpus=0, **more)
    item["metadata"]["labels"] = {}
    return item


def test_a_new_run_that_passes_the_queue_is_listed_as_started() -> None:
    forecast = outcome(timeline((1, "job", job()), (2, "pod", unqueued())))
    assert [(start.workload, start.queue, start.seconds) for start in forecast.starts] == [(RUN, "", 2)]
    assert sentence(forecast) == "Merging this starts 1 run past the queue."
    rows = {title: rows for title, _, rows in tables(forecast)}
    assert rows["Started"][0][:2] == (str(RUN), "none: passes the queue")
    known = outcome(timeline((1, "job", job()), (-1, "pod", unqueued("a")), (2, "pod", unqueued("b"))))
    assert known.starts == ()


def test_a_run_without_a_queue_that_is_removed_or_suspended_is_listed() -> None:
    seen: list[Observed] = [(-1, "job", job()), (-1, "pod", unqueued()), (3, "pod", unqueued(), "gone")]
    assert [end.how for end in outcome(timeline(*seen, (2, "job", job(), "gone"))).ends] == ["Deleted"]
    stopped = outcome(timeline(*seen, (2.9, "job", job(suspend=True))))
    assert [(entry.cause, entry.missing) for entry in stopped.interruptions] == [("suspended", 1)]
    assert stopped.ends == ()
