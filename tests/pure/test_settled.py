"""A cluster has settled once no controller owes anything, whatever a status says."""

import datetime
from typing import Any

import pytest

from emulator.cloud.api import kubeconfig
from gke_ai.forecast.rehearse.owed import owed
from gke_ai.forecast.rehearse.watching import Recorder
from gke_ai.workspace.emulation import LEAVING, READY_AFTER, UPGRADED
from tests.support.timelines import named

NOW = datetime.datetime(2026, 11, 22, 9, tzinfo=datetime.UTC)
Item = dict[str, Any]
RESTART = "jobset.sigs.k8s.io/restart-attempt"
FINISHED = {"conditions": [{"type": "Complete", "status": "True"}]}
GATE = {"phase": "Pending"}
RUNS = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
FAILED = {"phase": "Failed"}


def pods(kind: str, *statuses: Item, revision: str = "", **metadata: object) -> list[Item]:
    owner, labels = {"kind": kind, "uid": "x"}, {"controller-revision-hash": revision}
    if kind == "Deployment":
        owner, labels = {"kind": "ReplicaSet", "name": "x-5d4f", "uid": "rs"}, {"pod-template-hash": "5d4f"}
    common = {"namespace": "llm", "ownerReferences": [{"name": "x", **owner}], "labels": labels, **metadata}
    return [{"metadata": {"name": f"x-{number}", **common}, "status": status} for number, status in enumerate(statuses)]


def owes(kind: str, item: Item, *children: Item, of: str = "Pod") -> bool:
    """Whether a controller owes something for the object `x` with these pods."""
    metadata = {"name": "x", "namespace": "llm", "uid": "x", **item.get("metadata", {})}
    return owed({of: children, kind: [{**item, "metadata": metadata}]}, NOW) == [f"{kind} llm/x"]


@pytest.mark.parametrize(
    ("job", "statuses", "owes_pods"),
    [
        ({"spec": {"parallelism": 4, "completions": 4}, "status": {"active": 4}}, [RUNS, RUNS, FAILED, FAILED], True),
        ({"spec": {"parallelism": 2, "completions": 2}}, [RUNS, GATE], False),
        ({"spec": {"parallelism": 2, "completions": 4}, "status": {"succeeded": 3}}, [RUNS], False),
        *(({"spec": {"parallelism": 2, "suspend": True}}, statuses, bool(statuses)) for statuses in ([], [RUNS])),
        ({"spec": {"parallelism": 1, "completions": 2}}, [RUNS, RUNS], True),
        *(({"spec": {"parallelism": 2}, "status": status}, [], False) for status in (FINISHED, {"succeeded": 1})),
        ({"spec": {"parallelism": 5, "completions": 5}, "status": {"failedIndexes": "0,2-4"}}, [RUNS], False),
        ({"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}}, [], False),
    ],
)
def test_job_is_owed_the_pods_of_its_spec_whatever_its_status(job: Item, statuses: list[Item], owes_pods: bool) -> None:
    assert owes("Job", job, *pods("Job", *statuses)) == owes_pods


def test_a_slice_whose_first_pod_waits_for_a_node_is_owed_no_others() -> None:
    """JobSet refuses them until then."""
    exclusive = {"annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"}}
    job: Item = {"metadata": exclusive, "spec": {"parallelism": 4, "completions": 4}}
    assert not owes("Job", job, *({**pod, "spec": {}} for pod in pods("Job", GATE)))
    assert owes("Job", job, *({**pod, "spec": {"nodeName": "n"}} for pod in pods("Job", GATE)))


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_a_server_is_owed_its_replicas_and_the_reading_of_its_spec(kind: str) -> None:
    item: Item = {"spec": {"replicas": 2}, "status": {"updatedReplicas": 2, "observedGeneration": 3}}
    assert owes(kind, item, *pods(kind, RUNS))
    assert owes(kind, item, *pods(kind, RUNS, FAILED))
    assert not owes(kind, item, *pods(kind, RUNS, RUNS))
    assert owes(kind, {**item, "metadata": {"generation": 4}}, *pods(kind, RUNS, RUNS))
    assert not owes(kind, {**item, "metadata": {"deletionTimestamp": "now"}}, *pods(kind, RUNS))


def test_a_rollout_is_owed_its_new_pods_until_their_creation_fails() -> None:
    item: Item = {"spec": {"replicas": 2}, "status": {"updatedReplicas": 0}}
    item["metadata"] = {"name": "x", "namespace": "llm", "uid": "x"}
    present = {"Pod": pods("Deployment", RUNS, RUNS), "Deployment": [item]}
    assert owed(present, NOW) == ["Deployment llm/x"]
    assert owed(present, NOW, {named("llm/deployment/x")}) == []
    assert owed({**present, "Pod": pods("Deployment", RUNS, RUNS, GATE)}, NOW) == [], "the surge replica waits"
    assert owed({**present, "Deployment": [{**item, "spec": {"replicas": 2, "paused": True}}]}, NOW) == []


def test_a_stateful_set_replaces_pods_of_an_earlier_revision_unless_one_is_not_ready() -> None:
    item: Item = {"spec": {"replicas": 2}, "status": {"updateRevision": "new"}}
    old, new = pods("StatefulSet", RUNS, revision="old"), pods("StatefulSet", RUNS, revision="new")
    assert owes("StatefulSet", item, *old, *new)
    assert not owes("StatefulSet", item, *new, *new)
    assert not owes("StatefulSet", item, *old, *pods("StatefulSet", GATE, revision="new")), "it waits, maybe forever"
    assert not owes("StatefulSet", {"spec": {"replicas": 3}}, *pods("StatefulSet", RUNS, GATE)), "one after the other"
    assert owes("StatefulSet", {"spec": {"replicas": 3, "podManagementPolicy": "Parallel"}}, *pods("StatefulSet", GATE))
    kept = {"spec": {"replicas": 2, "updateStrategy": {"rollingUpdate": {"partition": 1}}}, "status": item["status"]}
    assert not owes("StatefulSet", kept, *old, *new)


def test_a_job_set_that_restarts_is_owed_its_jobs() -> None:
    item: Item = {"spec": {"replicatedJobs": [{"replicas": 2}]}, "status": {"restarts": 1}}

    def jobs(*attempts: str, **metadata: object) -> list[Item]:
        owner = [{"kind": "JobSet", "name": "x", "uid": "x"}]
        finished = {"spec": {}, "status": FINISHED}
        return [
            {
                "metadata": {"name": f"x-{n}", "ownerReferences": owner, "labels": {RESTART: attempt}, **metadata},
                **finished,
            }
            for n, attempt in enumerate(attempts)
        ]

    assert not owes("JobSet", item, *jobs("1", "1"), of="Job")
    assert owes("JobSet", item, *jobs("1"), of="Job")
    assert owes("JobSet", item, *jobs("0", "1"), of="Job")
    assert owes("JobSet", item, *jobs("1", "1", deletionTimestamp="now"), of="Job")
    in_order = {**item, "spec": {**item["spec"], "startupPolicy": {"startupPolicyOrder": "InOrder"}}}
    assert not owes("JobSet", in_order, *jobs("1"), of="Job")
    assert not owes("JobSet", {**item, "status": {"conditions": [{"type": "Completed", "status": "True"}]}}, of="Job")


@pytest.mark.parametrize(
    ("kind", "item", "owes_something"),
    [
        ("Workload", {"status": {"requeueState": {"requeueAt": "2026-11-22T09:01:00Z"}}}, True),
        ("Workload", {"status": {"requeueState": {"requeueAt": "2026-11-22T08:59:00Z"}}}, False),
        ("Pod", {"status": {"phase": "Pending"}}, False),
        ("Pod", {"metadata": {"deletionTimestamp": "now"}, "status": RUNS}, True),
        ("Node", {"metadata": {"annotations": {LEAVING: "true"}}}, True),
        ("Node", {"metadata": {"annotations": {READY_AFTER: "3s"}}}, True),
        ("Node", {"metadata": {"annotations": {READY_AFTER: "3s"}}, "status": RUNS}, False),
        ("Node", {"metadata": {"annotations": {UPGRADED: "waits"}}, "status": RUNS}, True),
        ("Node", {"metadata": {"annotations": {UPGRADED: "drains"}}, "status": RUNS}, False),
        ("Node", {"status": {}}, False),
    ],
)
def test_a_cluster_is_not_settled_while_a_controller_has_to_act(kind: str, item: Item, owes_something: bool) -> None:
    metadata = {"name": "x", "namespace": "llm", **item.get("metadata", {})}
    assert bool(owed({kind: [{**item, "metadata": metadata}]}, NOW)) == owes_something


def test_a_recorder_names_what_controllers_owe_and_knows_how_long_a_restored_state_has_aged() -> None:
    recorder = Recorder(kubeconfig("127.0.0.1:1", b"", {}))
    marked = {"name": "gke-1", "uid": "1", "annotations": {LEAVING: "true"}}
    recorder._record("Node", {"metadata": marked, "spec": {}})
    recorder._record("Job", {"metadata": {"name": "train", "namespace": "llm", "uid": "2"}, "spec": {}})
    assert recorder.owed() == ["Job llm/train", "Node gke-1"]
    recorder._record("Node", {"metadata": marked, "spec": {}}, gone=True)
    assert recorder.owed() == ["Job llm/train"]
    recorder.restored = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=60)
    recorder.begin()
    timeline = recorder.timeline(True)
    assert timeline.restored == pytest.approx(60, abs=1)
    assert timeline.began == recorder.restored
