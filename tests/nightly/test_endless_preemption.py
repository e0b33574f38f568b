"""Only here: the constellation of kueue#14543 with the real Kueue, by strategies of preemption and policies of queues.

Print how often Kueue preempts in each:

    emulator/run pytest -s -m nightly tests/nightly/test_endless_preemption.py
"""

import copy
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import yaml

from emulator.tests.harness import eventually
from tests.support.emulator import fresh
from tests.support.rehearsal import cluster as queue_cluster
from tests.support.rehearsal import places
from tests.support.rehearsal.cluster import QueueCluster
from tests.support.rehearsal.fates import holds
from tests.support.rehearsal.places import Place
from tests.support.rehearsal.scenario import path_of
from tests.support.rehearsal.tables import clusters
from tests.support.rehearsal.tables.configuration import Configuration
from tests.support.repository import ROOT

Object = dict[str, Any]
FILE = ROOT / "tests" / "data" / "endless_preemption.yaml"
SPACE = "endless"
FINAL, INITIAL = "LessThanOrEqualToFinalShare", "LessThanInitialShare"
ANY = {"withinClusterQueue": "LowerOrNewerEqualPriority", "reclaimWithinCohort": "Any"}
LOWER = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "LowerPriority"}
NEVER = {**ANY, "withinClusterQueue": "Never"}
FIRST = (("PrioritizePreemptorWorkloads", True),)
# A round of the loop takes Kueue some seconds. Nothing that ends needs as many.
MANY, LONG, QUIET = 6, 240.0, 30.0


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with fresh() as emulator:
        (created,) = places.create([emulator])
        yield created


def written(policies: Object) -> tuple[list[Object], list[Object]]:
    """The queues, with their policies of preemption, and the Jobs in order of submission."""
    objects: list[Object] = copy.deepcopy([*yaml.safe_load_all(FILE.read_text())])
    for item in objects:
        if item["kind"] == "ClusterQueue":
            item["spec"]["preemption"] = policies
    jobs = [item for item in objects if item["kind"] == "Job"]
    return [item for item in objects if item not in jobs], jobs


def preemptions(cluster: QueueCluster) -> int:
    """How often Kueue has preempted, as it counts itself."""
    runs = [run.get("status", {}).get("schedulingStats", {}) for run in cluster.workloads(SPACE)]
    evictions = [item for stats in runs for item in stats.get("evictions", ())]
    return sum(item["count"] for item in evictions if item["reason"] == "Preempted")


def observed(place: Place, configuration: Configuration, policies: Object) -> tuple[int, set[str]]:
    """How often Kueue preempts until it comes to rest, or MANY times, and the runs that have quota then."""
    clusters.configure(place, configuration)
    clusters.restart(place)  # Kueue reads its configuration when it starts
    queues, jobs = written(policies)
    with queue_cluster.connect(place.emulator) as cluster:
        cluster.apply(queues)
        for job in jobs:
            cluster.apply([job])
            eventually(partial(has_run, cluster, job["metadata"]["name"]), "Kueue has the run")
            if job is not jobs[-1]:
                cluster.settle(3)
        deadline = time.monotonic() + LONG
        while time.monotonic() < deadline and preemptions(cluster) < MANY:
            if cluster.recorder.settle(QUIET, QUIET + 1):
                break
        found = preemptions(cluster), {name for name, run in of_jobs(cluster).items() if holds(run, "QuotaReserved")}
        for job in jobs:
            cluster.send("DELETE", path_of(job), params={"propagationPolicy": "Background"})
        eventually(lambda: not cluster.workloads(SPACE), "the runs are deleted", 180)
    return found


def has_run(cluster: QueueCluster, name: str) -> bool:
    return name in of_jobs(cluster)


def of_jobs(cluster: QueueCluster) -> dict[str, Object]:
    """The Workloads by the names of their Jobs."""
    return {run["metadata"]["ownerReferences"][0]["name"]: run for run in cluster.workloads(SPACE)}


@pytest.mark.parametrize(
    ("configuration", "policies"),
    [
        pytest.param(Configuration((FINAL, INITIAL)), ANY, id="both strategies"),
        pytest.param(Configuration((INITIAL,)), ANY, id="LessThanInitialShare alone"),
        pytest.param(Configuration((FINAL,)), ANY, id="LessThanOrEqualToFinalShare alone"),
        pytest.param(Configuration((INITIAL,)), LOWER, id="LessThanInitialShare alone, with the default policies"),
    ],
)
def test_a_queue_that_may_preempt_its_own_runs_preempts_without_an_end(
    place: Place, configuration: Configuration, policies: Object
) -> None:
    count, _ = observed(place, configuration, policies)
    print(configuration, policies, f"{count} preemptions")
    assert count >= MANY


@pytest.mark.parametrize(
    ("configuration", "policies"),
    [
        pytest.param(Configuration((FINAL, INITIAL)), NEVER, id="both strategies, never within a queue"),
        pytest.param(Configuration((INITIAL,)), NEVER, id="one strategy, never within a queue"),
        pytest.param(Configuration((INITIAL,), FIRST), ANY, id="who preempts goes first"),
        pytest.param(Configuration(None), LOWER, id="no fair sharing"),
    ],
)
def test_the_same_runs_come_to_rest(place: Place, configuration: Configuration, policies: Object) -> None:
    count, running = observed(place, configuration, policies)
    print(configuration, policies, f"{count} preemptions", running)
    assert count <= 2
    assert len(running) == 2
