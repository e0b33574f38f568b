"""Who waits at the end: for what, since before the change or because of it, and who can never start."""

from typing import Any

import pytest

from gke_ai.forecast.outcome.outcome import outcome
from gke_ai.forecast.outcome.reasons import OVERTAKEN, UNPROCESSED, never_starts, plain, why_refused
from gke_ai.forecast.result.forecast import Wait
from tests.support.timelines import (
    UNUSED,
    Item,
    cluster_queue,
    conditions,
    deployment,
    evicted,
    job,
    local_queue,
    owned,
    pod,
    replica,
    timeline,
    waiting,
    warning,
    workload,
)

JOB, OTHER = owned("Job", "finetune", "job-uid"), owned("Job", "sweep", "sweep-uid")
NEVER = (
    "couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in flavor l4, previously "
    "considered podsets requests (0) + current podset request (4) > maximum capacity (2)"
)
# The pod set is too large beside the one before, which Kueue may have given another flavor.
TOGETHER = NEVER.replace("requests (0)", "requests (2)").replace("capacity (2)", "capacity (5)")
UNUSED_SPOT = "insufficient unused quota for nvidia.com/gpu in flavor spot, 2 more needed"
QUEUES = ((-1, "local", local_queue()), (-1, "queue", cluster_queue("cluster-queue", "4", "4")))
Observed = tuple[float, str, Item] | tuple[float, str, Item, str]


def says(uid: str, owner: list[Item], message: str = "", reason: str = "Pending", **spec: Any) -> Item:
    """A Workload without quota, of which Kueue says something."""
    item = workload(uid, owner, QuotaReserved=("False", reason, message))
    item["metadata"]["creationTimestamp"] = spec.pop("created", "2026-11-22T09:00:00Z")
    item["spec"] |= spec
    return item


def closed(name: str, reason: str, message: str, **spec: str) -> Item:
    """A cluster queue that admits nothing."""
    queue = cluster_queue(name, "4", "4")
    queue["status"]["conditions"] = conditions(Active=("False", reason, message))
    queue["spec"] |= spec
    return queue


def only_wait(*observed: Observed) -> Wait:
    (wait,) = outcome(timeline(*observed)).waits
    return wait


def seen(wait: Wait) -> tuple[str, bool, bool, bool]:
    """For what a workload waits, whether forever, and whether since before the change or since then otherwise."""
    return wait.text, wait.never, wait.before, wait.otherwise


WAITS: Observed = (-1, "workload", waiting("wj", JOB))
MISSING = closed("cluster-queue", "FlavorNotFound", "references missing ResourceFlavor(s): l4")
STOPPED = closed("cluster-queue", "Stopped", "is stopped", stopPolicy="Hold")


@pytest.mark.parametrize(
    ("change", "text", "never"),
    [
        # Kueue may not have said so: the queue itself is gone.
        ((2, "local", local_queue(), "gone"), "LocalQueue lq, which does not exist", True),
        ((2, "queue", QUEUES[1][2], "gone"), "ClusterQueue cluster-queue, which does not exist", True),
        ((2, "queue", MISSING), "ClusterQueue cluster-queue: references missing ResourceFlavor(s): l4", True),
        ((2, "queue", STOPPED), "ClusterQueue cluster-queue, which is stopped", False),
    ],
)
def test_a_run_whose_queue_is_removed_or_admits_nothing_waits_for_it(change: Observed, text: str, never: bool) -> None:
    assert seen(only_wait(*QUEUES, WAITS, change)) == (text, never, False, True)


def test_a_run_that_could_never_start_is_no_effect_of_the_change() -> None:
    wait = only_wait((-1, "local", local_queue("another")), QUEUES[1], WAITS)
    assert seen(wait)[1:] == (True, True, False)


def test_a_run_for_which_the_quota_becomes_too_small_in_total_can_never_start() -> None:
    after = says("wj", JOB, NEVER)
    wait = only_wait(*QUEUES, WAITS, (3, "workload", after))
    assert seen(wait) == ("4 GPUs in flavor l4, which never has more than 2", True, False, True)
    again = only_wait(*QUEUES, (-1, "workload", after), (3, "workload", WAITS[2]))
    assert (again.never, again.before) == (False, True), "it can start now"
    more = says("wj", JOB, UNUSED.replace("2 more", "4 more"))
    wait = only_wait(*QUEUES, WAITS, (3, "workload", more))
    assert seen(wait) == ("4 more GPUs in flavor l4", False, True, False), "more that is missing is the same reason"


@pytest.mark.parametrize(
    ("message", "groups", "never"),
    [
        *((NEVER, [["l4"]], True), (NEVER, [["cpu"], ["l4"]], True), (TOGETHER, [["l4"]], True)),
        *((NEVER, [["l4", "spot"]], False), (NEVER, [], False)),
        (f"{TOGETHER}, {NEVER.partition(': ')[2].replace('l4', 'spot')}", [["l4", "spot"]], False),
        (f"{NEVER}, untolerated taint {{spot true NoSchedule <nil>}} in flavor spot", [["l4", "spot"]], True),
        (f"{NEVER}, flavor spot doesn't match node affinity", [["l4", "spot"]], True),
        (f"{NEVER}, {UNUSED_SPOT}", [["l4", "spot"]], False),
        *((f"{UNUSED}; {NEVER}", [["l4"]], True), (UNUSED, [["l4"]], False)),
        ("couldn't assign flavors to pod set main: resource cpu unavailable in ClusterQueue", [["l4"]], True),
        ("Workload namespace doesn't match ClusterQueue selector", [["l4"]], True),
    ],
)
def test_kueue_says_whether_more_free_quota_would_help(message: str, groups: list[list[str]], never: bool) -> None:
    assert never_starts(message, groups) == never


def test_pod_sets_that_are_too_large_together_are_added_up_and_one_may_start_with_fewer_pods() -> None:
    assert plain(TOGETHER) == "2 + 4 GPUs in flavor l4, which never has more than 5"
    partial = says("wj", JOB, NEVER, podSets=[{"name": "main", "count": 4, "minCount": 1}])
    assert not only_wait(*QUEUES, (2, "workload", partial)).never


def pod_set(image: str, count: int = 1) -> list[Item]:
    return [{"name": "main", "count": count, "template": {"spec": {"containers": [{"image": image, "resources": {}}]}}}]


SAME, ALIKE, LARGER = pod_set("a"), pod_set("b"), pod_set("a", 2)


@pytest.mark.parametrize(("pod_sets", "text"), [(ALIKE, "2 more GPUs in flavor l4"), (LARGER, UNPROCESSED)])
def test_a_run_that_kueue_passes_over_waits_for_what_an_equal_one_waits_for(pod_sets: list[Item], text: str) -> None:
    first, other = says("w1", JOB, UNUSED, podSets=SAME), says("w2", OTHER, podSets=pod_sets)
    forecast = outcome(timeline(*QUEUES, (1, "workload", first), (1, "workload", other)))
    assert [wait.text for wait in forecast.waits if str(wait.workload) == "llm/job/sweep"] == [text]


def test_an_evicted_run_that_kueue_passes_over_waits_for_no_preemption() -> None:
    """Its condition repeats that it was evicted."""
    again = evicted("w2", OTHER, "w9", "j9", 0)
    again["status"]["conditions"][2]["message"] = again["status"]["conditions"][0]["message"]
    again["spec"]["podSets"] = SAME
    first = (1, "workload", says("w1", JOB, UNUSED, podSets=SAME))
    forecast = outcome(timeline(*QUEUES, first, (1, "workload", again)))
    assert {wait.text for wait in forecast.waits} == {"2 more GPUs in flavor l4"}


def test_a_run_waits_for_the_first_one_of_a_queue_that_keeps_its_order_or_for_one_that_overtakes_it() -> None:
    queue = cluster_queue("cluster-queue", "4", "4")
    queue["spec"]["queueingStrategy"] = "StrictFIFO"
    queues = (QUEUES[0], (-1, "queue", queue))
    first = (1, "workload", says("w1", JOB, NEVER, created="2026-11-22T08:00:00Z"))
    forecast = outcome(timeline(*queues, first, (1, "workload", says("w2", OTHER))))
    texts = {str(wait.workload): (wait.text, wait.never) for wait in forecast.waits}
    before = "llm/job/finetune, which is before it in ClusterQueue cluster-queue (StrictFIFO)"
    assert texts["llm/job/sweep"] == (before, True)
    assert texts["llm/job/finetune"][1], "it asks for more than its queue may ever use"
    overtaken = says("w1", JOB, "Workload no longer fits after processing another workload")
    assert only_wait(*QUEUES, (1, "workload", overtaken)).text == OVERTAKEN


def test_a_server_without_replicas_does_not_wait_and_those_of_a_workload_are_counted() -> None:
    web = owned("StatefulSet", "web", "web-uid")
    held = says("ww", web, "StatefulSet scaled to zero; workload on hold", "OnHold")
    assert outcome(timeline(*QUEUES, (1, "workload", held))).waits == ()
    # The Workload of a StatefulSet stands for all of its replicas.
    group = says("ww", owned("StatefulSet", "web", "web-uid"), UNUSED, podSets=[{"name": "main", "count": 3}])
    assert only_wait(*QUEUES, (1, "workload", group)).count == 3


def test_quota_that_becomes_free_and_that_kueue_does_not_try_again_is_said_to_be_free() -> None:
    """Its local queue was deleted before the run."""
    run = workload("wr", OTHER, flavor="l4")
    run["status"]["admission"]["podSetAssignments"][0] |= {"count": 2, "resourceUsage": {"nvidia.com/gpu": "2"}}
    waits: tuple[Observed, ...] = (*QUEUES, WAITS, (-1, "workload", run))
    assert only_wait(*waits).text == "2 more GPUs in flavor l4"
    wait = only_wait(*waits, (2, "workload", run, "gone"))
    text = "2 more GPUs in flavor l4, which are free at the end: Kueue has not tried it again"
    assert (wait.text, wait.before) == (text, True)


def test_a_namespace_that_no_longer_matches_its_queue_lets_its_runs_wait_forever() -> None:
    """Kueue repeats its earlier reason: nothing wakes the run."""
    queue = cluster_queue("cluster-queue", "4", "4")
    queue["spec"]["namespaceSelector"] = {"matchLabels": {"team": "a"}}
    before, after = ({"metadata": {"name": "llm", "uid": "n", "labels": {"team": team}}} for team in "ab")
    waits: tuple[Observed, ...] = (QUEUES[0], (-1, "queue", queue), WAITS)
    assert not only_wait(*waits, (-1, "namespace", before)).never
    wait = only_wait(*waits, (-1, "namespace", before), (2, "namespace", after))
    text = "ClusterQueue cluster-queue, whose namespaceSelector does not select namespace llm"
    assert (wait.text, wait.never, wait.otherwise) == (text, True, True)


ERROR = "Error creating: "
QUOTA = ERROR + 'pods "x" is forbidden: exceeded quota: pods, requested: pods=1, used: pods={}, limited: pods={}'


def rolled(updated: int, replicas: int = 2) -> Item:
    item = deployment("web", replicas, replicas)
    item["status"]["updatedReplicas"] = updated
    return item


PRIVILEGED = 'violates PodSecurity "baseline:latest": privileged'
CPU, GPU = "requests.cpu", "requests.nvidia.com/gpu"
TWO_QUOTAS = f"exceeded quota: gpus, requested: {CPU}=2,{GPU}=8, used: {CPU}=0,{GPU}=0, limited: {CPU}=4,{GPU}=4"
ROOM_IN_BOTH = f"room in ResourceQuota gpus ({CPU}: 2 more, 0 of 4 used; {GPU}: 8 more, 0 of 4 used)"
NO_WEBHOOK = "Internal error occurred: failed calling webhook"


def test_a_rollout_that_a_resource_quota_blocks_never_ends_if_its_own_replicas_fill_the_quota() -> None:
    old = [(-1.0, "pod", replica(f"r{number}", "web", node="n")) for number in "12"]
    event = warning("ReplicaSet", "web-7d9f", QUOTA.format(2, 2))
    wait = only_wait(*old, (-1, "deployment", rolled(2)), (2, "deployment", rolled(0)), (3, "warning", event))
    assert (str(wait.workload), wait.reason, wait.count) == ("llm/deployment/web", "FailedCreate", 2)
    assert wait.text == "room in ResourceQuota pods (pods: 1 more, 2 of 2 used)"
    assert (wait.never, wait.before, wait.queue) == (True, False, "lq")
    assert outcome(timeline(*old, (2, "deployment", rolled(2)), (1, "warning", event))).waits == (), "it went on"


def test_a_run_waits_for_a_resource_quota_until_its_first_pods_end_and_a_child_job_as_its_job_set() -> None:
    runs = (2, "pod", pod("a", JOB, "n"))
    event = (3, "warning", warning("Job", "finetune", QUOTA.format(1, 1)))
    wait = only_wait((1, "job", job(pods=3)), runs, event)
    room = "room in ResourceQuota pods (pods: 1 more, 1 of 1 used)"
    assert (str(wait.workload), wait.text, wait.never) == ("llm/job/finetune", room, False)
    before = outcome(timeline((-1, "job", job(pods=3)), (-1, "pod", runs[2]), (-1, *event[1:])))
    assert [wait.before for wait in before.waits] == [True]
    for ended in (job(pods=3, suspend=True), job(pods=3, conditions=conditions(Failed=("True", "", "")))):
        assert "FailedCreate" not in {wait.reason for wait in outcome(timeline((1, "job", ended), event)).waits}
    child = job("sets-worker-0", "child")
    child["metadata"]["labels"] = {"jobset.sigs.k8s.io/jobset-name": "sets"}
    wait = only_wait((1, "job", child), (2, "warning", warning("Job", "sets-worker-0", QUOTA.format(0, 0))))
    assert (str(wait.workload), wait.never) == ("llm/jobset/sets", True)


@pytest.mark.parametrize(
    ("message", "text", "never"),
    [
        (f'{ERROR}pods "x" is forbidden: {PRIVILEGED}', f"pods that the cluster accepts: {PRIVILEGED}", True),
        (f'{ERROR}admission webhook "x" denied the request: no', "pods that the cluster accepts: no", True),
        (f"{ERROR}{NO_WEBHOOK}", f"pods that the cluster accepts: {ERROR}{NO_WEBHOOK}", False),
        (f"create Pod x in StatefulSet x failed error: pods is forbidden: {TWO_QUOTAS}", ROOM_IN_BOTH, True),
    ],
)
def test_a_refused_pod_has_its_reason_in_plain_words(message: str, text: str, never: bool) -> None:
    assert why_refused(message) == (text, never)


@pytest.mark.parametrize(("admitted", "waits"), [(True, 1), (False, 0)])
def test_a_pod_of_an_admitted_run_that_stays_gated_is_said_to_wait(admitted: bool, waits: int) -> None:
    gated, runs = pod("a", JOB), pod("b", JOB, "n")
    gated["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/topology"}]
    own = workload("wj", JOB, flavor="f") if admitted else waiting("wj", JOB)
    found = outcome(timeline((1, "workload", own), (2, "pod", gated), (2, "pod", runs))).waits
    texts = [wait.text for wait in found if wait.reason == "SchedulingGated"]
    assert texts == ["the removal of scheduling gate kueue.x-k8s.io/topology from 1 of its 2 pods"] * waits


def test_a_run_of_which_kueue_knows_nothing_or_that_names_no_queue_is_said_to_wait() -> None:
    """Such as one with a priority class that does not exist: Kueue creates no Workload, and no event."""
    held = job(suspend=True)
    assert only_wait((1, "job", held)).text == "the end of its suspension (spec.suspend)"
    labels = {"kueue.x-k8s.io/queue-name": "lq", "kueue.x-k8s.io/priority-class": "lost"}
    held = {**held, "metadata": {**held["metadata"], "labels": labels}}
    text = "Kueue, which has created no Workload for it: check that WorkloadPriorityClass lost exists"
    assert (only_wait((1, "job", held)).text, only_wait((1, "job", held)).queue) == (text, "lq")
    assert only_wait((1, "job", held), (1, "workload", WAITS[2])).reason == "Pending"
    wait = only_wait(*QUEUES, (1, "workload", says("wj", JOB, "LocalQueue  doesn't exist", queueName="")))
    assert (wait.text, wait.never) == ("a queue: it names none, and Kueue holds runs without one", True)


def test_a_pod_without_accelerators_waits_for_a_node_in_the_queue_of_its_run() -> None:
    lacks = replica("r", "web", gpus=0, unschedulable=True)
    lacks["metadata"]["labels"].pop("kueue.x-k8s.io/queue-name")
    wait = only_wait((2, "pod", lacks))
    assert (str(wait.workload), wait.queue, wait.reason) == ("llm/deployment/web", "", "NoNode")
    lacks["metadata"]["namespace"] = "kube-system"
    assert outcome(timeline((2, "pod", lacks))).waits == ()
    lacks = pod("j1", JOB, gpus=0, unschedulable=True)
    lacks["metadata"]["labels"] = {}
    wait = only_wait((-1, "workload", workload("wj", JOB, 100, flavor="f")), (2, "pod", lacks))
    assert (str(wait.workload), wait.queue, wait.priority, wait.reason) == ("llm/job/finetune", "lq", 100, "NoNode")


def test_the_workload_of_a_leader_worker_set_or_ray_job_has_its_name_although_a_snapshot_lacks_it() -> None:
    group, owner = says("wg", [], UNUSED), "kueue.x-k8s.io/job-owner"
    kind = {f"{owner}-gvk": "leaderworkerset.x-k8s.io/v1, Kind=LeaderWorkerSet", f"{owner}-name": "ds"}
    group["metadata"] |= {"name": "leaderworkerset-ds-0-ab123", "annotations": kind}
    labels = {"leaderworkerset.sigs.k8s.io/name": "ds"}
    member = pod("p", owned("StatefulSet", "ds-0", "s"), labels=labels, unschedulable=True)
    forecast = outcome(timeline((1, "workload", group), (1, "pod", member)))
    assert {str(wait.workload) for wait in forecast.waits} == {"llm/leaderworkerset/ds"}
    item = says("wr", [], UNUSED)
    item["metadata"]["name"] = "rayjob-counter-3fa09"
    assert str(only_wait((1, "workload", item)).workload) == "llm/rayjob/counter"
