"""Only here: the shares that `status` computes equal what the real Kueue counts."""

import json
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import pytest
import yaml

from emulator.tests.harness import eventually
from gke_ai.catalog.versions import KUEUE_API
from gke_ai.kube.client import client_of
from gke_ai.kube.cohorts import UNLIMITED, loans, trees
from gke_ai.kube.queues import reserved
from gke_ai.ops.status.queues import queues_and_workloads
from tests.support.emulator import Emulator, fresh
from tests.support.rehearsal import cluster as queue_cluster
from tests.support.rehearsal.cluster import QueueCluster
from tests.support.rehearsal.scenario import Object, make

GPU, FLAVOR = "nvidia.com/gpu", "h100"
SETTINGS: dict[str, Any] = {
    "fairSharing": {"preemptionStrategies": ["LessThanInitialShare"]},
    "admissionFairSharing": {"usageHalfLifeTime": "60s", "usageSamplingInterval": "1s"},
    "metrics": {"bindAddress": ":8443", "enableClusterQueueResources": True},
}


def quota(gpus: int, **limits: int) -> list[dict[str, Any]]:
    stated = {name: str(limit) for name, limit in limits.items()}
    return [
        {
            "coveredResources": [GPU],
            "flavors": [{"name": FLAVOR, "resources": [{"name": GPU, "nominalQuota": str(gpus), **stated}]}],
        }
    ]


def queue(name: str, cohort: str, gpus: int, weight: str = "1", **limits: int) -> Iterator[Object]:
    """A team: its cluster queue, and the local queue of its namespace. It takes back only from lower priorities."""
    yield make("Namespace", name)
    spec: Object = {"cohortName": cohort, "namespaceSelector": {}, "fairSharing": {"weight": weight}}
    spec |= {"resourceGroups": quota(gpus, **limits), "preemption": {"reclaimWithinCohort": "LowerPriority"}}
    spec |= {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}
    yield make("ClusterQueue", name, spec=spec)
    yield make("LocalQueue", "lq", name, spec={"clusterQueue": name})


TEAMS = ("vision", "speech", "serving", "visitors")
TREE = [
    make("ResourceFlavor", FLAVOR, spec={}),
    make("Cohort", "company", spec={"resourceGroups": quota(4)}),
    make("Cohort", "research", spec={"parentName": "company", "fairSharing": {"weight": "3"}}),
    *queue("vision", "research", 4, "2"),
    *queue("speech", "research", 4),
    *queue("serving", "company", 6, lendingLimit=4),
    *queue("visitors", "company", 0, "0", borrowingLimit=5),
]


def job(team: str, name: str, gpus: int) -> Object:
    container = {"name": "main", "image": "example.com/training:1", "resources": {"limits": {GPU: str(gpus)}}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    run = make("Job", name, team, spec={"backoffLimit": 9, "suspend": True, "template": template})
    return run | {"metadata": {**run["metadata"], "labels": {"kueue.x-k8s.io/queue-name": "lq"}}}


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    with fresh() as started:
        queue_cluster.create(started, **SETTINGS)
        yield started


@pytest.fixture(scope="module")
def cluster(emulator: Emulator) -> Iterator[QueueCluster]:
    with queue_cluster.connect(emulator) as connected:
        connected.apply(TREE)
        yield connected


def counted(emulator: Emulator) -> tuple[Sequence[Mapping[str, Any]], dict[tuple[str, str], Fraction]]:
    """The cluster queues, and the GPUs that each borrows by our own count; Kueue's may follow a second later."""
    queues, workloads = queues_and_workloads(client_of(queue_cluster.kubeconfig(emulator).read_text(), 4))
    cohorts = json.loads(emulator.run("kubectl", *flags(emulator), "get", "cohorts", "-o", "json"))["items"]
    found: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
    for loan in loans(trees(queues, cohorts, workloads)):
        found[loan.borrower, loan.key[0]] += loan.amount
    return queues, found


def flags(emulator: Emulator) -> tuple[str, str]:
    return "--kubeconfig", str(queue_cluster.kubeconfig(emulator))


def of_kueue(queues: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], Fraction]:
    """What Kueue says that each borrows, by queue and flavor."""
    cells = ((item, cell, amount) for item in queues for cell, amount in reserved(item, "borrowed").items())
    return {(item["metadata"]["name"], flavor): amount for item, (flavor, _), amount in cells if amount}


def shares(emulator: Emulator) -> dict[str, Any]:
    """What the command writes, which reads a cluster that has no stack."""
    context = yaml.safe_load(queue_cluster.kubeconfig(emulator).read_text())["current-context"]
    file = emulator.state / "shares.json"
    command = (
        f"KUBECONFIG={queue_cluster.kubeconfig(emulator)} gke-ai status --context {context} --shares --json {file}"
    )
    printed = emulator.run("sh", "-c", command)
    assert "Borrowed (computed" in printed or "No queue borrows." in printed
    return dict(json.loads(file.read_text()))


def test_each_queue_borrows_what_kueue_counts_in_every_state_of_a_tree(
    emulator: Emulator, cluster: QueueCluster
) -> None:
    chance, present, most, states = random.Random(60), list[Object](), 0, 0
    for number in range(14):
        if present and chance.random() < 0.3:
            cluster.delete([present.pop(chance.randrange(len(present)))])
        else:
            present.append(job(chance.choice(TEAMS), f"run-{number}", chance.choice((1, 2, 3))))
            cluster.apply(present[-1:])
        cluster.settle(2.5)
        queues, found = counted(emulator)
        assert found == of_kueue(queues), number
        most, states = max(most, len(found)), states + bool(found)
    assert (most > 1, states > 5) == (True, True), "too little is borrowed to compare"
    cluster.delete(present)
    eventually(lambda: not cluster.workloads(), "the runs are gone")


def test_the_command_says_who_is_starved_who_borrows_and_what_comes_back(
    emulator: Emulator, cluster: QueueCluster
) -> None:
    cluster.apply(job("vision", f"long-{number}", 2) for number in range(7))
    eventually(lambda: _admitted(cluster) == 7, "Kueue admits all of a team that borrows")
    cluster.apply([job("serving", "large", 6)])
    eventually(lambda: len(cluster.workloads()) == 8, "Kueue has the run that waits")
    cluster.settle(3)
    found = shares(emulator)
    borrowed = {(row["cluster_queue"], row["borrows_from"]): row["amount"] for row in found["borrowed"]}
    assert borrowed == {("vision", "speech"): "4", ("vision", "cohort company"): "3", ("vision", "serving"): "3"}
    (starved,) = found["starved"]
    assert (starved["cluster_queue"], starved["used"], starved["quota"], starved["lacks"]) == ("serving", "0", "6", "3")
    assert starved["why"] == "lent to vision"
    reclaimable = {row["cluster_queue"]: (row["takes_from"], row["at_most"]) for row in found["reclaimable"]}
    assert reclaimable["serving"] == ("vision", "0"), "both have the same priority"
    assert reclaimable["speech"] == ("vision", "4")
    items = [*cluster.send("GET", f"/apis/{KUEUE_API}/clusterqueues")["items"]]
    stated = {item["metadata"]["name"]: item["status"]["fairSharing"]["weightedShare"] for item in items}
    printed = {row["member"]: row["weighted_share"] for row in found["shares"]}
    assert stated["vision"] > 0
    for name, share in stated.items():
        assert printed[name] == ("unlimited" if share == UNLIMITED else str(share))
    assert "lq" in {row["local_queue"].split("/")[1] for row in found["past_usage"]}


def _admitted(cluster: QueueCluster) -> int:
    conditions = [item.get("status", {}).get("conditions") or [] for item in cluster.workloads()]
    return sum(any(c["type"] == "Admitted" and c["status"] == "True" for c in of) for of in conditions)


def test_weight_zero_that_borrows_is_shown_as_unlimited(emulator: Emulator, cluster: QueueCluster) -> None:
    cluster.apply([job("visitors", "guest", 1)])
    eventually(lambda: _admitted(cluster) == 8, "Kueue admits the guest")
    cluster.settle(3)
    shown = {row["member"]: row["weighted_share"] for row in shares(emulator)["shares"]}
    assert shown["visitors"] == "unlimited"
