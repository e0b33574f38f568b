"""The plan that brings a scratch cluster to a snapshot, and the comparison afterwards. Pure."""

import copy
import re
from collections import defaultdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gke_ai.forecast.rehearse import restore
from gke_ai.forecast.rehearse.differences import EXPECTED, differences, is_expected
from gke_ai.forecast.rehearse.graft import IMAGE, pod_specs
from gke_ai.forecast.rehearse.restore import Restoration, plan
from gke_ai.forecast.snapshot.fields import kinds, trim_all
from gke_ai.forecast.snapshot.format import Snapshot, build
from gke_ai.kube.client import Answer
from gke_ai.terminal import Stop
from tests.support.snapshots import TAKEN, synthetic

Object = dict[str, Any]
LABELS = {"app": "gemma"}


def meta(name: str, owner: tuple[str, str] | None = None, **more: Any) -> Object:
    """Metadata of an object whose uid is its name, after `uid-`."""
    found = {"name": name, "namespace": "serving", "uid": f"uid-{name}", **more}
    if owner is None:
        return found
    kind, owner_name = owner
    reference = {"apiVersion": "x/v1", "kind": kind, "name": owner_name, "uid": f"uid-{owner_name}", "controller": True}
    return {**found, "ownerReferences": [reference]}


def template(image: str = "", **more: Any) -> Object:
    """A pod template: of a snapshot, or of a scratch cluster with an image."""
    container: Object = {"name": "server", "resources": {"limits": {"nvidia.com/gpu": "2"}}}
    if image:
        container |= {"image": image, "env": [{"name": "TOKEN"}], "volumeMounts": [{"name": "cache"}]}
        more |= {"volumes": [{"name": "cache"}], "serviceAccountName": "reader"}
    labels = {**LABELS, "unlisted": "kept"} if image else LABELS
    return {"metadata": {"labels": labels}, "spec": {"containers": [container], **more}}


def snapshot(**objects: list[Object]) -> Snapshot:
    return build("prod", {"Namespace": [{"metadata": {"name": "serving"}}], **objects}, TAKEN)


def put(planned: Restoration, kind: str, name: str) -> Object:
    return next(item for item in planned.put if (item["kind"], item["metadata"]["name"]) == (kind, name))


def server(replicas: int = 1, image: str = "") -> Object:
    spec = {"replicas": replicas, "selector": {"matchLabels": LABELS}, "template": template(image)}
    return {"metadata": meta("gemma"), "spec": spec, "status": {"replicas": replicas}}


RUNNING: Object = {"spec": {**template()["spec"], "nodeName": "node-1"}, "status": {"phase": "Running"}}
REPLICA_SET = {"selector": {"matchLabels": LABELS}, "template": template()}
POD_SETS = [{"name": "main", "count": 1, "template": template()}]
ADMITTED = [{"type": "Admitted", "status": "True", "reason": "Admitted"}]
SERVER: dict[str, list[Object]] = {
    "Deployment": [server(3)],
    "ReplicaSet": [{"metadata": meta("gemma-1", ("Deployment", "gemma")), "spec": REPLICA_SET}],
    "Pod": [{"metadata": meta("gemma-1-x", ("ReplicaSet", "gemma-1"), labels=LABELS), **RUNNING}],
    "Workload": [{"metadata": meta("pod-gemma-1-x-12345", ("Pod", "gemma-1-x")), "spec": {"podSets": POD_SETS}}],
}
SERVER["Workload"][0]["status"] = {"conditions": ADMITTED}


def scratch_server() -> Object:
    """The same server as the base configuration created it in the scratch cluster."""
    whole = server(1, "tgi:3")
    whole["metadata"] |= {"uid": "of-the-scratch-cluster", "managedFields": [{"manager": "pulumi"}]}
    return whole


def test_an_object_that_both_have_keeps_its_unlisted_fields_under_the_state_of_the_snapshot() -> None:
    written = put(plan(snapshot(**SERVER), {"Deployment": [scratch_server()]}), "Deployment", "gemma")
    assert (written["apiVersion"], written["metadata"]["uid"]) == ("apps/v1", "uid-gemma")
    assert (written["spec"]["replicas"], written["status"]) == (3, {"replicas": 3})
    assert written["metadata"]["managedFields"] == [{"manager": "pulumi"}]
    assert written["spec"]["template"]["spec"]["containers"][0]["image"] == "tgi:3"
    assert written["spec"]["template"]["spec"]["serviceAccountName"] == "reader"


def test_objects_of_a_controller_take_unlisted_fields_but_no_requests_from_their_owner() -> None:
    planned = plan(snapshot(**SERVER), {"Deployment": [scratch_server()]})
    deployment, replica_set = put(planned, "Deployment", "gemma"), put(planned, "ReplicaSet", "gemma-1")
    # Otherwise the Deployment controller would roll out a new revision.
    assert replica_set["spec"]["template"] == deployment["spec"]["template"]
    pod = put(planned, "Pod", "gemma-1-x")
    assert pod["spec"]["containers"] == deployment["spec"]["template"]["spec"]["containers"]
    assert (pod["spec"]["volumes"], pod["spec"]["nodeName"]) == ([{"name": "cache"}], "node-1")
    assert pod["metadata"]["labels"] == {**LABELS, "unlisted": "kept"}
    workload = put(planned, "Workload", "pod-gemma-1-x-12345")
    # Otherwise Kueue would find that the Workload does not match its pod.
    assert workload["spec"]["podSets"][0]["template"]["spec"]["containers"] == pod["spec"]["containers"]
    older = copy.deepcopy(SERVER)
    older["ReplicaSet"][0]["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "1"}}
    planned = plan(snapshot(**older), {"Deployment": [scratch_server()]})
    container = put(planned, "ReplicaSet", "gemma-1")["spec"]["template"]["spec"]["containers"][0]
    assert (container["resources"], container["image"]) == ({"limits": {"cpu": "1"}}, "tgi:3")


def test_the_jobs_of_a_jobset_and_its_workload_have_its_containers() -> None:
    replicated = {"name": "workers", "replicas": 1, "template": {"spec": {"template": template()}}}
    jobset = {"metadata": meta("run"), "spec": {"replicatedJobs": [replicated]}}
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "workers"}
    job = {"metadata": meta("run-workers-0", ("JobSet", "run"), labels=labels), "spec": {"template": template()}}
    pod_set = {"name": "workers", "count": 1, "template": template()}
    workload = {"metadata": meta("jobset-run-1", ("JobSet", "run")), "spec": {"podSets": [pod_set]}}
    scratch = copy.deepcopy(jobset)
    scratch["spec"]["replicatedJobs"][0]["template"]["spec"]["template"] = template("jax:1")
    planned = plan(snapshot(JobSet=[jobset], Job=[job], Workload=[workload]), {"JobSet": [scratch]})
    objects = (("JobSet", "run"), ("Job", "run-workers-0"), ("Workload", "jobset-run-1"))
    specs = [spec for kind, name in objects for spec in pod_specs(kind, put(planned, kind, name))]
    assert [spec["containers"] for spec in specs] == [specs[0]["containers"]] * 3
    assert specs[0]["containers"][0]["image"] == "jax:1"


def test_objects_of_others_get_placeholders_and_those_that_the_snapshot_does_not_have_are_deleted() -> None:
    planned = plan(snapshot(**SERVER), {})
    assert put(planned, "Pod", "gemma-1-x")["spec"]["containers"][0]["image"] == IMAGE
    assert put(planned, "Workload", "pod-gemma-1-x-12345")["status"]["conditions"][0]["message"] == ""
    assert put(planned, "Namespace", "serving")["spec"] == {"finalizers": ["kubernetes"]}
    assert put(planned, "ServiceAccount", "default")["metadata"]["namespace"] == "serving"
    taken = build("prod", {"Namespace": []}, TAKEN, missing=["Node"])
    assert plan(taken, {"Node": [{"metadata": {"name": "node"}}]}) == Restoration()
    scratch = {
        "Pod": [{"metadata": {"name": "old", "namespace": "serving"}}, SERVER["Pod"][0]],
        "Node": [{"metadata": {"name": "old-node"}}],
        "Namespace": [{"metadata": {"name": "kueue-system"}}, {"metadata": {"name": "serving"}}],
    }
    planned = plan(snapshot(**SERVER), scratch)
    old = {"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "serving", "name": "old"}}
    assert planned.delete == [old, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "old-node"}}]
    assert not [item for item in planned.put if item["kind"] == "ServiceAccount"]


def test_an_owner_that_is_not_in_the_snapshot_is_forgotten() -> None:
    """Kueue would end a Workload that states the uid of an owner and has none."""
    pod = {"metadata": meta("ray-0", ("RayCluster", "ray")), "spec": {"containers": [{"name": "ray"}]}}
    labels = {"kueue.x-k8s.io/job-uid": "uid-ray"}
    workload = {"metadata": meta("rayjob-ray", ("RayJob", "ray"), labels=labels), "spec": {"podSets": []}}
    planned = plan(snapshot(Pod=[pod], Workload=[workload]), {})
    assert "ownerReferences" not in put(planned, "Pod", "ray-0")["metadata"]
    assert put(planned, "Workload", "rayjob-ray")["metadata"]["labels"] == {}


def test_the_pods_of_a_stateful_set_keep_their_owner_and_are_not_rolled_out() -> None:
    """Its controller names a revision after the whole template, which a snapshot lacks."""
    web = server(3)
    web["metadata"] |= {"name": "web", "uid": "uid-web"}
    metadata = meta("web-0", ("StatefulSet", "web"), labels={"controller-revision-hash": "web-cluster"})
    pod = {"metadata": metadata, "spec": RUNNING["spec"]}
    whole = server(3, "web:1")
    whole["metadata"] |= {"name": "web", "uid": "of-the-scratch-cluster"}
    whole["status"] = {"replicas": 3, "currentRevision": "web-scratch", "updateRevision": "web-scratch"}
    taken = snapshot(StatefulSet=[web], Pod=[pod])
    planned = plan(taken, {"StatefulSet": [whole]})
    restored = put(planned, "Pod", "web-0")
    assert [owner["name"] for owner in restored["metadata"]["ownerReferences"]] == ["web"]
    assert restored["metadata"]["labels"]["controller-revision-hash"] == "web-scratch"
    assert restored["spec"]["containers"][0]["image"] == "web:1"
    assert "updateStrategy" not in put(planned, "StatefulSet", "web")["spec"]
    assert put(plan(taken, {}), "StatefulSet", "web")["spec"]["updateStrategy"] == {"type": "OnDelete"}


@pytest.mark.parametrize("seed", range(3))
def test_what_is_written_is_the_snapshot(seed: int) -> None:
    taken = synthetic(40, teams=3, seed=seed)
    # The scratch cluster has other objects with some of these names.
    planned = plan(taken, synthetic(20, teams=2, seed=seed + 100).objects)
    written = defaultdict(list)
    for item in planned.put:
        written[item["kind"]].append(item)
    written.pop("ServiceAccount", None)
    assert differences(taken, build("synthetic", dict(written), TAKEN)) == []
    assert trim_all(written)["Pod"] == taken.of("Pod")
    assert {item["kind"] for item in planned.delete} <= kinds().keys()


@pytest.mark.parametrize("labels", [{"control-plane": "h0123456789"}, {}])
def test_an_old_hashed_snapshot_whose_controllers_no_service_finds_stops_at_once(labels: dict[str, str]) -> None:
    metadata = {"name": "kueue-webhook-service", "namespace": "kueue-system"}
    service = {"metadata": metadata, "spec": {"selector": {"control-plane": "controller-manager"}}}

    def planned(labels: dict[str, str]) -> Restoration:
        pod = {"kind": "Pod", "metadata": {"name": "kueue-1", "namespace": "kueue-system", "labels": labels}}
        return Restoration([pod])

    restore.check_services(planned({"control-plane": "controller-manager", "more": "x"}), [service])
    message = r"no pod in kueue-system .*control-plane: controller-manager.*Take the snapshot again"
    with pytest.raises(Stop, match=message):
        restore.check_services(planned(labels), [service])


# ---------------------------------------------------------------------------------------------------------- differences
def changed(**more: Any) -> Snapshot:
    """A snapshot of the server whose pod has another status."""
    other = copy.deepcopy(SERVER)
    other["Pod"][0]["status"] |= more
    return snapshot(**other)


def test_each_difference_has_its_path_and_both_values() -> None:
    (difference,) = differences(snapshot(**SERVER), changed(phase="Failed"))
    assert str(difference) == "Pod serving/gemma-1-x: status.phase is Failed instead of Running"
    without = snapshot(**{**SERVER, "Pod": []})
    with_pod = snapshot(**SERVER)
    assert [str(found) for found in differences(with_pod, without)] == ["Pod serving/gemma-1-x is missing"]
    assert [str(found) for found in differences(without, with_pod)] == ["Pod serving/gemma-1-x is additional"]
    live = build("prod", {kind: items for kind, items in snapshot(**SERVER).objects.items() if kind != "Pod"}, TAKEN)
    missing = live.model_copy(update={"missing": ["Pod"]})
    assert differences(snapshot(**SERVER), missing) == []


def test_the_order_of_conditions_and_the_time_of_a_restore_are_no_difference() -> None:
    conditions = [{"type": "Ready", "status": "True"}, {"type": "Initialized", "status": "True"}]
    assert differences(changed(conditions=conditions), changed(conditions=conditions[::-1])) == []
    (difference,) = differences(changed(conditions=conditions), changed(conditions=conditions[:1]))
    assert difference.path == "status.conditions[Initialized]"
    moved = synthetic(4).at(TAKEN + timedelta(hours=5))
    (before, *_), (after, *_) = synthetic(4).of("Pod"), moved.of("Pod")
    assert before["status"]["startTime"] < after["status"]["startTime"]
    assert differences(synthetic(4), moved.at(TAKEN)) == []


@pytest.mark.parametrize(
    ("kind", "expected", "unexpected"),
    [
        ("Node", ["status.conditions[Ready].lastHeartbeatTime"], ["status.conditions[Ready].status"]),
        ("Workload", [], ["status.conditions[Admitted].status", "status.admission.clusterQueue"]),
        ("Workload", [], ["status.conditions[Admitted].lastTransitionTime"]),
        ("ClusterQueue", ["status.conditions[Active].lastTransitionTime"], []),
        ("HorizontalPodAutoscaler", ["status.currentMetrics[0].type"], ["status.desiredReplicas"]),
        ("Pod", [], ["spec.nodeName"]),
        ("ResourceQuota", ["status.used.pods"], ["status.hard.pods"]),
    ],
)
def test_only_stated_differences_are_expected_and_none_hides_a_whole_object(
    kind: str, expected: list[str], unexpected: list[str]
) -> None:
    assert [path for path in (*expected, *unexpected) if is_expected(kind, path)] == expected
    for pattern, path, reason in EXPECTED:
        assert reason
        assert re.compile(pattern)
        assert not re.fullmatch(path, "")


# ------------------------------------------------------------------------------------------------------------- webhooks
NO_WEBHOOK = Answer(500, {}, "failed calling webhook mresourceflavor.kb.io")


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Kueue whose log says nothing, and no pauses."""
    monkeypatch.setattr(restore, "unreadable", lambda _: "")
    monkeypatch.setattr("gke_ai.forecast.rehearse.restore.time.sleep", lambda _: None)


@pytest.mark.usefixtures("quiet")
def test_a_restore_waits_until_every_webhook_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([NO_WEBHOOK, Answer(201, {}), Answer(500, {}, "again"), Answer(422, {})])
    asked = []

    def request(_api: object, _method: str, path: str, query: Object, body: Object) -> Answer:
        asked.append((path, query, body["kind"]))
        return next(answers)

    monkeypatch.setattr(restore, "request", request)
    restore.wait_for_webhooks(None)  # type: ignore[arg-type]
    flavors = "/apis/kueue.x-k8s.io/v1beta2/resourceflavors"
    jobsets = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
    assert [path for path, *_ in asked] == [flavors, flavors, jobsets, jobsets]
    assert all(query == {"dryRun": "All"} for _, query, _ in asked)


# -------------------------------------------------------------------------------------------------------------- queues
@pytest.mark.usefixtures("quiet")
def test_a_restore_waits_until_kueue_has_read_every_queue_and_revisions_have_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ready: Object = {"conditions": [{"type": "Active", "status": "True"}], "pendingWorkloads": 1}
    read: Object = {"metadata": {"name": "team"}, "spec": {}, "status": ready}
    planned = plan(snapshot(ClusterQueue=[read]), {})
    restore.forget_conditions(planned)
    written = put(planned, "ClusterQueue", "team")
    assert written["status"] == {"pendingWorkloads": 1}, "Kueue states its conditions again"
    looks = iter([[written, read], [read]])
    monkeypatch.setattr(restore, "list_all", lambda *_: next(looks))
    restore.wait_for_queues(None)  # type: ignore[arg-type]
    assert not list(looks)
    seen: list[Object] = [{"status": {"updateRevision": "web-1"}}, {"status": {}}, {}]
    monkeypatch.setattr(restore, "list_all", lambda *_: [seen.pop()])
    restore.wait_for_revisions(None)  # type: ignore[arg-type]
    assert seen == []


DECODED = (
    '{"level":"error","logger":"controller-runtime.cache.UnhandledError","msg":"Failed to watch",'
    '"type":"*v1beta2.ClusterQueue","error":"failed to list *v1beta2.ClusterQueue: quantities must match the regular '
    "expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'\"}"
)
LOST = '{"msg":"Failed to watch","error":"failed to list *v1.Pod: Get \\"https://x\\": connection refused"}'


@pytest.mark.parametrize("wait", [restore.wait_for_queues, restore.wait_for_webhooks])
def test_a_wait_ends_with_what_kueue_can_not_read(wait: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = [LOST, f"{LOST}\n{DECODED}"]
    monkeypatch.setattr(restore, "list_all", lambda *_: [{"metadata": {"name": "team"}}])
    monkeypatch.setattr(restore, "request", lambda *_: Answer(500, {}, "failed calling webhook"))
    monkeypatch.setattr(restore, "list_objects", lambda *_: [{"metadata": {"name": "kueue-0"}}])
    monkeypatch.setattr(restore, "send", lambda *_: Answer(200, logs.pop(0)))
    monkeypatch.setattr("gke_ai.forecast.rehearse.restore.time.sleep", lambda _: None)
    with pytest.raises(Stop, match=r"failed to list \*v1beta2.ClusterQueue: quantities must match .* decides nothing"):
        wait(None, 60)
    assert logs == [], "a connection that was lost is no reason to end"


@pytest.mark.usefixtures("quiet")
def test_a_queue_that_kueue_never_reads_and_a_webhook_that_never_answers_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(restore, "list_all", lambda *_: [{"metadata": {"name": "team"}}])
    with pytest.raises(Stop, match="Kueue has not read its ClusterQueues: team"):
        restore.wait_for_queues(None, seconds=-1)  # type: ignore[arg-type]
    monkeypatch.setattr(restore, "request", lambda *_: NO_WEBHOOK)
    with pytest.raises(Stop, match=r"does not answer: failed calling webhook mresourceflavor"):
        restore.wait_for_webhooks(None, seconds=-1)  # type: ignore[arg-type]


@pytest.mark.parametrize(("early", "loads"), [(0, 1), (1, 2), (5, 3)], ids=["never", "once", "always"])
def test_restore_that_admitted_a_workload_is_repeated(early: int, loads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: Object = {"metadata": meta("waits"), "spec": {}}
    runs: Object = {"metadata": meta("runs"), "spec": {}, "status": {"admission": {"clusterQueue": "team"}}}
    commands: list[str] = []

    class Scratch:
        def __init__(self, _state: Path) -> None: ...

        def run(self, _module: str, command: str, *_: str, **_more: str) -> None:
            commands.append(command)

    def listed(*_: object) -> list[Object]:
        too_early = commands.count("load") <= early
        return [runs, {**waits, "status": runs["status"]} if too_early else waits]

    monkeypatch.setattr(restore, "Scratch", Scratch)
    monkeypatch.setattr(restore, "objects_of", lambda _: [])
    monkeypatch.setattr(restore, "list_objects", lambda *_: [])
    for wait in ("wait_for_revisions", "wait_for_webhooks", "wait_for_queues"):
        monkeypatch.setattr(restore, wait, lambda _: None)
    monkeypatch.setattr(restore, "list_all", listed)
    restore.restore(snapshot(Workload=[runs, waits]), None, Path())  # type: ignore[arg-type]
    assert commands == ["pause", "load", "resume"] * loads


def queue_of(pending: int) -> Snapshot:
    """A snapshot of a queue with so many pending workloads, and of the server."""
    queue = {"metadata": {"name": "q", "namespace": "serving"}, "spec": {}, "status": {"pendingWorkloads": pending}}
    return snapshot(**{**SERVER, "LocalQueue": [queue]})


@pytest.mark.usefixtures("quiet")
def test_a_restored_cluster_is_compared_once_kueue_has_counted_its_workloads_and_nothing_else() -> None:
    counted = iter([queue_of(0), queue_of(1), queue_of(2)])
    assert restore.lasting_differences(queue_of(2), lambda: next(counted), 60) == []
    (difference,) = restore.lasting_differences(queue_of(2), lambda: queue_of(1), -1)
    assert difference.path == "status.pendingWorkloads"
    (difference,) = restore.lasting_differences(snapshot(**SERVER), lambda: changed(phase="Failed"), 60)
    assert difference.path == "status.phase"
