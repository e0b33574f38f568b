"""Only here: the quota of a tenant's namespace bounds every way past its queues, and every honest run ends.

The real Kueue, JobSet, Trainer and KubeRay run what a member submits. Then the admission policy is switched off, and
attacks that it refuses are carried out: pods never have more accelerators than the quota, counted by the API server.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from gke_ai.components.queues.tenant import TIMES
from gke_ai.kube.pods import accelerator_count
from gke_ai.kube.uncounted import Uncounted, uncounted
from gke_ai.workspace.emulation import READY_AFTER
from tests.support.emulator import Emulator, eventually
from tests.support.further_kinds import ray_cluster, ray_cluster_spec, ray_job, train_job
from tests.support.tenants import GPUS, OWN, Credential, created, deployment, in_use, job, jobset, pod, spec

Object = dict[str, Any]
pytestmark = pytest.mark.nightly

# The quota of the namespace is TIMES as many GPUs as that of the queue.
BOUND = TIMES * GPUS
RUNS = 500
DELAYED = 0.01  # part of the runs of which a pod is refused once, while others end and wait
# A simulated pod runs until this annotation ends it. With it in its template, it ends when it has started. A Job whose
# pods end within the second in which Kueue resumes it can lose its start time, and then never ends.
ENDS = {"emulator.gke-ai/finish": "Succeeded", READY_AFTER: "1500ms"}
# At most so many exist at a time, as a team has them: each kind has a quota of objects.
AT_A_TIME = 60


def ending(template: Object) -> None:
    """Lets the pods of a template end when they have started."""
    template.setdefault("metadata", {}).setdefault("annotations", {}).update(ENDS)


SHARES = {"Job": 55, "JobSet": 12, "Pod": 8, "Deployment": 6, "TrainJob": 5, "RayJob": 3, "RayCluster": 2, "plain": 9}
KINDS = [kind for kind in SHARES if kind != "plain"]


def run_of(number: int, chance: random.Random) -> Object:
    """A run of any kind: most are Jobs, some have no accelerators, and one in four has the high priority."""
    name = f"run-{number}"
    priority = {"priorityClassName": "high" if chance.random() < 0.25 else "low"}
    body = spec(chance.choice([1, 1, 1, 2]), **priority)  # the machines have one GPU, two, or more than the quota
    (kind,) = chance.choices([*SHARES], [*SHARES.values()])
    if kind == "plain":
        item = job(spec(None), None, name)
        ending(item["spec"]["template"])
    elif kind == "Job":
        pods = chance.choice([1, 1, 2, 3])
        item = job(spec(1, **priority), OWN, name)
        item["spec"] |= {"parallelism": pods, "completions": pods}
        ending(item["spec"]["template"])
    elif kind == "JobSet":
        item = jobset(body, OWN, name)
        ending(item["spec"]["replicatedJobs"][0]["template"]["spec"]["template"])
    elif kind == "Pod":
        item = pod(body | {"restartPolicy": "Never"}, OWN, name)
        ending(item)
    elif kind == "Deployment":
        item = deployment(spec(1, **priority), OWN, name)
        item["spec"]["replicas"] = chance.choice([1, 2])
    elif kind == "TrainJob":
        item = train_job(name, OWN, nodes=chance.choice([1, 2]))
        patches = item["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
        ending(patches[0]["template"]["spec"]["template"])
    elif kind == "RayJob":
        item = ray_job(name, OWN, submissionMode="HTTPMode")
    else:
        item = ray_cluster(name, OWN)
    return item


def gated(item: Object) -> int:
    """GPUs of pods that exist while they wait: those of servers, and pods by themselves. Others are created later."""
    spec = item["spec"] if item["kind"] == "Pod" else item["spec"].get("template", {}).get("spec")
    if item["kind"] not in ("Pod", "Deployment") or spec is None:
        return 0
    count = item["spec"].get("replicas", 1) if item["kind"] == "Deployment" else 1
    return int(accelerator_count(spec)) * int(count)


def has_ended(item: Object) -> bool:
    """Whether a run has ended, or a server or a Ray cluster has been ready, which then is deleted."""
    status = item.get("status", {})
    conditions = {entry["type"] for entry in status.get("conditions") or [] if entry["status"] == "True"}
    return bool(
        conditions & {"Complete", "Completed", "Failed"}
        or status.get("phase") in ("Succeeded", "Failed")
        or status.get("jobStatus") == "SUCCEEDED"
        or status.get("state") == "ready"
        or (item["kind"] == "Deployment" and status.get("readyReplicas", 0) == item["spec"]["replicas"])
    )


def refusals(member: Credential) -> Counter[str]:
    """Objects whose pods the quota of accelerators refused, by kind."""
    events = member.ask("GET", "api/v1/namespaces/team-a/events").content["items"]
    refused = [event for event in events if "exceeded quota" in event["message"]]
    of_gpus = [event for event in refused if "requests.nvidia.com/gpu" in event["message"]]
    return Counter(event["involvedObject"]["kind"] for event in of_gpus)


def test_honest_runs_of_all_kinds_end_and_hardly_any_is_delayed(team_a: Credential) -> None:
    chance = random.Random(1)
    waiting = [run_of(number, chance) for number in range(RUNS)]
    kinds = Counter(item["kind"] for item in waiting)
    assert {*KINDS} <= kinds.keys()
    alive: dict[tuple[str, str], Object] = {}
    seen, highest = Counter[str](), 0

    def step() -> bool:
        nonlocal highest
        while waiting and len(alive) < AT_A_TIME:
            item = waiting.pop()
            if gated(item) and sum(map(gated, alive.values())) + gated(item) > GPUS:
                waiting.insert(0, item)
                break
            created(team_a.create(item))
            alive[item["kind"], item["metadata"]["name"]] = item
        for kind in KINDS:
            items = team_a.read(kind).content["items"]
            names = {item["metadata"]["name"] for item in items}
            # Kueue deletes a pod that it preempts, and its author creates it again.
            for key in [key for key in alive if key[0] == kind == "Pod" and key[1] not in names]:
                waiting.insert(0, alive.pop(key))
            for item in items:
                key = (kind, item["metadata"]["name"])
                if key in alive and has_ended({**item, "kind": kind}):
                    assert team_a.delete(*key).status == 200
                    seen[kind] += 1
                    del alive[key]
        highest = max(highest, in_use(team_a))
        return not waiting and not alive

    eventually(step, f"{RUNS} runs have ended", seconds=1500)
    assert seen == kinds
    assert highest <= BOUND
    delayed = refusals(team_a)
    print(f"{RUNS} runs ended, pods delayed {dict(delayed)}, at most {highest} GPUs at a time: {dict(kinds)}")
    assert delayed.total() <= RUNS * DELAYED, "controllers create a refused pod again, but it should be rare"


@pytest.fixture(scope="module")
def unguarded(team_a: Credential, shared: Emulator) -> Credential:
    """The member, with the policy of its namespace switched off."""
    shared.kubectl("delete", "validatingadmissionpolicybinding", "tenant-team-a")
    opens = pod(spec(None, terminationGracePeriodSeconds=0), None, "attack")
    eventually(lambda: team_a.create(opens, try_only=True).status == 201, "the policy is off", seconds=60)
    return team_a


@pytest.fixture
def attacker(unguarded: Credential, shared: Emulator) -> Iterator[Credential]:
    """The member before an attack, with nothing in its namespace."""
    yield unguarded
    for kind in ("rayjobs", "rayclusters", "jobsets", "jobs", "deployments", "pods"):
        shared.kubectl("delete", kind, "--all", "-n", "team-a", "--wait=false")
    eventually(partial(nothing_left, shared, unguarded), "nothing is left", seconds=120)


def nothing_left(shared: Emulator, member: Credential) -> bool:
    """Deletes what attacks leave: it has finalizers that nobody removes. Whether all of it is gone."""
    left = [(kind, item) for kind in ("workloads", "rayclusters", "pods") for item in shared.get(kind, "-n", "team-a")]
    for kind, item in left:
        name = ("-n", "team-a", kind, item["metadata"]["name"])
        with suppress(AssertionError):  # it is gone meanwhile
            shared.kubectl("patch", *name, "--type=merge", "-p", '{"metadata": {"finalizers": null}}')
            shared.kubectl("delete", *name, "--ignore-not-found", "--force", "--grace-period=0")
    return not left and not in_use(member)


def exists(member: Credential, kind: str, name: str) -> bool:
    return member.read(kind, name).status == 200


def more_in_use(member: Credential, than: int) -> bool:
    return in_use(member) > than


def full(name: str) -> Object:
    item = job(spec(1), OWN, name)
    return {**item, "spec": {**item["spec"], "parallelism": GPUS, "completions": GPUS}}


def of_children(attacker: Credential) -> None:
    """S3: a Job of a JobSet that waits gets more pods than Kueue counts."""
    created(attacker.create(full("blocks")))
    eventually(lambda: in_use(attacker) == GPUS, "the queue is full", seconds=60)
    for number in range(3):
        created(attacker.create(jobset(spec(1), OWN, f"small-{number}")))
        child = f"small-{number}-slice-0"
        eventually(partial(exists, attacker, "Job", child), "its Job waits", seconds=60)
        assert attacker.change("Job", child, {"spec": {"parallelism": 9, "completions": 9}}).status == 200
    attacker.delete("Job", "blocks")


def of_orphans(attacker: Credential) -> None:
    """S4: Jobs are deleted, and their pods stay."""
    for number in range(4):
        created(attacker.create(full(f"orphan-{number}")))
        before = in_use(attacker)
        if before < BOUND:
            eventually(partial(more_in_use, attacker, before), "its pods run", seconds=60)
        attacker.delete("Job", f"orphan-{number}", propagationPolicy="Orphan")


def of_ray_that_stays(attacker: Credential) -> None:
    """S5: RayJobs end, and their Ray clusters stay."""
    for number in range(4):
        options = {"ttlSecondsAfterFinished": 10**7, "submissionMode": "HTTPMode"}
        created(attacker.create(ray_job(f"stays-{number}", OWN, ray_cluster_spec(GPUS), **options)))
    eventually(lambda: in_use(attacker) >= GPUS, "the first runs", seconds=120)


def of_ray_that_fails_its_validation(attacker: Credential) -> None:
    """S5: a running RayCluster loses its annotation, so that Kueue takes it for one that waits."""
    for number in range(3):
        item = ray_cluster(f"fails-{number}", OWN, ray_cluster_spec(GPUS))
        item["metadata"]["annotations"] = {"ray.io/ft-enabled": "true"}
        created(attacker.create(item))
    eventually(lambda: in_use(attacker) >= GPUS, "the first runs", seconds=120)
    for number in range(3):
        attacker.change("RayCluster", f"fails-{number}", {"metadata": {"annotations": {"ray.io/ft-enabled": None}}})


def of_force(attacker: Credential) -> None:
    """S10: pods are deleted at once. Their nodes would run them on, which simulated nodes do not."""
    for number in range(3 * GPUS):
        created(attacker.create(pod(spec(1), OWN, f"force-{number}")))
        eventually(lambda: in_use(attacker) > 0, "it runs", seconds=60)
        attacker.delete("Pod", f"force-{number}", gracePeriodSeconds=0)


def of_pods_without_a_queue(attacker: Credential) -> None:
    """The crudest way: pods that no queue holds."""
    for number in range(3 * GPUS):
        attacker.create(pod(spec(1), None, f"free-{number}"))
    eventually(lambda: in_use(attacker) >= GPUS, "they run", seconds=60)


OF_RAY = (of_ray_that_stays, of_ray_that_fails_its_validation)
ATTACKS = (of_children, of_orphans, *OF_RAY, of_force, of_pods_without_a_queue)
ROUNDS = 20


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_without_the_policy_no_attack_gains_more_than_the_quota_allows(
    attack: Callable[[Credential], None], attacker: Credential, shared: Emulator
) -> None:
    attack(attacker)
    highest, gain = 0, 0
    found: list[Uncounted] = []
    for _ in range(ROUNDS):
        pods, workloads = (attacker.read(kind).content["items"] for kind in ("Pod", "Workload"))
        quotas = attacker.ask("GET", "api/v1/namespaces/team-a/resourcequotas").content["items"]
        found = [*uncounted([quota for quota in quotas if quota["metadata"]["name"] == "tenant"], pods, workloads)]
        highest = max(highest, in_use(attacker))
        gain = max([gain, *(entry.on_nodes - entry.counted for entry in found)])
        time.sleep(0.5)
    print(f"{attack.__name__}: at most {highest} GPUs, {gain} beyond what Kueue counts; bound {BOUND}")
    assert highest <= BOUND
    if found:
        assert "Accelerators that Kueue does not count" in shared.make("status")
