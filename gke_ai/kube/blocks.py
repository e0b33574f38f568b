"""Nodes in blocks of the network, and the runs whose pods are there."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from gke_ai.catalog.fabric.topology import LEVELS
from gke_ai.kube.names import WorkloadName
from gke_ai.kube.objects import Object, holds, label
from gke_ai.kube.pods import accelerator_count, accelerators_on, ended

COLUMNS = ("block", "nodes", "accelerators used", "pods")
# A node in text: all of its accelerators are used, some, or none, or none can be.
FULL, PARTLY, FREE, CLOSED = "■", "◧", "□", "×"


@dataclass(frozen=True, order=True)
class Use:
    """The pods of a run on a node, and the accelerators that they request together."""

    run: str
    pods: int
    accelerators: int


@dataclass(frozen=True, order=True)
class BlockNode:
    """A node with a label of its block, in the order of the network. Labels that it lacks are empty.

    `closed` is whether it takes no more pods: it is cordoned, or not Ready.
    """

    block: str
    subblock: str
    host: str
    name: str
    accelerators: int
    uses: tuple[Use, ...] = ()
    closed: bool = False

    @property
    def used(self) -> int:
        """How many accelerators pods request."""
        return sum(use.accelerators for use in self.uses)


def block_nodes(nodes: Iterable[Object], pods: Iterable[Object]) -> list[BlockNode]:
    """Returns the nodes that have a block, in the order of the network, with the pods that use accelerators."""
    uses: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for pod in pods:
        count, node_name = accelerator_count(pod["spec"]), pod["spec"].get("nodeName", "")
        if count and node_name and not ended(pod):
            uses[node_name][str(WorkloadName.of_pod(pod))].update(pods=1, accelerators=count)
    found = []
    for node in nodes:
        block, subblock, host = (label(node, level) for level in LEVELS.values())
        if block:
            name = node["metadata"]["name"]
            own = tuple(Use(run, use["pods"], use["accelerators"]) for run, use in sorted(uses[name].items()))
            closed = bool(node["spec"].get("unschedulable")) or not holds(node, "Ready")
            found.append(BlockNode(block, subblock, host, name, accelerators_on(node), own, closed))
    return sorted(found)


def assigned(assignment: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yields the values of each domain of a topology assignment, and its number of pods. Kueue compresses both."""
    for part in assignment.get("slices") or ():
        number = part["domainCount"]
        levels = [_values(level, number) for level in part["valuesPerLevel"]]
        counts = part["podCounts"].get("individual") or [part["podCounts"]["universal"]] * number
        yield from zip(zip(*levels, strict=True), counts, strict=True)


def _values(level: Mapping[str, Any], number: int) -> list[str]:
    if "individual" not in level:
        return [level["universal"]] * number
    names = level["individual"]
    return [f"{names.get('prefix', '')}{root}{names.get('suffix', '')}" for root in names["roots"]]


def block_rows(nodes: Iterable[BlockNode]) -> Iterator[tuple[str, str, str, str]]:
    """Yields a row per block: its nodes in text, its accelerators, and the pods of each run on them."""
    for block, members in groupby(sorted(nodes), lambda node: node.block):
        there = [*members]
        pods = Counter[str]()
        for use in (use for node in there for use in node.uses):
            pods[use.run] += use.pods
        yield (
            block,
            "".join(map(_sign, there)),
            f"{sum(node.used for node in there)} of {sum(node.accelerators for node in there)}",
            ", ".join(f"{run}: {count}" for run, count in sorted(pods.items())) or "–",
        )


def _sign(node: BlockNode) -> str:
    if not node.used:
        return CLOSED if node.closed else FREE
    return FULL if node.used >= node.accelerators else PARTLY


def pods_by_run(nodes: Iterable[BlockNode]) -> dict[str, Counter[str]]:
    """Returns the pods of each run by block, both in order. A run without pods on such nodes has none."""
    result: dict[str, Counter[str]] = defaultdict(Counter)
    for run, block, pods in sorted((use.run, node.block, use.pods) for node in nodes for use in node.uses):
        result[run][block] += pods
    return dict(result)


def moves(before: Iterable[BlockNode], after: Iterable[BlockNode]) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yields each run that is in other blocks afterwards, with those before and those afterwards."""
    old, new = pods_by_run(before), pods_by_run(after)
    for run in sorted(old.keys() & new.keys()):
        if old[run].keys() != new[run].keys():
            yield run, [*old[run]], [*new[run]]
