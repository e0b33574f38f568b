"""Only here: with the real Kueue, mean times in 20 seeds agree with the theory of queues.

Each seed has cluster queues of its own, so one replay has all of them at the same time:

    emulator/run pytest -s -m nightly tests/nightly/test_simulation_theory.py
"""

import statistics
from collections.abc import Callable, Iterable

import pytest

from gke_ai.forecast.simulate.objects import Queues
from gke_ai.forecast.simulate.replay import Replay
from gke_ai.forecast.simulate.run import Run
from gke_ai.forecast.simulate.trace import Submission
from tests.support.simulation.replays import replayed
from tests.support.simulation.theory import (
    SEEDS,
    configuration,
    interval,
    mean_response,
    mean_response_below,
    mean_wait,
    poisson,
    starts,
)

MEAN = 210.0
# The first runs meet an empty queue, and no runs follow the last ones.
COUNTED = slice(50, 300)
Traces = list[list[Submission]]


def day(queues: Queues, traces: Traces) -> Replay:
    """Replays the traces of all seeds at once. Kueue admits and ends every run, and no decision comes late."""
    replay = replayed(queues, [row for rows in traces for row in rows])
    assert replay.late == 0
    assert all(run.ended for run in replay.runs)
    return replay


def agrees(what: str, means: Iterable[float], expected: float) -> None:
    """Asserts that the confidence interval of the means of the seeds contains the expected value."""
    mean, half = interval([*means])
    print(f"{what}: {mean:.1f} s ± {half:.1f} s in {SEEDS} seeds, {expected:.1f} s by the formula")
    assert abs(mean - expected) < half


def mean_of(replay: Replay, names: set[str], seconds: Callable[[Run], float], priority: str | None = None) -> float:
    """The mean over the counted runs of some cluster queues, of one priority or of all."""
    runs = [run for run in replay.runs if run.cluster_queue in names][COUNTED]
    return statistics.fmean(seconds(run) for run in runs if priority in (None, run.row.priority))


def waited(run: Run) -> float:
    return run.spans[0][0] - run.row.time


def responded(run: Run) -> float:
    return (run.spans[-1][1] or 0.0) - run.row.time


def test_waiting_agrees_with_erlangs_formula() -> None:
    """M/M/3 at a load of 70 %."""
    servers, rate = 3, 1 / 100
    names = [f"q{seed}" for seed in range(SEEDS)]
    traces = [poisson(seed, 300, rate, MEAN, name) for seed, name in enumerate(names)]
    replay = day(configuration({name: {"gpus": servers} for name in names}), traces)
    for name, rows in zip(names, traces, strict=True):
        runs = [run for run in replay.runs if run.cluster_queue == name]
        assert [run.spans[0][0] for run in runs] == pytest.approx(starts(rows, servers)), name
    agrees("wait", (mean_of(replay, {name}, waited) for name in names), mean_wait(servers, rate, MEAN))


def test_two_priorities_agree_with_preemptive_resume() -> None:
    """M/M/3 at a load of 70 %, half of it of a higher priority. A checkpoint each millisecond loses no work."""
    servers, rate = 3, 1 / 100
    names = [f"q{seed}" for seed in range(SEEDS)]
    traces = [poisson(seed, 330, rate, MEAN, name, ("high", "low")) for seed, name in enumerate(names)]
    preemption = {"withinClusterQueue": "LowerPriority"}
    queues = {name: {"gpus": servers, "preemption": preemption} for name in names}
    replay = day(configuration(queues, {"low": 1, "high": 2}), traces)
    low = mean_response_below(servers, rate / 2, rate / 2, MEAN)
    for priority, expected in (("high", mean_response(servers, rate / 2, MEAN)), ("low", low)):
        means = (mean_of(replay, {name}, responded, priority) for name in names)
        agrees(f"response of priority {priority}", means, expected)
    agrees("response", (mean_of(replay, {name}, responded) for name in names), mean_response(servers, rate, MEAN))


def test_two_queues_that_lend_everything_are_one_queue_with_both_quotas() -> None:
    """Two queues of 2 GPUs at a load of 80 %, without reclaim: the mean wait over both is that of M/M/4."""
    servers, rate = 2, 1 / 65.625
    preemption = {"withinClusterQueue": "Never", "reclaimWithinCohort": "Never"}
    names = [{f"q{seed}a", f"q{seed}b"} for seed in range(SEEDS)]
    both = {"gpus": servers, "preemption": preemption}
    queues = {name: {**both, "cohort": f"c{seed}"} for seed, pair in enumerate(names) for name in sorted(pair)}
    traces = [poisson(seed, 330, rate, MEAN, sorted(pair)) for seed, pair in enumerate(names)]
    replay = day(configuration(queues), traces)
    borrowed = 0
    for name in (name for pair in names for name in pair):
        spans = [span for run in replay.runs if run.cluster_queue == name for span in run.spans]
        at_once = (sum(start <= at < (end or at) for start, end in spans) for at, _ in spans)
        borrowed += max(at_once) > servers
    print(f"{borrowed} of {2 * SEEDS} queues borrow")
    assert borrowed == 2 * SEEDS
    agrees("wait", (mean_of(replay, pair, waited) for pair in names), mean_wait(2 * servers, rate, MEAN))
