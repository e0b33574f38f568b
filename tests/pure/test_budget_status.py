"""What `gke-ai status` says of budgets, holds and the age of the ledger."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from gke_ai.catalog.kueue.ledger import BUDGET, HELD, KEY
from gke_ai.ops.status.budgets import budget_rows, with_reasons
from gke_ai.ops.status.workloads import state_of

Object = dict[str, Any]
NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
TEXT = "used 412 of 500 accelerator-hours; at this rate exhausted on 19 November"
SPENT = "budget used 500 of 500 accelerator-hours; new work waits until 1 December"


def queue(namespace: str = "research", **notes: str) -> Object:
    return {"metadata": {"namespace": namespace, "name": "training", "annotations": {"other": "x", **notes}}}


def ledger(age: timedelta) -> Object:
    return {"data": {KEY: json.dumps({"at": int((NOW - age).timestamp())})}}


def waiting(message: str, queue_name: str = "training") -> Object:
    condition = {"type": "QuotaReserved", "status": "False", "message": message}
    other = {"type": "PodsReady", "status": "False", "message": "kept"}
    metadata = {"name": "job-a", "namespace": "research"}
    return {"metadata": metadata, "spec": {"queueName": queue_name}, "status": {"conditions": [condition, other]}}


def test_row_has_what_is_used_why_it_is_held_and_that_the_ledger_is_current() -> None:
    rows = budget_rows([queue(**{BUDGET: TEXT}), queue("b", **{HELD: SPENT})], [ledger(timedelta(minutes=2))], NOW)
    assert list(rows) == [("research/training", TEXT, "–", "current"), ("b/training", "–", SPENT, "current")]


def test_ledger_that_is_not_written_any_more_says_since_when() -> None:
    ((*_, age),) = budget_rows([queue(**{BUDGET: TEXT})], [ledger(timedelta(hours=3))], NOW)
    assert age == "old: last read 3 h ago, at 2026-11-15 09:00 UTC"
    ((*_, age),) = budget_rows([queue(**{BUDGET: TEXT})], [], NOW)
    assert age == "is missing"


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
