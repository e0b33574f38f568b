"""What `gke-ai status` says of budgets, holds and the age of the ledger."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from gke_ai.catalog.kueue.ledger import BUDGET, HELD, KEY
from gke_ai.ops.status.budgets import budget_rows, budget_title, with_reasons
from gke_ai.ops.status.workloads import state_of

Object = dict[str, Any]
NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
TEXT = "used 412 of 500 accelerator-hours; at this rate exhausted on 19 November"
USED = "used 500 of 500 accelerator-hours; new work waits until 1 December"
SPENT, NIGHT = f"budget {USED}", "hours: new work waits until Monday 20:00 (UTC)"


def queue(namespace: str = "research", **notes: str) -> Object:
    return {"metadata": {"namespace": namespace, "name": "training", "annotations": {"other": "x", **notes}}}


def ledger(age: timedelta) -> Object:
    return {"data": {KEY: json.dumps({"at": int((NOW - age).timestamp())})}}


def waiting(message: str, queue_name: str = "training") -> Object:
    condition = {"type": "QuotaReserved", "status": "False", "message": message}
    other = {"type": "PodsReady", "status": "False", "message": "kept"}
    metadata = {"name": "job-a", "namespace": "research"}
    return {"metadata": metadata, "spec": {"queueName": queue_name}, "status": {"conditions": [condition, other]}}


def test_row_has_what_is_used_and_what_holds_the_queue_once() -> None:
    rows = budget_rows(
        [queue(**{BUDGET: TEXT}), queue("b", **{HELD: NIGHT}), queue("c", **{BUDGET: USED, HELD: SPENT})]
    )
    assert list(rows) == [
        ("research/training", TEXT, "–"),
        ("b/training", "–", NIGHT),
        ("c/training", USED, "by the budget"),
    ]


def test_ledger_that_is_not_written_any_more_says_since_when() -> None:
    assert budget_title([ledger(timedelta(minutes=2))], NOW).endswith("the ledger is current")
    old = budget_title([ledger(timedelta(hours=3))], NOW)
    assert old.endswith("is old: last read 3 h ago, at 2026-11-15 09:00 UTC")
    assert budget_title([], NOW).endswith("is missing")


def test_workload_that_waits_in_a_held_queue_says_why_and_others_keep_kueues_reason() -> None:
    stopped = waiting("LocalQueue training is stopped")
    explained, by_quota, elsewhere = with_reasons(
        [stopped, waiting("couldn't assign flavors"), waiting("LocalQueue night is stopped", "night")],
        [queue(**{HELD: SPENT})],
    )
    assert state_of(explained, {}) == ("Waiting", f"held by {SPENT}")
    assert {"type": "PodsReady", "status": "False", "message": "kept"} in explained["status"]["conditions"]
    assert state_of(by_quota, {})[1] == "couldn't assign flavors"
    assert state_of(elsewhere, {})[1] == "LocalQueue night is stopped"
    (inactive,) = with_reasons([waiting("LocalQueue training is inactive")], [queue(**{HELD: SPENT})])
    assert state_of(inactive, {}) == ("Waiting", f"held by {SPENT}")
    assert with_reasons([stopped], [queue()]) == [stopped], "a person holds the queue"
