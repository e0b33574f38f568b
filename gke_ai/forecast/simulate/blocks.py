"""Flavors with topology in a simulation: nodes in blocks for Kueue, what a run asks of them, and a picture. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gke_ai.catalog.fabric.topology import LEVELS, TOPOLOGY_KINDS
from gke_ai.catalog.machines.capacity import reserved_part
from gke_ai.forecast.simulate.run import Run
from gke_ai.formats import blocks_picture
from gke_ai.formats.sentences import join_names
from gke_ai.kube.blocks import BlockNode, Use
from gke_ai.settings.model import GpuPool
from gke_ai.settings.resolved import NodePool, ResolvedStack

Object = dict[str, Any]


def pools(stack: ResolvedStack) -> list[Object]:
    """Returns the pools of flavors with topology, as the emulator records them. Kueue places on their nodes."""
    found = {pool.section.name: pool for flavor in stack.flavors if flavor.has_topology for pool in flavor.pools}
    return [_record(pool, pool.section) for pool in found.values() if isinstance(pool.section, GpuPool)]


def _record(pool: NodePool, section: GpuPool) -> Object:
    gpu, gpus = section.gpus
    return {
        "name": section.name,
        "machine_type": section.machine_type,
        "zones": [*pool.zones],
        "gpu": gpu,
        "gpus": gpus,
        "capacity": section.capacity.mode,
        "labels": pool.shape.labels,
        "nodes_per_zone": pool.max_nodes // len(pool.zones),
        "compact": section.compact_placement,
        "block": reserved_part(section.capacity.reservation_name or "").block,
    }


def request(text: str) -> Object:
    """What the pods of a run ask of the network, in Kueue's words: `required=block`, or empty."""
    kind, _, level = text.partition("=")
    return {"topologyRequest": {kind: LEVELS[level]}} if text else {}


def requested(pod_set: Mapping[str, Any]) -> str:
    """What a pod set of a Workload asks of the network. Empty: nothing that a trace can say."""
    asked = pod_set.get("topologyRequest") or {}
    names = {label: level for level, label in LEVELS.items()}
    return next((f"{kind}={names[asked[kind]]}" for kind in TOPOLOGY_KINDS if asked.get(kind) in names), "")


def notes(name: str, stack: ResolvedStack) -> Iterator[str]:
    """Yields what differs on Google Cloud for a configuration that has flavors with topology."""
    if flavors := [flavor.section.name for flavor in stack.flavors if flavor.has_topology]:
        yield (
            f"{name} has flavors with topology ({join_names(flavors)}). Kueue places runs in simulated blocks, and "
            "sees no loss of a node: a run keeps its place while its node is replaced, or after a reservation ends."
        )


# ------------------------------------------------------------------------------------------------------------- picture
@dataclass(frozen=True)
class Placed:
    """The nodes in blocks of a configuration at the first time of its day when runs have most accelerators of them."""

    name: str
    hour: float
    nodes: Sequence[BlockNode]

    @property
    def used(self) -> str:
        """The accelerators that runs have, of those of all nodes."""
        return f"{sum(node.used for node in self.nodes)} of {sum(node.accelerators for node in self.nodes)}"


def picture(name: str, placed: Sequence[Placed]) -> str:
    """Returns the blocks with each configuration, as SVG. `name` is that of the stack."""
    busiest = "when runs have most GPUs of the blocks"
    if len(placed) == 1:
        headline = f"Hour {placed[0].hour:.1f} of a simulated day of {name}, {busiest}: {placed[0].used}"
    else:
        used = join_names([f"{side.used} with {side.name}" for side in placed])
        headline = f"A simulated day of {name}, {busiest}: {used}"
    return blocks_picture.drawn(headline, {f"{side.name}, hour {side.hour:.1f}": side.nodes for side in placed})


def fullest(name: str, nodes: Sequence[BlockNode], runs: Sequence[Run]) -> Placed:
    """Returns the nodes at the first time when the runs that Kueue placed have most accelerators together."""
    held = [
        (*span, placed, run) for run in runs for span, placed in zip(run.admitted, run.placed, strict=True) if placed
    ]
    changes = [(start, run.accelerators) for start, _, _, run in held]
    changes += [(end, -run.accelerators) for _, end, _, run in held if end is not None]
    now, most, total = 0.0, 0, 0
    for time, change in sorted(changes):  # at the same time, ends come first
        total += change
        if total > most:
            now, most = time, total
    uses: dict[str, list[Use]] = defaultdict(list)
    for start, end, placed, run in held:
        if start <= now and (end is None or now < end):
            title = f"row {run.number + 1}, {run.row.queue}"
            for node, pods in placed.items():
                uses[node].append(Use(title, pods, pods * run.row.accelerators))
    return Placed(name, now / 3600, [replace(node, uses=tuple(uses[node.name])) for node in nodes])
