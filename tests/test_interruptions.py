"""Interruptions in a timeline: in what order they begin, how often, for how long, and despite what."""

from __future__ import annotations

from forecast.clock import UPGRADED
from forecast.model import Interruption
from forecast.outcome import outcome
from forecast.timeline import Timeline
from tests.timelines import Item, conditions, deployment, node, owned, pod, replica, timeline, workload

JOB = owned("Job", "finetune", "job-uid")


def marked(uid: str, state: str) -> Item:
    """A cordoned node of an upgrade."""
    item = node(uid, closed=True)
    item["metadata"]["annotations"] = {UPGRADED: state}
    return item


def drained() -> Timeline:
    """The nodes of a pool are drained one after the other: a run loses its pod twice, a server a replica once."""
    return timeline(
        (-1, "workload", workload("wj", JOB, 20, flavor="l4")),
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


def test_interruptions_are_listed_in_order_with_their_number_and_duration() -> None:
    assert outcome(drained()).interruptions == (
        Interruption("llm/job/finetune", "node pool l4", 2, 2, times=2, lasted=5),
        Interruption("llm/deployment/gemma", "node pool l4", 1, 11, times=1, lasted=5),
    )


def test_pods_that_end_together_interrupt_their_run_once() -> None:
    together = timeline(
        (-1, "workload", workload("wj", JOB, 20, flavor="l4")),
        *((-1, "node", node(uid)) for uid in "12"),
        *((-1, "pod", pod(f"j{uid}", JOB, node=f"node-{uid}")) for uid in "12"),
        *((1, "node", marked(uid, "drains")) for uid in "12"),
        (2, "pod", pod("j1", JOB, node="node-1", deleted=True)),
        (3, "pod", pod("j2", JOB, node="node-2", deleted=True)),
        (8, "pod", pod("j3", JOB, node="node-3")),
        (9, "pod", pod("j4", JOB, node="node-3")),
    )
    assert outcome(together).interruptions == (Interruption("llm/job/finetune", "node pool l4", 2, 2, 1, 7),)


def test_a_rollout_that_starts_a_replica_first_interrupts_for_no_time() -> None:
    surge = timeline(
        (-1, "deployment", deployment("gemma", 1, 1)),
        (-1, "pod", replica("a", node="node-1")),
        (2, "pod", replica("b", template="new", node="node-1")),
        (3, "pod", replica("a", node="node-1", deleted=True)),
    )
    assert outcome(surge).interruptions == (Interruption("llm/deployment/gemma", "rollout", 1, 3, 1, 0),)


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
    assert entry.cause == "node pool l4, despite its disruption budget"
    assert entry.seconds == 3602
    assert entry.lasted == 2


def test_soaking_takes_google_s_time() -> None:
    soaks = timeline(
        (-1, "node", node("1")), (1, "node", marked("1", "soaks")), (11, "node", marked("1", "drains")), ended=12
    )
    assert outcome(soaks, compression=60).seconds == 602


def test_a_pod_that_the_scheduler_preempts_says_so() -> None:
    preempted = pod("j1", JOB, node="node-1", deleted=True)
    preempted["status"]["conditions"] += conditions(DisruptionTarget=("True", "PreemptionByScheduler", ""))
    taken = timeline(
        (-1, "workload", workload("wj", JOB, 20, flavor="l4")),
        (-1, "node", node("1")),
        (-1, "pod", pod("j1", JOB, node="node-1")),
        (2, "pod", preempted),
        (5, "pod", pod("j2", JOB, node="node-2")),
    )
    expected = Interruption("llm/job/finetune", "preempted by the scheduler", 1, 2, 1, 3)
    assert outcome(taken).interruptions == (expected,)
