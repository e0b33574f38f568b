"""Flavors with topology in a simulation: nodes in blocks for Kueue, and what a run asks of them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gke_ai.catalog.capacity import reserved_part
from gke_ai.catalog.topology import LEVELS
from gke_ai.forecast.names import join_names
from gke_ai.settings.model import GpuPool
from gke_ai.settings.stack import NodePool, ResolvedStack

Object = dict[str, Any]
KINDS = ("required", "preferred")


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
    return next((f"{kind}={names[asked[kind]]}" for kind in KINDS if asked.get(kind) in names), "")


def notes(name: str, stack: ResolvedStack) -> Iterator[str]:
    """Yields what differs on Google Cloud for a configuration that has flavors with topology."""
    if flavors := [flavor.section.name for flavor in stack.flavors if flavor.has_topology]:
        yield (
            f"{name} has flavors with topology ({join_names(flavors)}). Kueue places runs in simulated blocks, and "
            "sees no loss of a node: a run keeps its place while its node is replaced, or after a reservation ends."
        )
