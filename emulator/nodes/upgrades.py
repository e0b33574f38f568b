"""The plan of a pool's upgrade, by GKE's published rules (gke_ai/catalog/nodes/upgrades.py). Pure.

GKE's order of nodes is undefined. Here it is that of their zones and names.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from emulator.nodes.objects import FOREIGN, MACHINE, SUFFIX, address, label, slice_size
from gke_ai.catalog.fabric.topology import HOSTNAME
from gke_ai.catalog.nodes.shape import ZONE
from gke_ai.catalog.nodes.upgrades import MAX_AT_ONCE, MAX_SOAK_SECONDS, UpgradeSettings
from gke_ai.workspace.emulation import CAPACITY, NEW, UPGRADED

Object = dict[str, Any]


@dataclass(frozen=True)
class Window:
    """Nodes that are replaced in a rolling window.

    `surge` of them at a time get a new node before they are drained, `in_place` at a time afterwards. With `together`,
    all are drained before any is replaced.
    """

    nodes: tuple[Object, ...]
    surge: int
    in_place: int
    together: bool = False


def windows(present: Iterable[Object], settings: UpgradeSettings) -> list[Window]:
    """Returns the windows of a surge upgrade, one for each zone."""
    ordered = _ordered(present)
    if ordered and slice_size(ordered[0]) > 1:
        return [Window(tuple(ordered), 0, len(ordered), together=True)]
    result = []
    for _, group in groupby(ordered, key=_zone):
        nodes = tuple(group)
        at_once = min(settings.max_surge + settings.max_unavailable, MAX_AT_ONCE, len(nodes))
        surge = min(settings.max_surge, at_once)
        result.append(Window(nodes, surge, at_once - surge))
    return result


def batches(present: Iterable[Object], settings: UpgradeSettings) -> list[list[Object]]:
    """Returns the batches in which a blue-green upgrade drains the old nodes."""
    ordered = _ordered(present)
    size = int(settings.batch_share * len(ordered)) if settings.batch_share else settings.batch_nodes
    size = max(size, 1)
    return [ordered[start : start + size] for start in range(0, len(ordered), size)]


def soaks(count: int, settings: UpgradeSettings) -> list[int]:
    """Returns the seconds of soaking after each of `count` batches, and at last those of the whole pool."""
    left, result = MAX_SOAK_SECONDS, []
    for wanted in (*[settings.batch_soak] * count, settings.pool_soak):
        result.append(min(wanted, left))
        left -= result[-1]
    return result


def replacement(node: Object) -> Object:
    """Returns a new node for the same machine. On GKE, a node that is replaced in place keeps its name."""
    old = node["metadata"]["name"]
    name = f"{old.rpartition('-')[0] or old}-{''.join(secrets.choice(SUFFIX) for _ in range(4))}"
    metadata, spec, status = node["metadata"], node["spec"], node["status"]
    kept = {key: value for key, value in metadata.get("annotations", {}).items() if key in _KEPT}
    taints = [taint for taint in spec.get("taints", []) if not taint["key"].startswith("node.kubernetes.io/")]
    starts = {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "it starts"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": metadata.get("labels", {}) | {HOSTNAME: name},
            "annotations": kept | {UPGRADED: NEW},
        },
        "spec": {"taints": taints, "providerID": f"{spec.get('providerID', '').rpartition('/')[0]}/{name}"},
        "status": {
            **{key: status[key] for key in ("capacity", "allocatable", "nodeInfo") if key in status},
            "addresses": [{"type": "InternalIP", "address": address(name)}],
            "conditions": [starts],
        },
    }


_KEPT = ("kwok.x-k8s.io/node", FOREIGN, MACHINE, CAPACITY)


def _ordered(present: Iterable[Object]) -> list[Object]:
    return sorted(present, key=lambda node: (_zone(node), node["metadata"]["name"]))


def _zone(node: Object) -> str:
    return label(node, ZONE)


def names(nodes: Sequence[Object]) -> list[str]:
    """Returns the names of nodes."""
    return [node["metadata"]["name"] for node in nodes]
