"""What a rehearsal says of placement by topology: runs in another block, and workloads that Kueue can't count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from gke_ai.forecast.names import join_names
from gke_ai.forecast.snapshot.format import Snapshot
from gke_ai.kube.client import list_objects
from gke_ai.kube.names import WorkloadName
from gke_ai.kube.workloads import uncounted_by_topology
from gke_ai.ops.blocks import blocks_by_run

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

Blocks = Mapping[str, Sequence[str]]
"""The blocks of each run."""


def read(api: ApiClient) -> Blocks:
    """Returns the blocks of the runs of a cluster."""
    return blocks_by_run(list_objects(api, "/api/v1/nodes"), list_objects(api, "/api/v1/pods"))


def moves(before: Blocks, after: Blocks) -> Iterator[str]:
    """Yields each run that is in other blocks than before."""
    for run in sorted(before.keys() & after.keys()):
        if list(before[run]) != list(after[run]):
            yield f"{run} moves from block {join_names(list(before[run]))} to {join_names(list(after[run]))}."


def uncounted(snapshot: Snapshot | None) -> Iterator[str]:
    """Yields a note on the workloads with limits and no requests that Kueue placed by topology."""
    found = uncounted_by_topology(snapshot.of("Workload")) if snapshot else ()
    if names := sorted({str(WorkloadName.of_workload(dict(workload), {})) for workload, _ in found}):
        yield (
            f"Kueue placed {join_names(names)} by topology, and a container has limits and no requests. A restart of "
            "Kueue counts it as nothing, here too, and places others on its node."
        )
