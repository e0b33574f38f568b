"""A forecast is put beside what happened, from one later state of the cluster."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gke_ai.forecast.compare import command as compare
from gke_ai.forecast.compare.comparison import AS_FORECAST, NOT_FORECAST, NOT_SEEN, OTHERWISE
from gke_ai.forecast.result.forecast import End, Eviction, Forecast, Nodes, Start, Wait
from gke_ai.forecast.snapshot.format import build
from gke_ai.terminal import Stop
from gke_ai.workspace.stack import Stack
from tests.support.commands import gke_ai
from tests.support.timelines import evicted, named, node, owned, pod, replica, waiting, workload

SINCE = datetime(2026, 11, 22, 10, tzinfo=UTC)
EARLIER, LATER = "2026-11-22T09:30:00Z", "2026-11-22T10:05:00Z"
JOB, GEMMA = "llm/job/finetune", "llm/deployment/gemma"
RUN, REPLICA = owned("Job", "finetune", "job-uid"), owned("Pod", "gemma-abc-1", "a")
FORECAST = Forecast(
    "prod",
    "serving",
    settled=True,
    seconds=60,
    horizon=1800,
    evictions=(Eviction(named(JOB), "lq", 20, "Preempted", "InClusterQueue", named(GEMMA), "l4"),),
    starts=(Start(named(GEMMA), "lq", 30, "l4"),),
    waits=(Wait(named(JOB), "lq", 20, "Pending", "2 more GPUs in flavor l4"),),
)


def dated(item: dict[str, Any], created: str = EARLIER, changed: str = LATER) -> dict[str, Any]:
    """The object with the time of its creation and of its conditions."""
    conditions = [{**entry, "lastTransitionTime": changed} for entry in item["status"].get("conditions", [])]
    metadata = {**item["metadata"], "creationTimestamp": created}
    return {**item, "metadata": metadata, "status": {**item["status"], "conditions": conditions}}


def cluster(**more: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The state after the change: the replica runs, and the run waits."""
    objects = {
        "Workload": [
            dated(evicted("wj", RUN, "wa", "a")),
            dated(workload("wa", REPLICA, 30, flavor="l4"), created=LATER),
        ],
        "Pod": [dated(replica("a", node="node-1"), created=LATER)],
        "Node": [dated(node("1"), changed=EARLIER)],
    }
    return {**objects, **more}


def verdicts(forecast: Forecast, objects: dict[str, list[dict[str, Any]]]) -> dict[str, str]:
    """The verdict by workload or pool."""
    return {line.name: line.verdict for line in compare.compare(forecast, objects, SINCE)}


def test_what_came_true_is_as_forecast() -> None:
    assert verdicts(FORECAST, cluster()) == {GEMMA: AS_FORECAST, JOB: AS_FORECAST}


def test_a_run_that_kept_running_is_otherwise() -> None:
    runs = [dated(workload("wj", RUN, 20, flavor="l4"), changed=EARLIER)]
    assert verdicts(FORECAST, cluster(Workload=runs)) == {GEMMA: NOT_SEEN, JOB: OTHERWISE}


def test_another_preemptor_is_otherwise() -> None:
    other = owned("Job", "other", "other-uid")
    objects = cluster()
    objects["Workload"][0] = dated(evicted("wj", RUN, "wo", "other-uid"))
    objects["Workload"].append(dated(workload("wo", other, 30, flavor="l4"), created=LATER))
    assert verdicts(FORECAST, objects) == {GEMMA: AS_FORECAST, JOB: OTHERWISE, "llm/job/other": NOT_FORECAST}


def test_a_snapshot_does_not_name_the_preemptor() -> None:
    assert verdicts(FORECAST, build("prod", cluster(), SINCE).objects) == {GEMMA: AS_FORECAST, JOB: AS_FORECAST}
    slow = cluster()
    for condition in slow["Workload"][0]["status"]["conditions"]:
        condition["reason"] = {"Evicted": "PodsReadyTimeout"}.get(condition["type"], condition["reason"])
    assert verdicts(FORECAST, build("prod", slow, SINCE).objects) == {GEMMA: AS_FORECAST, JOB: OTHERWISE}


def test_an_old_eviction_is_no_result_of_the_change() -> None:
    objects = cluster(Workload=[dated(evicted("wj", RUN, "wa", "a"), changed=EARLIER)])
    assert verdicts(Forecast("prod", "x", True, 1, 1, waits=FORECAST.waits), objects) == {JOB: AS_FORECAST}


def test_a_run_that_ended_and_is_gone_is_as_forecast() -> None:
    ends = Forecast("prod", "x", True, 1, 1, ends=(End(named("llm/job/done"), "Succeeded"),))
    assert verdicts(ends, {}) == {"llm/job/done": AS_FORECAST}
    assert verdicts(ends, {"Workload": [dated(waiting("wd", owned("Job", "done", "d")))]}) == {
        "llm/job/done": OTHERWISE
    }


def test_replicas_that_are_gone_leave_nothing_to_compare() -> None:
    smaller = Forecast("prod", "x", True, 1, 1, ends=(End(named(GEMMA), "Deleted"),))
    runs = [dated(workload("wa", REPLICA, 30, flavor="l4"), changed=EARLIER)]
    assert verdicts(smaller, cluster(Workload=runs)) == {GEMMA: AS_FORECAST}
    preempted = Forecast(
        *("prod", "x", True, 1, 1),
        evictions=(Eviction(named(GEMMA), "lq", 30, "Preempted", "InClusterQueue", named(JOB), "l4"),),
        waits=(Wait(named(GEMMA), "lq", 30, "Pending", "2 more GPUs in flavor l4"),),
    )
    assert verdicts(preempted, cluster(Workload=[dated(waiting("wa", REPLICA), created=LATER)])) == {GEMMA: AS_FORECAST}


def test_a_replica_that_waits_and_was_forecast_to_start_is_otherwise() -> None:
    objects = cluster()
    objects["Workload"].append(dated(waiting("wb", owned("Pod", "gemma-abc-2", "b")), created=LATER))
    objects["Pod"].append(dated(replica("b"), created=LATER))
    assert verdicts(FORECAST, objects) == {GEMMA: OTHERWISE, JOB: AS_FORECAST}


def test_a_run_that_starts_again_no_longer_shows_its_eviction() -> None:
    again = Forecast(
        *("prod", "x", True, 1, 1), evictions=FORECAST.evictions, starts=(Start(named(JOB), "lq", 20, "spot"),)
    )
    not_evicted = ("False", "QuotaReserved", "Previously: preempted")
    runs = [dated(workload("wj", RUN, 20, flavor="spot", Evicted=not_evicted))]
    assert verdicts(again, {"Workload": runs}) == {JOB: AS_FORECAST}


def test_a_run_that_starts_as_forecast_and_ends_later_is_as_forecast() -> None:
    starts = Forecast("prod", "x", True, 1, 1, starts=(Start(named(JOB), "lq", 20, "l4"),))
    done = workload("wj", RUN, 20, flavor="l4", Finished=("True", "Succeeded", "Job finished"))
    assert verdicts(starts, {"Workload": [dated(done, created=LATER)]}) == {JOB: AS_FORECAST}


def test_pools_are_compared_by_their_nodes() -> None:
    grows = Forecast("prod", "x", True, 1, 1, nodes=(Nodes("l4", "onDemand", "g2-standard-24", came=1, after=2),))
    assert verdicts(grows, {"Node": [dated(node("1")), dated(node("2"), created=LATER)]}) == {
        "pool l4 (onDemand)": AS_FORECAST
    }
    assert verdicts(grows, {"Node": [dated(node("1"))]}) == {"pool l4 (onDemand)": OTHERWISE}


def test_nodes_of_another_machine_type_are_compared_apart() -> None:
    old, new = (
        Nodes("l4", "onDemand", "g2-standard-48", before=1, went=1),
        Nodes("l4", "onDemand", "g2-standard-24", came=1, after=1),
    )
    replaced = Forecast("prod", "x", True, 1, 1, nodes=(new, old))
    lines = compare.compare(replaced, {"Node": [dated(node("2"), created=LATER)]}, SINCE)
    assert [line.verdict for line in lines] == [AS_FORECAST, AS_FORECAST]


def test_the_command_compares_a_file_with_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "out.json"
    file.write_text(FORECAST.written())
    monkeypatch.setattr(compare, "of_cluster", lambda _: cluster())
    monkeypatch.setattr(
        Stack, "read", lambda *_: [{"kind": "refresh"}, {"kind": "update", "startTime": "2026-11-22T10:00:00Z"}]
    )
    gke_ai("compare", file, "--stack", "prod")
    output = capsys.readouterr().out
    assert "2 of 2 as forecast, since 2026-11-22 10:00 UTC." in output
    assert "evicted by llm/deployment/gemma" in output


def test_a_file_that_is_no_forecast_stops_the_command(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    file.write_text(json.dumps({"version": 9, "evictions": []}))
    with pytest.raises(Stop, match="its version is 9"):
        gke_ai("compare", file)


def test_pods_without_queue_do_not_matter() -> None:
    objects = cluster(Pod=[*cluster()["Pod"], dated(pod("x", owned("Job", "x", "x"), node="node-1"))])
    assert verdicts(FORECAST, objects) == {GEMMA: AS_FORECAST, JOB: AS_FORECAST}
