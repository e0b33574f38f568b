"""Records of a cluster and its node pools.

The `gcp` plugin writes them and the daemon reads them.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from emulator.machine.folders import folder_name
from gke_ai.catalog.machines.tpus import VERSIONS, slices
from gke_ai.catalog.nodes.shape import NodeShape


@dataclass(frozen=True)
class ClusterRecord:
    """A GKE cluster.

    Attributes:
        name: Name of the cluster.
        project: Project id.
        location: Region or zone.
        mode: Standard or Autopilot.
        zones: Zones of Autopilot's nodes.
        version: GKE version (`1.36.1-gke.1234000`), which the nodes report. The API server reports the Kubernetes
            version that it was built from.
        labels: Resource labels.
        secret_sync: Whether secrets of Secret Manager are synchronized.
        gateway_api: Whether GKE's Gateway controller runs.
    """

    name: str
    project: str
    location: str
    mode: Literal["standard", "autopilot"]
    zones: list[str]
    version: str
    labels: dict[str, str] = field(default_factory=dict)
    secret_sync: bool = False
    gateway_api: bool = False


@dataclass(frozen=True)
class PoolRecord:
    """A node pool.

    Either `nodes_per_zone` fixes its size, or `min_nodes` and `max_nodes` limit the whole pool.

    `taints` are the pool's own (`{"key", "value", "effect"}`), in addition to GKE's. `topology` is that of a TPU slice;
    for a single-host slice it follows from the machine. `compute_class` is the class that GKE created the pool for.
    `upgrade` are the pool's upgrade settings (`gke_ai.catalog.nodes.upgrades.flat`). `compact` is whether its nodes are
    placed close together, and `block` the block of a reservation that they are in. `network_profile` is its accelerator
    network profile.
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
    upgrade: dict[str, str] = field(default_factory=dict)
    compact: bool = False
    block: str = ""
    network_profile: str = ""

    @property
    def autoscaled(self) -> bool:
        """Whether the provisioner may change the number of nodes."""
        return self.nodes_per_zone is None

    @property
    def floor(self) -> int:
        """The smallest number of nodes of the whole pool."""
        return self.min_nodes if self.nodes_per_zone is None else self.nodes_per_zone * len(self.zones)

    @property
    def ceiling(self) -> int:
        """The largest number of nodes of the whole pool."""
        return self.max_nodes if self.nodes_per_zone is None else self.nodes_per_zone * len(self.zones)

    def shape(self, zone: str) -> NodeShape:
        """The shape of this pool's nodes in a zone."""
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
    """The topology of a single-host TPU machine.

    The API accepts no topology for single-host pools.
    """
    of_machine = [tpu for version in VERSIONS for tpu in slices(version) if tpu.machine_type == machine_type]
    return next((tpu.topology for tpu in of_machine if not tpu.multi_host), None)


@dataclass(frozen=True)
class Endpoint:
    """Address of an API server (`127.0.0.1:PORT`) and its CA certificate (PEM in base64)."""

    host: str
    ca_certificate: str


class Damaged(Exception):
    """A file of the state is not what the emulator wrote."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} is damaged: it is not JSON that the emulator wrote. The clusters would wait for it forever. "
            "Delete the file, and repeat the commands whose settings it had."
        )


def read(path: Path, key: str, default: Any) -> Any:
    """Returns the value of a key in a JSON file, or the default if the file doesn't exist. Raises Damaged."""
    try:
        return json.loads(path.read_text())[key]
    except FileNotFoundError:
        return default
    except (ValueError, KeyError, TypeError):
        raise Damaged(path) from None


def write(path: Path, content: dict[str, Any]) -> None:
    """Replaces a JSON file atomically: no reader sees, and no killed process leaves, an incomplete file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(json.dumps(content, indent=1))
    os.replace(fresh, path)


def pool_file(folder: Path, pool: str) -> Path:
    """The file that records a pool."""
    return folder / f"{folder_name(pool)}.json"


def write_pool(folder: Path, pool: PoolRecord) -> None:
    """Records a pool."""
    write(pool_file(folder, pool.name), asdict(pool))


def read_pools(folder: Path) -> list[PoolRecord]:
    """Returns the recorded pools, sorted by name."""
    return [PoolRecord(**json.loads(file.read_text())) for file in sorted(folder.glob("*.json"))]
