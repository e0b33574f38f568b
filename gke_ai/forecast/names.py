"""Stable names of workloads: those of the objects that a user knows, without the random ends that Kubernetes adds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gke_ai.forecast.timeline import annotation
from gke_ai.kube.objects import Object, label

# Labels of Kubernetes, JobSet and LeaderWorkerSet on pods.
TEMPLATE_HASH = "pod-template-hash"
REVISION_HASH = "controller-revision-hash"
JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
LEADER_WORKER_SET_NAME = "leaderworkerset.sigs.k8s.io/name"
# Kueue's annotations on Workloads of StatefulSets and LeaderWorkerSets.
OWNER_KIND, OWNER_NAME = "kueue.x-k8s.io/job-owner-gvk", "kueue.x-k8s.io/job-owner-name"
# Kinds of servers: their pods are replicas, and controllers create these again.
SERVERS = ("deployment", "statefulset", "leaderworkerset")


def is_server_name(workload: str) -> bool:
    """Whether a stable name is that of a server."""
    return any(f"/{kind}/" in workload for kind in SERVERS)


def join_names(names: list[str]) -> str:
    """Joins names for a sentence."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def owner_of(item: Object) -> Mapping[str, Any]:
    """Returns the controller of an object, else its first owner that is no pod, else its first, else an empty one."""
    references = item["metadata"].get("ownerReferences") or []
    controllers = [reference for reference in references if reference.get("controller")]
    # The Workload of a StatefulSet has its pods as owners too.
    others = [reference for reference in references if reference.get("kind") != "Pod"]
    return next(iter(controllers or others or references), {})


def pod_name(pod: Object) -> str:
    """Returns the stable name of a pod: that of its Deployment, JobSet, Job or other owner, else its own."""
    namespace, owner = pod["metadata"]["namespace"], owner_of(pod)
    if jobset := label(pod, JOBSET_NAME):
        return f"{namespace}/jobset/{jobset}"
    if group := label(pod, LEADER_WORKER_SET_NAME):
        return f"{namespace}/leaderworkerset/{group}"
    if owner.get("kind") == "ReplicaSet":
        deployment = str(owner["name"]).removesuffix(f"-{label(pod, TEMPLATE_HASH)}")
        return f"{namespace}/deployment/{deployment}"
    if owner:
        return f"{namespace}/{str(owner['kind']).lower()}/{owner['name']}"
    return f"{namespace}/pod/{pod['metadata']['name']}"


def workload_name(workload: Object, pods: Mapping[str, Object]) -> str:
    """Returns the stable name of a Workload. `pods` are by uid, also those that no longer exist."""
    metadata, owner = workload["metadata"], owner_of(workload)
    if owner.get("kind") == "Pod":
        if pod := pods.get(owner.get("uid", "")):
            return pod_name(pod)
        # Kueue's name of a pod's Workload is `pod-POD-HASH`, and a Deployment's pod is `DEPLOYMENT-HASH-SUFFIX`.
        return f"{metadata['namespace']}/pod/{owner['name']}"
    if owner:
        return f"{metadata['namespace']}/{str(owner['kind']).lower()}/{owner['name']}"
    # A restored Workload has lost an owner whose kind a snapshot lacks.
    if kind := annotation(workload, OWNER_KIND).rpartition("Kind=")[2]:
        return f"{metadata['namespace']}/{kind.lower()}/{annotation(workload, OWNER_NAME)}"
    return f"{metadata['namespace']}/workload/{metadata['name']}"
