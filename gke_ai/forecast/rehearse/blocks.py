"""What a rehearsal says of placement by topology: runs in another block, and workloads that Kueue can't count."""

from __future__ import annotations

from collections.abc import Iterator

from gke_ai.forecast.names import join_names
from gke_ai.forecast.snapshot.format import Snapshot
from gke_ai.forecast.timeline import Timeline
from gke_ai.kube.names import WorkloadName
from gke_ai.kube.objects import Object
from gke_ai.kube.workloads import uncounted_by_topology
from gke_ai.ops.blocks import blocks_by_run


def moves(timeline: Timeline) -> Iterator[str]:
    """Yields each run that is in other blocks at the end than before the change."""
    before, after = _blocks(timeline, 0), _blocks(timeline, timeline.ended)
    for run in sorted(before.keys() & after.keys()):
        if before[run] != after[run]:
            yield f"{run} moves from block {join_names(before[run])} to {join_names(after[run])}."


def _blocks(timeline: Timeline, until: float) -> dict[str, list[str]]:
    """Returns the blocks of each run at a time."""
    present: dict[str, dict[str, Object]] = {"Node": {}, "Pod": {}}
    for observation in timeline.observations:
        if observation.kind in present and observation.seconds <= until:
            items, uid = present[observation.kind], observation.item["metadata"]["uid"]
            items.pop(uid, None)
            if not observation.gone:
                items[uid] = observation.item
    return blocks_by_run(present["Node"].values(), present["Pod"].values())


def uncounted(snapshot: Snapshot | None) -> Iterator[str]:
    """Yields a note on the workloads with limits and no requests that Kueue placed by topology."""
    found = uncounted_by_topology(snapshot.of("Workload")) if snapshot else ()
    if names := sorted({str(WorkloadName.of_workload(dict(workload), {})) for workload, _ in found}):
        yield (
            f"Kueue placed {join_names(names)} by topology, and a container has limits and no requests. A restart of "
            "Kueue counts it as nothing, here too, and places others on its node."
        )
