"""Only here: replays say within which time a run starts, on days on which the real Kueue decides.

emulator/run pytest -s -m long tests/end_to_end/test_start.py
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from gke_ai.forecast.rehearse.scratch import Scratch
from gke_ai.forecast.simulate.kueue import started
from gke_ai.forecast.simulate.run import Run
from gke_ai.forecast.when.futures import Futures
from tests.end_to_end.conftest import fresh
from tests.end_to_end.simulated import replayed
from tests.simulation.days import DAY, GPUS, KINDS, MADE_FROM, PREEMPTION, QUEUES, snapshot, submitted
from tests.simulation.theory import configuration

pytestmark = [pytest.mark.cluster, pytest.mark.long]

# Of each second day, so many runs that had to wait are asked about, evenly over the day.
ASKED, AT_ONCE = 6, 2
# The margin of chance of 30 intervals: 85 % of them hold on average, and a good method may miss some more.
LEAST = 0.85


def asked_of(runs: Iterable[Run]) -> list[Run]:
    """Runs of the second day that had to wait."""
    waited = [run for run in runs if run.row.time >= DAY and run.waited and run.waited > 1]
    return waited[:: max(1, len(waited) // ASKED)][:ASKED]


def replays(asked: Sequence[Run], runs: Sequence[Run]) -> list[list[float]]:
    """The seconds that each run waits in replays from the state of its day when it was submitted, sorted."""
    state, own = snapshot({number: (run, runs) for number, run in enumerate(asked)})
    futures = Futures(state, own)
    with fresh() as emulator, started(Scratch(emulator.state), futures.queues) as kueue:
        return futures.replay(kueue)


def test_replays_hold_the_starts_of_other_days_of_the_real_kueue() -> None:
    """All pairs of days are replayed at once, each in a cohort of its own; then, pair by pair, from their states."""
    pairs = range(len(KINDS))
    rows = [row for pair in pairs for row in submitted(pair, [MADE_FROM, KINDS[pair]])]
    queues = configuration(
        {
            f"{name}{pair}": {"gpus": GPUS, "cohort": f"cohort-{pair}", "preemption": PREEMPTION}
            for pair in pairs
            for name in QUEUES
        },
        {"high": 10},
    )
    days = replayed(queues, rows)
    of_pair = [[run for run in days.runs if run.cluster_queue[1:] == str(pair)] for pair in pairs]
    held = of_all = 0
    for runs in of_pair:
        asked = asked_of(runs)
        # Not more at once: Kueue does not come to rest within minutes with hundreds of queues.
        waits = [
            wait for first in range(0, len(asked), AT_ONCE) for wait in replays(asked[first : first + AT_ONCE], runs)
        ]
        of_all += len(asked)
        for run, found in zip(asked, waits, strict=True):
            assert run.waited is not None
            held += found[0] <= run.waited <= found[-1]
            kind = KINDS[int(run.cluster_queue[1:])]
            print(f"{kind}: {run.waited:.0f} s in {found[0]:.0f} to {found[-1]:.0f} s; {held} of {of_all} hold")
    assert held >= LEAST * of_all
