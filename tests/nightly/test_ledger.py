"""Only here: the ledger equals the intervals that the real Kueue admitted, to the second, through 50 kills.

Runs of the ledger are killed at random while Jobs start, end, preempt each other, are evicted and deleted. A watch
records the intervals independently. One run is killed and the next comes before the API server forgets changes.
"""

import json
import random
import time
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from gke_ai.kube.objects import condition, holds
from gke_ai.workspace.emulation import READY_AFTER
from tests.support.emulator import Emulator, deployed, eventually
from tests.support.ledger import Record, Runs, counted, stored
from tests.support.tenants import AUTOPILOT, GPUS, OWN, TWO, Credential, created, job, spec

Object = dict[str, Any]
KILLS = 50
pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def shared() -> Iterator[Emulator]:
    sections = deepcopy(TWO)
    sections["training"] = []
    sections["tenants"][0] |= {"budget": {"acceleratorHours": 1000}, "priorityClasses": ["low", "high"]}
    with deployed(AUTOPILOT, sections) as emulator:
        yield emulator


def run_of(number: int, chance: random.Random) -> Object:
    """A Job of one GPU to all of them. One in three has the high priority, and preempts. Half of them end alone."""
    priority = "high" if chance.random() < 0.33 else "low"
    body = job(spec(chance.choice([1, 1, 2]), priorityClassName=priority), OWN, f"run-{number}")
    if chance.random() < 0.5:
        annotations = {"emulator.gke-ai/finish": "Succeeded", READY_AFTER: f"{chance.randrange(1, 8)}s"}
        body["spec"]["template"]["metadata"] = {"annotations": annotations}
    return body


def test_ledger_equals_the_admitted_intervals_through_50_kills(shared: Emulator) -> None:
    chance = random.Random(60)
    team, record, runs = Credential(shared, "team-a"), Record(shared), Runs(shared)
    existing: list[str] = []
    kills = number = 0
    while kills < KILLS:
        process = runs.start()
        killed_at = time.monotonic() + chance.uniform(0.2, 14)
        while time.monotonic() < killed_at:
            if len(existing) < 8:
                body = run_of(number, chance)
                if team.create(body).status == 201:
                    existing.append(body["metadata"]["name"])
                number += 1
            elif chance.random() < 0.3:
                team.delete("Job", existing.pop(chance.randrange(len(existing))))
            if chance.random() < 0.1:
                evict(record, chance)
            time.sleep(chance.uniform(0.1, 1.0))
        process.kill()
        process.wait()
        kills += 1
    for name in existing:
        team.delete("Job", name)
    eventually(lambda: not shared.get("workloads", "-n", "team-a"), "nothing is left", seconds=90)
    eventually(lambda: not record.open, "every interval has ended", seconds=30)
    whole = runs.start()
    printed, _ = whole.communicate(timeout=90)
    assert whole.returncode == 0, printed
    ledger = stored(shared)
    intervals = sum(map(len, record.intervals.values()))
    print(f"{kills} kills, {number} Jobs, {intervals} intervals, evicted for {sorted(record.reasons)}")
    print(f"recorded {record.total('team-a')} accelerator-seconds, the ledger has {counted(ledger, 'team-a')}")
    assert ledger["unknown"] == {}
    assert {"Preempted", "Deactivated"} <= {reason.partition("DueTo")[0] for reason in record.reasons}
    assert intervals > 40
    assert counted(ledger, "team-a") == record.total("team-a")
    assert ledger["open"] == {}


def evict(record: Record, chance: random.Random) -> None:
    """Deactivates an admitted workload for a moment, as the platform does. Kueue evicts it and admits it again."""
    if record.open and (name := record.names.get(chance.choice(list(record.open)))):
        record.activate("team-a", name, False)
        time.sleep(chance.uniform(0.2, 1.5))
        record.activate("team-a", name, True)


def test_held_cluster_queue_still_lends_its_quota(shared: Emulator) -> None:
    """So a hold of a ClusterQueue gives no quota that a cohort has only at some hours."""
    team = Credential(shared, "team-a")
    for queue, more in (("team-a", dict[str, str]()), ("team-b", {"stopPolicy": "Hold"})):
        change = json.dumps({"spec": {"cohortName": "shared", **more}})
        shared.kubectl("patch", "clusterqueue", queue, "--type=merge", "-p", change)

    def stopped() -> bool:
        (held,) = (item for item in shared.get("clusterqueues") if item["metadata"]["name"] == "team-b")
        return bool(condition(held, "Active").get("reason") == "Stopped")

    eventually(stopped, "the other queue is stopped", 30)
    body = job(spec(1), OWN, "borrows")
    body["spec"] |= {"parallelism": GPUS + 2, "completions": GPUS + 2}
    created(team.create(body))
    eventually(
        lambda: any(holds(item, "Admitted") for item in shared.get("workloads", "-n", "team-a")), "it borrows", 60
    )
