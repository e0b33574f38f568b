"""Builds timelines of clusters for tests, object by object, in the words of Kueue."""

from typing import Any

from gke_ai.forecast.outcome.timeline import Observation, Timeline
from gke_ai.kube.names import WorkloadName
from gke_ai.workspace.emulation import READY_AFTER

named = WorkloadName.parse
Item = dict[str, Any]
LONG_BEFORE = "2026-11-22T09:00:00Z"
UNUSED = (
    "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor l4, 2 more needed"
)


def conditions(**stated: tuple[str, str, str]) -> list[Item]:
    return [
        {"type": name, "status": status, "reason": reason, "message": message, "lastTransitionTime": LONG_BEFORE}
        for name, (status, reason, message) in stated.items()
    ]


ADMITTED = ("True", "Admitted", "The workload is admitted")
RESERVED = ("True", "QuotaReserved", "Quota reserved in ClusterQueue cluster-queue")


def owned(kind: str, name: str, uid: str) -> list[Item]:
    return [{"apiVersion": "v1", "kind": kind, "name": name, "uid": uid, "controller": True}]


def workload(uid: str, owner: list[Item], priority: int = 0, flavor: str = "", **stated: tuple[str, str, str]) -> Item:
    """A Workload. With a flavor it is admitted."""
    status: Item = {"conditions": conditions(**stated)}
    if flavor:
        status["conditions"] += conditions(QuotaReserved=RESERVED, Admitted=ADMITTED)
        assigned = {"name": "main", "flavors": {"cpu": flavor, "nvidia.com/gpu": flavor}}
        status["admission"] = {"clusterQueue": "cluster-queue", "podSetAssignments": [assigned]}
    metadata = {"name": f"workload-{uid}", "namespace": "llm", "uid": uid, "ownerReferences": owner}
    return {"metadata": metadata, "spec": {"queueName": "lq", "priority": priority}, "status": status}


def waiting(uid: str, owner: list[Item], priority: int = 0) -> Item:
    return workload(uid, owner, priority, QuotaReserved=("False", "Pending", UNUSED))


def evicted(uid: str, owner: list[Item], preemptor: str, job: str, priority: int = 20) -> Item:
    """A Workload that another one preempts in its cluster queue."""
    message = (
        f"Preempted to accommodate a workload (UID: {preemptor}, JobUID: {job}) due to prioritization in the "
        "ClusterQueue; preemptor path: /cluster-queue; preemptee path: /cluster-queue"
    )
    reasons: Item = {"Evicted": ("True", "Preempted", message), "Preempted": ("True", "InClusterQueue", message)}
    reasons |= {"QuotaReserved": ("False", "Pending", UNUSED)}
    reasons |= {"Admitted": ("False", "NoReservation", "The workload has no reservation")}
    return workload(uid, owner, priority, **reasons)


def pod(uid: str, owner: list[Item], node: str = "", gpus: int = 2, delay: float = 0, **more: Any) -> Item:
    """A pod with GPUs: without a node it waits, with one it runs. `more` are labels, deleted and ready."""
    ready = more.pop("ready", bool(node))
    metadata: Item = {"name": f"pod-{uid}", "namespace": "llm", "uid": uid, "ownerReferences": owner}
    metadata["labels"] = {"kueue.x-k8s.io/queue-name": "lq", **more.pop("labels", {})}
    metadata["annotations"] = {READY_AFTER: f"{delay}s"} if delay else {}
    if more.pop("deleted", False):
        metadata["deletionTimestamp"] = LONG_BEFORE
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    status: Item = {"phase": "Running" if ready else "Pending"}
    status["conditions"] = conditions(Ready=("True" if ready else "False", "Ready", ""))
    if more.pop("unschedulable", False):
        status["conditions"] += conditions(PodScheduled=("False", "Unschedulable", "0/3 nodes are available"))
    return {"metadata": metadata, "spec": {"nodeName": node, "containers": [container]}, "status": status}


def node(
    uid: str, pool: str = "l4", ready: bool = True, delay: float = 0, closed: bool = False, spot: bool = False
) -> Item:
    """A g2-standard-24 node with two L4 GPUs."""
    of_gke = {"nodepool": pool, "accelerator": "nvidia-l4", "provisioning": "spot" if spot else "standard"}
    of_gke |= {"spot": "true"} if spot else {}
    labels = {f"cloud.google.com/gke-{key}": value for key, value in of_gke.items()}
    metadata = {"name": f"node-{uid}", "uid": uid, "annotations": {READY_AFTER: f"{delay}s"} if delay else {}}
    metadata["labels"] = {**labels, "node.kubernetes.io/instance-type": "g2-standard-24"}
    status: Item = {"allocatable": {"nvidia.com/gpu": "2"}}
    status["conditions"] = conditions(Ready=("True" if ready else "False", "KubeletReady", ""))
    return {"metadata": metadata, "spec": {"unschedulable": True} if closed else {}, "status": status}


def deployment(name: str, wanted: int, ready: int) -> Item:
    template = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "lq"}}, "spec": {"containers": []}}
    metadata = {"name": name, "namespace": "llm", "uid": f"deployment-{name}"}
    spec = {"replicas": wanted, "template": template}
    return {"metadata": metadata, "spec": spec, "status": {"readyReplicas": ready}}


def replica(uid: str, server: str = "gemma", template: str = "abc", **more: Any) -> Item:
    owner = owned("ReplicaSet", f"{server}-{template}", f"replicas-{server}-{template}")
    return pod(uid, owner, labels={"pod-template-hash": template}, **more)


def cluster_queue(name: str, quota: str, used: str, cohort: str = "", **limits: str) -> Item:
    """A cluster queue with a quota of GPUs in flavor l4. `limits` are lendingLimit and borrowingLimit."""
    spec = {"resourceGroups": _groups(nominalQuota=quota, **limits)} | ({"cohortName": cohort} if cohort else {})
    status = {"flavorsReservation": _groups(total=used)[0]["flavors"]}
    return {"metadata": {"name": name, "uid": f"queue-{name}"}, "spec": spec, "status": status}


def cohort(name: str, quota: str = "0", parent: str = "", **limits: str) -> Item:
    """A cohort with a quota of GPUs in flavor l4."""
    spec = {"resourceGroups": _groups(nominalQuota=quota, **limits)} | ({"parentName": parent} if parent else {})
    return {"metadata": {"name": name, "uid": f"cohort-{name}"}, "spec": spec}


def _groups(**amounts: str) -> list[Item]:
    return [{"flavors": [{"name": "l4", "resources": [{"name": "nvidia.com/gpu", **amounts}]}]}]


def local_queue(name: str = "lq", queue: str = "cluster-queue", namespace: str = "llm") -> Item:
    metadata = {"name": name, "namespace": namespace, "uid": f"local-{namespace}-{name}"}
    return {"metadata": metadata, "spec": {"clusterQueue": queue}}


def job(name: str = "finetune", uid: str = "job-uid", suspend: bool = False, pods: int = 2, **status: Any) -> Item:
    spec = {"parallelism": pods, "completions": pods, "suspend": suspend, "template": {"spec": {"containers": []}}}
    return {"metadata": {"name": name, "namespace": "llm", "uid": uid}, "spec": spec, "status": status}


def warning(kind: str, name: str, message: str, reason: str = "FailedCreate") -> Item:
    """An event of a controller that can't create a pod."""
    involved = {"kind": kind, "name": name, "namespace": "llm"}
    return {"metadata": {"uid": f"event-{name}"}, "involvedObject": involved, "reason": reason, "message": message}


_NAMED = "Cohort Workload Pod Node Deployment StatefulSet Job JobSet Namespace Event Warning"
KINDS = {"queue": "ClusterQueue", "local": "LocalQueue", **{kind.lower(): kind for kind in _NAMED.split()}}


def timeline(
    *observed: tuple[float, str, Item] | tuple[float, str, Item, str], ended: float = 100, settled: bool = True
) -> Timeline:
    """A timeline of (second, kind, object), with `gone` for a deletion."""
    observations = tuple(
        Observation(float(entry[0]), KINDS[entry[1]], entry[2], len(entry) == 4)
        for entry in sorted(observed, key=lambda entry: entry[0])
    )
    return Timeline(observations, 5.0, ended, settled)


# A run that has its quota, and a server.
Observed = tuple[float, str, Item] | tuple[float, str, Item, str]
JOB = owned("Job", "finetune", "job-uid")
RUN, GEMMA = named("llm/job/finetune"), named("llm/deployment/gemma")
RUNS = (-1, "workload", workload("wj", JOB, 20, flavor="l4"))
