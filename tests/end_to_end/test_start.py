"""Only here: forecasts of starts hold on days on which the real Kueue decides.

emulator/run pytest -s -m long tests/end_to_end/test_start.py
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from catalog.nodes import NVIDIA_GPU
from forecast.admission import Run as Forecast
from rehearse.simulate.run import Run
from rehearse.simulate.trace import Submission
from tests.end_to_end.simulated import replayed
from tests.simulation.coverage import Coverage, of_days
from tests.simulation.days import GPUS, KINDS, MADE_FROM, QUEUES, Days, submitted
from tests.simulation.theory import configuration, run

pytestmark = [pytest.mark.cluster, pytest.mark.long]

SEEDS = 4
PREEMPTION = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "LowerPriority"}


def happened_to(runs: Mapping[Forecast, Run]) -> Days:
    """What became of runs."""
    usage = {run: ((("l4", NVIDIA_GPU), run.needs[NVIDIA_GPU]),) for run in runs}
    return Days(
        spans={run: [(start, usage[run]) for start, _ in found.admitted] for run, found in runs.items()},
        evicted={run: [end for _, end in found.admitted[: found.evictions] if end] for run, found in runs.items()},
        ended={run: end for run, found in runs.items() if found.ended and (end := found.admitted[-1][1])},
    )


def test_intervals_hold_the_starts_of_other_days_of_the_real_kueue() -> None:
    """All pairs of days are replayed at once, each in a cohort of its own."""
    pairs = [(kind, seed, submitted(seed, [MADE_FROM, kind])) for kind in KINDS for seed in range(SEEDS)]
    rows: dict[Submission, tuple[int, str]] = {}
    for number, (_, _, seconds) in enumerate(pairs):
        for each, duration in seconds.items():
            more = {"pods": int(each.needs[NVIDIA_GPU]), "priority": "high" if each.priority else ""}
            rows[run(each.created, duration, f"{each.queue}{number}", **more)] = (number, each.name)
    queues = configuration(
        {
            f"{name}{number}": {"gpus": GPUS, "cohort": f"cohort-{number}", "preemption": PREEMPTION}
            for number in range(len(pairs))
            for name in QUEUES
        },
        {"high": 10},
    )
    replay = replayed(queues, rows)
    assert replay.late == 0
    happened: list[dict[str, Run]] = [{} for _ in pairs]
    for outcome in replay.runs:
        number, name = rows[outcome.row]
        happened[number][name] = outcome
    parts = []
    for (kind, seed, seconds), runs in zip(pairs, happened, strict=True):
        found = of_days(str(kind), happened_to({each: runs[each.name] for each in seconds}), seed, every=3, of_past=2)
        print(found)
        parts.append(found)
    total = Coverage.of(parts)
    print(total)
    assert 0.85 <= total.share <= 0.95
