"""Replays from the state of a snapshot follow the queue, with durations and arrivals of its runs."""

import random
from collections.abc import Mapping
from typing import Any

import pytest

from gke_ai.forecast.simulate.run import Run
from gke_ai.forecast.when.durations import Arrivals, Durations, Record, records
from gke_ai.forecast.when.futures import Futures
from tests.support.simulation.fake import FirstComeFirstServed
from tests.support.simulation.training import past, state, workload
from tests.support.snapshots import TAKEN

Object = dict[str, Any]
NOW = TAKEN.timestamp()
Owners = Mapping[str, list[Object]] | None


def futures(*workloads: Object, pods: int = 8, replays: int = 1, stop: str = "None", owners: Owners = None) -> Futures:
    """Replays of a run that is submitted to training."""
    asked = workload("mine", 0, pods=pods)
    return Futures(state(*workloads, stop=stop, owners=owners), [("training", asked)], replays=replays)


def waits(*workloads: Object, pods: int = 8, owners: Owners = None) -> list[float]:
    """What the replay of a first come, first served queue of 8 pods gives."""
    made = futures(*workloads, pods=pods, owners=owners)
    (found,) = made.replay(FirstComeFirstServed(8, "r0-training", made.held))
    return found


def test_a_run_waits_for_the_one_that_runs_and_for_those_ahead_unless_quota_is_free() -> None:
    (wait,) = waits(workload("big", 600, 600), workload("ahead", 60), *past(3600))
    assert wait == pytest.approx(3000 + 3600, rel=0.1), "50 minutes are left of the first, and the next takes an hour"
    assert waits(workload("small", 600, 600, pods=4), *past(3600), pods=4) == [0.0]


@pytest.mark.parametrize(
    "metadata",
    [
        {"annotations": {"kueue.x-k8s.io/pod-group-serving": "true"}},
        {"ownerReferences": [{"kind": "StatefulSet", "name": "gemma", "uid": "1", "controller": True}]},
    ],
    ids=["deployment", "statefulset"],
)
def test_a_server_is_waited_for_in_vain(metadata: dict[str, Any]) -> None:
    server = workload("gemma", 600, 600)
    server["metadata"] |= metadata
    assert waits(server, *past(3600))[0] > 20 * 86_400


JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "big", "uid": "00000000-0000-4000-8000-000000000001"}
SET = {**JOB, "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}


def limited(owner: Object, **spec: Any) -> dict[str, list[Object]]:
    """The owner of a run, with its spec."""
    item = {"metadata": {"name": owner["name"], "namespace": "team", "uid": owner["uid"]}, "spec": spec}
    return {str(owner["kind"]): [item]}


IN_JOBS = [{"name": "main", "template": {"spec": {"activeDeadlineSeconds": 700}}}]


@pytest.mark.parametrize(
    ("spec", "status", "owners", "seconds"),
    [
        ({"maximumExecutionTimeSeconds": 700}, {}, {}, 100),
        ({"maximumExecutionTimeSeconds": 900}, {"accumulatedPastExecutionTimeSeconds": 200}, {}, 100),
        ({}, {}, limited(JOB, activeDeadlineSeconds=700), 100),
        ({}, {}, limited(SET, replicatedJobs=IN_JOBS), 100),
        ({}, {}, limited(SET, replicatedJobs=IN_JOBS, failurePolicy={"maxRestarts": 3}), 3000),
        ({"maximumExecutionTimeSeconds": 500}, {}, limited(JOB, activeDeadlineSeconds=9000), 0),
        ({}, {}, {}, 3000),
    ],
    ids=["kueue", "kueue after an eviction", "Job", "JobSet", "JobSet that restarts", "passed", "none"],
)
def test_runs_end_at_their_limit(spec: Object, status: Object, owners: dict[str, list[Object]], seconds: float) -> None:
    """It has run for 600 s, and others of its queue take an hour."""
    runs = workload("big", 600, 600)
    runs["spec"] |= spec
    runs["status"] |= status
    runs["metadata"]["ownerReferences"] = [{**(SET if "JobSet" in owners else JOB), "controller": True}]
    assert waits(runs, *past(3600), owners=owners)[0] == pytest.approx(seconds, rel=0.1)


@pytest.mark.parametrize(("stop", "at_once"), [("None", 3), ("Hold", 2), ("HoldAndDrain", 2)])
def test_a_stopped_queue_starts_none_of_those_ahead_and_no_replay_says_when_it_goes_on(stop: str, at_once: int) -> None:
    workloads = workload("big", 600, 600), workload("ahead", 60)
    assert sum(not row.time for row in futures(*workloads, stop=stop).trace) == at_once
    assert futures(stop=stop).is_stopped(Record(workload("mine", 0), NOW)) is (stop != "None")


def test_every_replay_has_queues_of_its_own_in_which_a_run_of_the_snapshot_keeps_its_quota() -> None:
    made = futures(workload("big", 600, 600), replays=3)
    assert made.queues.groups() == [frozenset({f"r{number}-training"}) for number in range(3)]
    names = [item["metadata"]["name"] for _, item in made.queues.objects() if item["kind"] == "ClusterQueue"]
    assert names == ["r0-training", "r1-training", "r2-training"]
    runs = [Run(number, row, made.queues.by_local[row.queue]) for number, row in enumerate(made.trace)]
    written = [made.make(run) for run in runs]
    assert [item["status"]["admission"]["clusterQueue"] for item in written if "status" in item] == names
    assert all(item["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["image"] for item in written)


def ended(seconds: list[float]) -> list[Record]:
    return [*records(workload(str(n), 10_000, 10_000, 10_000 - each) for n, each in enumerate(seconds))]


def test_durations_are_those_of_ended_runs() -> None:
    learned = Durations("team/gpus", ended([100.0] * 50 + [1000.0] * 50), NOW)
    drawn = sorted(learned.draw(random.Random(seed)) for seed in range(400))
    assert drawn[100] == pytest.approx(100, rel=0.1)
    assert drawn[300] == pytest.approx(1000, rel=0.1)
    assert all(learned.draw(random.Random(seed), elapsed=500) >= 500 for seed in range(50))


def test_runs_that_have_not_ended_make_durations_longer() -> None:
    short = ended([100.0] * 20)
    running = [*records(workload(f"long-{number}", 5000, 5000) for number in range(20))]
    medians = [
        sorted(Durations("team/gpus", known, NOW).draw(random.Random(seed)) for seed in range(200))[100]
        for known in (short, [*short, *running])
    ]
    assert medians[0] == pytest.approx(100, rel=0.1)
    assert medians[1] > 500


def test_arrivals_repeat_the_past_in_its_order() -> None:
    known = [*records(workload(str(number), 30_000 - 3000 * number) for number in range(10))]
    coming = Arrivals(known, NOW).draw(random.Random(1))
    drawn = [next(coming) for _ in range(20)]
    assert all(at >= 0 for at, _ in drawn)
    assert [at for at, _ in drawn] == sorted(at for at, _ in drawn)
    names = [int(record.workload["metadata"]["name"]) for _, record in drawn]
    assert names == [(names[0] + number) % 10 for number in range(20)]
    assert [*Arrivals([], NOW).draw(random.Random(1))] == [], "without a past nothing arrives"
