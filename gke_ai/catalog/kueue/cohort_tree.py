"""Cluster queues and cohorts as a tree: what each has, lends and may borrow, by flavor and resource.

Counts as Kueue does:
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/cache/scheduler/resource_node.go
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Self

Cell = tuple[str, str]
"""A flavor and a resource."""
Amounts = Mapping[Cell, Fraction]
ZERO = Fraction(0)


@dataclass(eq=False)
class Member:
    """A cluster queue or a cohort, with its own quota, its limits, and what its workloads hold."""

    name: str
    is_queue: bool = False
    nominal: Amounts = field(default_factory=dict)
    lending: Amounts = field(default_factory=dict)
    borrowing: Amounts = field(default_factory=dict)
    held: Amounts = field(default_factory=dict)
    weight: Fraction = Fraction(1)
    parent: Self | None = field(default=None, repr=False)
    children: list[Self] = field(default_factory=list, repr=False)

    def join(self, parent: Self) -> None:
        """Makes the member one of a cohort."""
        self.parent = parent
        parent.children.append(self)

    @property
    def ancestors(self) -> Iterator[Self]:
        """The cohorts above it, from its own to the root."""
        above = self.parent
        while above is not None:
            yield above
            above = above.parent

    @property
    def below(self) -> Iterator[Self]:
        """It and all members below it."""
        yield self
        for child in self.children:
            yield from child.below

    @property
    def path(self) -> Iterator[Self]:
        """It and the cohorts above it."""
        yield self
        yield from self.ancestors

    @property
    def queues(self) -> Iterator[Self]:
        """The cluster queues below it, and itself if it is one."""
        return (member for member in self.below if member.is_queue)

    @property
    def root(self) -> Self:
        """The root of its tree."""
        return [*self.path][-1]

    @property
    def siblings(self) -> Sequence[Self]:
        """The members of its parent, with itself. The root of a tree is none."""
        return self.parent.children if self.parent else []

    @property
    def part(self) -> Fraction:
        """Its part of what the members of its parent borrow, if all of them want it."""
        total = sum((member.weight for member in self.siblings), ZERO)
        return self.weight / total if total else ZERO

    def cells(self) -> set[Cell]:
        """The flavors and resources that it or a member below it has, limits or holds."""
        return {cell for member in self.below for part in (member.nominal, member.held) for cell in part}

    def quota(self, cell: Cell) -> Fraction:
        """What it has: its own quota, and what its members lend to it."""
        return self.nominal.get(cell, ZERO) + sum((child.lends(cell) for child in self.children), ZERO)

    def kept(self, cell: Cell) -> Fraction:
        """The part of what it has that it does not lend."""
        return max(ZERO, self.quota(cell) - self.lending[cell]) if cell in self.lending else ZERO

    def lends(self, cell: Cell) -> Fraction:
        """The most that it lends to its cohort."""
        return self.quota(cell) - self.kept(cell)

    def most(self, cell: Cell) -> Fraction:
        """The most that it may use while nobody else uses anything."""
        quota = self.quota(cell)
        if self.parent is None:
            return quota
        most = self.kept(cell) + self.parent.most(cell)
        return min(most, quota + self.borrowing[cell]) if cell in self.borrowing else most

    def used(self, cell: Cell) -> Fraction:
        """What its workloads hold, and what its members borrow of it."""
        return self.held.get(cell, ZERO) + sum((child.taken(cell) for child in self.children), ZERO)

    def taken(self, cell: Cell) -> Fraction:
        """What it uses of the quota that its cohort shares: of what it lends itself, and of what others lend."""
        return max(ZERO, self.used(cell) - self.kept(cell))

    def borrowed(self, cell: Cell) -> Fraction:
        """What it uses beyond its quota, which its parent lends."""
        return max(ZERO, self.used(cell) - self.quota(cell)) if self.parent else ZERO

    def unused(self, cell: Cell) -> Fraction:
        """The unused part of the quota that it lends."""
        return max(ZERO, self.quota(cell) - max(self.kept(cell), self.used(cell))) if self.parent else ZERO

    def available(self, cell: Cell) -> Fraction:
        """How much more it can use now."""
        if self.parent is None:
            return self.quota(cell) - self.used(cell)
        above = self.parent.available(cell)
        if cell in self.borrowing:
            above = min(above, self.lends(cell) - self.taken(cell) + self.borrowing[cell])
        return max(ZERO, self.kept(cell) - self.used(cell)) + above


def cycle(name: str, parents: Mapping[str, str]) -> list[str]:
    """The way from a cohort up to itself; empty if it is not above itself."""
    parent = parents.get(name)
    above = ancestry(parent, parents) if parent else []
    return [name, *above[: above.index(name) + 1]] if name in above else []


def ancestry(name: str, parents: Mapping[str, str]) -> list[str]:
    """A cohort and those above it, until one would be there twice."""
    found: list[str] = []
    above: str | None = name
    while above and above not in found:
        found.append(above)
        above = parents.get(above)
    return found
