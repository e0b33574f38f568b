"""Copies of queues keep trees of cohorts, weights and past usage: in replays of the queue, and after a restore."""

from typing import Any

import pytest

from gke_ai.catalog.nodes.shape import NVIDIA_GPU
from gke_ai.forecast.rehearse.differences import differences
from gke_ai.forecast.snapshot.format import Snapshot, build
from gke_ai.forecast.when.command import by_usage
from gke_ai.forecast.when.futures import Futures
from gke_ai.kube.objects import key_of
from tests.support.simulation.training import QUEUE, workload
from tests.support.snapshots import TAKEN

Object = dict[str, Any]
USED = {"consumedResources": {NVIDIA_GPU: "2680000000n"}, "lastUpdate": "2026-01-01T00:00:00Z"}
BY_USAGE: Object = {"admissionFairSharing": {"usageHalfLifeTime": "168h", "usageSamplingInterval": "5m"}}
QUOTA = [{"name": NVIDIA_GPU, "nominalQuota": "4"}]
GROUPS = [{"coveredResources": [NVIDIA_GPU], "flavors": [{"name": "l4", "resources": QUOTA}]}]


def local_queue(name: str, weight: str, used: Object | None = None) -> Object:
    fair = {"fairSharing": {"weightedShare": 0, "admissionFairSharingStatus": used}} if used else {}
    spec = {"clusterQueue": "training", "fairSharing": {"weight": weight}}
    return {"metadata": {"name": name, "namespace": "team"}, "spec": spec, "status": fair}


def shared(used: Object = USED, weight: str = "3", **kueue: Any) -> Snapshot:
    """Training in a tree: company, with quota of its own, over research."""
    base: Object = {**QUEUE}
    queue = {**base, "spec": {**base["spec"], "cohortName": "research", "fairSharing": {"weight": "2"}}}
    other = {"metadata": {"name": "product"}, "spec": {**base["spec"], "cohortName": "company"}}
    research = {"parentName": "company", "fairSharing": {"weight": weight}}
    cohorts = [
        {"metadata": {"name": "company"}, "spec": {"resourceGroups": GROUPS}},
        {"metadata": {"name": "research"}, "spec": research},
    ]
    flavor: Object = {"metadata": {"name": "l4"}, "spec": {}}
    objects: dict[str, list[Object]] = {
        "ResourceFlavor": [flavor],
        "Cohort": cohorts,
        "ClusterQueue": [queue, other],
        "LocalQueue": [local_queue("gpus", "2", used), local_queue("others", "1")],
    }
    return build("prod", objects, TAKEN, kueue=kueue)


def copied(snapshot: Snapshot) -> dict[tuple[str, str], Object]:
    made = Futures(snapshot, [("training", workload("mine", 0))], replays=2)
    return {(item["kind"], "/".join(filter(None, key_of(item)))): item for _, item in made.queues.objects()}


def test_a_replay_has_the_whole_tree_with_its_quota_and_weights() -> None:
    found = copied(shared())
    assert found["Cohort", "r1-company"]["spec"] == {"resourceGroups": GROUPS}
    assert found["Cohort", "r1-research"]["spec"] == {"parentName": "r1-company", "fairSharing": {"weight": "3"}}
    assert found["ClusterQueue", "r1-training"]["spec"]["fairSharing"] == {"weight": "2"}
    assert found["ClusterQueue", "r1-training"]["spec"]["cohortName"] == "r1-research"
    assert found["ClusterQueue", "r1-product"]["spec"]["cohortName"] == "r1-company"
    made = Futures(shared(), [("training", workload("mine", 0))], replays=1)
    assert made.queues.groups() == [frozenset({"r0-training", "r0-product"})]
    assert {*made.queues.trees.values()} == {"cohort/r0-company"}, "Kueue's log names the outermost cohort"


def test_a_replay_begins_with_the_past_usage_and_the_weights_of_local_queues() -> None:
    found = copied(shared())
    queue, other = (found["LocalQueue", f"team/r1-{name}"] for name in ("gpus", "others"))
    assert queue["spec"] == {"clusterQueue": "r1-training", "fairSharing": {"weight": "2"}}
    assert queue["status"]["fairSharing"]["admissionFairSharingStatus"] == USED
    assert "status" not in other
    written = [item["metadata"]["uid"] for item in found.values() if "status" in item]
    assert len({*written}) == 2, "they are written without the API, so each needs a uid of its own"
    assert copied(shared()) == found, "an object that is listed again is the same"


def test_a_replay_has_the_configuration_that_decides_the_order_and_a_note_on_what_it_misses() -> None:
    fair: Object = {"fairSharing": {"preemptionStrategies": ["LessThanInitialShare"]}}
    snapshot = shared(**BY_USAGE, **fair, manageJobsWithoutQueueName=True)
    assert Futures(snapshot, [("training", workload("mine", 0))]).queues.manager == {**BY_USAGE, **fair}
    for stated, written in (
        ({"enable": True, **fair["fairSharing"]}, fair),
        ({"enable": False}, {}),
        ({}, {"fairSharing": {}}),
    ):
        former = Futures(shared(fairSharing=stated), [("training", workload("mine", 0))])
        assert former.queues.manager == written, "the former configuration has a key for what its section now says"
    assert len([*by_usage(snapshot)]) == 1
    assert [*by_usage(shared())] == []


@pytest.mark.parametrize(
    ("changed", "count"),
    [
        ({"used": {**USED, "lastUpdate": "2026-01-01T00:05:00Z"}}, 0),
        ({"used": {**USED, "consumedResources": {NVIDIA_GPU: "2"}}}, 0),
        ({"weight": "1"}, 1),
    ],
)
def test_usage_that_kueue_goes_on_counting_is_no_difference_but_another_weight_is(changed: Object, count: int) -> None:
    assert len(differences(shared(), shared(**changed))) == count
