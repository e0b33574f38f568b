"""Only here: what a member does between Kueue, JobSet, Trainer and KubeRay gains no accelerators beyond the queues.

Members choose when their pods succeed and fail, so the tests end pods as a member's processes would.
"""

import copy
import json
from functools import partial
from typing import Any

import pytest

from gke_ai.kube.objects import condition
from tests.support.emulator import Emulator, eventually
from tests.support.further_kinds import GPU, ray_cluster, ray_cluster_spec, ray_job
from tests.support.tenants import (
    FINALIZER,
    GPUS,
    NO_QUEUE,
    OWN,
    QUEUE,
    RBAC,
    UNLISTED,
    Credential,
    created,
    in_use,
    item,
    job,
    jobset,
    kept,
    pod,
    pods_of,
    running,
    spec,
)

Object = dict[str, Any]
JOBSET = "jobset.sigs.k8s.io/replicatedjob-name"
TOO_MANY, ADOPTED = "has so many", "would count as a pod of a Job"
MANUAL, STARTS = "remove manualSelector", "only Kueue may"


def wide(kind: str, **fields: Any) -> Object:
    body = job(queue=OWN, name=kind)
    return {**body, "spec": {**body["spec"], "parallelism": GPUS, **fields}}


def ends(shared: Emulator, pods: list[Object], phase: str) -> None:
    for each in pods:
        change = json.dumps({"status": {"phase": phase}})
        path = ("pod", each["metadata"]["name"], "-n", "team-a", "--subresource=status", "--type=merge")
        shared.kubectl("patch", *path, "-p", change)


def started(team: Credential, label: str, count: int = GPUS) -> None:
    """Waits until as many pods run."""
    eventually(lambda: len(pods_of(team, label)) == count and running(team, label), f"{label} runs", seconds=60)


def uids_of(team: Credential, label: str) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods_of(team, label)}


def waits(team: Credential) -> None:
    """Another run finds no quota, and what is on nodes is at most the quota."""
    created(team.create(wide("more", completions=GPUS)))

    def refused() -> bool:
        found = [item for item in team.read("Workload").content["items"] if "job-more" in item["metadata"]["name"]]
        return bool(found) and condition(found[0], "QuotaReserved").get("status") == "False"

    eventually(refused, "the other run waits", seconds=30)
    assert in_use(team) <= GPUS
    for kind in ("Job", "JobSet"):
        for left in team.read(kind).content["items"]:
            team.delete(kind, left["metadata"]["name"])
    eventually(lambda: not team.read("Workload").content["items"], "nothing is left", seconds=60)


def test_a_jobset_that_restarts_after_some_jobs_ended_is_counted_in_full(shared: Emulator, team_a: Credential) -> None:
    body = jobset(queue=OWN, name="again")
    (gpus,) = body["spec"]["replicatedJobs"]
    gpus["replicas"] = GPUS
    fails: Object = {"name": "fails", "template": {"spec": {"backoffLimit": 0, **job(spec(None))["spec"]}}}
    body["spec"] |= {"replicatedJobs": [gpus, fails], "failurePolicy": {"maxRestarts": 3}}
    created(team_a.create(body))
    started(team_a, f"{JOBSET}=slice")
    first = uids_of(team_a, f"{JOBSET}=slice")
    ends(shared, pods_of(team_a, f"{JOBSET}=slice"), "Succeeded")

    def succeeded() -> bool:
        statuses = team_a.read("JobSet", "again").content["status"].get("replicatedJobsStatus", [])
        return any(status["succeeded"] == GPUS for status in statuses)

    eventually(succeeded, "the Jobs succeed", seconds=30)
    started(team_a, f"{JOBSET}=fails", 1)
    ends(shared, pods_of(team_a, f"{JOBSET}=fails"), "Failed")

    uids = partial(uids_of, team_a, f"{JOBSET}=slice")
    eventually(lambda: not first & uids(), "the JobSet restarts", seconds=60)
    started(team_a, f"{JOBSET}=slice")
    waits(team_a)


def test_a_job_some_of_whose_pods_succeeded_is_counted_in_full(shared: Emulator, team_a: Credential) -> None:
    """Also if a pod of the member were counted as one of its own: pods without accelerators may not say so."""
    created(team_a.create(wide("adopts")))
    started(team_a, "job-name=adopts")
    uid = team_a.read("Job", "adopts").content["metadata"]["uid"]
    for name in ("batch.kubernetes.io/controller-uid", "controller-uid"):
        assert ADOPTED in team_a.create(pod(spec(None), None, name="decoy", labels={name: uid})).message
    ends(shared, pods_of(team_a, "job-name=adopts")[:1], "Succeeded")

    adopts = partial(team_a.read, "Job", "adopts")
    eventually(lambda: adopts().content["status"].get("succeeded") == 1, "a pod succeeded", seconds=30)
    waits(team_a)


def workers(**fields: Any) -> Object:
    cluster = copy.deepcopy(ray_cluster_spec())
    cluster["workerGroupSpecs"][0] |= {"minReplicas": 0, "maxReplicas": 1, **fields}
    return cluster


def many_jobs(**fields: Any) -> Object:
    body = jobset(spec(None), None, name="attack")
    body["spec"]["replicatedJobs"][0] |= fields
    return body


def manual(body: Object) -> Object:
    return {**body, "manualSelector": True, "selector": {"matchLabels": {"x": "y"}}}


SELECTED = {"template": {**job(spec(None))["spec"]["template"], "metadata": {"labels": {"x": "y"}}}}
MOST, ONE = workers(replicas=2**31 - 1), {"nvidia.com/gpu": "1"}
SIDECAR = {"name": "side", "image": "x:1", "restartPolicy": "Always", "resources": {"limits": ONE}}
REQUESTING = {"name": "x", "image": "x:1", "resources": {"requests": ONE}}
ATTACKS: list[tuple[str, str, Object, str]] = [
    # JobSet and KubeRay hold each of these in memory, also while the run waits.
    ("a JobSet of 2,147,483,647 Jobs", "JobSet", many_jobs(replicas=2**31 - 1), TOO_MANY),
    ("a RayCluster of 2,147,483,647 workers", "RayCluster", ray_cluster("x", OWN, MOST), TOO_MANY),
    ("a RayJob of as many", "RayJob", ray_job("x", OWN, MOST), TOO_MANY),
    # In 32 bits, Kueue counts none of them.
    ("workers times hosts", "RayCluster", ray_cluster("x", OWN, workers(replicas=2**30, numOfHosts=4)), TOO_MANY),
    ("a Job that adopts pods", "Job", item("Job", "x", manual(SELECTED)), MANUAL),
    ("a JobSet that adopts pods", "JobSet", many_jobs(template={"spec": manual(SELECTED)}), MANUAL),
    ("a pod's sidecar", "Pod", pod(spec(None, initContainers=[SIDECAR]), None), NO_QUEUE),
    ("a whole pod's GPUs", "Pod", pod(spec(None, resources={"limits": ONE}), None), "Unsupported value"),
    ("GPUs in requests alone", "Pod", pod({"containers": [REQUESTING]}, OWN), "Limit must be set"),
    ("more GPUs than 63 bits", "Pod", pod(spec(gpus=2**63 - 1), OWN), "exceeded quota"),
]


@pytest.mark.parametrize(("kind", "made", "why"), [case[1:] for case in ATTACKS], ids=[case[0] for case in ATTACKS])
def test_a_member_is_refused(kind: str, made: Object, why: str, team_a: Credential) -> None:
    assert made["kind"] == kind
    answer = team_a.create(made, try_only=True)
    assert answer.status >= 400, "created"
    assert why in answer.message


OLD_RAY = "ray.io/v1alpha1"
AUTOSCALED, AUTOSCALER = {**ray_cluster_spec(), "enableInTreeAutoscaling": True}, "HorizontalPodAutoscaler"
SPACE, JOBS = "api/v1/namespaces/team-a", "apis/batch/v1/namespaces/team-a/jobs"
HELD = f"{JOBS}/held"
START: Object = {"spec": {"suspend": False}}
START_BY_PATCH = [{"op": "replace", "path": "/spec/suspend", "value": False}]
APPLY = "application/apply-patch+yaml"
OF_JOB: Object = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "held"}}
JSON, MERGE = "application/json", "application/strategic-merge-patch+json"
REQUESTS: list[tuple[str, str, str, Any, str, str]] = [
    *(
        (f"an old {item['kind']}", "POST", f"apis/{version}/namespaces/team-a/{item['kind'].lower()}s", item, JSON, why)
        for version, item, why in (
            (OLD_RAY, {**ray_job(queue=""), "apiVersion": OLD_RAY}, NO_QUEUE),
            (OLD_RAY, {**ray_cluster("x", OWN, AUTOSCALED), "apiVersion": OLD_RAY}, UNLISTED),
            ("autoscaling/v1", {**kept(AUTOSCALER), "apiVersion": "autoscaling/v1"}, FINALIZER),
        )
    ),
    ("a start as Kueue", "PATCH", f"{HELD}?fieldManager=kueue&force=true", {**OF_JOB, **START}, APPLY, STARTS),
    ("a start by JSON patch", "PATCH", HELD, START_BY_PATCH, "application/json-patch+json", STARTS),
    ("a start without the queue", "PATCH", HELD, {"metadata": {"labels": {QUEUE: None}}, **START}, MERGE, NO_QUEUE),
    ("all Jobs at once", "DELETE", JOBS, None, "", RBAC),
    ("pods/eviction", "POST", f"{SPACE}/pods/x/eviction", {}, JSON, RBAC),
    ("pods/binding", "POST", f"{SPACE}/pods/x/binding", {}, JSON, RBAC),
    ("a Pod by the API server's proxy", "GET", f"{SPACE}/pods/x/proxy/", None, "", RBAC),
    ("a Service by the API server's proxy", "GET", f"{SPACE}/services/x/proxy/", None, "", RBAC),
    ("endpoints", "POST", f"{SPACE}/endpoints", {}, JSON, RBAC),
]


def test_no_way_to_write_passes_the_rules(team_a: Credential) -> None:
    """Other API versions, patches, owners of fields and parts of objects."""
    created(team_a.create(job(spec(gpus=9), OWN, "held")))
    for name, method, path, body, content_type, why in REQUESTS:
        answer = team_a.ask(method, path, body, content_type)
        assert (answer.status >= 400, why in answer.message) == (True, True), f"{name}: {answer.message}"
    team_a.delete("Job", "held")


def test_what_is_large_enough_for_an_honest_run_passes(team_a: Credential) -> None:
    worker = ray_cluster_spec(each=GPU)["workerGroupSpecs"][0]["template"]
    cluster = workers(replicas=500, maxReplicas=500, numOfHosts=2, template=worker)
    for run in (many_jobs(replicas=1000), ray_cluster("x", OWN, cluster)):
        answer = team_a.create(run, try_only=True)
        assert answer.status == 201, answer.message
