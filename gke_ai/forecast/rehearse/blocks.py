"""What a rehearsal says of placement by topology: runs in another block, and workloads that Kueue can't count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gke_ai.forecast.forecast import Block
from gke_ai.forecast.names import join_names
from gke_ai.forecast.snapshot.format import Snapshot
from gke_ai.forecast.timeline import Histories
from gke_ai.kube.names import WorkloadName
from gke_ai.kube.objects import Object
from gke_ai.kube.workloads import uncounted_by_topology
from gke_ai.ops.blocks import block_rows, blocks_by_run


def moves(recorded: Histories) -> Iterator[str]:
    """Yields each run that is in other blocks at the end than before the change."""
    before, after = (blocks_by_run(*state) for state in _states(recorded))
    for run in sorted(before.keys() & after.keys()):
        if before[run] != after[run]:
            yield f"{run} moves from block {join_names(before[run])} to {join_names(after[run])}."


def pictures(recorded: Histories) -> tuple[Block, ...]:
    """Returns every block of the cluster before and after the change, if the change moves pods in any."""
    before, after = ({row[0]: row for row in block_rows(*state)} for state in _states(recorded))
    if before == after:
        return ()
    empty = ("", "", "", "–")
    rows = ((name, before.get(name, empty), after.get(name, empty)) for name in sorted(before.keys() | after.keys()))
    return tuple(Block(name, old[1], old[3], new[1], new[3]) for name, old, new in rows)


def _states(recorded: Histories) -> tuple[tuple[list[Object], list[Object]], tuple[list[Object], list[Object]]]:
    """Returns the nodes and pods before the change, and those at the end."""
    nodes, pods = (list(recorded.get(kind, {}).values()) for kind in ("Node", "Pod"))
    return (
        (_known(item.before for item in nodes), _known(item.before for item in pods)),
        (_known(item.after for item in nodes), _known(item.after for item in pods)),
    )


def _known(versions: Iterable[Object | None]) -> list[Object]:
    return [version for version in versions if version is not None]


def uncounted(snapshot: Snapshot | None) -> Iterator[str]:
    """Yields a note on the workloads with limits and no requests that Kueue placed by topology."""
    found = uncounted_by_topology(snapshot.of("Workload")) if snapshot else ()
    if names := sorted({str(WorkloadName.of_workload(dict(workload), {})) for workload, _ in found}):
        yield (
            f"Kueue placed {join_names(names)} by topology, and a container has limits and no requests. A restart of "
            "Kueue counts it as nothing, here too, and places others on its node."
        )
