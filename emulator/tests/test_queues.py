"""Kueue's own counts are read from its metrics and its log."""

import io
import json
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import httpx
import pytest

from emulator.cloud import etcd
from emulator.cloud.folder import Folder
from emulator.commands import queues
from emulator.commands.queues import ManagerLog, _counts, _retried

METRICS = """\
# HELP kueue_pending_workloads The number of pending workloads
# TYPE kueue_pending_workloads gauge
kueue_pending_workloads{cluster_queue="one",replica_role="leader",status="active"} 2
kueue_pending_workloads{cluster_queue="one",replica_role="leader",status="inadmissible"} 3
kueue_pending_workloads{cluster_queue="two",replica_role="leader",status="inadmissible"} 1
kueue_reserving_active_workloads{cluster_queue="one",replica_role="leader"} 4
kueue_admission_attempts_total{replica_role="leader",result="inadmissible"} 5
kueue_admission_attempts_total{replica_role="leader",result="success"} 7
kueue_admitted_active_workloads{cluster_queue="one",replica_role="leader"} 9
"""


def test_counts_are_by_queue_and_status() -> None:
    expected = {"pending": {"one": [2, 3], "two": [0, 1]}, "reserving": {"one": 4}, "attempts": 12}
    assert _counts(METRICS.encode()) == expected


def line(message: str, logger: str = "inadmissible_workload_requeue_worker", **fields: object) -> str:
    return json.dumps({"level": "Level(-2)", "logger": logger, "msg": message, **fields}, separators=(",", ":")) + "\n"


def _read(texts: list[str]) -> list[tuple[dict[str, int], bool]]:
    """What is read each time the log grows by a text."""
    log = io.StringIO()
    manager = ManagerLog(log)
    found = []
    for text in texts:
        at = log.tell()
        log.write(text)
        log.seek(at)
        manager.update()
        found.append((dict(manager.moved), manager.idle))
    return found


def test_moves_are_counted_as_the_log_grows_and_kueue_is_idle_once_it_waits_for_heads() -> None:
    tree = line("Moved inadmissible workloads in tree", rootCohort="x")
    texts = [
        line("Moved workloads", clusterqueue="one") + line("Moved workloads", "other", clusterqueue="one"),
        line("Attempting to move workloads", rootCohort="x") + "no JSON\n" + tree[:20],
        tree[20:],
        line("Obtained heads", "scheduler") + line("Scheduling cycle starts", "scheduler"),
        line("Obtained heads", "scheduler"),
    ]
    found = _read(texts)
    one, both = {"queue/one": 1}, {"queue/one": 1, "cohort/x": 1}
    assert found == [(one, False), (one, False), (both, False), (both, True), (both, False)]


def test_a_cohort_in_which_nobody_waits_counts_as_moved_at_the_next_look() -> None:
    tree = line("Attempting to move workloads", rootCohort="x")
    found = _read([tree, "", tree + line("Moved inadmissible workloads in tree", rootCohort="x"), ""])
    assert [moved for moved, _ in found] == [{}, {"cohort/x": 1}, {"cohort/x": 2}, {"cohort/x": 2}]


def test_a_request_that_fails_is_sent_again_until_it_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [httpx.ReadTimeout("late"), httpx.ConnectError("refused")]
    assert _retried(Mock(side_effect=[*failures, "counts"])) == "counts"
    monkeypatch.setattr(queues, "ANSWERS", 0.0)
    with pytest.raises(httpx.ReadTimeout):
        _retried(Mock(side_effect=failures))


def test_each_object_of_a_write_gets_a_revision_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller that lost its watch continues after the last revision, so a second object of it would be lost."""
    sent: list[dict[str, Any]] = []

    def ask(_connection: object, _request: str, content: dict[str, Any]) -> dict[str, Any]:
        sent.append(content)
        return {"succeeded": len(sent) != 3}

    monkeypatch.setattr("emulator.cloud.etcd._Connection.ask", ask)
    names = [{"metadata": {"name": name}} for name in ("one", "two", "three")]
    changed = {"metadata": {"name": "four", "resourceVersion": "7"}}
    by_name = Mock(of=lambda item: item["metadata"]["name"])
    with etcd.Writer(Folder("any"), cast("etcd.Keys", by_name)) as writer:
        assert writer.write([names[0], changed, names[1]], [names[2]]) == ["four"]
    assert [len(transaction["success"]) for transaction in sent] == [1, 1, 1, 1]
    assert [part["modRevision"] for transaction in sent for part in transaction.get("compare", [])] == ["0", "7", "0"]


def test_each_local_queue_whose_interval_is_over_is_sampled_at_the_second_of_the_simulation(tmp_path: Path) -> None:
    log, clock = io.StringIO(), tmp_path / "manager.yaml"
    clock.touch()
    started, changed = clock.stat().st_mtime, list[str]()

    def grow(*messages: str, **fields: Any) -> None:
        at = log.tell()
        log.seek(0, io.SEEK_END)
        log.writelines(line(message, "localqueue-reconciler", **fields) for message in messages)
        log.seek(at)

    def answered(request: httpx.Request) -> httpx.Response:
        """Kueue samples a local queue that changes, and looks at it again because that changes its status."""
        if request.method == "GET":
            return httpx.Response(200, json={"items": [{"metadata": {"namespace": "team", "name": n}} for n in "ab"]})
        changed.append(request.url.path.rpartition("/")[2])
        messages = "Updated AFS consumed resources cache", "Reconcile LocalQueue"
        grow(*messages, namespace="team", name=changed[-1])
        return httpx.Response(200, json={})

    with httpx.Client(transport=httpx.MockTransport(answered), base_url="https://127.0.0.1") as api:
        usage = queues.Usage(api, ManagerLog(log), clock)
        usage.sample(100, 300)
        assert not changed
        assert clock.stat().st_mtime - started == pytest.approx(100, abs=0.01)
        usage.sample(300, 300)
        assert changed == ["a", "b"]
        usage.sample(450, 300)
        # An admission counts the usage of its local queue too.
        grow("Updated AFS consumed usage", localQueue={"namespace": "team", "name": "a"})
        usage.sample(600, 300)
    assert changed == ["a", "b", "b"]
    assert clock.stat().st_mtime - started == pytest.approx(600, abs=0.01)
