"""A forecast of a start follows the queue, and its 90 % intervals hold 90 % of the starts, also after the days change.

Print the coverage and the width of the intervals for each kind of day, over more seeds:

    emulator/run pytest -s -m long tests/test_start.py
"""

from __future__ import annotations

import random
from math import inf

import pytest

from catalog.nodes import NVIDIA_GPU
from forecast.admission import Run
from forecast.durations import Arrivals, Durations, Record
from forecast.start import Start, forecast
from forecast.state import State
from tests.simulation.coverage import Coverage, coverage
from tests.simulation.days import KINDS, Kind, queue

NOW = 10_000.0


def run(name: str = "mine", gpus: float = 1, created: float = NOW, priority: int = 0, queue: str = "a") -> Run:
    return Run(name, queue, created, {NVIDIA_GPU: gpus}, priority, source=f"team/{queue}")


def running(name: str, gpus: float, since: float) -> Record:
    each = run(name, gpus, since)
    return Record(each, since, usage=((("l4", NVIDIA_GPU), gpus),))


def cluster(*records: Record, stopped: frozenset[str] = frozenset(), strict: bool = False) -> State:
    queues = {"a": queue("a", cohort="", strict=strict)}
    return State(NOW, queues, {"team/a": "a"}, stopped, {"l4": {}}, {}, records, False)


def ended(seconds: list[float]) -> list[Record]:
    """Runs that ended long ago, one after the other."""
    return [Record(run(f"old-{i}", 1, 10.0 * i), 10.0 * i, 10.0 * i + each) for i, each in enumerate(seconds)]


def test_a_run_with_free_quota_starts_at_once() -> None:
    answer = forecast(cluster(running("other", 4, 0.0)), run(gpus=4))
    assert (answer.low, answer.median, answer.high, answer.flavors) == (0, 0, 0, ("l4",))
    assert answer.at_once


def test_a_run_of_a_higher_priority_preempts_at_once() -> None:
    answer = forecast(cluster(running("other", 8, 0.0)), run(gpus=4, priority=5))
    assert answer.at_once
    assert [each.name for each in answer.preempts] == ["other"]


def test_a_run_waits_for_those_that_hold_its_quota_and_for_those_ahead() -> None:
    ahead = Record(run("ahead", 8, NOW - 60))
    answer = forecast(cluster(running("other", 8, NOW - 600), ahead, *ended([3600.0] * 200)), run(gpus=2))
    assert not answer.at_once
    assert answer.missing == {NVIDIA_GPU: 2}
    assert [each.name for each in answer.ahead] == ["ahead"]
    assert [(each.held.run.name, each.ends_before) for each in answer.holders] == [("other", 1.0)]
    # The holder has 50 minutes left, and the run ahead takes an hour.
    assert answer.median == pytest.approx(3000 + 3600, rel=0.1)
    assert answer.low <= answer.median <= answer.high


def test_a_server_that_never_ends_is_waited_for_in_vain() -> None:
    server = running("llm/deployment/gemma", 8, 0.0)
    endless = Record(Run("server", "a", 0.0, {NVIDIA_GPU: 8}, endless=True), 0.0, usage=server.usage)
    assert forecast(cluster(endless), run()).median == inf


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (forecast(cluster(), run(gpus=9)), "It requests 9 of nvidia.com/gpu, and the queue never has more than 8"),
        (forecast(cluster(stopped=frozenset({"team/a"})), run()), "Local queue team/a is stopped"),
        (forecast(cluster(), Run("x", "a", NOW, {"google.com/tpu": 4.0})), "no quota for google.com/tpu"),
        (
            forecast(cluster(), Run("x", "a", NOW, {NVIDIA_GPU: 1.0}, 0, frozenset({"l4"}))),
            "selects nodes of no flavor",
        ),
        (forecast(cluster(Record(run("big", 9, 0.0)), strict=True), run()), "big is ahead of it, can never start"),
    ],
)
def test_a_run_that_can_never_start_is_told_why(answer: Start, reason: str) -> None:
    assert answer.never
    assert reason in answer.never[0]
    assert answer.median == inf


def test_durations_are_those_of_ended_runs() -> None:
    learned = Durations("team/a", ended([100.0] * 50 + [1000.0] * 50), NOW)
    drawn = sorted(learned.draw(random.Random(seed)) for seed in range(400))
    assert drawn[100] == pytest.approx(100, rel=0.1)
    assert drawn[300] == pytest.approx(1000, rel=0.1)
    assert all(learned.draw(random.Random(seed), elapsed=500) >= 500 for seed in range(50))


def test_runs_that_have_not_ended_make_durations_longer() -> None:
    short = ended([100.0] * 20)
    running_long = [running(f"long-{i}", 1, NOW - 5000) for i in range(20)]
    medians = [
        sorted(Durations("team/a", records, NOW).draw(random.Random(seed)) for seed in range(200))[100]
        for records in (short, [*short, *running_long])
    ]
    assert medians[0] == pytest.approx(100, rel=0.1)
    assert medians[1] > 500


def test_arrivals_repeat_the_past_in_its_order() -> None:
    past = [run(str(number), gpus=number, created=NOW - 30_000 + 3000 * number) for number in range(10)]
    coming = Arrivals([Record(each) for each in past], NOW).draw(random.Random(1))
    drawn = [next(coming) for _ in range(20)]
    assert all(at >= NOW and at == each.created for at, each in drawn)
    sizes = [each.needs[NVIDIA_GPU] for _, each in drawn]
    first = int(sizes[0])
    assert sizes == [(first + number) % 10 for number in range(20)]


def check(found: Coverage) -> None:
    print(found)
    assert found.waited > 0
    assert 0.85 <= found.share <= 0.95, str(found)


@pytest.mark.slow
def test_intervals_hold_the_starts_of_other_days() -> None:
    """Made from a day of log-normal durations and single submissions: over days of all other kinds."""
    total = Coverage.of([coverage(kind, range(1), every=9, cases=4) for kind in KINDS])
    check(total)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_intervals_hold_the_starts_of_each_kind_of_day(kind: Kind) -> None:
    check(coverage(kind, range(10), every=3, cases=2))
