"""Whether the pools of a run have nodes, and until when: their reservations may end."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from gke_ai.catalog.machines.capacity import capacity_until, moment
from gke_ai.ops.status.workloads import span
from gke_ai.settings.resolved import NodePool
from gke_ai.settings.rules.common import join_names


def ending(pools: Iterable[NodePool], now: datetime) -> tuple[str, list[str]]:
    """Returns why no pool of a run has nodes, as a sentence, and notes on the pools that still have some.

    A limit of the run's time changes neither: the run may end earlier, and may wait before it counts.
    """
    named = {pool.section.name: capacity_until(pool.section.node_labels) for pool in pools}
    gone = [name for name, end in named.items() if end and end <= now]
    if gone and len(gone) == len(named):
        return f"the reservation of pool {join_names(gone)} has ended, and Google deleted its nodes", []
    return "", [
        f"Google deletes the nodes of pool {name} at {moment(end)}, in {span((end - now).total_seconds())}. "
        "A run that is not done by then is interrupted, and its pods wait for nodes that do not come back."
        for name, end in named.items()
        if end and end > now
    ]
