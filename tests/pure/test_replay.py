"""A replay keeps its own clock: who starts when, what an eviction costs, and what the day of a queue shows."""

import time

import pytest

from gke_ai.forecast.simulate import replay as module
from gke_ai.forecast.simulate.kueue import Counts
from gke_ai.forecast.simulate.objects import Object, second
from gke_ai.forecast.simulate.replay import Replay
from gke_ai.forecast.simulate.result import day, percentile, queue_day
from gke_ai.forecast.simulate.run import Run
from gke_ai.forecast.simulate.trace import Submission
from gke_ai.kube.objects import condition
from gke_ai.terminal import Stop
from tests.support.simulation.fake import FirstComeFirstServed
from tests.support.simulation.theory import configuration, mean_wait, poisson, run, starts


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The decider of these tests decides at once, so nobody waits for it."""
    monkeypatch.setattr(module, "STUCK_SECONDS", 1.0)


def replayed(trace: list[Submission], pods: int, **classes: int) -> tuple[Replay, FirstComeFirstServed]:
    kueue = FirstComeFirstServed(pods, "one")
    replay = Replay(kueue, configuration({"one": {"gpus": pods}}, classes), tuple(trace))
    replay.run()
    return replay, kueue


def test_runs_start_when_the_theory_says_which_approaches_erlangs_formula() -> None:
    trace = poisson(seed=1, jobs=200, rate=1 / 100, mean=250.0)
    replay, _ = replayed(trace, 3)
    assert [run.spans[0][0] for run in replay.runs] == pytest.approx(starts(trace, 3))
    assert all(run.ended for run in replay.runs)
    assert replay.late == 0
    trace = poisson(seed=1, jobs=200_000, rate=1 / 100, mean=250.0)
    waits = [start - row.time for row, start in zip(trace, starts(trace, 3), strict=True)]
    assert sum(waits) / len(waits) == pytest.approx(mean_wait(3, 1 / 100, 250.0), rel=0.05)


def test_an_evicted_run_goes_on_from_its_last_checkpoint_or_starts_again() -> None:
    low = run(0, 1000, priority="low", checkpoint=300)
    replay, _ = replayed([low, run(700, 50, priority="high")], 1, low=1, high=2)
    evicted, preemptor = replay.runs
    assert preemptor.spans == [(700, 750)]
    # It had 600 of its 1000 seconds in a checkpoint, so 400 are left.
    assert evicted.spans == [(0, 700), (750, 1150)]
    assert (evicted.lost, evicted.evictions, evicted.ended) == (100, 1, True)
    replay, _ = replayed([run(0, 1000, priority="low"), run(700, 50, priority="high")], 1, low=1, high=2)
    assert replay.runs[0].spans == [(0, 700), (750, 1750)]
    assert replay.runs[0].lost == 700
    trace = [run(0, 1000, priority="low", checkpoint=300), run(700, 50, priority="high"), run(800, 50, priority="high")]
    replay, _ = replayed(trace, 1, low=1, high=2)
    assert replay.runs[0].spans == [(0, 700), (750, 800), (850, 1250)]
    assert replay.runs[0].lost == 150


def test_the_newest_reservation_is_evicted_first_and_runs_at_the_same_moment_start_in_their_order() -> None:
    trace = [run(0, 1000, priority="low"), run(10, 1000, priority="low"), run(20, 50, priority="high")]
    replay, kueue = replayed(trace, 2, low=1, high=2)
    assert [run.evictions for run in replay.runs] == [0, 1, 0]
    # Each admission has a second of its own, after those of the submissions.
    reserved = [condition(item, "QuotaReserved") for item in kueue.written if "admission" in item.get("status", {})]
    assert [entry["lastTransitionTime"] for entry in reserved] == [second(number) for number in range(4, 8)]
    replay, kueue = replayed([run(0, 100), run(100, 10), run(100, 10)], 1)
    assert [run.spans for run in replay.runs] == [[(0, 100)], [(100, 110)], [(110, 120)]]
    created = [item["metadata"]["creationTimestamp"] for item in kueue.written if "status" not in item]
    assert created == sorted({*created})


def test_a_run_that_never_fits_is_reported_and_stops_nothing() -> None:
    replay, _ = replayed([run(0, 10, pods=5), run(1, 10)], 2)
    assert [run.ended for run in replay.runs] == [False, True]
    result = queue_day("one", 2, replay.runs, 11)
    assert (result.submitted, result.never_started, result.waited["longest"]) == (2, 1, 0.0)


def test_the_day_of_a_queue_has_its_use_by_hour_its_waiting_and_its_lost_work() -> None:
    first = Run(0, run(0, 5400, pods=2), "one", admitted=[(0, 5400)], spans=[(0, 5400)], ended=True)
    second_run = Run(1, run(0, 1800), "one", admitted=[(5400, 7200)], spans=[(5400, 7200)], ended=True)
    result = queue_day("one", 2, [first, second_run], 7200)
    assert result.use == [2.0, 1.5]
    assert result.used_hours == 3.5
    assert result.waited == {"p50": 0, "p90": 5400, "p99": 5400, "longest": 5400}
    lost = Run(0, run(0, 7200, pods=2), "one", lost=3600, evictions=1, spans=[(0, 3600)])
    (of_queue,) = day(configuration({"one": {"gpus": 2}}), [lost]).queues
    assert (of_queue.lost_hours, of_queue.preemptions) == (2.0, 1)
    percentiles = [percentile([1, 2, 3, 4], percent) for percent in (50, 75, 90, 99)]
    assert percentiles == [2, 3, 4, 4], "each is a value that occurred"


def test_a_day_stops_with_both_counts_if_kueue_does_not_come_to_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FirstComeFirstServed, "counts", lambda _: Counts(active={"one": 1}))
    monkeypatch.setattr(module, "STUCK_SECONDS", 0.1)
    with pytest.raises(Stop, match=r"it counts 1 to try, 0 waiting and 0 admitted in one, where 0 wait and 0 are"):
        replayed([run(0, 100)], 1)


def test_a_run_waits_again_if_kueue_takes_back_its_admission() -> None:
    replay = Replay(FirstComeFirstServed(1, "one"), configuration({"one": {"gpus": 1}}), (run(0, 100),))
    (clock,), (waiting,) = replay.clocks, replay.runs
    clock.see({"status": {"conditions": [{"type": "Admitted", "status": "True"}], "admission": {}}}, waiting)
    assert waiting.holds_quota
    assert clock.see({"status": {"conditions": [{"type": "Admitted", "status": "False"}]}}, waiting) is None
    assert not waiting.holds_quota
    assert (clock.waiting, clock.admitted) == ({"one": {0}}, {"one": set()})


def test_an_eviction_that_overtakes_the_admission_is_carried_out_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def item(*, evicted: bool) -> Object:
        states = {"QuotaReserved": True, "Admitted": True, "Evicted": evicted}
        conditions = [{"type": kind, "status": str(state)} for kind, state in states.items()]
        return {"metadata": {"name": "run-000000"}, "status": {"conditions": conditions, "admission": {}}}

    replay = Replay(FirstComeFirstServed(1, "one"), configuration({"one": {"gpus": 1}}), (run(0, 100),))
    (clock,), (preempted,) = replay.clocks, replay.runs
    assert clock.see(item(evicted=True), preempted) is None, "Kueue's own admission would overwrite what is written now"
    assert [*clock.overtaken(time.monotonic())] == []
    clock.see(item(evicted=False), preempted)
    assert preempted.holds_quota
    for _ in range(2):  # Kueue can change it again before it is written
        written = clock.see(item(evicted=True), preempted)
        assert written
        assert "admission" not in written["status"]
    assert clock.see({"status": {}}, preempted) is None
    assert preempted.admitted == [(0, 0)]

    monkeypatch.setattr(module, "OVERTAKEN_SECONDS", 0.0)
    clock.see(item(evicted=True), preempted)
    (written,) = clock.overtaken(time.monotonic())
    assert "admission" not in written["status"], "the admission was seen in no watch"
    assert [*clock.overtaken(time.monotonic())] == []
