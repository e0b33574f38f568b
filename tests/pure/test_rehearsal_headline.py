"""The headline of a rehearsal names every kind of event of the tables, and is the same wherever it stands."""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from html import unescape
from itertools import combinations
from operator import add
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.text import Text

from gke_ai.forecast.outcome.outcome import outcome
from gke_ai.forecast.outcome.timeline import Observation, Timeline
from gke_ai.forecast.render import rehearsal, rehearsal_picture
from gke_ai.forecast.render.markdown import rehearsal_page
from gke_ai.forecast.render.rehearsal_headline import sentence
from gke_ai.forecast.render.table import shown
from gke_ai.forecast.result.forecast import (
    Accelerators,
    End,
    Eviction,
    Forecast,
    Interruption,
    Nodes,
    OverQuota,
    Server,
    Start,
    Wait,
)
from gke_ai.kube.names import WorkloadName
from tests.support.pictures import RECORDED
from tests.support.timelines import deployment, named, owned, pod, replica, timeline, waiting, workload

NOTHING = "Merging this changes nothing in the queue, and no server loses a ready replica."
QUIET = Forecast("prod", "serving", settled=True, seconds=600, horizon=1800)
# What was so before the change and stays so is no effect of it: a wait, an idle node, a server that lacks a replica.
STEADY = replace(
    QUIET,
    waits=(Wait(named("t/job/old"), "gpus", 20, "Pending", "quota", before=True),),
    nodes=(Nodes("old", "onDemand", "g2-standard-24", "nvidia-l4", 2, 3, 0, 0, 3),),
    servers=(Server("llm/idle", "gpus", 2, 2, 1, 1, 1, 600), Server("llm/fine", "gpus", 2, 2, 2, 2, 2)),
    accelerators=(Accelerators("nvidia-l4", "onDemand", "g2-standard-24", 2, 3, 3, 4, 4, 1.5, 1.5),),
)
Parts = Mapping[str, tuple[Any, ...]]


def server(name: str) -> WorkloadName:
    return WorkloadName("llm", "deployment", name)


def scaled(name: str, before: int, after: int, ready: int, fewest: int, below: int = 0) -> Parts:
    """A server without a queue."""
    return {"servers": (Server(f"llm/{name}", "", before, after, before, ready, fewest, below),)}


def wait(name: str, reason: str, text: str, **more: bool) -> Parts:
    return {"waits": (Wait(named(f"t/job/{name}"), "gpus", 20, reason, text, **more),)}


FOR_GOOD = Interruption(named("t/job/y"), "node pool l4", 4, lasted=600, missing=4)
AGAIN = {"ends": (End(server("k"), "Deleted", count=3),), "starts": (Start(server("k"), "gpus", 30, "l4", count=3),)}
OTHERWISE = wait("z", "Inadmissible", "ClusterQueue a, which is stopped", otherwise=True)
NEVER = wait("x", "Inadmissible", "LocalQueue a", never=True, otherwise=True)
LACKED, OVER = Server("llm/u", "gpus", 2, 2, 0, 2, 0, 300), OverQuota("gpus", "l4", "nvidia.com/gpu", "6", "4")
USED, OF = (
    Accelerators("nvidia-l4", "spot", "g2-standard-12", 1, 6, 6, 2, 6, 3.0, 3.0),
    "nvidia-l4, Spot, g2-standard-12",
)
SPOT = Nodes("v", "spot", "g2-standard-12", "nvidia-l4", came=4, after=4)
PLAIN = Nodes("s", "onDemand", "e2-standard-4", came=1, after=1)
# Each kind of event alone: its entries in the result, and what the headline says of it.
EFFECTS: dict[str, tuple[Parts, str]] = {
    "a server is removed": (scaled("gone", 1, 0, 0, 0), "removes server gone (1 ready replica)"),
    "a run is evicted": ({"evictions": (Eviction(named("t/job/a"), "gpus", 20, "Preempted"),)}, "evicts 1 run"),
    "more evicted": ({"evictions": (Eviction(server("b"), "gpus", 20, "Preempted", count=2),)}, "evicts 2 replicas"),
    "a server loses replicas": (scaled("c", 3, 3, 3, 2, 400), "keeps 2 of 3 replicas of c for 7 minutes"),
    "a server loses replicas for good": (scaled("d", 2, 2, 1, 0, 100), "keeps 0 of 2 replicas of d (1 at the end)"),
    "a run is deleted": ({"ends": (End(named("t/job/e"), "Deleted"),)}, "deletes 1 run"),
    "replicas are deleted": ({"ends": (End(server("f"), "Deleted", count=2),)}, "deletes 2 replicas"),
    "a run fails": ({"ends": (End(named("t/job/g"), "Failed"),)}, "ends 1 run (failed)"),
    "a run succeeds": ({"ends": (End(named("t/job/h"), "Succeeded"),)}, "ends 1 run (succeeded)"),
    "a run is interrupted": ({"interruptions": (Interruption(named("t/job/i"), "node pool l4", 4),)}, "restarts 1 run"),
    "interrupted for good": ({"interruptions": (FOR_GOOD,)}, "interrupts 1 run (out at the end)"),
    "a server is rolled out": ({"interruptions": (Interruption(server("j"), "rollout", 3),)}, "replaces 3 replicas"),
    "replicas end and start": (AGAIN, "replaces 3 replicas"),
    "a run waits": (wait("l", "Pending", "quota"), "leaves 1 workload waiting"),
    "a run waits for nodes": (wait("m", "NoNode", "a node: none"), "leaves 1 workload waiting for nodes"),
    "a waiting run waits for something else": (OTHERWISE, "makes 1 waiting workload wait for another reason"),
    "a waiting run can never start": (NEVER, "means that 1 run can never start"),
    "a run starts": ({"starts": (Start(named("t/job/n"), "gpus", 20, "l4"),)}, "starts 1 run"),
    "replicas start": ({"starts": (Start(server("o"), "gpus", 30, "l4", count=2),)}, "starts 2 replicas"),
    "a server is added": (scaled("p", 0, 2, 1, 0), "adds server p (1 of 2 replicas ready)"),
    "a server grows": (scaled("q", 1, 3, 3, 1), "scales q from 1 to 3 replicas"),
    "a server grows without nodes": (scaled("r", 1, 3, 2, 1), "scales r from 1 to 3 replicas (2 ready)"),
    "a server shrinks": (scaled("s", 3, 1, 1, 1), "scales s from 3 to 1 replica"),
    "a server gets what it lacked": ({"servers": (LACKED,)}, "changes the ready replicas of u from 0 to 2"),
    "a run without a queue starts": ({"accelerators": (USED,)}, f"changes the accelerators in use from 2 to 6 ({OF})"),
    "a queue is over its quota": ({"over_quota": (OVER,)}, "leaves gpus over the quota"),
    "nodes are added": ({"nodes": (SPOT,)}, "asks for 4 Spot nodes"),
    "nodes without accelerators are added": ({"nodes": (PLAIN,)}, "asks for 1 on-demand node without accelerators"),
    "removed nodes": ({"nodes": (Nodes("w", "onDemand", "g2-standard-24", before=2, went=2),)}, "gives back 2 nodes"),
}


def result(*effects: str, base: Forecast = STEADY) -> Forecast:
    parts = [EFFECTS[effect][0] for effect in effects]
    keys = {key for part in parts for key in part}
    joined = {key: reduce(add, (part.get(key, ()) for part in parts), getattr(base, key)) for key in keys}
    return replace(base, **joined)


def has_effect(forecast: Forecast) -> bool:
    """Whether the tables show an event, or a difference between before and after."""
    tables = {
        title: [dict(zip(columns, row, strict=True)) for row in rows]
        for title, columns, rows in rehearsal.tables(forecast)
    }

    def rows(*titles: str) -> list[dict[str, str]]:
        return [row for title in titles for row in tables.get(title, [])]

    return (
        bool(rows("Evicted", "Started", "Ended", "Interrupted"))
        or any(row["since"] != "before the change" for row in rows("Waiting at the end", "Over quota at the end"))
        or any("→" in cell for row in rows("Servers", "Accelerators") for cell in row.values())
        or any((row["added"], row["removed"]) != ("0", "0") for row in rows("Nodes"))
        or any(entry.fewest < min(entry.ready_before, entry.wanted_after) for entry in forecast.servers)
    )


def headlines(forecast: Forecast) -> tuple[str, ...]:
    """What the terminal, the comment and the picture say first."""
    terminal = next(iter(shown(forecast)))
    assert isinstance(terminal, Text)
    comment = rehearsal_page(forecast, None).split("\n\n")[1]
    picture = ElementTree.fromstring(rehearsal_picture.drawn(forecast))
    title = [text.text or "" for text in picture.iter() if text.attrib.get("font-size") == "17"]
    return terminal.plain, unescape(comment.strip("*")), " ".join(title)


@pytest.mark.parametrize("effect", EFFECTS)
def test_each_kind_of_event_is_in_the_headline_alone(effect: str) -> None:
    forecast = result(effect)
    assert sentence(forecast) == f"Merging this {EFFECTS[effect][1]}."
    assert has_effect(forecast)
    assert set(headlines(forecast)) == {sentence(forecast)}


# The use of accelerators is named only if nothing else is: another part then names who uses them.
OTHERS = [effect for effect in EFFECTS if effect != "a run without a queue starts"]
ADDED_UP = ("evicts", "deletes", "replaces", "starts")  # one part for all of them


def test_the_headline_counts_a_run_that_is_interrupted_again_and_names_an_upgrade() -> None:
    again = replace(QUIET, interruptions=(Interruption(named("t/job/i"), "node pool l4", 4, times=2),))
    assert sentence(again) == "Merging this restarts 1 run (2 times)."
    upgraded = replace(QUIET, change="the upgrade of Kueue from 0.16.2", upgrade=True)
    assert sentence(upgraded) == NOTHING.replace("Merging this", "The upgrade of Kueue from 0.16.2")


def test_two_kinds_of_events_are_both_in_the_headline() -> None:
    for effects in combinations(OTHERS, 2):
        one, other = (EFFECTS[effect][1] for effect in effects)
        text = sentence(result(*effects))
        verb = one.split()[0]
        if verb in ADDED_UP and other.startswith(verb):
            assert re.fullmatch(rf"Merging this {verb} (1 run and [23] replicas|6 replicas)\.", text), effects
        else:
            assert one in text, effects
            assert other in text, effects


def test_all_kinds_of_events_are_in_the_headline() -> None:
    forecast = result(*OTHERS)
    assert sentence(forecast) == (
        "Merging this removes server gone (1 ready replica), means that 1 run can never start, "
        "evicts 1 run and 2 replicas, "
        "keeps 2 of 3 replicas of c for 7 minutes, keeps 0 of 2 replicas of d (1 at the end), "
        "deletes 1 run and 2 replicas, ends 1 run (failed), ends 1 run (succeeded), restarts 1 run, "
        "interrupts 1 run (out at the end), replaces 6 replicas, leaves 1 workload waiting, "
        "makes 1 waiting workload wait for another reason, leaves 1 workload waiting for nodes, "
        "leaves gpus over the quota, "
        "starts 1 run and 2 replicas, adds server p (1 of 2 replicas ready), scales q from 1 to 3 replicas, "
        "scales r from 1 to 3 replicas (2 ready), scales s from 3 to 1 replica, "
        "changes the ready replicas of u from 0 to 2, asks for 1 on-demand node without accelerators, "
        "asks for 4 Spot nodes and gives back 2 nodes."
    )
    assert set(headlines(forecast)) == {sentence(forecast)}


@pytest.mark.parametrize("forecast", [QUIET, STEADY], ids=["empty", "steady"])
def test_only_a_change_without_any_effect_changes_nothing(forecast: Forecast) -> None:
    assert not has_effect(forecast)
    assert sentence(forecast) == NOTHING
    assert set(headlines(forecast)) == {NOTHING}
    unsettled = replace(forecast, settled=False)
    assert sentence(unsettled) == f"{NOTHING} The cluster had not settled after 10 minutes."


def test_removed_servers_are_one_part_and_an_evicted_run_starts_again() -> None:
    both = replace(QUIET, servers=(*scaled("a", 1, 0, 0, 0)["servers"], *scaled("b", 2, 0, 0, 0)["servers"]))
    assert sentence(both) == "Merging this removes servers a and b (3 ready replicas)."
    evictions = (Eviction(named("t/job/a"), "gpus", 20, "Preempted", seconds=30),)
    for seconds, run in ((60, "1 evicted run again"), (5, "1 run")):
        starts = (Start(named("t/job/a"), "gpus", 20, "spot", seconds=seconds),)
        found = sentence(replace(QUIET, evictions=evictions, starts=starts))
        assert found == f"Merging this evicts 1 run and starts {run}."


def test_an_evicted_workload_is_named_once_and_replaces_none_that_is_deleted() -> None:
    evictions = (Eviction(server("a"), "gpus", 20, "Preempted"),)
    waits = Wait(server("a"), "gpus", 20, "Pending", "quota", count=3), *wait("b", "NoNode", "a node")["waits"]
    assert sentence(replace(QUIET, evictions=evictions, waits=waits)) == (
        "Merging this evicts 1 replica (1 waits at the end), leaves 2 workloads waiting "
        "and leaves 1 workload waiting for nodes."
    )
    evicted = replace(QUIET, evictions=(Eviction(server("a"), "gpus", 20, "Preempted"),))
    shrunk = replace(evicted, starts=(Start(server("a"), "gpus", 20, "l4"),), ends=(End(server("a"), "Deleted"),))
    assert sentence(shrunk) == "Merging this evicts 1 replica, deletes 1 replica and starts 1 replica."


def test_58_runs_that_can_never_start_are_in_the_headline_and_in_one_row() -> None:
    (lost,) = wait("x", "Inadmissible", "LocalQueue lq", never=True, otherwise=True)["waits"]
    many = [replace(lost, workload=named(f"t/job/{n:02}"), queue="lq", priority=n % 2) for n in range(58)]
    forecast = replace(QUIET, waits=(*many, replace(lost, before=True, otherwise=False)))
    assert sentence(forecast) == "Merging this means that 58 runs can never start."
    (row,) = next(rows for title, _, rows in rehearsal.tables(forecast) if title == "Waiting at the end")
    assert row == ("t/job/00 and 57 more", "lq", "0–1", "before, for another reason", "LocalQueue lq; can never start")
    assert "1 more workload waited before the change and still waits." in rehearsal.remarks(forecast)


def test_an_interrupted_replica_that_is_missing_at_the_end_is_not_replaced() -> None:
    """Nobody repairs a node: the one replica of two servers and a run wait."""
    missing = (named("t/job/a"), 1), (server("b"), 2)
    out = replace(
        QUIET,
        interruptions=tuple(
            Interruption(workload, "node pool l4", pods, lasted=16, missing=1) for workload, pods in missing
        ),
        servers=(Server("llm/b", "", 2, 2, 2, 1, 0, 16),),
        waits=tuple(Wait(workload, "gpus", 20, "NoNode", "a node") for workload, _ in missing),
    )
    assert sentence(out) == (
        "Merging this keeps 0 of 2 replicas of b (1 at the end), interrupts 1 run (out at the end), "
        "replaces 1 replica and leaves 2 workloads waiting for nodes."
    )
    rows = {title: rows for title, _, rows in rehearsal.tables(out)}
    assert [row[4] for row in rows["Interrupted"]] == ["out at the end"] * 2
    assert rows["Servers"][0][-1] == "out at the end"


def test_the_only_server_is_removed_and_a_waiting_run_starts() -> None:
    server, replicas = deployment("gemma", 1, 1), replica("a", node="node-1")
    admitted = workload("wa", owned("Pod", "gemma-abc-1", "a"), 30, flavor="l4")
    removed = outcome(
        timeline(
            *((-1, "deployment", server), (-1, "pod", replicas), (-1, "workload", admitted)),
            (2, "deployment", server, "gone"),
            (3, "pod", replica("a", node="node-1", deleted=True), "gone"),
            (3, "workload", admitted, "gone"),
        )
    )
    assert sentence(removed) == "Merging this removes server gemma (1 ready replica) and deletes 1 replica."
    assert has_effect(removed)
    job = owned("Job", "finetune", "job-uid")
    starts = (3, "workload", workload("wj", job, 20, flavor="l4")), (4, "pod", pod("j1", job, node="node-1"))
    started = outcome(timeline((-1, "workload", waiting("wj", job, 20)), *starts))
    assert sentence(started) == "Merging this starts 1 run."
    assert has_effect(started)


def test_there_are_recorded_results() -> None:
    assert "rehearsal.json" in RECORDED


@pytest.mark.parametrize("name", RECORDED)
def test_headline_of_a_recorded_result_names_its_events_wherever_it_stands(name: str) -> None:
    forecast = RECORDED[name]
    assert set(headlines(forecast)) == {sentence(forecast)}
    assert has_effect(forecast) == (NOTHING not in sentence(forecast))
    verbs = {
        "Evicted": "evicts",
        "Started": "starts|replaces",
        "Interrupted": "restarts|replaces|interrupts|keeps",
        "Ended": "deletes|ends|replaces",
    }
    titles = {title for title, _, _ in rehearsal.tables(forecast)}
    assert [title for title in verbs.keys() & titles if not re.search(verbs[title], sentence(forecast))] == []


def test_a_deleted_queue_that_stays_terminating_is_in_the_headline() -> None:
    queue: dict[str, Any] = {"metadata": {"name": "gpus", "uid": "q"}, "spec": {}}
    deleted = {**queue, "metadata": {**queue["metadata"], "deletionTimestamp": "now"}}
    stays = [Observation(at, "ClusterQueue", item) for at, item in ((-1.0, queue), (2.0, deleted))]
    found = outcome(Timeline(tuple(stays), 1.0, 9.0, settled=True))
    assert sentence(found) == "Merging this leaves ClusterQueue gpus terminating."
    gone = [*stays, Observation(3.0, "ClusterQueue", deleted, deleted=True)]
    assert sentence(outcome(Timeline(tuple(gone), 1.0, 9.0, settled=True))) == NOTHING
