"""`gke-ai status --shares`: which queues are starved, who borrows, from which queue, and what can be reclaimed."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from functools import cached_property
from pathlib import Path

from rich.table import Table
from rich.text import Text

from gke_ai.catalog.kueue.cohort_tree import ZERO, Cell
from gke_ai.catalog.quantities import format_quantity, round_down
from gke_ai.catalog.versions import KUEUE_API
from gke_ai.formats import console
from gke_ai.formats.sentences import join_names
from gke_ai.kube.client import list_objects
from gke_ai.kube.cohorts import Loan, Node, loans, trees, weight_text
from gke_ai.kube.objects import Object, condition, holds
from gke_ai.kube.pods import amounts
from gke_ai.kube.queues import held, requested
from gke_ai.kube.values import mapping, number, value
from gke_ai.ops.status.queues import queues_and_workloads
from gke_ai.ops.status.workloads import span, waits_since
from gke_ai.terminal import write
from gke_ai.workspace.stack import Stack

VERSION = 1
Row = tuple[str, ...]
SINCE = "since"
# Title and columns of each table, and what a reader sees in place of an empty one.
TABLES: Mapping[str, tuple[str, Row, str]] = {
    "starved": (
        "Starved",
        ("cluster_queue", "flavor", "resource", "used", "quota", "lacks", SINCE, "why"),
        "No queue is starved.",
    ),
    "borrowed": (
        "Borrowed (computed: Kueue says how much, not from which queue)",
        ("cluster_queue", "borrows_from", "flavor", "resource", "amount"),
        "No queue borrows.",
    ),
    "reclaimable": ("Reclaimable", ("cluster_queue", "takes_from", "flavor", "resource", "at_most", "why"), ""),
    "shares": (
        "Shares",
        ("member", "cohort", "weight", "part_by_weight", "weighted_share"),
        "No queue has a cohort, so none shares quota.",
    ),
    "past_usage": ("Past usage", ("local_queue", "cluster_queue", "weight", "average_use", "updated"), ""),
}


def show(stack: Stack, json_file: Path | None = None) -> None:
    """Prints the shares of all queues of the cluster of `stack`, and writes them as JSON."""
    api = stack.cluster()
    queues, workloads = queues_and_workloads(api)
    cohorts, local_queues = (list_objects(api, f"/apis/{KUEUE_API}/{kind}") for kind in ("cohorts", "localqueues"))
    rows = Sharing(queues, cohorts, local_queues, workloads).rows()
    console.show(report(rows, datetime.now(UTC)))
    if json_file:
        write({json_file: json.dumps({"version": VERSION, **as_objects(rows)}, indent=1) + "\n"})


def report(rows: Mapping[str, Sequence[Row]], now: datetime) -> Iterator[Table | Text]:
    """Yields the answers as tables, or as a sentence if there is nothing to list."""
    for table, (title, columns, none) in TABLES.items():
        shown: list[Row] = [
            tuple(_ago(cell, now) if column == SINCE else cell for column, cell in zip(columns, row, strict=True))
            for row in rows[table]
        ]
        if shown:
            yield console.new_table([column.replace("_", " ") for column in columns], shown, title)
        elif none:
            yield Text(none)


def as_objects(rows: Mapping[str, Sequence[Row]]) -> dict[str, list[dict[str, str]]]:
    """Returns the rows of each table by column, as the JSON file has them."""
    return {table: [dict(zip(TABLES[table][1], row, strict=True)) for row in rows[table]] for table in TABLES}


@dataclass(frozen=True)
class Sharing:
    """Cluster queues, cohorts, local queues and Workloads of a cluster."""

    queues: Sequence[Object]
    cohorts: Sequence[Object]
    local_queues: Sequence[Object]
    workloads: Sequence[Object]

    def rows(self) -> dict[str, list[Row]]:
        """Returns the rows of each table."""
        members = sorted((node for node in self.nodes if node.parent), key=lambda node: [*_names(node)][::-1])
        queues = [node for node in members if node.is_queue]
        by_weight = [rows for queue in queues for rows in self._below_weight(queue)]
        return {
            "starved": [*(row for queue in queues for row in self._without_own(queue)), *(row for row, _ in by_weight)],
            "borrowed": [(loan.borrower, loan.lender, *loan.key, _text(loan.key, loan.amount)) for loan in self.loans],
            "reclaimable": [*self._reclaimable(), *(row for _, row in by_weight)],
            "shares": [
                (*_names(node)[:2], weight_text(node.item), f"{float(node.part):.0%}", node.share) for node in members
            ],
            "past_usage": [row for queue in self.local_queues for row in _past_usage(queue)],
        }

    @cached_property
    def nodes(self) -> list[Node]:
        return trees(self.queues, self.cohorts, self.workloads)

    @cached_property
    def loans(self) -> list[Loan]:
        return loans(self.nodes)

    @cached_property
    def waiting(self) -> Mapping[str, Sequence[Object]]:
        """The workloads that wait for quota, by cluster queue. A server without replicas is on hold."""
        targets = {
            _place(queue, queue["metadata"]["name"]): queue["spec"]["clusterQueue"] for queue in self.local_queues
        }
        found: dict[str, list[Object]] = defaultdict(list)
        for workload in self.workloads:
            reserved = condition(workload, "QuotaReserved")
            stopped = workload["spec"].get("active") is False or reserved.get("reason") == "OnHold"
            if not stopped and reserved.get("status") != "True" and not holds(workload, "Finished"):
                found[targets.get(_place(workload, workload["spec"].get("queueName")), "")].append(workload)
        return found

    def _lacking(self, queue: Node) -> Iterator[tuple[Cell, datetime]]:
        """Yields what a queue has no room for in any of its flavors, and since when a workload waits for it."""
        wants = [(requested(workload), waits_since(workload)) for workload in self.waiting[queue.name]]
        for resource in sorted({cell[1] for cell in queue.nominal}):
            asked = [(amounts_of[resource], since) for amounts_of, since in wants if amounts_of.get(resource)]
            cells = sorted(cell for cell in queue.nominal if cell[1] == resource)
            if asked and all(queue.available(cell) < min(asked)[0] for cell in cells):
                yield from ((cell, min(since for _, since in asked)) for cell in cells)

    def _without_own(self, queue: Node) -> Iterator[Row]:
        """Yields the quota of its own that a queue lacks, because others borrow it."""
        for cell, since in self._lacking(queue):
            lent = {loan.borrower: loan.amount for loan in self.loans if (loan.lender, loan.key) == (queue.name, cell)}
            if lacks := min(max(ZERO, queue.nominal[cell] - queue.used(cell)), sum(lent.values(), ZERO)):
                yield _starved(queue, cell, lacks, since, f"lent to {join_names([*lent])}")

    def _below_weight(self, queue: Node) -> Iterator[tuple[Row, Row]]:
        """Yields what a queue lacks of its part by weight, in the smallest cohort where another has more than its part.

        The second row says what fair sharing takes for it.
        """
        for cell, since in self._lacking(queue) if queue.share else ():
            for node in queue.path if queue.used(cell) >= queue.nominal[cell] else ():
                taking = [member for member in node.siblings if member is node or member.borrowed(cell)]
                total = sum((member.borrowed(cell) for member in taking), ZERO)
                weights = sum((member.weight for member in taking), ZERO) or Fraction(1)
                part = min(total * node.weight / weights, node.borrowing.get(cell, total))
                lacks = round_down(cell[1], part - node.borrowed(cell))
                if lacks > 0:
                    more = [m for m in taking if m.borrowed(cell) > total * m.weight / weights]
                    why = f"members of {_names(node)[1]} borrow {_text(cell, total)}, its part by weight is "
                    why += _text(cell, part)
                    borrowers = [below.name for m in more for below in m.queues if below.borrowed(cell)]
                    taken, how = self._by_policy(queue, borrowers, cell, lacks)
                    row = (queue.name, join_names([m.title for m in more]), *cell, taken, f"fair sharing, {how}")
                    yield _starved(queue, cell, lacks, since, why), row
                    break

    def _reclaimable(self) -> Iterator[Row]:
        """Yields what each lender can take back. The queues of a cohort take back what it lends to others."""
        below = {node.title: [queue.name for queue in node.queues] for node in self.nodes}
        queues = {node.name: node for node in self.nodes if node.is_queue}
        for loan in self.loans:
            lenders = below.get(loan.lender, [])
            for name in lenders if loan.borrower not in lenders else ():
                amount, why = self._by_policy(queues[name], [loan.borrower], loan.key, loan.amount)
                yield name, loan.borrower, *loan.key, amount, why

    def _by_policy(self, queue: Node, borrowers: Sequence[str], cell: Cell, most: Fraction) -> tuple[str, str]:
        """How much a queue may take of these borrowers, and why no more.

        Fair sharing asks the same policy first: findCandidates in
        https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/preemption.go
        """
        policy = value(queue.item, "spec", "preemption", "reclaimWithinCohort") or "Never"
        waiting = self.waiting.get(queue.name)
        if policy == "Never":
            return "0", f"reclaimWithinCohort is Never: it waits until workloads of {join_names([*borrowers])} end"
        if policy == "LowerPriority" and waiting:
            top = max(map(_priority, waiting))
            lower = (
                held(workload).get(cell, ZERO)
                for workload in self.workloads
                if value(workload, "status", "admission", "clusterQueue") in borrowers
                and not holds(workload, "Finished")
                and _priority(workload) < top
            )
            most = min(most, sum(lower, ZERO))
            return _text(cell, most), f"reclaimWithinCohort is LowerPriority: workloads of a priority below {top}"
        of = "workloads of a lower priority than its own" if policy == "LowerPriority" else "all workloads"
        return _text(cell, most), f"reclaimWithinCohort is {policy}: {of}"


def _starved(queue: Node, cell: Cell, lacks: Fraction, since: datetime, why: str) -> Row:
    figures = (_text(cell, amount) for amount in (queue.used(cell), queue.nominal[cell], lacks))
    return queue.name, *cell, *figures, since.isoformat(), why


def _past_usage(queue: Object) -> Iterator[Row]:
    """The average use that Kueue has counted, in which older use counts less."""
    if past := mapping(queue, "status", "fairSharing", "admissionFairSharingStatus"):
        used = (f"{float(amount):.3g} {name}" for name, amount in amounts(mapping(past, "consumedResources")).items())
        name, target = "/".join(_place(queue, queue["metadata"]["name"])), str(queue["spec"]["clusterQueue"])
        yield name, target, weight_text(queue), ", ".join(used), str(past.get("lastUpdate"))


def _names(node: Node) -> Row:
    """The titles of a node and of the cohorts above it."""
    return tuple(above.title for above in node.path)


def _place(item: Object, queue: object) -> tuple[str, str]:
    return str(item["metadata"].get("namespace")), str(queue)


def _priority(workload: Object) -> int:
    return number(workload["spec"].get("priority")) or 0


def _text(cell: Cell, amount: Fraction) -> str:
    return format_quantity(cell[1], amount)


def _ago(moment: str, now: datetime) -> str:
    return span((now - datetime.fromisoformat(moment)).total_seconds())
