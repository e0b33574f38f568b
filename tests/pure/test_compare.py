"""A forecast is put beside what happened, from one later state of the cluster."""

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

Objects = dict[str, list[dict[str, Any]]]
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


def cluster(**more: list[dict[str, Any]]) -> Objects:
    """The state after the change: the replica runs, and the run waits."""
    starts = dated(workload("wa", REPLICA, 30, flavor="l4"), created=LATER)
    return {
        "Workload": [dated(evicted("wj", RUN, "wa", "a")), starts],
        "Pod": [dated(replica("a", node="node-1"), created=LATER)],
        "Node": [dated(node("1"), changed=EARLIER)],
        **more,
    }


def verdicts(forecast: Forecast, objects: Objects) -> dict[str, str]:
    """The verdict by workload or pool."""
    return {line.name: line.verdict for line in compare.compare(forecast, objects, SINCE)}


def test_what_came_true_is_as_forecast_and_pods_without_queue_do_not_matter() -> None:
    assert verdicts(FORECAST, cluster()) == {GEMMA: AS_FORECAST, JOB: AS_FORECAST}
    objects = cluster(Pod=[*cluster()["Pod"], dated(pod("x", owned("Job", "x", "x"), node="node-1"))])
    assert verdicts(FORECAST, objects) == {GEMMA: AS_FORECAST, JOB: AS_FORECAST}


def test_what_happened_otherwise_is_named() -> None:
    kept_running = cluster(Workload=[dated(workload("wj", RUN, 20, flavor="l4"), changed=EARLIER)])
    assert verdicts(FORECAST, kept_running) == {GEMMA: NOT_SEEN, JOB: OTHERWISE}
    by_another = cluster()
    by_another["Workload"][0] = dated(evicted("wj", RUN, "wo", "other-uid"))
    preemptor = workload("wo", owned("Job", "other", "other-uid"), 30, flavor="l4")
    by_another["Workload"].append(dated(preemptor, created=LATER))
    assert verdicts(FORECAST, by_another) == {GEMMA: AS_FORECAST, JOB: OTHERWISE, "llm/job/other": NOT_FORECAST}
    a_replica_waits = cluster()
    a_replica_waits["Workload"].append(dated(waiting("wb", owned("Pod", "gemma-abc-2", "b")), created=LATER))
    a_replica_waits["Pod"].append(dated(replica("b"), created=LATER))
    assert verdicts(FORECAST, a_replica_waits) == {GEMMA: OTHERWISE, JOB: AS_FORECAST}


def test_a_snapshot_does_not_name_the_preemptor() -> None:
    assert verdicts(FORECAST, build("prod", cluster(), SINCE).objects) == {GEMMA: AS_FORECAST, JOB: AS_FORECAST}
    slow = cluster()
    for condition in slow["Workload"][0]["status"]["conditions"]:
        condition["reason"] = {"Evicted": "PodsReadyTimeout"}.get(condition["type"], condition["reason"])
    assert verdicts(FORECAST, build("prod", slow, SINCE).objects) == {GEMMA: AS_FORECAST, JOB: OTHERWISE}


def forecast(**results: Any) -> Forecast:
    return Forecast("prod", "x", True, 1, 1, **results)


ENDS = forecast(ends=(End(named(JOB), "Succeeded"),))
SMALLER = forecast(ends=(End(named(GEMMA), "Deleted"),))
PREEMPTED = forecast(
    evictions=(Eviction(named(GEMMA), "lq", 30, "Preempted", "InClusterQueue", named(JOB), "l4"),),
    waits=(Wait(named(GEMMA), "lq", 30, "Pending", "2 more GPUs in flavor l4"),),
)
AGAIN = forecast(evictions=FORECAST.evictions, starts=(Start(named(JOB), "lq", 20, "spot"),))
STARTS = forecast(starts=(Start(named(JOB), "lq", 20, "l4"),))
GROWS = forecast(nodes=(Nodes("l4", "onDemand", "g2-standard-24", came=1, after=2),))
OLD, SERVES = dated(evicted("wj", RUN, "wa", "a"), changed=EARLIER), workload("wa", REPLICA, 30, flavor="l4")
EVICTED_BEFORE = workload("wj", RUN, 20, flavor="spot", Evicted=("False", "QuotaReserved", "Previously: preempted"))
DONE = workload("wj", RUN, 20, flavor="l4", Finished=("True", "Succeeded", "Job finished"))
POOL = "pool l4 (onDemand)"


@pytest.mark.parametrize(
    ("forecast", "objects", "expected"),
    [
        (forecast(waits=FORECAST.waits), cluster(Workload=[OLD]), {JOB: AS_FORECAST}),
        (ENDS, {}, {JOB: AS_FORECAST}),
        (ENDS, {"Workload": [dated(waiting("wj", RUN))]}, {JOB: OTHERWISE}),
        (SMALLER, cluster(Workload=[dated(SERVES, changed=EARLIER)]), {GEMMA: AS_FORECAST}),
        (PREEMPTED, cluster(Workload=[dated(waiting("wa", REPLICA), created=LATER)]), {GEMMA: AS_FORECAST}),
        (AGAIN, {"Workload": [dated(EVICTED_BEFORE)]}, {JOB: AS_FORECAST}),
        (STARTS, {"Workload": [dated(DONE, created=LATER)]}, {JOB: AS_FORECAST}),
        (GROWS, {"Node": [dated(node("1")), dated(node("2"), created=LATER)]}, {POOL: AS_FORECAST}),
        (GROWS, {"Node": [dated(node("1"))]}, {POOL: OTHERWISE}),
    ],
    ids=[
        *("an old eviction is no result", "it ended and is gone", "it has not ended", "replicas that are gone"),
        *("replicas wait", "it starts again and no longer shows its eviction", "it starts and ends later"),
        *("a pool has a new node", "a pool has no new node"),
    ],
)
def test_a_later_state_is_as_forecast_or_otherwise(
    forecast: Forecast, objects: Objects, expected: dict[str, str]
) -> None:
    assert verdicts(forecast, objects) == expected


def test_nodes_of_another_machine_type_are_compared_apart() -> None:
    old = Nodes("l4", "onDemand", "g2-standard-48", before=1, went=1)
    new = Nodes("l4", "onDemand", "g2-standard-24", came=1, after=1)
    lines = compare.compare(forecast(nodes=(new, old)), {"Node": [dated(node("2"), created=LATER)]}, SINCE)
    assert [line.verdict for line in lines] == [AS_FORECAST, AS_FORECAST]


def test_the_command_compares_a_file_with_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "out.json"
    file.write_text(FORECAST.written())
    updates = [{"kind": "refresh"}, {"kind": "update", "startTime": "2026-11-22T10:00:00Z"}]
    monkeypatch.setattr(compare, "of_cluster", lambda _: cluster())
    monkeypatch.setattr(Stack, "read", lambda *_: updates)
    gke_ai("compare", file, "--stack", "prod")
    output = capsys.readouterr().out
    assert "2 of 2 as forecast, since 2026-11-22 10:00 UTC." in output
    assert "evicted by llm/deployment/gemma" in output
    file.write_text(json.dumps({"version": 9, "evictions": []}))
    with pytest.raises(Stop, match="its version is 9"):
        gke_ai("compare", file)
