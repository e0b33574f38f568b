"""The pure model of Kueue admits, blocks, borrows and preempts as Kueue does."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.nodes import NVIDIA_GPU
from forecast.admission import ClusterQueue, Cohort, Line, Run, Share
from tests.simulation.theory import poisson, starts

CELL = ("l4", NVIDIA_GPU)


def queue(name: str = "one", gpus: float = 2, share: dict[str, float] | None = None, **more: Any) -> ClusterQueue:
    groups = ((frozenset({NVIDIA_GPU}), ("l4",)),)
    return ClusterQueue(name, {CELL: Share(gpus, **share or {})}, groups, **more)


def run(created: float, gpus: float = 1, name: str = "one", priority: int = 0) -> Run:
    return Run(f"{name}/{created:g}", name, created, {NVIDIA_GPU: gpus}, priority)


def spans(queues: list[ClusterQueue], runs: dict[Run, float]) -> list[list[float]]:
    """When each run starts, again after each eviction. A run begins again at its beginning."""
    line = Line(Cohort(queues), runs.__getitem__)
    line.go((each.created, each) for each in sorted(runs, key=lambda each: each.created))
    return [[at for started, at, *_ in line.started if started is each] for each in runs]


def test_each_run_starts_when_the_theory_says() -> None:
    trace = poisson(seed=1, jobs=200, rate=1 / 100, mean=160.0)
    found = spans([queue()], {run(row.time): row.duration for row in trace})
    assert [first for (first,) in found] == pytest.approx(starts(trace, 2))


@pytest.mark.parametrize(("strict", "expected"), [(True, [[0], [100], [200]]), (False, [[0], [100], [2]])])
def test_a_run_that_does_not_fit_blocks_only_a_strict_queue(strict: bool, expected: list[list[float]]) -> None:
    runs = {run(0): 100.0, run(1, gpus=2): 100.0, run(2): 10.0}
    assert spans([queue(strict=strict)], runs) == expected


def test_the_newest_run_of_a_lower_priority_is_preempted() -> None:
    runs = {run(0): 2000.0, run(0.2): 1000.0, run(700, priority=1): 50.0}
    assert spans([queue(within="LowerPriority")], runs) == [[0], [0.2, 750], [700]]
    assert spans([queue()], runs) == [[0], [0.2], [1000.2]]


def test_no_more_runs_are_preempted_than_needed() -> None:
    small, large = run(0, gpus=1), run(1, gpus=3)
    found = spans([queue(gpus=4, within="LowerPriority")], {small: 500.0, large: 500.0, run(2, 3, priority=1): 50.0})
    assert found == [[0], [1, 52], [2]]


def test_a_borrower_gives_back_what_its_lender_reclaims() -> None:
    queues = [queue(name, 1, cohort="shared", reclaim="Any") for name in ("lender", "borrower")]
    runs = {run(0, name="borrower"): 500.0, run(1, name="borrower"): 500.0, run(100, name="lender"): 50.0}
    assert spans(queues, runs) == [[0], [1, 150], [100]]


def test_a_queue_does_not_reclaim_to_borrow_itself() -> None:
    queues = [queue(name, 1, cohort="shared", reclaim="Any") for name in ("lender", "borrower")]
    runs = {run(0, 2, name="borrower"): 500.0, run(100, 2, name="lender"): 50.0}
    assert spans(queues, runs) == [[0], [500]]


@pytest.mark.parametrize(
    ("limits", "starts_at"), [({}, 0), ({"lending": 1}, 500), ({"lending": 2}, 0)], ids=["all", "one", "two"]
)
def test_a_lending_limit_keeps_quota_for_its_queue(limits: dict[str, float], starts_at: float) -> None:
    queues = [queue("lender", 2, share=limits, cohort="shared"), queue("borrower", 1, cohort="shared")]
    runs = {run(0, 2, name="borrower"): 500.0, run(0.5, 1, name="borrower"): 10.0}
    assert spans(queues, runs)[1] == [max(starts_at, 0.5)]


def test_a_borrowing_limit_holds() -> None:
    queues = [queue("lender", 2, cohort="shared"), queue("borrower", 1, share={"borrowing": 1}, cohort="shared")]
    assert spans(queues, {run(0, 3, name="borrower"): 1.0, run(1, 2, name="borrower"): 1.0}) == [[], [1]]


def test_runs_within_their_own_quota_go_before_those_that_borrow() -> None:
    queues = [queue("a", 1, cohort="shared"), queue("b", 1, cohort="shared")]
    runs = {run(0, 2, "a"): 100.0, run(1, 1, "a"): 100.0, run(2, 1, "a"): 100.0, run(3, 1, "b"): 100.0}
    assert spans(queues, runs) == [[0], [100], [200], [100]]


def test_the_next_flavor_is_used_once_the_first_is_full() -> None:
    shares = {("spot", NVIDIA_GPU): Share(1), ("standard", NVIDIA_GPU): Share(1)}
    two = ClusterQueue("one", shares, ((frozenset({NVIDIA_GPU}), ("spot", "standard")),))
    line = Line(Cohort([two]), lambda _run: 100.0)
    line.go((each.created, each) for each in (run(0), run(1), run(2)))
    assert [usage[0][0][0] for _, _, usage, _ in line.started] == ["spot", "standard", "spot"]
