"""What a rehearsal says of placement by topology: runs in another block, and workloads that Kueue can't count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gke_ai.forecast.outcome.timeline import Histories
from gke_ai.forecast.result.forecast import Forecast
from gke_ai.forecast.snapshot.format import Snapshot
from gke_ai.formats import blocks_picture
from gke_ai.formats.sentences import join_names, plural
from gke_ai.kube.blocks import BlockNode, block_nodes, block_rows, moves
from gke_ai.kube.names import WorkloadName
from gke_ai.kube.objects import Object
from gke_ai.kube.workloads import uncounted_by_topology

MAX_MOVES = 2


def placements(recorded: Histories) -> tuple[tuple[BlockNode, ...], tuple[BlockNode, ...]]:
    """Returns the nodes of all blocks before the change and at the end, if the change moves pods in any."""
    nodes, pods = (list(recorded.get(kind, {}).values()) for kind in ("Node", "Pod"))
    before = block_nodes(_known(item.before for item in nodes), _known(item.before for item in pods))
    after = block_nodes(_known(item.after for item in nodes), _known(item.after for item in pods))
    return ((), ()) if [*block_rows(before)] == [*block_rows(after)] else (tuple(before), tuple(after))


def moved(before: Iterable[BlockNode], after: Iterable[BlockNode]) -> Iterator[str]:
    """Yields a note on each run that is in other blocks at the end than before the change."""
    for run, old, new in moves(before, after):
        yield f"{run} moves from block {join_names(old)} to {join_names(new)}."


def picture(forecast: Forecast) -> str:
    """Returns the blocks of a result before and after the change, as SVG."""
    found = [*moved(forecast.placed_before, forecast.placed_after)]
    more = [f"{plural(len(found) - MAX_MOVES, 'more run')} in other blocks."] if len(found) > MAX_MOVES else []
    headline = " ".join([*found[:MAX_MOVES], *more]) or "No run moves to another block."
    sides = {"Before the change": forecast.placed_before, "After the change": forecast.placed_after}
    return blocks_picture.drawn(headline, sides)


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
