"""The trees of a cluster's queues and cohorts: which member has which weight, and who borrows, from which queue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from gke_ai.catalog.kueue.cohort_tree import ZERO, Cell, Member, cycle
from gke_ai.catalog.quantities import format_quantity, round_down
from gke_ai.kube.objects import Object
from gke_ai.kube.queues import flavors_of, held_by_queue, quotas_of, reserved
from gke_ai.kube.values import mapping, quantity, value

# The share of whoever borrows with weight 0: apis/kueue/v1beta2/fairsharing_types.go
UNLIMITED = 2**63 - 1
# A thousandth of the lendable quota, divided by the smallest weight, 10^-9, is 10^12. More is an overflow.
LARGEST_SHARE = 10**15
NOBODY = "nobody: over quota"


@dataclass(eq=False)
class Node(Member):
    """A cluster queue or a cohort of a cluster."""

    item: Object = field(default_factory=dict, repr=False)
    """The object. A cohort that only a name states has an empty one."""

    @property
    def title(self) -> str:
        """Its name; that of a cohort after the word."""
        return self.name if self.is_queue else f"cohort {self.name}"

    @property
    def share(self) -> str:
        """Kueue's own figure: thousandths of the lendable quota that it borrows, divided by its weight.

        Empty without fair sharing.
        """
        share = value(self.item, "status", "fairSharing", "weightedShare")
        if share == UNLIMITED:
            return "unlimited"
        known = isinstance(share, int) and 0 <= share <= LARGEST_SHARE
        return "" if share is None else str(share) if known else "unknown"


@dataclass(frozen=True, order=True)
class Loan:
    """What a cluster queue borrows from another one, from the quota of a cohort, or beyond all quota."""

    borrower: str
    lender: str
    key: Cell
    amount: Fraction


def weight_of(item: Object) -> Fraction:
    """Returns the weight of a cluster queue, a cohort or a local queue for fair sharing."""
    stated = quantity(value(item, "spec", "fairSharing", "weight"))
    return Fraction(1) if stated is None else stated


def weight_text(item: Object) -> str:
    """Returns the weight as a text."""
    return f"{float(weight_of(item)):g}"


def amounts_text(amounts: Mapping[Cell, Fraction]) -> str:
    """Returns amounts with their resource and flavor, without those that are zero."""
    stated = ((cell, amount) for cell, amount in sorted(amounts.items()) if amount)
    return ", ".join(f"{format_quantity(cell[1], amount)} {cell[1]} of {cell[0]}" for cell, amount in stated)


def trees(queues: Iterable[Object], cohorts: Iterable[Object], workloads: Iterable[Object] = ()) -> list[Node]:
    """Returns the cluster queues and cohorts. A cohort that only a name states has no quota of its own.

    The status of a queue lacks flavors that it no longer lists. The Workloads tell who still holds them.
    """
    return list(_nodes(queues, cohorts, workloads))


def loans(nodes: Iterable[Node]) -> list[Loan]:
    """Returns who borrows, and from which queue or cohort.

    Kueue counts only sums. This settles them in the smallest cohort that can: of several lenders there, each lends in
    proportion to its unused quota, in whole pieces.
    """
    found: list[Loan] = []
    for root in (node for node in nodes if node.parent is None and not node.is_queue):
        for key in root.cells():
            owed, _ = _settle(root, key, found)
            found += [Loan(borrower, NOBODY, key, amount) for borrower, amount in owed.items() if amount]
    return sorted(found)


def _settle(node: Node, key: Cell, found: list[Loan]) -> tuple[dict[str, Fraction], dict[str, Fraction]]:
    """Adds the loans below a node. Returns what its queues still owe, and what lenders have for the cohort above."""
    if node.is_queue:
        return {node.title: node.borrowed(key)}, {node.title: node.unused(key)}
    owed: dict[str, Fraction] = {}
    unused = {node.title: node.nominal.get(key, ZERO)}
    for child in node.children:
        more_owed, more_unused = _settle(child, key, found)
        owed |= more_owed
        unused |= more_unused
    lent = min(sum(owed.values(), ZERO), sum(unused.values(), ZERO))
    for borrower, amount in _split(lent, owed, key).items():
        owed[borrower] -= amount
        for lender, part in _split(amount, unused, key).items():
            unused[lender] -= part
            found += [Loan(borrower, lender, key, part)] if part else []
    return owed, _split(min(node.unused(key), sum(unused.values(), ZERO)), unused, key)


def _split(amount: Fraction, parts: Mapping[str, Fraction], key: Cell) -> dict[str, Fraction]:
    """Divides an amount in proportion to parts: accelerators in whole pieces, with no remainder."""
    total, up_to, done, result = sum(parts.values(), ZERO), ZERO, ZERO, {}
    for name, part in parts.items():
        up_to += part
        reached = amount * up_to / total if total else ZERO
        reached = round_down(key[1], reached) if "/" in key[1] and up_to < total else reached
        result[name], done = reached - done, reached
    return result


def _nodes(queues: Iterable[Object], cohorts: Iterable[Object], workloads: Iterable[Object]) -> Iterator[Node]:
    in_use = held_by_queue(workloads)
    stated = {cohort["metadata"]["name"]: cohort for cohort in cohorts}
    parents = {name: parent for name, item in stated.items() if (parent := _parent(item))}
    by_name: dict[str, Node] = {}

    def cohort(name: str) -> Node:
        if name not in by_name:
            by_name[name] = _node(name, False, stated.get(name, {}))
            # In a cycle Kueue admits nothing: whoever is in it has no parent here.
            if (parent := parents.get(name)) and not cycle(name, parents):
                by_name[name].join(cohort(parent))
        return by_name[name]

    for name in stated:
        cohort(name)
    for queue in queues:
        node = _node(queue["metadata"]["name"], True, queue)
        flavors = {flavor for group in flavors_of(queue) for flavor in group}
        node.held = {cell: used for cell, used in in_use[node.name].items() if cell[0] not in flavors} | reserved(queue)
        if parent := value(queue, "spec", "cohortName"):
            node.join(cohort(str(parent)))
        yield node
    yield from by_name.values()


def _parent(cohort: Object) -> str:
    return str(mapping(cohort, "spec").get("parentName") or "")


def _node(name: str, is_queue: bool, item: Object) -> Node:
    nominal, lending, borrowing = (quotas_of(item, key) for key in ("nominalQuota", "lendingLimit", "borrowingLimit"))
    return Node(name, is_queue, nominal, lending, borrowing, weight=weight_of(item), item=item)
