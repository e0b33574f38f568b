"""Nodes of a simulated day: which runs get which, when they start, what Google takes back, and what all of it costs."""

import datetime
import random
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from gke_ai.catalog.nodes.durations import CONTAINER_START, NODE_IDLE, NODE_READY
from gke_ai.forecast.simulate import replay as module
from gke_ai.forecast.simulate.availability import Capacity
from gke_ai.forecast.simulate.command import queues_of
from gke_ai.forecast.simulate.fleet import Group
from gke_ai.forecast.simulate.nodes import Nodes
from gke_ai.forecast.simulate.objects import Queues
from gke_ai.forecast.simulate.replay import MOST_FRUITLESS, Replay
from gke_ai.forecast.simulate.result import Day, PoolDay, day, end_of, pool_day
from gke_ai.forecast.simulate.run import Run, Span
from gke_ai.forecast.simulate.trace import Submission
from gke_ai.settings.calibration import Calibration, Duration, SpotHistory
from gke_ai.workspace.prices import Prices
from tests.support import repository
from tests.support.simulation.fake import FirstComeFirstServed
from tests.support.simulation.pools import Scripted, configured, gpu_pool, plenty
from tests.support.simulation.theory import run

# From capacity to the first container of a new node.
NEW = NODE_READY["onDemand"].seconds + CONTAINER_START.seconds


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The decider of these tests decides at once, so nobody waits for it."""
    monkeypatch.setattr(module, "STUCK_SECONDS", 1.0)


def replayed(queues: Queues, trace: Iterable[Submission], capacity: Capacity | None = None, pods: int = 100) -> Replay:
    replay = Replay(FirstComeFirstServed(pods, "one"), queues, tuple(trace), capacity or plenty())
    replay.run()
    return replay


def spans(replay: Replay) -> list[list[Span]]:
    return [run.spans for run in replay.runs]


def groups(replay: Replay) -> dict[str, Group]:
    """The nodes by pool, machine and capacity mode, until the end of the day."""
    return {"/".join(group.kind.key): group for group in replay.groups(end_of(replay.runs))}


def pools(replay: Replay, capacity: Capacity | None = None, prices: Prices | None = None) -> list[PoolDay]:
    end = end_of(replay.runs)
    return [pool_day(group, capacity or plenty(), end, prices) for group in replay.groups(end)]


def node_counts(replay: Replay) -> dict[str, int]:
    return {name: len(group.units) for name, group in groups(replay).items()}


# ------------------------------------------------------------------------------------------------------ starts and ends
def test_a_run_waits_for_a_new_node_and_its_containers_or_takes_an_idle_one_at_once() -> None:
    replay = replayed(configured(8, gpuPools=[gpu_pool()]), [run(100, 50)])
    assert spans(replay) == [[(100 + NEW, 150 + NEW)]]
    assert replay.runs[0].admitted == [(100, 150 + NEW)]
    assert (replay.runs[0].waited_for_quota, replay.runs[0].waited_for_nodes) == (0, NEW)
    replay = replayed(configured(8, gpuPools=[gpu_pool()]), [run(0, 50), run(1000, 50)])
    assert spans(replay)[1] == [(1000, 1050)]
    replay = replayed(configured(8, gpuPools=[gpu_pool(nodes=(1, 4))]), [run(0, 50, pods=2), run(1, 50)])
    assert spans(replay) == [[(0, 50)], [(1 + NEW, 51 + NEW)]]


def test_a_run_takes_the_fullest_of_the_ready_nodes_and_moves_to_one_that_is_free_before_capacity() -> None:
    trace = [run(0, 600, pods=2), run(1, 5000), run(700, 100), run(701, 10, accelerators=2)]
    replay = replayed(configured(8, gpuPools=[gpu_pool(nodes=(1, 4))]), trace)
    assert spans(replay)[2:] == [[(700, 800)], [(701, 711)]], "the older node stays empty for the last run"
    capacity = Scripted(out={"onDemand": 50_000})
    replay = replayed(configured(8, gpuPools=[gpu_pool(nodes=(1, 4))]), [run(0, 1000, pods=2), run(1, 10)], capacity)
    assert spans(replay)[1] == [(1000, 1010)]
    assert node_counts(replay) == {"l4/g2-standard-24/onDemand": 1}, "the request for a node is canceled"


def test_a_pool_of_fixed_size_keeps_its_nodes_and_another_its_minimum_after_ten_idle_minutes() -> None:
    pool = {**gpu_pool(), "nodesPerZone": 2}
    del pool["autoscaling"]
    replay = replayed(configured(8, gpuPools=[pool]), [run(0, 50, pods=4), run(100_000, 50, pods=4)])
    assert spans(replay) == [[(0, 50)], [(100_000, 100_050)]]
    assert pools(replay)[0].nodes[:27] == [2.0] * 27
    replay = replayed(configured(8, gpuPools=[gpu_pool(nodes=(1, 4))]), [run(0, 50, pods=4), run(10_000, 50, pods=4)])
    (group,) = groups(replay).values()
    assert [unit.gone for unit in group.gone] == [50 + NEW + NODE_IDLE.seconds]
    assert spans(replay)[1] == [(10_000 + NEW, 10_050 + NEW)], "one node of two was left"


@pytest.mark.parametrize(
    ("request_", "nodes"), [({}, 2), ({"cpu": 20}, 4), ({"memory": 60}, 4), ({"accelerators": 2}, 4)]
)
def test_a_node_has_as_many_pods_as_gpus_cpu_and_memory_allow(request_: dict[str, Any], nodes: int) -> None:
    replay = replayed(configured(8, gpuPools=[gpu_pool()]), [run(0, 50, pods=4, **request_)])
    assert node_counts(replay) == {"l4/g2-standard-24/onDemand": nodes}
    shared = replayed(configured(8, gpuPools=[gpu_pool()]), [run(0, 50), run(1, 50), run(2, 50)])
    assert node_counts(shared) == {"l4/g2-standard-24/onDemand": 2}


def test_a_run_waits_while_the_pool_is_at_its_maximum_and_the_highest_priority_gets_its_nodes_first() -> None:
    trace = [run(0, 1000, pods=4), run(1, 10, pods=2), run(2, 10, pods=2)]
    replay = replayed(configured(8, gpuPools=[gpu_pool(nodes=(0, 2))]), trace)
    assert spans(replay)[1:] == [[(1000 + NEW, 1010 + NEW)]] * 2
    assert replay.runs[1].admitted == [(1, 1010 + NEW)], "it holds quota meanwhile"
    trace = [run(0, 1000, pods=4), run(1, 10, pods=4, priority="low"), run(2, 10, pods=4, priority="high")]
    replay = replayed(configured(12, gpuPools=[gpu_pool(nodes=(2, 2))]), trace)
    assert spans(replay)[1:] == [[(1010, 1020)], [(1000, 1010)]]


def test_a_measured_start_of_a_node_replaces_the_assumption() -> None:
    measured = {"step": "nodeReady", "of": "g2-standard-24", "seconds": 60, "maxSeconds": 90, "count": 3}
    started = Duration.model_validate(measured | {"measuredOn": "2026-11-01", "gkeVersion": "1.36.1"})
    queues = Queues(replace(configured(8, gpuPools=[gpu_pool()]).stack, measured=Calibration(durations=[started])))
    assert spans(replayed(queues, [run(0, 50)])) == [[(60 + CONTAINER_START.seconds, 110 + CONTAINER_START.seconds)]]


TOO_MANY = "9 pods are more than fit on all nodes of flavor f at their maximum: 8"


@pytest.mark.parametrize(("fields", "message"), [({"cpu": 30}, "larger than what a node has"), ({"pods": 9}, TOO_MANY)])
def test_a_run_that_fits_no_nodes_holds_its_quota_and_says_why(fields: dict[str, Any], message: str) -> None:
    first, second = replayed(configured(100, gpuPools=[gpu_pool()]), [run(0, 50, **fields), run(1, 10)]).runs
    assert message in first.unplaced
    assert (first.holds_quota, second.ended) == (True, True)


def test_an_eviction_by_kueue_frees_the_nodes() -> None:
    trace = [run(0, 5000, pods=2, priority="low", checkpoint=100), run(1000, 50, pods=2, priority="high")]
    replay = replayed(configured(2, gpuPools=[gpu_pool(nodes=(0, 1))]), trace, pods=2)
    low, high = replay.runs
    assert high.spans == [(1000, 1050)], "it starts at once, on the node of the evicted run"
    assert (low.evictions, low.lost, low.spans[1][0]) == (1, (1000 - NEW) % 100, 1050)
    assert low.admitted == [(0, 1000), (1050, low.spans[1][1])]


# ---------------------------------------------------------------------------------------------------------- TPU slices
SLICE = {"version": "v5e", "topology": "4x4", "zones": ["us-central1-a"], "autoscaling": {"maxNodes": 4}}


def test_a_multi_host_slice_is_created_whole_and_has_one_run_which_may_take_several() -> None:
    queues = configured(32, tpuPools=[{"name": "s1", **SLICE}, {"name": "s2", **SLICE}])
    trace = [run(0, 1000, pods=1, accelerators=4), run(1, 1000, pods=4, accelerators=4), run(2, 10, accelerators=4)]
    replay = replayed(queues, trace)
    assert spans(replay)[2] == [(1000 + NEW, 1010 + NEW)], "a slice with one pod has no room for other runs"
    assert [len(group.units) for group in groups(replay).values()] == [1, 1]
    assert pools(replay)[0].nodes[0] == pytest.approx(4 * (1410 - 0) / 3600, rel=0.01)
    replay = replayed(queues, [run(0, 100, pods=4, accelerators=4), run(1, 100, pods=8, accelerators=4)])
    assert spans(replay) == [[(NEW, 100 + NEW)], [(100 + NEW + NEW, 200 + NEW + NEW)]]


# ------------------------------------------------------------------------------------------------- Spot and flex-start
def test_only_a_run_that_tolerates_spot_gets_spot_nodes() -> None:
    both = configured(8, gpuPools=[gpu_pool("cheap", mode="spot"), gpu_pool("safe")])
    replay = replayed(both, [run(0, 50, spot=True), run(1, 50)])
    assert node_counts(replay) == {"cheap/g2-standard-24/spot": 1, "safe/g2-standard-24/onDemand": 1}
    only = replayed(configured(8, gpuPools=[gpu_pool("cheap", mode="spot")]), [run(0, 50)])
    assert "does not tolerate Spot" in only.runs[0].unplaced


def test_a_reclaimed_node_stops_the_whole_run_which_keeps_its_quota_once() -> None:
    queues = configured(8, gpuPools=[gpu_pool(mode="spot")])
    capacity = Scripted({"l4/1": NEW + 1000.0})
    replay = replayed(queues, [run(0, 2000, pods=4, spot=True, checkpoint=300)], capacity)
    (stopped,) = replay.runs
    # 900 of its 1000 seconds were in a checkpoint. It keeps one node and waits for the other.
    assert stopped.spans == [(NEW, NEW + 1000), (2 * NEW + 1000, 2 * NEW + 2100)]
    assert stopped.admitted == [(0, 2 * NEW + 2100)]
    assert (stopped.reclaims, stopped.lost_with_nodes, stopped.lost, stopped.evictions) == (1, 100, 0, 0)
    (pool,) = pools(replay)
    assert (pool.reclaims, pool.paid_hours) == (1, round(2 * (2 * (2 * NEW + 2100)) / 3600, 3))
    both = replayed(queues, [run(0, 2000, pods=4, spot=True)], Scripted({"l4/0": 1000.0, "l4/1": 1000.0}))
    assert (both.runs[0].reclaims, pools(both)[0].reclaims) == (1, 2)


SHORT = {"mode": "flexStart", "maxRunDurationSeconds": 1000}


def test_flex_start_ends_a_node_with_its_maximum_run_duration_and_a_run_that_never_reaches_a_checkpoint() -> None:
    queues = configured(8, gpuPools=[gpu_pool(capacity=SHORT)])
    replay = replayed(queues, [run(0, 1000, checkpoint=100)], Scripted(wait=200))
    begin, again = 200 + NEW, 1200 + 200 + NEW
    assert replay.runs[0].spans == [(begin, 1200), (again, again + 1000 - (1200 - begin) // 100 * 100)]
    assert (replay.runs[0].expiries, replay.runs[0].reclaims) == (1, 0)
    assert pools(replay)[0].expired == 1
    replay = replayed(configured(1, gpuPools=[gpu_pool(capacity=SHORT)]), [run(0, 1000), run(1, 10)], pods=1)
    failed, next_run = replay.runs
    assert (failed.failed, failed.ended, failed.expiries) == (True, False, MOST_FRUITLESS)
    assert next_run.ended
    assert next_run.admitted[0][0] == failed.admitted[0][1]
    # Nodes of queued provisioning serve only their request.
    queues = configured(8, gpuPools=[gpu_pool(mode="queuedFlexStart")])
    replay = replayed(queues, [run(0, 50), run(1000, 50)], Scripted(wait=100))
    assert spans(replay)[1] == [(1100 + NEW, 1150 + NEW)]


# -------------------------------------------------------------------------------------------------- classes, Autopilot
def compute_class(*modes: str) -> Queues:
    priorities = [{"machineType": "g2-standard-12", "capacity": {"mode": mode}} for mode in modes]
    return configured(8, computeClasses=[{"name": "cheap", "priorities": priorities}])


@pytest.mark.parametrize(
    ("modes", "capacity", "starts", "used"),
    [
        (("spot", "onDemand"), Scripted(), NEW, "spot"),
        (("spot", "onDemand"), Scripted(out={"spot": 9000}), NEW, "onDemand"),
        (("spot", "flexStart"), Scripted(out={"spot": 9000}, wait=300), 300 + NEW, "flexStart"),
        (("flexStart", "onDemand"), Scripted(wait=5000), 900 + NEW, "onDemand"),
        (("spot", "onDemand"), Scripted(out={"spot": 7000, "onDemand": 9000}), 7000 + NEW, "spot"),
    ],
)
def test_a_compute_class_falls_to_its_next_priority_without_capacity(
    modes: tuple[str, ...], capacity: Capacity, starts: float, used: str
) -> None:
    replay = replayed(compute_class(*modes), [run(0, 50, spot=True)], capacity)
    assert spans(replay) == [[(starts, starts + 50)]]
    assert {group.kind.mode for group in groups(replay).values() if group.units} == {used}


def test_autopilot_gives_each_pod_a_node_of_its_own_and_queues_that_share_a_pool_share_a_clock() -> None:
    replay = replayed(configured(8), [run(0, 50, pods=3, cpu=4, memory=16)])
    assert node_counts(replay) == {"autopilot/g2-standard-8/onDemand": 3}
    assert "no node has 3 nvidia-l4" in replayed(configured(8), [run(0, 50, accelerators=3)]).runs[0].unplaced
    of, quota = {"f": ["l4"], "g": ["l4", "more"], "h": ["x"]}, {"nvidia.com/gpu": "1"}
    cluster_queues = [
        {"name": name, "flavors": [{"flavor": flavor, "quota": quota}]} for name, flavor in zip("abc", of, strict=True)
    ]
    flavors = [{"name": name, "pools": pools} for name, pools in of.items()]
    section = {"flavors": flavors, "clusterQueues": cluster_queues}
    pools = [gpu_pool(name) for name in ("l4", "more", "x")]
    queues = configured(1, gpuPools=pools, queues=section)
    assert sorted(map(sorted, queues.groups(Nodes(queues.stack)))) == [["a", "b"], ["c"]]
    assert sorted(map(sorted, queues.groups())) == [["a"], ["b"], ["c"]]


# ------------------------------------------------------------------------------------------------------- laws and seeds
def busy_day(seed: int) -> tuple[Queues, list[Submission]]:
    """A day on Spot and flex-start nodes with priorities, some of which do not tolerate Spot."""
    chance = random.Random(seed)
    time, trace = 0.0, []
    for _ in range(60):
        time += chance.expovariate(1 / 600)
        more: dict[str, Any] = {"priority": chance.choice(["low", "high"]), "pods": chance.choice([1, 2, 5])}
        more["spot"] = chance.random() < 0.6
        trace.append(run(time, 1 + chance.expovariate(1 / 5000), checkpoint=chance.choice([0, 600]), **more))
    flex = {"mode": "flexStart", "maxRunDurationSeconds": 20_000}
    flexible = gpu_pool("flex", nodes=(0, 2), capacity=flex)
    return configured(12, gpuPools=[gpu_pool("spot", nodes=(1, 3), mode="spot"), flexible, gpu_pool("safe")]), trace


def scarce(seed: int) -> Capacity:
    """Capacity with many reclaims: Google preempted half of the VMs that stopped."""
    place: Any = {"machine_type": "g2-standard-24", "zone": "us-central1-a"}
    day = datetime.date(2026, 11, 1)
    history = SpotHistory(**place, rate=0.9, max_rate=1, days=30, until=day, asked_on=day)
    return Capacity(seed, [history])


@pytest.mark.parametrize("seed", range(12))
def test_the_laws_of_conservation_hold_in_any_day(seed: int) -> None:
    queues, trace = busy_day(seed)
    replay = replayed(queues, trace, scarce(seed), pods=12)
    for group, pool in zip(replay.groups(end_of(replay.runs)), pools(replay, scarce(seed)), strict=True):
        assert pool.paid_hours == pytest.approx(pool.used_hours + pool.idle_hours + pool.starting_hours, abs=0.01)
        lives = [(unit.created, unit.gone) for unit in [*group.gone, *group.units]]
        assert most_at_once(lives) <= (group.kind.maximum or 0)
    for item in replay.runs:
        assert item.ended or item.failed or item.unplaced
        if item.ended:
            worked = sum(end - start for start, end in item.spans if end is not None)
            assert worked == pytest.approx(item.row.duration + item.lost + item.lost_with_nodes)
        assert all(any(within(span, quota) for quota in item.admitted) for span in item.spans)
        assert len(item.admitted) == item.evictions + 1
    used = sum(pool.used_hours for pool in pools(replay, scarce(seed)))
    worked = day(queues, replay.runs).queues[0].used_hours
    assert worked <= used + 0.01, "work needs nodes"
    assert sum(item.reclaims for item in replay.runs) > 0


def within(span: Span, other: Span) -> bool:
    return other[0] <= span[0] and (other[1] is None or (span[1] is not None and span[1] <= other[1]))


def most_at_once(lives: list[tuple[float, float | None]]) -> int:
    changes = [(start, 1) for start, _ in lives] + [(end, -1) for _, end in lives if end is not None]
    now = most = 0
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most


def result(seed: int) -> tuple[Day, list[Run]]:
    queues, trace = busy_day(1)
    replay = replayed(queues, trace, scarce(seed), pods=12)
    return day(queues, replay.runs, replay.late, pools(replay, scarce(seed))), replay.runs


def test_the_same_seed_gives_the_same_day_and_another_seed_another_day() -> None:
    assert result(1) == result(1)
    assert result(1) != result(2)


def test_the_order_in_which_kueue_reports_admissions_has_no_effect() -> None:
    class Reversed(FirstComeFirstServed):
        def changes(self, seconds: float) -> Any:
            return reversed([*super().changes(seconds)])

    queues, trace = busy_day(3)
    trace = [replace(row, priority="") for row in trace]  # else the order of admissions says which is the newest
    days = []
    for decider in (FirstComeFirstServed, Reversed):
        replay = Replay(decider(12, "one"), queues, tuple(trace), scarce(3))
        replay.run()
        days.append(spans(replay))
    assert days[0] == days[1]


# --------------------------------------------------------------------------------------------------------------- result
def test_the_day_of_a_pool_has_nodes_by_hour_their_cost_and_waiting_for_quota_and_for_nodes() -> None:
    replay = replayed(configured(8, gpuPools=[gpu_pool(nodes=(1, 4))]), [run(0, 7200, pods=2), run(0, 50)])
    prices = Prices("EUR", "2026-11-01", {"g2-standard-24/onDemand": Decimal(2)})
    (pool,) = pools(replay, prices=prices)
    second = (NEW + 50 + NODE_IDLE.seconds) / 3600
    assert pool.nodes == [round(1 + second, 3), 1.0]
    assert (pool.node_hours, pool.cost, pool.currency) == (round(2 + second, 3), round(2 * (2 + second), 2), "EUR")
    idle = round((2 * NODE_IDLE.seconds + 50 + CONTAINER_START.seconds) / 3600, 3)
    assert (pool.starting_hours, pool.idle_hours) == (0.1, idle)
    by_gpu = Prices("EUR", "2026-11-01", {"nvidia-l4/onDemand": Decimal(1)})
    assert pools(replay, prices=by_gpu)[0].cost == round(2 * (2 + second), 2)
    assert (pools(replay)[0].cost, pools(replay)[0].currency) == (None, "")
    one = Run(0, run(0, 10), "one", admitted=[(5, 10), (30, 60)], spans=[(8, 10), (40, 60)])
    assert (one.waited, one.waited_for_quota, one.waited_for_nodes) == (8, 25, 13)


@pytest.mark.parametrize("file", ["Pulumi.prod.yaml", "Pulumi.dev.yaml", "examples/mixed-training-inference.yaml"])
def test_generated_runs_fit_on_the_nodes_of_every_stack(file: str) -> None:
    queues = queues_of(repository.source(file))
    nodes = Nodes(queues.stack)
    for source in queues.sources():
        name = queues.by_local[source.queue]
        row = Submission(0, source.queue, "", source.most_pods, source.accelerators, source.cpu, source.memory, 60)
        assert nodes.choices(queues.first_flavor(name), row)[1] == "", source
