"""Only here: the real API server refuses each team the resources of the other, and each team's work runs.

Refused by the real API server: by RBAC, quotas, Pod Security, and the tenants' admission policies. Not shown here is
what only Google enforces: roles on buckets, and network policies.
"""

import re
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from gke_ai.catalog.engines.inference_extension import PICKER_LABEL
from gke_ai.catalog.fabric.topology import GROUP_SIZE, GROUPS, LEVELS, REQUIRED
from gke_ai.catalog.published import ANNOTATION, CONFIG_MAP
from gke_ai.components.queues.tenant_policy import ANNOTATIONS, EXCLUSIVE, GRACE_SECONDS, LABELS, MAX_CHARACTERS
from gke_ai.kube.objects import condition
from tests.support.emulator import ROOT, Emulator, Found, deployed, eventually, gone
from tests.support.queueing_names import PARAMETER, names
from tests.support.queueing_names import REFUSED as REFUSED_NAMES
from tests.support.queueing_names import allowed as allowed_names
from tests.support.tenant_attacks import check_attacks
from tests.support.tenants import (
    AUTOPILOT,
    BUCKET_NOT_ITS,
    ELASTIC,
    EXCEEDED,
    FINALIZER,
    FOREIGN,
    GPUS,
    NO_QUEUE,
    NOT_HELD,
    NOT_ITS_QUEUE,
    OTHERS,
    OWN,
    OWNER,
    PLACES,
    PRIORITY,
    PRIORITY_NOT_ITS,
    QUEUE,
    RBAC,
    SECRET_TYPE,
    TOO_LONG,
    TWO,
    UNFINISHED,
    UNKNOWN,
    Credential,
    Object,
    created,
    deployment,
    in_use,
    item,
    job,
    jobset,
    kept,
    kubeconfig_of,
    owned_by,
    pod,
    pods_of,
    running,
    spec,
)
from tests.support.unpacked import names as names_below
from tests.support.unpacked import unpack
from tests.support.workloads import finish


# --- objects that a team writes ---------------------------------------------------------------------------------------
def affinity(**operator: Any) -> Object:
    """Nodes by whether they have a GPU."""
    term = {"matchExpressions": [{"key": "cloud.google.com/gke-accelerator", **operator}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def neighbors(**where: Any) -> Object:
    """Keeps pods with a label off the region of the pod."""
    term = {"topologyKey": "topology.kubernetes.io/region", "labelSelector": {"matchLabels": {"app": "x"}}, **where}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term], **preferred}}


def volume(**source: Any) -> Object:
    return spec(volumes=[{"name": "data", **source}])


def bucket(name: str) -> Object:
    return volume(csi={"driver": "gcsfuse.csi.storage.gke.io", "volumeAttributes": {"bucketName": name}})


def plain(kind: str, name: str, version: str = "v1", **content: Any) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **content}


# --- one deployment ---------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def shared() -> Iterator[Emulator]:
    """The two deployed tenants. The last test destroys them."""
    with deployed(AUTOPILOT, TWO) as emulator:
        yield emulator


@pytest.fixture(scope="module")
def team_a(shared: Emulator) -> Credential:
    """Team A at work: a Job, a JobSet and a server with one GPU each, a Job that is too large for the queue and waits,
    and one without accelerators."""
    team = Credential(shared, "team-a")
    counted = "a new cluster counts JobSets against quotas"
    eventually(lambda: team.create(jobset(spec(), name="first"), try_only=True).status == 201, counted)
    workload: Object = {"serviceAccountName": "workload", "priorityClassName": "low"}
    for work in (
        job({**bucket("team-a-models"), **workload}, name="training"),
        jobset(spec(**workload), name="slices"),
        deployment(spec(**workload), name="server"),
        job(spec(gpus=9), name="too-large"),
        job(spec(gpus=None), queue=None, name="no-accelerator"),
    ):
        created(team.create(work))
    return team


@pytest.fixture(scope="module")
def team_b(shared: Emulator) -> Credential:
    return Credential(shared, "team-b")


# --- what a team does -------------------------------------------------------------------------------------------------
def test_what_a_team_submits_and_what_the_stack_has_for_it_runs(team_a: Credential, team_b: Credential) -> None:
    own = ("job-name=training", "jobset.sigs.k8s.io/jobset-name=slices", "app=server", "job-name=no-accelerator")
    for team, label in ((team_b, "job-name=tuned"), *((team_a, label) for label in own)):
        eventually(partial(running, team, label), f"the pods of {team.team} with {label} run")


def test_workload_above_the_quota_waits_and_the_team_sees_why(team_a: Credential) -> None:
    def waiting() -> list[str]:
        items = team_a.read("Workload").content["items"]
        (workload,) = (item for item in items if item["metadata"]["ownerReferences"][0]["name"] == "too-large")
        reserved = condition(workload, "QuotaReserved")
        return [reserved["message"]] if reserved.get("status") == "False" else []

    (message,) = eventually(waiting, "Kueue says why the Job waits")
    assert "insufficient" in message
    queue = partial(team_a.read, "LocalQueue", OWN)
    eventually(lambda: queue().content["status"]["pendingWorkloads"] == 1, "the queue counts who waits")


def test_a_team_can_create_the_objects_that_a_server_needs(team_a: Credential) -> None:
    created(team_a.create(plain("Secret", "token", stringData={"token": "its own"})))
    created(team_a.create(plain("Service", "server", spec={"selector": {"app": "server"}, "ports": [{"port": 80}]})))
    assert team_a.read("Secret", "token").status == 200
    assert team_a.change("Deployment", "server/scale", {"spec": {"replicas": 0}}).status == 200
    eventually(lambda: not pods_of(team_a, "app=server"), "the server is scaled in")
    assert team_a.delete("Service", "server").status == 200


# What a team asks its namespace for, by whether it may. It may none of this in another's.
RIGHTS: list[tuple[bool, str, str, str]] = [
    (True, "", "pods/log", "get"),
    (True, "", "pods/exec", "create"),
    (True, "autoscaling", "horizontalpodautoscalers", "create"),
    (True, "policy", "poddisruptionbudgets", "create"),
    (True, "", "persistentvolumeclaims", "create"),
    (True, "visibility.kueue.x-k8s.io", "localqueues/pendingworkloads", "get"),
    (False, "", "pods/resize", "patch"),
    (False, "", "pods/status", "patch"),
    (False, "", "users", "impersonate"),
    (False, "kueue.x-k8s.io", "workloads/status", "patch"),
    (False, "batch", "jobs/status", "patch"),
    (False, "resource.k8s.io", "resourceclaims", "create"),
]


@pytest.mark.parametrize("right", RIGHTS)
def test_a_team_has_its_rights_in_its_own_namespace_alone(
    right: tuple[bool, str, str, str], team_a: Credential
) -> None:
    may, group, resource, verb = right
    kind, _, part = resource.partition("/")
    review = {"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1"}
    for namespace, expected in (("team-a", may), ("team-b", False)):
        attributes = {"namespace": namespace, "group": group, "resource": kind, "subresource": part, "verb": verb}
        answer = team_a.ask("POST", PLACES["Review"], {**review, "spec": {"resourceAttributes": attributes}})
        assert answer.content["status"]["allowed"] == expected, namespace


@pytest.mark.parametrize("who", [["ada@example.com"], ["bob@example.com", "--as-group", "team-a@example.com"]])
def test_a_member_has_the_permissions_of_the_deployer(who: list[str], shared: Emulator) -> None:
    for namespace, answer in (("team-a", "yes"), ("team-b", "no")):
        command = ("kubectl", "--kubeconfig", shared.kubeconfig(), "auth", "can-i", "create", "jobs", "-n", namespace)
        assert shared.run(*command, "--as", *who, fails=answer == "no").strip() == answer


# --- what it is refused -----------------------------------------------------------------------------------------------
OF_KUEUE = "kueue.x-k8s.io/managed"
LARGE, FORGOTTEN, OF_CONTROLLER = "is so large", "would be forgotten", "belongs to a controller"
ON_A_DEVICE = {"name": "main", "image": "example.com/x:1", "resources": {"limits": {"google.com/tpu": "4"}}}
ON_A_DEVICE_FIRST = [{**ON_A_DEVICE, "name": "first"}]

DURATION = {f"{PARAMETER}maxRunDurationSeconds": "600"}
DISK_OF_NODE = {"devices.gke.io/container.main": "- path: /dev/sda"}
NETWORK_OF_NODE = {"networking.gke.io/interfaces": "[]"}
BY_A_LATER_NAME = {"networking.gke.io/a-later-name": "[]"}
IN_GROUPS = {REQUIRED: LEVELS["block"], GROUPS: LEVELS["host"], GROUP_SIZE: "1"}
PARTIAL = {"kueue.x-k8s.io/job-min-parallelism": "1", **DURATION}
TPU_NODE = {"cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice"}
ON_SLICES = {"containers": [ON_A_DEVICE], "nodeSelector": TPU_NODE}
FILES: list[Object] = [
    {"configMap": {"name": "x"}},
    {"secret": {"secretName": "x"}},
    {"projected": {"sources": [{"secret": {"name": "x"}}]}},
    {"downwardAPI": {"items": [{"path": "x", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    {"image": {"reference": "example.com/model:1"}},
    {"persistentVolumeClaim": {"claimName": "x"}},
]


def template_of(workload: Object, **metadata: Any) -> Object:
    """A workload with metadata of its pods."""
    template = workload["spec"]["template"]
    known = template.get("metadata", {})
    labels = {**known.get("labels", {}), **metadata.get("labels", {})}
    changed = {**known, **metadata, **({"labels": labels} if labels else {})}
    return {**workload, "spec": {**workload["spec"], "template": {**template, "metadata": changed}}}


ROUNDS = 10
LONG_NOTES = {"annotations": {"example.com/note": "x" * MAX_CHARACTERS}}
LONG: Object = {"spec": {"template": {"spec": {"restartPolicy": "Never", **spec(None)}}}}
LONG["spec"]["template"]["spec"]["containers"][0]["args"] = ["x" * MAX_CHARACTERS]
MANY = {f"example.com/{index:03}": "x" * 60 for index in range(600)}
FIELDS: Object = {"manager": "x", "operation": "Apply", "apiVersion": "batch/v1", "fieldsType": "FieldsV1"}
FIELDS["fieldsV1"] = {"f:metadata": {"f:labels": {f"f:{'x' * 5 * MAX_CHARACTERS}": {}}}}
OTHERS_OFF, NODE_POOL = "keeps other JobSets off nodes", "cloud.google.com/gke-nodepool"
OF_JOB, OF_JOBSET = owned_by("Job", "batch/v1", "training"), owned_by("JobSet", "jobset.x-k8s.io/v1alpha2", "slices")
FREES = item("Job", "x", {**job()["spec"], "parallelism": 5, "completions": 3}, OWN)
DAILY = item("CronJob", "x", {"schedule": "* * * * *", "jobTemplate": {"spec": job()["spec"]}}, OWN)
ETERNAL = plain("Secret", "x", type="kubernetes.io/service-account-token")
ETERNAL["metadata"]["annotations"] = {"kubernetes.io/service-account.name": "deployer"}
# Beside the fields of the matrix, which test_every_attack_of_the_matrix_is_refused tries on each kind.
REFUSED: list[tuple[str, Object, str]] = [
    # Another's queue
    ("a Job in another's queue", job(queue=OTHERS), NOT_ITS_QUEUE),
    ("a Job without accelerators in another's queue", job(spec(gpus=None), OTHERS), NOT_ITS_QUEUE),
    # Accelerators outside a queue, in every shape
    ("a pod outside a queue", pod(queue=None), NO_QUEUE),
    ("a Job outside a queue", job(queue=None), NO_QUEUE),
    ("a JobSet outside a queue", jobset(queue=None), NO_QUEUE),
    ("a Deployment outside a queue", deployment(queue=None), NO_QUEUE),
    # To a pod with TPUs, the API server adds a toleration, which is refused as well. It adds none to these.
    ("a Job with TPUs in an init container", job(spec(gpus=None, initContainers=ON_A_DEVICE_FIRST), None), NO_QUEUE),
    (
        "a pod that wants GPU nodes",
        pod(spec(gpus=None, affinity=affinity(operator="In", values=["nvidia-l4"])), None),
        NO_QUEUE,
    ),
    ("a Job of which Kueue frees pods that run", FREES, "set parallelism to completions or less"),
    ("a Job with a disk of its node", template_of(job(), annotations=DISK_OF_NODE), FOREIGN),
    ("a pod with a network of its node", pod(spec(), annotations=NETWORK_OF_NODE), FOREIGN),
    ("a pod with another of their annotations", pod(spec(), annotations=BY_A_LATER_NAME), FOREIGN),
    ("a JobSet that keeps others off GPUs", jobset(annotations={EXCLUSIVE: NODE_POOL}), OTHERS_OFF),
    *((f"a {kind} with the finalizer of another kind", kept(kind, OF_KUEUE), FINALIZER) for kind in UNFINISHED),
    ("a pod that Kueue does not hold, with its finalizer", pod(spec(None), None, finalizers=[OF_KUEUE]), FINALIZER),
    ("a Job whose pods nobody finishes, by Kueue's", template_of(job(), finalizers=[OF_KUEUE]), FINALIZER),
    ("a Job that leaves its pods", job(finalizers=["orphan"]), FINALIZER),
    ("a Job with a command of 33,000 characters", {**job(spec(None), None), **LONG}, LARGE),
    ("a Job with 600 labels", job(spec(None), None, labels=MANY), LARGE),
    ("a Job with large managed fields", job(spec(None), None, managedFields=[FIELDS]), LARGE),
    ("a Secret with large annotations", {**plain("Secret", "x"), "metadata": {"name": "x", **LONG_NOTES}}, LARGE),
    ("a pod of a forged Job", pod(ownerReferences=OF_JOB), NOT_HELD),
    ("the same without a queue", pod(queue=None, ownerReferences=OF_JOB), NO_QUEUE),
    ("a Job of a forged JobSet", job(ownerReferences=OF_JOBSET), NOT_HELD),
    ("a pod without accelerators of a forged Job", pod(spec(None), None, ownerReferences=OF_JOB), OWNER),
    ("a CronJob", DAILY, RBAC),
    *((f"a {kind}", {**deployment(), "kind": kind}, RBAC) for kind in ("ReplicaSet", "StatefulSet", "DaemonSet")),
    # Another's priority, bucket, rights
    ("a Job with another's priority class", job(spec(priorityClassName="high")), PRIORITY_NOT_ITS),
    ("a Job with another's priority for Kueue", job(labels={PRIORITY: "high"}), PRIORITY_NOT_ITS),
    ("a Job on another's bucket", job(bucket("team-b-models")), BUCKET_NOT_ITS),
    ("a pod on every bucket", pod(bucket("_")), BUCKET_NOT_ITS),
    ("a mount of another's Secret", pod(volume(secret={"secretName": "s", "namespace": "team-b"})), UNKNOWN),
    ("a mount of another's code", pod(volume(configMap={"name": "c", "namespace": "team-b"})), UNKNOWN),
    # What bounds the team
    ("a local queue", plain("LocalQueue", "x", "kueue.x-k8s.io/v1beta2", spec={"clusterQueue": "team-b"}), RBAC),
    ("a namespace", plain("Namespace", "team-c"), RBAC),
    ("a service account", plain("ServiceAccount", "x"), RBAC),
    ("a quota", plain("ResourceQuota", "x", spec={"hard": {"pods": "1"}}), RBAC),
    ("more than its quota", plain("ConfigMap", "x", data={}), EXCEEDED),
    ("a credential that never expires", ETERNAL, SECRET_TYPE),
]


def test_every_name_of_kueue_and_jobset_is_allowed_or_refused_with_a_reason() -> None:
    """A name that a new release brings belongs in one of the two lists."""
    refused = {name for group in REFUSED_NAMES.values() for name in group}
    assert not allowed_names() & refused
    known = {PARAMETER if name.startswith(PARAMETER) else name for name in allowed_names()} | refused
    assert sorted(names() ^ known) == []


@pytest.mark.parametrize("kind", list(LABELS))
def test_a_team_sets_only_the_allowed_names_of_kueue_and_jobset(kind: str, team_a: Credential) -> None:
    """As label and annotation of the object and of its templates."""
    fed = sorted(f"{name}other" if name == PARAMETER else name for name in names())
    for start in range(0, len(fed), 10):
        values = {name: {QUEUE: OWN, PRIORITY: "low"}.get(name, "true") for name in fed[start : start + 10]}
        workload = with_metadata(kind, values)
        wanted = [name for place in (LABELS, ANNOTATIONS) for name in values if name not in place[kind]]
        message = team_a.create(workload, try_only=True).message
        listed = re.findall(r" denied request: sets or removes (.*?), which changes", message)[0].split(", ")
        # In how many places of a workload its author sets labels.
        places = {"Pod": 1, "JobSet": 3}.get(kind, 2)
        assert sorted(listed) == sorted(wanted * places), message


def with_metadata(kind: str, values: dict[str, str]) -> Object:
    """A workload with these labels and annotations everywhere."""
    metadata = {"labels": values, "annotations": values}
    made = {"Pod": pod, "Job": job, "JobSet": jobset, "Deployment": deployment}[kind](spec(None), None)
    made["metadata"] |= metadata
    if kind == "JobSet":
        (replicated,) = made["spec"]["replicatedJobs"]
        replicated["template"] |= template_of(replicated["template"], **metadata) | {"metadata": metadata}
    return made if kind in ("Pod", "JobSet") else template_of(made, **metadata)


@pytest.mark.parametrize(
    "workload",
    [
        item("Job", "x", {**job()["spec"], "parallelism": 2, "completions": 2}, OWN, annotations=PARTIAL),
        job(labels={"kueue.x-k8s.io/max-exec-time-seconds": "600"}, annotations=DURATION),
        jobset(ON_SLICES, annotations={EXCLUSIVE: NODE_POOL, **DURATION}),
        template_of(job(), annotations=IN_GROUPS),
        pod(spec(None), None, finalizers=["foregroundDeletion"]),
        pod(spec(None, affinity=neighbors(namespaces=["team-a"])), None),
        pod(spec(None, affinity=neighbors()), None),
        job(spec(None, volumes=[{"name": "data", "emptyDir": {}}], terminationGracePeriodSeconds=GRACE_SECONDS), None),
        *(job(spec(None, volumes=[{"name": "data", **source}]), None) for source in FILES),
        plain("Secret", "x", type="kubernetes.io/dockerconfigjson", stringData={".dockerconfigjson": "{}"}),
        plain("Service", "x", spec={"type": "ExternalName", "externalName": "example.com"}),
    ],
)
def test_a_team_may_create(workload: Object, team_a: Credential) -> None:
    answer = team_a.create(workload, try_only=True)
    assert answer.status == 201, answer.message


def with_uids(value: Any, team: Credential) -> Any:
    """Forged owner references, with the uid of the team's own object of that name."""
    if isinstance(value, dict):
        if value.get("uid") == "UID":
            return {**value, "uid": team.read(value["kind"], value["name"]).content["metadata"]["uid"]}
        return {key: with_uids(inner, team) for key, inner in value.items()}
    return [with_uids(inner, team) for inner in value] if isinstance(value, list) else value


def test_a_team_may_keep_off_gpu_nodes_without_a_queue(team_a: Credential) -> None:
    kept_off = pod(spec(None, affinity=affinity(operator="DoesNotExist")), None, name="kept-off")
    assert created(team_a.create(kept_off))
    team_a.delete("Pod", "kept-off")


@pytest.mark.parametrize(("made", "why"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_a_team_can_not_create(made: Object, why: str, team_a: Credential) -> None:
    answer = team_a.create(with_uids(made, team_a))
    assert answer.status >= 400, f"created: {answer.content['kind']}"
    assert why in answer.message


UNQUEUED: Object = {"metadata": {"labels": {QUEUE: None}}}
SLOW = {"spec": {"terminationGracePeriodSeconds": 86400}}
CHANGED: list[tuple[str, str, str, Object, str]] = [
    ("take a waiting Job from its queue", "Job", "too-large", UNQUEUED, NO_QUEUE),
    ("take a running Job from its queue", "Job", "training", UNQUEUED, "queue"),
    ("take a JobSet from its queue", "JobSet", "slices", UNQUEUED, "queue"),
    ("take a server from its queue", "Deployment", "server", UNQUEUED, NO_QUEUE),
    ("let a running Job grow", "Job", "training", {"metadata": {"annotations": ELASTIC}}, FOREIGN),
    ("add pods to a running Job", "Job", "training", {"spec": {"parallelism": 9}}, "do not raise parallelism"),
    ("let a server's pods take a day to end", "Deployment", "server", {"spec": {"template": SLOW}}, TOO_LONG),
    ("forge an owner later", "Job", "too-large", {"metadata": {"ownerReferences": OF_JOBSET}}, OWNER),
    ("change a quota", "ResourceQuota", "tenant", {"spec": {"hard": {"configmaps": "9"}}}, RBAC),
    ("change a network policy", "NetworkPolicy", "ingress", {"spec": {"ingress": [{}]}}, RBAC),
    ("change a local queue", "LocalQueue", OWN, {"spec": {"stopPolicy": "None"}}, RBAC),
    ("lower the Pod Security level", "Namespace", "team-a", {"metadata": {"labels": {"x": "y"}}}, RBAC),
    ("change the admission policy", "ValidatingAdmissionPolicy", "tenant-team-a", {"spec": {}}, RBAC),
    ("change a cluster queue", "ClusterQueue", "team-a", {"spec": {"cohortName": "x"}}, RBAC),
]


@pytest.mark.parametrize("attempt", CHANGED, ids=[case[0] for case in CHANGED])
def test_a_team_can_not(attempt: tuple[str, str, str, Object, str], team_a: Credential) -> None:
    _, kind, name, change, why = attempt
    answer = team_a.change(kind, name, with_uids(change, team_a))
    assert answer.status >= 400, "changed"
    assert why in answer.message


def test_every_attack_of_the_matrix_is_refused(team_b: Credential) -> None:
    """Each field, finalizer and option that tests/support/tenant_matrix.yaml refuses, on each kind, by each verb."""
    pairs = [
        (make(spec(gpus=gpus), OTHERS, name="matrix"), make(spec(None), None, name="matrix-plain"))
        for make, gpus in ((pod, 1), (job, 9), (jobset, 9), (deployment, 9))
    ]
    others = [{**kept(kind), "metadata": {"name": "other"}} for kind in UNFINISHED]
    pairs += [(other, {**other, "metadata": {"name": "other-plain"}}) for other in others]
    made = [entry for pair in pairs for entry in pair]
    for entry in made:
        if entry["kind"] in ("Job", "JobSet"):
            entry["spec"]["suspend"] = True
        if entry["kind"] == "Deployment":
            entry["spec"]["replicas"] = 0
    try:
        for entry in made:
            created(team_b.create(entry))
        check_attacks(team_b.ask, [(*pair, PLACES[pair[0]["kind"]].format(team_b.team)) for pair in pairs])
    finally:
        for entry in made:
            team_b.delete(entry["kind"], entry["metadata"]["name"])


def test_a_team_can_not_create_more_jobsets_than_its_quota(team_a: Credential) -> None:
    created(team_a.create(jobset(spec(None), None, name="second")))
    # Until the quota's controller has seen the second, it may write that there is one.
    third = partial(team_a.create, jobset(name="third"), try_only=True)
    eventually(lambda: EXCEEDED in third().message, "the third exceeds the quota")
    team_a.delete("JobSet", "second")


def test_a_team_enters_its_pod_and_can_not_let_the_cluster_forget_it_while_it_runs(team_a: Credential) -> None:
    (training,) = eventually(lambda: pods_of(team_a, "job-name=training"), "the Job has its pod")
    # The policy judges commands too. The simulated node then has no process to enter.
    path = f"{PLACES['Pod'].format('team-a')}/{training['metadata']['name']}/exec?command=true&stdout=true"
    assert "denied request" not in team_a.ask("POST", path).message
    assert FORGOTTEN in team_a.delete("Pod", training["metadata"]["name"], gracePeriodSeconds=0).message
    # The API server writes a grace period of 0 for these.
    created(team_a.create(pod(spec(gpus=3), name="waits")))
    created(team_a.create(pod(spec(None), None, name="ends", annotations={"emulator.gke-ai/finish": "Succeeded"})))
    eventually(lambda: team_a.read("Pod", "ends").content["status"].get("phase") == "Succeeded", "the pod ends")
    for name in ("waits", "ends"):
        assert team_a.delete("Pod", name).status == 200


def test_a_team_deletes_a_run_with_its_pods_and_a_job_not_by_default(team_a: Credential) -> None:
    for kind, name in (("Job", "training"), ("JobSet", "slices"), ("Deployment", "server")):
        path = f"{PLACES[kind].format('team-a')}/{name}"
        for policy in ("Background", "Foreground"):
            assert team_a.ask("DELETE", path, {"propagationPolicy": policy, "dryRun": ["All"]}).status == 200, kind
    job = f"{PLACES['Job'].format('team-a')}/training"
    assert "would leave its pods" in team_a.ask("DELETE", job).message


def test_a_team_can_not_change_what_a_controller_starts(team_a: Credential) -> None:
    """JobSet starts its Jobs as they are, and Kueue counts the JobSet."""
    created(team_a.create(jobset(spec(gpus=9), name="held")))
    eventually(lambda: team_a.read("Job", "held-slice-0").status == 200, "the JobSet has its Job, which waits")
    pods = {"template": {"spec": {"containers": spec()["containers"]}}}
    specs: list[Object] = [{"parallelism": 2}, pods, {"suspend": False}]
    metadata: list[Object] = [{"labels": {QUEUE: OWN}}, {"annotations": {"example.com/note": "x"}}]
    for change in [*({"spec": change} for change in specs), *({"metadata": change} for change in metadata)]:
        assert OF_CONTROLLER in team_a.change("Job", "held-slice-0", change).message, change
    assert team_a.change("JobSet", "held", {"metadata": {"labels": {"mine": "yes"}}}).status == 200
    team_a.delete("JobSet", "held")


def test_a_team_can_not_start_its_own_pod(team_a: Credential) -> None:
    created(team_a.create(pod(spec(gpus=3), name="held")))
    (held,) = (pod for pod in team_a.read("Pod").content["items"] if pod["metadata"]["name"] == "held")
    assert {"name": "kueue.x-k8s.io/admission"} in held["spec"]["schedulingGates"]
    assert RBAC in team_a.change("Pod", "held", {"spec": {"schedulingGates": []}}).message
    assert RBAC in team_a.create(plain("Binding", "held", target={"kind": "Node", "name": "x"})).message


def test_a_team_neither_sees_nor_changes_what_another_has(team_a: Credential, team_b: Credential) -> None:
    refusal = team_b.create(job(queue=OWN)).message
    assert "uses a queue that team-b does not have" in refusal
    assert OTHERS in refusal  # what to write instead
    created(team_b.create(plain("Secret", "token", stringData={"token": "another's"})))
    answers = [team_a.read(kind, namespace="team-b") for kind in ("Job", "Workload", "LocalQueue", "Pod", "ConfigMap")]
    answers += [team_a.read("Secret", name, "team-b") for name in ("", "token")]
    answers += [team_a.create(job(queue=OTHERS), "team-b"), team_a.delete("NetworkPolicy", "ingress", "team-b")]
    for answer in answers:
        assert (answer.status, RBAC in answer.message, "data" in answer.content) == (403, True, False), answer.content


def test_the_platform_needs_a_queue_too_and_may_change_pods(shared: Emulator, team_a: Credential) -> None:
    """The emulator changes a pod whose image the user named as a program."""
    create = ("run", "x", "-n", "team-a", "--image", "example.com/x:1")
    shared.kubectl(*create, "--dry-run=server", "-l", f"{PICKER_LABEL}=x")
    eventually(lambda: running(team_a, "job-name=training"), "the Job runs")
    shared.kubectl("annotate", "pods", "-n", "team-a", "-l", "job-name=training", "example.com/seen=true")
    asks = '{"spec": {"containers": [{"name": "x", "image": "x:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}'
    kubectl = ("kubectl", "--kubeconfig", shared.kubeconfig())
    assert NO_QUEUE in shared.run(*kubectl, *create, "--overrides", asks, fails=True)


def test_pods_that_end_slowly_count_until_they_are_gone(shared: Emulator, team_b: Credential) -> None:
    """Kueue counts a deleted Job no more, while its pod still ends. The quota of the namespace does."""
    slow = spec(terminationGracePeriodSeconds=GRACE_SECONDS)
    # No process of the pod ends, as if it ignored SIGTERM.
    ignores = {"emulator.gke-ai/local-processes": "true"}
    used = []
    try:
        for index in range(ROUNDS):
            name = f"slow-{index}"
            created(team_b.create(template_of(job(slow, OTHERS, name), annotations=ignores)))
            refused = eventually(partial(started_or_refused, team_b, name), "it runs or is refused")
            used.append(in_use(team_b))
            team_b.delete("Job", name)
            if refused == EXCEEDED:
                break
    finally:
        force = ("delete", "pods", "-n", "team-b", "-l", "job-name!=tuned", "--force", "--grace-period=0")
        shared.kubectl(*force)
    assert max(used) == used[-1] == 2 * GPUS, used


def started_or_refused(team: Credential, name: str) -> bool | str:
    """Whether the pods of a Job run, or that the quota of the namespace refuses them."""
    events = team.ask("GET", f"api/v1/namespaces/{team.team}/events?fieldSelector=involvedObject.name={name}").content
    refused = any(EXCEEDED in event["message"] for event in events["items"])
    return running(team, f"job-name={name}") or (EXCEEDED if refused else "")


# --- a member with a kubeconfig alone ---------------------------------------------------------------------------------
PAGE = ROOT / "docs" / "for-people-who-train.md"
BEGIN = PAGE.read_text().partition("## What submit")[0]
_, SUBMIT, DESCRIBE, LOGS, CANCEL = map(shlex.split, re.findall(r"^(?:gcloud|gke-ai) .*$", BEGIN, re.M))


@pytest.fixture(scope="module")
def kubeconfig(shared: Emulator) -> Path:
    """A kubeconfig with only a token of team A's deployer."""
    return kubeconfig_of(shared, "team-a")


def as_member(kubeconfig: Path, command: list[str], *more: str) -> list[str]:
    """A command with the member's kubeconfig."""
    at = command.index("--") if "--" in command else len(command)
    return [*command[:at], "--kubeconfig", str(kubeconfig), *more, *command[at:]]


Ask = Callable[..., str]


@pytest.fixture
def ask(shared: Emulator, kubeconfig: Path) -> Ask:
    """Runs a command of the page as the member."""
    return lambda command, *more, fails=False: shared.run(*as_member(kubeconfig, command, *more), fails=fails)


def run_in_file(shared: Emulator, **changed: Any) -> list[str]:
    """The command of the page for a run in a file, with some keys changed."""
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.S)
    file = shared.state / "run.yaml"
    file.write_text(yaml.safe_dump({**yaml.safe_load(text), **changed}))
    return ["gke-ai", "submit", "--file", str(file), "--namespace", "team-a", "--detach"]


def submitted(team: Credential, name: str) -> list[Object]:
    """The JobSets of submitted runs that have this name."""
    return [item for item in team.read("JobSet").content["items"] if item["metadata"]["name"].startswith(f"{name}-")]


def test_a_wrong_manifest_is_refused_with_every_mistake(shared: Emulator, kubeconfig: Path) -> None:
    """The API server says one at a time. Asked for the object and for its pods, and with its warnings, it says all."""
    variable = {"name": "X", "valueFrom": {"secretKeyRef": {"name": "absent", "key": "x"}}}
    container = {"name": "main", "image": "i:1", "env": [variable], "securityContext": {"privileged": True}}
    spec = {"containers": [container], "restartPolicy": "Never", "serviceAccountName": "nobody", "hostNetwork": True}
    body = {"parallelism": 2000, "template": {"spec": spec}}
    file = shared.state / "wrong.yaml"
    file.write_text(yaml.safe_dump(item("Job", "wrong", body, "other", finalizers=["x.example/y"])))
    words = ["gke-ai", "submit", "--manifest", str(file), "--namespace", "team-a", "--kubeconfig", str(kubeconfig)]
    output = shared.run(*words, fails=True)
    for cause in (
        "the cluster refuses it: uses a queue that team-a does not have",
        "the cluster refuses it: has a finalizer that nobody would remove",
        "the cluster refuses it: runs as a service account that workloads may not use",
        'refuse its pods: pods "of-the-run" is forbidden: error looking up service account team-a/nobody',
        'violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true), privileged',
        "namespace team-a has no Secret absent, without which the pods do not start",
        "namespace team-a has no local queue other",
        "its pods together need 2000 of pods, and ResourceQuota tenant of namespace team-a allows 1000",
    ):
        assert cause in output, (cause, output)


def test_only_the_platform_writes_what_the_stack_publishes(team_a: Credential) -> None:
    path = f"{PLACES['ConfigMap'].format('team-a')}/{CONFIG_MAP}"
    assert team_a.read("ConfigMap", CONFIG_MAP).status == 200
    forged = {"name": CONFIG_MAP, "annotations": {ANNOTATION: "x"}}
    changed: Object = {**plain("ConfigMap", CONFIG_MAP), "metadata": forged}
    for answer in (
        team_a.change("ConfigMap", CONFIG_MAP, changed),
        team_a.ask("PUT", path, changed),
        team_a.delete("ConfigMap", CONFIG_MAP),
        team_a.create(plain("ConfigMap", CONFIG_MAP), try_only=True),
    ):
        assert "only the platform may write it" in answer.message
    assert team_a.ask("DELETE", PLACES["ConfigMap"].format("team-a")).status == 403  # of the collection
    assert team_a.read("ConfigMap", CONFIG_MAP).status == 200


def test_a_member_submits_a_run_that_is_preempted_and_resumes(ask: Ask, shared: Emulator, team_a: Credential) -> None:
    team_a.change("Deployment", "server/scale", {"spec": {"replicas": 0}})
    (manifest,) = yaml.safe_load_all(ask(SUBMIT, "--dry-run"))
    assert submitted(team_a, "first") == []
    assert "is submitted to queue queue-of-team-a" in ask(SUBMIT)
    (run,) = submitted(team_a, "first")
    assert run["metadata"]["annotations"]["gke-ai/submitted"] == manifest["metadata"]["annotations"]["gke-ai/submitted"]
    name = run["metadata"]["name"]
    eventually(lambda: running(team_a, f"jobset.sigs.k8s.io/jobset-name={name}"), "the run runs")
    assert "was submitted before" in ask(SUBMIT)
    assert [item["metadata"]["uid"] for item in submitted(team_a, "first")] == [run["metadata"]["uid"]]
    described = ask(DESCRIBE)
    assert "Queue queue-of-team-a: admitted on flavor gpus" in described
    assert "1 of 1 pods run on " in described
    assert f"team-a/{name}" in ask(["gke-ai", "runs", "--namespace", "team-a"])
    assert f"JobSet team-a/{name}: Started, 1 of 1 pods run, 0 restarts" in ask(LOGS)

    team_a.delete("JobSet", "slices")
    room = jobset(spec(None), None, name="room")
    eventually(lambda: team_a.create(room, try_only=True).status == 201, "the quota has room for a JobSet")
    ask(run_in_file(shared, pods=2))
    eventually(lambda: "evicted: preempted" in ask(DESCRIBE), "the run is preempted")
    assert re.search(r"place \d of \d in the queue", ask(DESCRIBE))
    urgent = ["gke-ai", "cancel", "urgent", "--namespace", "team-a"]
    assert "Canceled" in ask(urgent)
    eventually(lambda: running(team_a, f"jobset.sigs.k8s.io/jobset-name={name}"), "the same run runs again")
    assert [item["metadata"]["uid"] for item in submitted(team_a, "first")] == [run["metadata"]["uid"]]

    finish(shared, f"{name}-worker-0", "team-a")
    eventually(lambda: submitted(team_a, "first")[0]["status"].get("terminalState") == "Completed", "the run ends")
    assert "Submit it once more with --again" in ask(SUBMIT, fails=True)
    assert "is submitted" in ask(SUBMIT, "--again")
    assert submitted(team_a, "first")[0]["metadata"]["uid"] != run["metadata"]["uid"]

    remove = ["gke-ai", "remove-run", "first", "--namespace", "team-a"]
    assert "has not ended" in ask(remove, fails=True)
    shared.run("bucket", "put", "team-a-models", f"{name}/step-00000040-000001/COMPLETE")
    saved = "newest complete checkpoint: step-00000040-000001, step 40"
    assert (saved in ask(DESCRIBE), saved in ask(LOGS)) == (True, True)
    assert "step-00000040-000001" in ask(["gke-ai", "runs", "--namespace", "team-a"])
    eventually(lambda: running(team_a, f"jobset.sigs.k8s.io/jobset-name={name}"), "the run runs once more")
    finish(shared, f"{name}-worker-0", "team-a")
    eventually(lambda: submitted(team_a, "first")[0]["status"].get("terminalState") == "Completed", "the run ends")
    assert "Removed" in ask(remove)
    eventually(lambda: submitted(team_a, "first") == [], "the run is removed")


def test_a_run_is_followed_until_ctrl_c(shared: Emulator, kubeconfig: Path, team_a: Credential) -> None:
    process = shared.start(*as_member(kubeconfig, [word for word in SUBMIT if word != "--detach"]))
    assert process.stdout
    lines = iter(process.stdout.readline, "")
    shown: list[str] = []
    while "1 of 1 pods run on" not in "".join(shown[-1:]):
        shown.append(next(lines, ""))
        assert shown[-1], shown
    process.send_signal(signal.SIGINT)
    assert "Detached. The run goes on." in process.communicate()[0]
    assert process.returncode == 0
    assert len(submitted(team_a, "first")) == 1
    shared.run(*as_member(kubeconfig, CANCEL))


def with_code(shared: Emulator, kubeconfig: Path, team: str, folder: Path, *more: str, fails: bool = False) -> str:
    """Submits a run with the code of a folder."""
    options = f"--namespace={team} --image=example.com/local:1 --accelerator=nvidia-l4 --cpu=1 --memory=1Gi --detach"
    words = ["gke-ai", "submit", "local", *options.split(), f"--workdir={folder}", *more, "--", "python", "train.py"]
    return shared.run(*as_member(kubeconfig, words), fails=fails)


def test_local_code_comes_with_a_run_and_goes_with_it(
    shared: Emulator, kubeconfig: Path, team_a: Credential, team_b: Credential, tmp_path: Path
) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    for file, text in {"train.py": "import step\n", "step.py": "print('step', 0)\n", ".env": "SECRET=x\n"}.items():
        (folder / file).write_text(text)
    full = with_code(shared, kubeconfig, "team-a", folder, fails=True)
    assert re.search(r"the cluster refuses it: configmaps .* exceeded quota: tenant, requested: configmaps=1", full)
    assert submitted(team_a, "local") == []

    own = kubeconfig_of(shared, "team-b")
    printed = with_code(shared, own, "team-b", folder, "--dry-run")
    objects = [*yaml.safe_load_all(printed[printed.index("apiVersion") :])]
    assert ([item["kind"] for item in objects], submitted(team_b, "local")) == (["ConfigMap", "JobSet"], [])
    output = with_code(shared, own, "team-b", folder)
    assert "has 2 files for /workdir" in output
    assert "Left out: .env." in output
    assert "was submitted before" in with_code(shared, own, "team-b", folder)
    (run,) = submitted(team_b, "local")
    name = run["metadata"]["name"]
    code = team_b.read("ConfigMap", f"{name}-workdir").content
    assert code["metadata"]["ownerReferences"][0]["uid"] == run["metadata"]["uid"]
    label = f"jobset.sigs.k8s.io/jobset-name={name}"
    eventually(lambda: running(team_b, label), "the pod of the run runs")
    spec = pods_of(team_b, label)[0]["spec"]
    working = unpack(spec, code, tmp_path / "pod")
    assert (names_below(working), spec["containers"][0]["workingDir"]) == (["step.py", "train.py"], "/workdir")
    done = subprocess.run(spec["containers"][0]["command"], cwd=working, capture_output=True, text=True, check=True)
    assert done.stdout == "step 0\n"
    changed = {"binaryData": {"workdir.tar.gz": "AAAA"}}
    assert "field is immutable" in team_b.change("ConfigMap", f"{name}-workdir", changed).message
    assert RBAC in team_a.change("ConfigMap", f"{name}-workdir", changed, "team-b").message
    (folder / "step.py").write_text("print('step', 1)\n")
    # This machine runs no code that comes from the cluster, also where the user named a program for the image.
    shared.run("program", "add", "example.com/local:1", str(folder), "--", "python", "train.py")
    with_code(shared, own, "team-b", folder)
    (other,) = (item["metadata"]["name"] for item in submitted(team_b, "local") if item["metadata"]["name"] != name)
    as_member_of_b = ("--namespace", "team-b", "--kubeconfig", str(own))
    describe, refusal = ("gke-ai", "describe", other, *as_member_of_b), "the working directory /workdir is not /app"
    eventually(lambda: refusal in shared.run(*describe), "the emulator says why the program does not start")
    for entry in submitted(team_b, "local"):
        assert "Canceled" in shared.run("gke-ai", "cancel", entry["metadata"]["name"], *as_member_of_b)
    eventually(lambda: team_b.read("ConfigMap", f"{name}-workdir").status == 404, "the code is deleted with its run")


# Fails at its first start, once its log is read, so that JobSet creates its pod again. Completes at its second one.
RESTARTED = """
import pathlib, sys, time
file = pathlib.Path("started")
again = file.exists()
file.touch()
print("start", 2 if again else 1, flush=True)
while not pathlib.Path("read").exists():
    time.sleep(0.1)
sys.exit(0 if again else 1)
"""


def test_logs_are_followed_over_restarts(shared: Emulator, ask: Ask, kubeconfig: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(RESTARTED)
    shared.run("program", "add", "example.com/restarted:1", str(tmp_path), "--", "python", "train.py")
    command = [word.replace("example.com/train:1", "example.com/restarted:1") for word in SUBMIT]
    ask([word.replace("first", "restarted") for word in command])
    follow = ("gke-ai", "logs", "restarted", "--namespace", "team-a", "--follow", "--kubeconfig", str(kubeconfig))
    process = shared.start(*follow)
    assert process.stdout
    first = process.stdout.readline()
    (tmp_path / "read").touch()
    output = first + process.communicate(timeout=120)[0]
    assert process.returncode == 0, output
    starts = re.findall(r"^(restarted-\w+-worker-0-0-\w+): start (\d)$", output, re.M)
    assert [number for _, number in starts] == ["1", "2"], output
    assert starts[0][0] != starts[1][0]
    assert re.search(r"JobSet team-a/restarted-\w+: Completed, .* 1 restarts", output)
    assert "Removed" in ask(["gke-ai", "remove-run", "restarted", "--namespace", "team-a"])


# --- last of all ------------------------------------------------------------------------------------------------------
def test_tenants_stay_stable_and_are_deleted_with_their_workloads(shared: Emulator, team_a: Credential) -> None:
    assert shared.planned() == {}
    eventually(lambda: running(team_a, "job-name=training"), "the Job still runs")
    shared.make("down")
    gone(shared, Found(frozenset(), frozenset()))
