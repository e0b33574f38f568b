"""A node pool with what the cluster decides for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from gke_ai.catalog.nodes import NodeShape
from gke_ai.catalog.quantities import parse_quantity
from gke_ai.settings.calibration import Calibration
from gke_ai.settings.model import Pool


@dataclass(frozen=True)
class NodePool:
    """A node pool with its zones, its largest size and its nodes."""

    section: Pool
    zones: tuple[str, ...]
    """Zones of the pool: its own, else those of the cluster's nodes."""
    max_nodes: int
    """Maximum number of nodes, in all zones together."""
    measured: Calibration

    @cached_property
    def shape(self) -> NodeShape:
        """Shape of a node. Nodes of different zones differ only in a label, so the first zone stands for all."""
        return self.section.shape(self.zones[0])

    @cached_property
    def room(self) -> Mapping[str, Fraction]:
        """Resources of a node for pods of workloads, measured or computed, by resource."""
        return {resource: parse_quantity(text) for resource, text in self.measured.room(self.shape).items()}
