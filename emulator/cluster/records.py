"""What the emulator remembers of a cluster and its node pools: written by the `gcp` plugin, read by the daemon."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from catalog.nodes import NodeShape
from catalog.tpus import VERSIONS, slices


@dataclass(frozen=True)
class ClusterRecord:
    """A GKE cluster as the emulator needs it.

    `version` is GKE's own version (`1.36.1-gke.1234000`), which the nodes report; the API server reports the
    Kubernetes version it was built from. `zones` are the zones that Autopilot's nodes are spread over;
    `secret_sync` says whether Secrets are made of Secret Manager's.
    """

    name: str
    project: str
    location: str
    mode: Literal["standard", "autopilot"]
    zones: list[str]
    version: str
    labels: dict[str, str] = field(default_factory=dict)
    secret_sync: bool = False


@dataclass(frozen=True)
class PoolRecord:
    """A node pool. Either `nodes_per_zone` fixes its size, or `min_nodes` and `max_nodes` bound the whole pool.

    `taints` are those that the pool itself declares (`{"key", "value", "effect"}`), beside the ones GKE adds.
    `topology` is that of a TPU slice (of a single-host one it follows from the machine); `compute_class` the class
    whose nodes these are, where GKE made the pool for it.
    """

    name: str
    machine_type: str
    zones: list[str]
    gpu: str | None = None
    gpus: int = 0
    driver: Literal["default", "latest", "disabled"] = "default"
    capacity: str = "onDemand"
    labels: dict[str, str] = field(default_factory=dict)
    taints: list[dict[str, str]] = field(default_factory=list)
    disk_gb: int = 100
    nodes_per_zone: int | None = None
    min_nodes: int = 0
    max_nodes: int = 0
    workload_identity: bool = True
    topology: str | None = None
    compute_class: str | None = None

    @property
    def autoscaled(self) -> bool:
        """Whether the provisioner may change the number of nodes."""
        return self.nodes_per_zone is None

    @property
    def floor(self) -> int:
        """Nodes that the pool has however idle it is."""
        return self.min_nodes if self.nodes_per_zone is None else self.nodes_per_zone * len(self.zones)

    @property
    def ceiling(self) -> int:
        """Nodes that the pool has at its largest."""
        return self.max_nodes if self.nodes_per_zone is None else self.nodes_per_zone * len(self.zones)

    def shape(self, zone: str) -> NodeShape:
        """The node that this pool makes in a zone."""
        return NodeShape(
            pool=self.name,
            machine_type=self.machine_type,
            gpu=self.gpu,
            gpus=self.gpus,
            driver=self.driver,
            capacity=self.capacity,
            zone=zone,
            disk_gb=self.disk_gb,
            labels=self.labels,
            workload_identity=self.workload_identity,
            topology=self.topology or _single_host_topology(self.machine_type),
            compute_class=self.compute_class,
        )


def _single_host_topology(machine_type: str) -> str | None:
    """The topology that a TPU machine has by itself; the API takes none for single-host pools."""
    every = [one for version in VERSIONS for one in slices(version) if one.machine_type == machine_type]
    return next((one.topology for one in every if not one.multi_host), None)


@dataclass(frozen=True)
class Endpoint:
    """Where the API server answers: `host` as `127.0.0.1:PORT`, its CA certificate as base64 of PEM."""

    host: str
    ca_certificate: str


def write(path: Path, content: dict[str, Any]) -> None:
    """Replace a JSON file whole: a reader, or a process killed here, never leaves half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(json.dumps(content, indent=1))
    os.replace(fresh, path)


def write_pool(folder: Path, pool: PoolRecord) -> None:
    """Remember a pool."""
    write(folder / f"{pool.name}.json", asdict(pool))


def read_pools(folder: Path) -> list[PoolRecord]:
    """The pools that are remembered, by name."""
    return [PoolRecord(**json.loads(file.read_text())) for file in sorted(folder.glob("*.json"))]
