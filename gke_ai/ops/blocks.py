"""Blocks of the network for the status: the nodes of each, and the runs whose pods are there."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from gke_ai.catalog.topology import LEVELS
from gke_ai.kube.names import WorkloadName
from gke_ai.kube.objects import Object, label
from gke_ai.kube.pods import accelerator_count, accelerators_on, ended

COLUMNS = ("block", "nodes", "accelerators used", "pods")
# A node of a picture: all of its accelerators are used, some, or none.
FULL, PARTLY, FREE = "■", "◧", "□"


def block_rows(nodes: Iterable[Object], pods: Iterable[Object]) -> Iterator[tuple[str, ...]]:
    """Yields a row per block: a picture of its nodes, its accelerators, and the pods of each run on them."""
    blocks: dict[str, list[Object]] = defaultdict(list)
    for node in nodes:
        if block := label(node, LEVELS["block"]):
            blocks[block].append(node)
    used: Counter[str] = Counter()
    runs: dict[str, Counter[str]] = defaultdict(Counter)
    for pod, node_name, count in _accelerated(pods):
        used[node_name] += count
        runs[node_name][WorkloadName.of_pod(pod)] += 1
    for block, members in sorted(blocks.items()):
        members.sort(key=lambda node: (*(label(node, level) for level in LEVELS.values()), node["metadata"]["name"]))
        names = [node["metadata"]["name"] for node in members]
        total = {name: accelerators_on(node) for name, node in zip(names, members, strict=True)}
        picture = "".join(FREE if not used[name] else FULL if used[name] >= total[name] else PARTLY for name in names)
        there = sum((runs[name] for name in names), Counter[str]())
        yield (
            block,
            picture,
            f"{sum(used[name] for name in names)} of {sum(total.values())}",
            ", ".join(f"{run}: {count}" for run, count in sorted(there.items())) or "–",
        )


def blocks_by_run(nodes: Iterable[Object], pods: Iterable[Object]) -> dict[str, list[str]]:
    """Returns the blocks of each run, in order. A run without pods on labeled nodes has none."""
    block_of = {node["metadata"]["name"]: label(node, LEVELS["block"]) for node in nodes}
    result: dict[str, set[str]] = defaultdict(set)
    for pod, node_name, _ in _accelerated(pods):
        if block := block_of.get(node_name):
            result[WorkloadName.of_pod(pod)].add(block)
    return {run: sorted(blocks) for run, blocks in result.items()}


def _accelerated(pods: Iterable[Object]) -> Iterator[tuple[Object, str, int]]:
    """Yields the pods that use accelerators, with their nodes and how many."""
    for pod in pods:
        count, node_name = accelerator_count(pod["spec"]), pod["spec"].get("nodeName", "")
        if count and node_name and not ended(pod):
            yield pod, node_name, count
