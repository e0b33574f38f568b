"""Only here: a cluster that is restored from another's snapshot admits the same and goes on as the other would.

The tests share two emulators and depend on their order.
"""

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from kubernetes.client import ApiClient

from gke_ai.forecast.rehearse.differences import differences
from gke_ai.forecast.rehearse.restore import lasting_differences, restore
from gke_ai.forecast.snapshot import command
from gke_ai.forecast.snapshot.command import take
from gke_ai.forecast.snapshot.format import Snapshot, read
from gke_ai.kube.client import client_of
from tests.support.emulator import ROOT, Emulator, deployed, eventually
from tests.support.snapshots import synthetic

# A server and a run of two pods fill the queue.
CONFIG = "examples/training-job.yaml"
BUSY, CANARY = ROOT / "tests" / "data" / "busy_cluster.yaml", "canary-of-a-secret"


@pytest.fixture(scope="module")
def a() -> Iterator[Emulator]:
    """The emulator whose cluster a snapshot is taken of."""
    with deployed(CONFIG, {}) as emulator:
        yield emulator


@pytest.fixture(scope="module")
def b() -> Iterator[Emulator]:
    """The emulator into which it is restored."""
    with deployed(CONFIG, {}) as emulator:
        yield emulator


def client(emulator: Emulator) -> ApiClient:
    return client_of(emulator.certified(), 4)


def taken(emulator: Emulator) -> Snapshot:
    return take(emulator.stack, client(emulator))


def order(snapshot: Snapshot) -> list[str]:
    """The pending Workloads, in the order of the queue: by priority, then by age."""
    waiting = [item for item in snapshot.of("Workload") if not item.get("status", {}).get("admission")]
    waiting.sort(key=lambda item: (-item["spec"].get("priority", 0), item["metadata"]["creationTimestamp"]))
    return [item["metadata"]["name"] for item in waiting]


def admissions(snapshot: Snapshot) -> dict[str, Any]:
    found = {item["metadata"]["name"]: item.get("status", {}).get("admission") for item in snapshot.of("Workload")}
    return {name: admission for name, admission in found.items() if admission}


def test_a_busy_cluster_is_restored_from_a_snapshot_without_a_canary_and_goes_on(a: Emulator, b: Emulator) -> None:
    a.kubectl("apply", "-f", str(BUSY))

    def busy() -> bool:
        snapshot = taken(a)
        gated = [pod for pod in snapshot.of("Pod") if pod["spec"].get("schedulingGates")]
        return bool(gated and len(order(snapshot)) >= 3 and admissions(snapshot))

    def settled() -> bool:
        before = taken(a)
        time.sleep(5)
        return differences(before, taken(a)) == []

    eventually(busy, "some Workloads are admitted, and a Job, a JobSet and a server wait")
    eventually(settled, "nothing changes any more")
    assert CANARY not in a.snapshot().read_text()
    assert CANARY in a.kubectl("get", "jobs,deployments,pods", "-A", "-o", "json")

    before = read((a.state / "snapshot.json").read_text())
    written = restore(before, client(b), b.state)
    time.sleep(15)
    found = [str(difference) for difference in lasting_differences(written, lambda: taken(b), 60)]
    live = taken(b)
    assert admissions(live) == admissions(before) != {}
    assert order(live) == order(before) != []
    nodes = [[node["metadata"]["name"] for node in snapshot.of("Node")] for snapshot in (live, before)]
    assert nodes[0] == nodes[1]
    assert found == []
    assert b.planned() == {}
    # The restored Kueue decides on: the first of the queue gets the quota of a server that is scaled down.
    waiting = order(taken(b))
    b.kubectl("scale", "deployment", "--all", "--replicas=0", "-n", "llm")
    eventually(lambda: set(admissions(taken(b))) & set(waiting), "a Workload that waited is admitted", 120)


def test_200_more_workloads_are_restored_and_nobody_is_evicted(a: Emulator, b: Emulator) -> None:
    base = read((a.state / "snapshot.json").read_text())
    many = synthetic(200, base=base)
    written = restore(many, client(b), b.state)
    time.sleep(20)
    # The synthetic nodes lack the pods of GKE's DaemonSets.
    found = map(str, lasting_differences(written, lambda: taken(b), 60))
    assert [text for text in found if "agents" not in text] == []
    assert written.taken_at - many.taken_at > timedelta(0)


def test_the_printed_role_is_enough_for_a_snapshot(b: Emulator) -> None:
    file = b.state / "role.yaml"
    file.write_text(command.role())
    b.kubectl("apply", "-f", str(file))
    binding = (f"--clusterrole={command.ROLE}", "--serviceaccount=default:default")
    b.kubectl("create", "clusterrolebinding", "reader", *binding)

    def may_list(kind: str, fails: bool = False) -> bool:
        asked = ("auth", "can-i", "list", kind, "-A", "--as=system:serviceaccount:default:default")
        printed = b.run("kubectl", "--kubeconfig", b.kubeconfig(), *asked, fails=fails)
        return printed.strip().endswith("yes")

    assert all(map(may_list, ("pods", "nodes", "workloads.kueue.x-k8s.io", "jobs.batch")))
    assert not may_list("secrets", fails=True)
