"""Only here: replays say within which time a run starts, on days on which the real Kueue decides.

emulator/run pytest -s -m nightly tests/nightly/test_start.py
"""

from collections.abc import Iterable, Sequence
from math import inf

from gke_ai.forecast.rehearse.scratch import Scratch
from gke_ai.forecast.simulate.kueue import started
from gke_ai.forecast.simulate.run import Run
from gke_ai.forecast.when.futures import HORIZON, REPLAYS, Futures, starts
from tests.support.emulator import fresh
from tests.support.simulation.days import DAY, GPUS, KINDS, MADE_FROM, PREEMPTION, QUEUES, snapshot, submitted
from tests.support.simulation.replays import replayed
from tests.support.simulation.theory import configuration
from tests.support.simulation.training import past, state, workload

# Of each second day, so many runs that had to wait are asked about, evenly over the day. A question costs minutes: each
# end in each replay makes Kueue try all that wait again. A start beyond the horizon is infinite, as in a replay.
ASKED = 4
LEAST = 0.85


def asked_of(runs: Iterable[Run]) -> list[Run]:
    waited = [run for run in runs if run.row.time >= DAY and run.waited and run.waited > 1]
    return waited[:: max(1, len(waited) // ASKED)][:ASKED]


def replays(asked: Run, runs: Sequence[Run]) -> list[float]:
    """The seconds that a run waits in replays from the state of its day when it was submitted, sorted."""
    futures = Futures(*snapshot({0: (asked, runs)}))
    with fresh() as emulator, started(Scratch(emulator.state), futures.queues, futures.held) as kueue:
        (waits,) = futures.replay(kueue)
        return waits


def test_replays_hold_the_starts_of_other_days_of_the_real_kueue() -> None:
    """All pairs of days are replayed at once, each in a cohort of its own; then from the state when each run came."""
    pairs = range(len(KINDS))
    rows = [row for pair in pairs for row in submitted(pair, [MADE_FROM, KINDS[pair]])]
    own = {"gpus": GPUS, "preemption": PREEMPTION}
    queues = {f"{name}{pair}": {**own, "cohort": f"cohort-{pair}"} for pair in pairs for name in QUEUES}
    days = replayed(configuration(queues, {"high": 10}), rows)
    of_pair = [[run for run in days.runs if run.cluster_queue[1:] == str(pair)] for pair in pairs]
    held: list[bool] = []
    for runs in of_pair:
        for run in asked_of(runs):
            assert run.waited is not None
            first, *_, last = replays(run, runs)
            held.append(first <= (run.waited if run.waited <= HORIZON else inf) <= last)
            kind = KINDS[int(run.cluster_queue[1:])]
            print(f"{kind}: {run.waited:.0f} s in {first:.0f} to {last:.0f} s; {sum(held)} of {len(held)} hold")
    assert sum(held) >= LEAST * len(held)


def test_a_run_starts_when_the_one_that_holds_its_quota_ends() -> None:
    """Each run of the queue takes an hour, and the one that runs has 20 seconds left."""
    now = state(workload("first", 3580, 3580), *past(3600, 40))
    with fresh() as emulator:
        waits = starts(Scratch(emulator.state), now, "training", workload("mine", 0))
    assert len(waits) == REPLAYS
    assert 0 < waits[len(waits) // 2] <= 21, waits
