"""What preemptions lose, and what the victims with the newest checkpoints would have lost. Pure.

The second one is a measurement, and not what Kueue does: it prefers the lowest priority, then the newest reservation.
The day goes on as Kueue decided.
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/common/ordering.go
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gke_ai.forecast.simulate.run import Run


def unsaved(run: Run, at: float) -> float:
    """Seconds of work since the last checkpoint, if a run is stopped at a time."""
    kept = 0.0
    for start, stop in run.spans:
        if start >= at:
            break
        reached = kept + min(at, math.inf if stop is None else stop) - start
        kept = run.saved(kept, reached)
        if stop is None or at <= stop:
            return reached - kept
    return 0.0


def least_lost(runs: Sequence[Run]) -> float:
    """Accelerator-seconds that the preemptions of a cluster queue lose if victims have the newest checkpoints.

    A victim gives way to a run of the same cluster queue, priority class and flavor with at least its accelerators.
    """
    lost, chosen = 0.0, set[tuple[float, int]]()
    stops = sorted((at, -run.accelerators, run.number, run) for run in runs for at in run.evicted_at)
    for at, _, _, victim in stops:
        candidates = [
            run
            for run in runs
            if run.row.priority == victim.row.priority
            and run.accelerators >= victim.accelerators
            and (at, run.number) not in chosen
            and (flavor := run.flavor_before(at))
            and flavor == victim.flavor_before(at)
        ]
        # Of two victims of the same moment, one may have given way to the other already.
        best = min(candidates or [victim], key=lambda run: (unsaved(run, at) * run.accelerators, run.number))
        chosen.add((at, best.number))
        lost += unsaved(best, at) * best.accelerators
    return lost
