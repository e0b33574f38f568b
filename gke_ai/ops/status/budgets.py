"""What tenants have used of their budgets, and which queues the ledger holds, for the status."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from gke_ai.catalog.kueue.ledger import BUDGET, HELD, KEY, LEDGER, NAMESPACE
from gke_ai.catalog.versions import KUEUE_API
from gke_ai.kube.client import ApiClient, list_objects
from gke_ai.kube.objects import Object, condition
from gke_ai.ops.status.workloads import span

COLUMNS = ("local queue", "budget of the month", "held")
# The ledger's CronJob starts a run each minute, and a run may have to wait for a node.
OLD_SECONDS = 300


def ledger_and_queues(api: ApiClient) -> tuple[list[Object], list[Object]]:
    """The ledger, if a stack of the cluster has one, and the local queues that it writes to."""
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
    queues = list_objects(api, f"/apis/{KUEUE_API}/localqueues")
    own = [queue for queue in queues if _notes(queue)]
    return list_objects(api, path, fieldSelector=f"metadata.name={LEDGER}") if own else [], own


def _notes(queue: Object) -> dict[str, str]:
    written = queue["metadata"].get("annotations") or {}
    return {key: written[key] for key in (BUDGET, HELD) if key in written}


def budget_title(ledgers: Iterable[Object], now: datetime) -> str:
    """The title of the table, with the age of the ledger."""
    age = "is missing"
    for ledger in ledgers:
        read = datetime.fromtimestamp(json.loads(ledger["data"][KEY])["at"], UTC)
        seconds = (now - read).total_seconds()
        old = f"is old: last read {span(seconds)} ago, at {read:%Y-%m-%d %H:%M} UTC"
        age = old if seconds > OLD_SECONDS else "is current"
    return f"Budgets and hours: the ledger {age}"


def budget_rows(queues: Iterable[Object]) -> Iterator[tuple[str, ...]]:
    """Yields a row per local queue with a budget or a hold: what is used, and what holds it."""
    for queue in queues:
        metadata, notes = queue["metadata"], _notes(queue)
        used, held = notes.get(BUDGET, "–"), notes.get(HELD, "–")
        yield f"{metadata['namespace']}/{metadata['name']}", used, held.replace(f"budget {used}", "by the budget")


def with_reasons(workloads: Iterable[Object], queues: Iterable[Object]) -> list[Object]:
    """The workloads. One that waits in a queue that the ledger holds says why, in place of "is stopped"."""
    held = {
        (queue["metadata"]["namespace"], queue["metadata"]["name"]): notes[HELD]
        for queue in queues
        if HELD in (notes := _notes(queue))
    }
    if not held:
        return [*workloads]
    return [
        _explained(workload, held.get((workload["metadata"]["namespace"], workload["spec"].get("queueName", ""))))
        for workload in workloads
    ]


def _explained(workload: Object, reason: str | None) -> Object:
    stopped = condition(workload, "QuotaReserved")
    if reason is None or not stopped.get("message", "").endswith((" is stopped", " is inactive")):
        return workload
    others = [item for item in workload["status"]["conditions"] if item["type"] != "QuotaReserved"]
    status = {**workload["status"], "conditions": [*others, {**stopped, "message": f"held by {reason}"}]}
    return {**workload, "status": status}
