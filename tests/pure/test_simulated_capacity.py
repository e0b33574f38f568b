"""The seeded model of capacity has the rates of its figures, and each figure has its source."""

import datetime
import math
import statistics
from collections.abc import Iterator
from typing import Any

import pytest

from gke_ai.catalog.machines.capacity import MODES
from gke_ai.catalog.machines.types import MACHINES
from gke_ai.catalog.nodes.durations import ASSUMPTION
from gke_ai.forecast.simulate.availability import DAY, HOUR, Capacity, read_figures
from gke_ai.settings.calibration import SpotHistory
from tests.support.repository import ROOT

L4, ZONE = "g2-standard-24", "us-central1-a"


def history(rate: float) -> SpotHistory:
    day = datetime.date(2026, 11, 1)
    return SpotHistory(machine_type=L4, zone=ZONE, rate=rate, max_rate=1, days=30, until=day, asked_on=day)


def test_each_figure_has_a_source_or_is_an_assumption() -> None:
    def sources(content: Any) -> Iterator[str]:
        if isinstance(content, dict):
            assert "source" in content or not {"value", "share", "median_seconds"} & content.keys()
            yield from [content["source"]] if "source" in content else []
            yield from (source for value in content.values() for source in sources(value))
        elif isinstance(content, list):
            yield from (source for value in content for source in sources(value))

    found = [*sources(read_figures().model_dump())]
    assert len(found) > 10
    assert [source for source in found if not source.startswith(f"{ASSUMPTION}: ") and "https://" not in source] == []


@pytest.mark.parametrize("mode", MODES)
def test_every_machine_has_figures_of_stock_outs(mode: str) -> None:
    figures = read_figures().stock_outs
    assert [name for name in MACHINES if not any(entry.apply_to(name, mode) for entry in figures)] == []


@pytest.mark.parametrize(("mode", "share"), [("spot", 0.15), ("onDemand", 0.03), ("reservation", 0), ("flexStart", 0)])
def test_capacity_is_lacking_for_the_stated_share_of_the_time(mode: str, share: float) -> None:
    shares = [Capacity(seed).stock_out(L4, mode, [ZONE], 30 * DAY) / (30 * DAY) for seed in range(200)]
    assert statistics.fmean(shares) == pytest.approx(share, rel=0.1)
    first = [Capacity(seed).available(L4, mode, ZONE, 0) > 0 for seed in range(1000)]
    assert statistics.fmean(first) == pytest.approx(share, abs=0.04), "at the beginning, too"
    both = [Capacity(seed).stock_out(L4, mode, [ZONE, "us-central1-b"], 30 * DAY) / (30 * DAY) for seed in range(200)]
    assert statistics.fmean(both) == pytest.approx(share**2, rel=0.2, abs=0.001), "two zones together"


def test_capacity_comes_with_an_attempt_after_the_stock_out_and_the_median_of_a_wait_is_that_of_its_figure() -> None:
    capacity = Capacity(1)
    begin = next(at for at in range(0, 10**7, 60) if capacity.available(L4, "spot", ZONE, at) > at)
    pauses = [300, 600, 1200, *[1800] * 100]
    attempts = {begin + sum(pauses[:index]) for index in range(100)}
    assert capacity.available(L4, "spot", ZONE, begin) in attempts
    waits = [Capacity(1).wait("flexStart", str(number)) for number in range(1000)]
    assert statistics.median(waits) == pytest.approx(900, rel=0.1)
    assert Capacity(1).wait("onDemand", "0") == 0


@pytest.mark.parametrize(
    ("entries", "per_day"),
    [
        ([], -math.log(1 - 0.1)),
        ([history(0.5)], 1.0),  # users stop a VM after a day, and Google as often
        ([history(0.2)], 0.25),
        ([history(0)], 0.0),
    ],
)
def test_spot_nodes_are_reclaimed_at_the_stated_rate(entries: list[SpotHistory], per_day: float) -> None:
    assert Capacity(1, entries).reclaims_per_second(L4, ZONE) * DAY == pytest.approx(per_day)
    lives = [Capacity(seed, entries).reclaim(L4, ZONE, "pool/0", 1000.0) - 1000.0 for seed in range(2000)]
    if per_day:
        assert statistics.fmean(lives) == pytest.approx(DAY / per_day, rel=0.08)
    else:
        assert {*lives} == {math.inf}


def test_a_slice_is_reclaimed_more_often_than_a_node_and_nodes_of_a_zone_often_together() -> None:
    lives = {
        nodes: statistics.fmean(Capacity(seed).reclaim(L4, ZONE, "pool/0", 0, nodes) for seed in range(2000))
        for nodes in (1, 4)
    }
    assert lives[1] / lives[4] == pytest.approx((1 - 0.5**4) / 0.5, rel=0.1)
    capacity = Capacity(1)
    times = [capacity.reclaim(L4, ZONE, f"pool/{number}", 0) for number in range(20)]
    assert len({*times}) < len(times) / 2


def test_a_draw_does_not_depend_on_those_before() -> None:
    other = Capacity(1)
    for hour in range(0, 200, 7):
        other.available("a3-highgpu-8g", "spot", ZONE, hour * HOUR)
        other.reclaim(L4, ZONE, f"other/{hour}", hour * HOUR)
    for at in (0.0, 50 * HOUR, 10 * HOUR):
        assert other.available(L4, "spot", ZONE, at) == Capacity(1).available(L4, "spot", ZONE, at)
        assert other.reclaim(L4, ZONE, "pool/3", at) == Capacity(1).reclaim(L4, ZONE, "pool/3", at)


def test_the_page_has_each_figure() -> None:
    page, figures = (ROOT / "docs" / "simulation.md").read_text(), read_figures()
    texts = [f"median {wait.median_seconds:g} s, sigma {wait.sigma:g}" for wait in figures.waits.values()]
    outs = [f"{entry.share:.0%} of the time, for {entry.mean_hours:g} h" for entry in figures.stock_outs if entry.share]
    texts += [text.replace("%", " %") for text in outs]
    reclaims, autoscaler = figures.reclaims, figures.autoscaler
    texts += [f"| {100 * reclaims.per_day.value:g} %, or", f"| {100 * reclaims.together.value:g} % |"]
    texts += [f"| {reclaims.stopped_after_hours.value:g} h |", f"| {autoscaler.flex_start_seconds.value:g} s |"]
    texts += [f"| {autoscaler.retry_seconds.value:g} s, doubled up to {autoscaler.longest_retry_seconds.value:g} s |"]
    assert [text for text in texts if text not in page] == []
