"""How long a new replica takes to read its model: bytes, divided by the slowest part of their way.

Each figure is a published one, on other machines: an estimate that a measurement replaces (`gke-ai
verify`). The start of the container, and what the engine does after the weights are read, come on top.
"""

from __future__ import annotations

from dataclasses import dataclass

from gke_ai.catalog.machines.types import MACHINES
from gke_ai.catalog.nodes.shape import NodeShape

# Bytes per second of one connection to Cloud Storage: 13.43 GB/s of 144 jobs that read 100 MiB files.
# https://github.com/GoogleCloudPlatform/gcsfuse/blob/master/docs/benchmarks.md
PER_STREAM = 13.43e9 / 144
# Parallel downloads per file, by default: https://cloud.google.com/storage/docs/cloud-storage-fuse/config-file
# And threads of the streamer, by default: https://github.com/run-ai/runai-model-streamer/blob/master/docs/src/env-vars.md
STREAMS = 16
# With `distributed`, each process of vLLM reads a part of the files and sends it to the others. Measured in another
# cloud: 125 GiB by 8 processes in 14.3 s. https://github.com/marin-community/marin/issues/7136
# A replica that downloads from Hugging Face: 960 GB in 31 minutes. https://github.com/modelplaneai/modelplane/issues/204
HUB = 960e9 / (31 * 60)
# Bytes per second that a disk writes: at least, and per GiB. https://cloud.google.com/compute/docs/disks/performance
PERSISTENT_DISKS = {"pd-balanced": (140e6, 0.28e6), "pd-ssd": (240e6, 0.48e6), "pd-standard": (0.0, 0.12e6)}
USUAL_DISK = "pd-balanced"
# Of each Local SSD: https://cloud.google.com/compute/docs/disks/local-ssd#performance
LOCAL_SSD = 350e6


@dataclass(frozen=True)
class Way:
    """A part of the way of a model to a replica, with its bandwidth in bytes per second."""

    name: str
    bandwidth: float


def node_disk(shape: NodeShape, disk_type: str | None) -> Way:
    """The disk with the node's ephemeral storage: its Local SSDs, else its boot disk."""
    ssds = MACHINES[shape.machine_type].local_ssds if shape.machine_type in MACHINES else 0
    if ssds:
        return Way(f"{ssds} Local SSD{'s' if ssds > 1 else ''}", ssds * LOCAL_SSD)
    # Hyperdisks have the performance that they are created with. The figure of the usual disk is below their default.
    kind = disk_type if disk_type in PERSISTENT_DISKS else USUAL_DISK
    least, per_gib = PERSISTENT_DISKS[kind]
    return Way(f"{kind} of {shape.disk_gb} GB", least + per_gib * shape.disk_gb)


def ways(reader: str, disk: Way | None, processes: int = 1) -> list[Way]:
    """The parts of a model's way: `hub`, `fuse` or `streamer`. `disk` is None if no disk gets the model.

    `processes` read different parts of the model at the same time.
    """
    source = Way("Hugging Face", HUB) if reader == "hub" else Way("Cloud Storage", processes * STREAMS * PER_STREAM)
    return [source, *([disk] if disk else [])]


def seconds(size: int, parts: list[Way]) -> float:
    """Time in which a model of `size` bytes passes its slowest part."""
    return size / min(part.bandwidth for part in parts)
