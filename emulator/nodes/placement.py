"""Existing and planned nodes with their free resources, and the pods that are placed on them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from emulator.cloud.records import ClusterRecord, PoolRecord
from emulator.nodes import fit
from emulator.nodes import objects as nodes

Object = dict[str, Any]


class Placement:
    """Places pods on nodes.

    Attributes:
        nodes: The nodes by name.
        placed: The pods, each with its node.
    """

    def __init__(self, present: Iterable[Object] = ()) -> None:
        self.nodes: dict[str, Object] = {}
        self.placed: list[tuple[Object, Object]] = []
        self._free: dict[str, fit.Amounts] = {}
        self._samples: dict[str, Object] = {}
        for node in present:
            self.add(node)

    def add(self, node: Object) -> None:
        """Adds a node without pods."""
        name = node["metadata"]["name"]
        self.nodes[name], self._free[name] = node, fit.room(node)

    def nodes_of(self, pool: str) -> list[Object]:
        """The nodes of a pool."""
        return [node for node in self.nodes.values() if nodes.pool_of(node) == pool]

    def sample(self, cluster: ClusterRecord, pool: PoolRecord) -> Object:
        """A new node of the pool in any of its zones.

        Cached, because each pod is compared with each pool.
        """
        if pool.name not in self._samples:
            (self._samples[pool.name],) = nodes.new_nodes(cluster, pool, [], 1)
        return self._samples[pool.name]

    def find(self, pod: Object, alone: bool = False) -> str | None:
        """The name of a node that the pod can run on, or None. `alone`: with exactly the GPUs of the pod."""
        for name, node in self.nodes.items():
            if alone and not fit.has_its_gpus(pod, node):
                continue
            if fit.refusal(pod, node, self._free[name]) is None and not fit.kept_apart(pod, node, self.placed):
                return name
        return None

    def place(self, pod: Object, name: str) -> None:
        """Places a pod on a node."""
        self._free[name] = fit.less(self._free[name], fit.requests(pod))
        self.placed.append((pod, self.nodes[name]))
