"""Cluster queues and cohorts that use more than their quota, such as after a quota is lowered, and their shares."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import NamedTuple

from gke_ai.catalog.kueue.cohort_tree import ZERO, Cell
from gke_ai.catalog.quantities import format_quantity
from gke_ai.forecast.outcome.timeline import Histories, History
from gke_ai.forecast.result.forecast import OverQuota, Share
from gke_ai.kube.cohorts import Node, amounts_text, loans, trees, weight_text
from gke_ai.kube.objects import Object


class _Over(NamedTuple):
    """What is over its quota: cluster queues, flavor and resource, the amount in use, and the quota."""

    queues: tuple[str, ...]
    key: Cell
    used: Fraction
    quota: Fraction


def over_quota(histories: Histories) -> tuple[OverQuota, ...]:
    """Returns what is over its quota at the end. `before` is whether it was so already, by no less."""
    before = {(entry.queues, entry.key): entry.used - entry.quota for entry in _all_over(histories, _before)}
    result = set()
    for over in _all_over(histories, _after):
        flavor, resource = over.key
        used, quota = (format_quantity(resource, amount) for amount in (over.used, over.quota))
        was_over = before.get((over.queues, over.key), ZERO) >= over.used - over.quota
        result.add(OverQuota(", ".join(over.queues), flavor, resource, used, quota, was_over))
    return tuple(sorted(result))


def shares(histories: Histories) -> tuple[Share, ...]:
    """Returns the members of cohorts where fair sharing is on, before the change or after it."""
    before, nodes = {node.title: node for node in _trees(histories, _before)}, _trees(histories, _after)
    lent: dict[str, dict[Cell, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    for loan in loans(nodes):
        lent[loan.lender][loan.key] += loan.amount
    result = []
    for node in (node for node in nodes if node.parent):
        old = before.get(node.title)
        if node.share or (old and old.share):
            lends, owes = lent[node.title], {key: node.borrowed(key) for key in node.cells()}
            weight, share = (weight_text(old.item), old.share) if old else ("", "")
            figures = (weight, weight_text(node.item), share, node.share, amounts_text(lends), amounts_text(owes))
            result.append(Share(node.title, *figures))
    return tuple(sorted(result))


def _before(history: History) -> Object | None:
    return history.before


def _after(history: History) -> Object | None:
    return history.after


def _trees(histories: Histories, version: Callable[[History], Object | None]) -> list[Node]:
    return trees(
        *(
            [item for item in map(version, histories.get(kind, {}).values()) if item]
            for kind in ("ClusterQueue", "Cohort", "Workload")
        )
    )


def _all_over(histories: Histories, version: Callable[[History], Object | None]) -> Iterator[_Over]:
    yield from (entry for node in _trees(histories, version) for entry in _over(node))


def _over(node: Node) -> Iterator[_Over]:
    """Yields what is over the quota at a node: a cohort without a parent, or a borrowing limit."""
    for key in node.cells():
        used = node.used(key)
        limit = ZERO if node.parent is None else node.borrowing.get(key)
        if limit is not None and used > node.quota(key) + limit:
            within = _within(node, key)
            yield _Over(tuple(sorted(_sharing(node, key))), key, used + within, node.quota(key) + limit + within)


def _within(node: Node, key: Cell) -> Fraction:
    """Returns what those that share use of the quota that they do not lend."""
    return sum((min(child.used(key), child.kept(key)) + _within(child, key) for child in _sharers(node, key)), ZERO)


def _sharing(node: Node, key: Cell) -> Iterator[str]:
    """Yields the cluster queues that lend to the node or borrow from it."""
    if node.is_queue:
        yield node.name
    for child in _sharers(node, key):
        yield from _sharing(child, key)


def _sharers(node: Node, key: Cell) -> list[Node]:
    return [child for child in node.children if child.taken(key) or child.quota(key) > child.kept(key)]
