"""Cluster queues and cohorts that use more than their quota, such as after a quota is lowered.

Counts as Kueue does, from cluster queues up through hierarchical cohorts, with lending and borrowing limits:
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/cache/scheduler/resource_node.go
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from gke_ai.catalog.quantities import format_quantity
from gke_ai.forecast.outcome.timeline import Histories, History
from gke_ai.forecast.result.forecast import OverQuota
from gke_ai.kube.objects import Object
from gke_ai.kube.queues import Cell, flavors_of, held_by_queue, quotas_of, reserved

Amounts = dict[Cell, Fraction]
ZERO = Fraction(0)


class _Over(NamedTuple):
    """What is over its quota: cluster queues, flavor and resource, the amount in use, and the quota."""

    queues: tuple[str, ...]
    key: Cell
    used: Fraction
    quota: Fraction


@dataclass(eq=False)
class _Node:
    """A cluster queue or a cohort. Only a cluster queue has a name."""

    name: str = ""
    parent: _Node | None = None
    children: list[_Node] = field(default_factory=list)
    nominal: Amounts = field(default_factory=dict)
    lending: Amounts = field(default_factory=dict)
    borrowing: Amounts = field(default_factory=dict)
    used: Amounts = field(default_factory=lambda: defaultdict(Fraction))
    quota: Amounts = field(default_factory=lambda: defaultdict(Fraction))

    def count(self) -> None:
        """Sets what the node has and uses, with what its children lend to it and borrow from it."""
        for key, amount in self.nominal.items():
            self.quota[key] += amount
        for child in self.children:
            child.count()
            for key in child.quota.keys() | child.used.keys():
                self.quota[key] += child.quota[key] - child.own(key)
                self.used[key] += child.borrowed(key)

    def own(self, key: Cell) -> Fraction:
        """Returns the part of the quota that the node does not lend."""
        return max(ZERO, self.quota[key] - self.lending[key]) if key in self.lending else ZERO

    def borrowed(self, key: Cell) -> Fraction:
        """Returns what the node uses of the quota that its parent shares."""
        return max(ZERO, self.used[key] - self.own(key))

    def over(self) -> Iterator[_Over]:
        """Yields what is over the quota at this node: a cohort without a parent, or a borrowing limit."""
        for key, used in self.used.items():
            limit = ZERO if self.parent is None else self.borrowing.get(key)
            if limit is not None and used > self.quota[key] + limit:
                within = self.within(key)
                yield _Over(tuple(sorted(self.sharing(key))), key, used + within, self.quota[key] + limit + within)

    def within(self, key: Cell) -> Fraction:
        """Returns what those that share use of the quota that they do not lend."""
        shared = [child for child in self.children if child.borrowed(key) or child.quota[key] > child.own(key)]
        return sum((min(child.used[key], child.own(key)) + child.within(key) for child in shared), ZERO)

    def sharing(self, key: Cell) -> Iterator[str]:
        """Yields the cluster queues that lend to the node or borrow from it."""
        if self.name:
            yield self.name
        for child in self.children:
            if child.borrowed(key) or child.quota[key] > child.own(key):
                yield from child.sharing(key)


def over_quota(histories: Histories) -> tuple[OverQuota, ...]:
    """Returns what is over its quota at the end. `before` is whether it was so already, by no less."""
    before = {
        (entry.queues, entry.key): entry.used - entry.quota
        for entry in _over(histories, lambda history: history.before)
    }
    result = set()
    for over in _over(histories, lambda history: history.after):
        flavor, resource = over.key
        used, quota = (format_quantity(resource, amount) for amount in (over.used, over.quota))
        was_over = before.get((over.queues, over.key), ZERO) >= over.used - over.quota
        result.add(OverQuota(", ".join(over.queues), flavor, resource, used, quota, was_over))
    return tuple(sorted(result))


def _over(histories: Histories, version: Callable[[History], Object | None]) -> Iterator[_Over]:
    queues, cohorts, workloads = (
        [item for item in map(version, histories.get(kind, {}).values()) if item]
        for kind in ("ClusterQueue", "Cohort", "Workload")
    )
    nodes = list(_nodes(queues, cohorts, workloads))
    for node in nodes:
        if node.parent is None:
            node.count()
    yield from (entry for node in nodes for entry in node.over())


def _nodes(queues: Iterable[Object], cohorts: Iterable[Object], workloads: Iterable[Object]) -> Iterator[_Node]:
    """Yields the cluster queues and cohorts. A cohort that only a name states has no quota of its own.

    The status of a queue lacks flavors that it no longer lists. The Workloads tell who still holds them.
    """
    in_use = held_by_queue(workloads)
    stated = {cohort["metadata"]["name"]: cohort["spec"] for cohort in cohorts}
    by_name: dict[str, _Node] = {}

    def cohort(name: str) -> _Node:
        if name not in by_name:
            spec = stated.get(name, {})
            by_name[name] = _node("", {"spec": spec})
            if (parent := spec.get("parentName")) and name not in _ancestors(parent, stated):
                _adopt(cohort(parent), by_name[name])
        return by_name[name]

    for name in stated:
        cohort(name)
    for queue in queues:
        node = _node(queue["metadata"]["name"], queue)
        flavors = {flavor for group in flavors_of(queue) for flavor in group}
        node.used |= {cell: used for cell, used in in_use[node.name].items() if cell[0] not in flavors}
        node.used |= reserved(queue)
        if parent := queue["spec"].get("cohortName"):
            _adopt(cohort(parent), node)
        yield node
    yield from by_name.values()


def _ancestors(name: str, stated: Mapping[str, Object]) -> set[str]:
    """A cohort and those above it. In a cycle Kueue admits nothing: whoever is in it has no parent here."""
    found: set[str] = set()
    while name and name not in found:
        found.add(name)
        name = stated.get(name, {}).get("parentName", "")
    return found


def _adopt(parent: _Node, child: _Node) -> None:
    child.parent = parent
    parent.children.append(child)


def _node(name: str, queue: Object) -> _Node:
    nominal, lending, borrowing = (quotas_of(queue, key) for key in ("nominalQuota", "lendingLimit", "borrowingLimit"))
    return _Node(name, nominal=nominal, lending=lending, borrowing=borrowing)
