"""Stable names of workloads: those of the objects that a user knows, without the random ends that Kubernetes adds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from gke_ai.catalog.kueue.operators import BY_KIND
from gke_ai.kube.objects import Object, annotation, label
from gke_ai.kube.workloads import SERVERS

# Labels of Kubernetes, JobSet and LeaderWorkerSet on pods.
TEMPLATE_HASH = "pod-template-hash"
REVISION_HASH = "controller-revision-hash"
JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
LEADER_WORKER_SET_NAME = "leaderworkerset.sigs.k8s.io/name"
# Kueue's annotations on Workloads of StatefulSets and LeaderWorkerSets.
OWNER_KIND, OWNER_NAME = "kueue.x-k8s.io/job-owner-gvk", "kueue.x-k8s.io/job-owner-name"
# Kueue's annotation on pods with the name of their Workload: a kind, a name and a hash. It names the run whose
# controller makes a JobSet or a RayCluster: https://github.com/kubernetes-sigs/kueue/tree/v0.19.2/pkg/controller/jobframework
WORKLOAD = "kueue.x-k8s.io/workload"
_OF_OPERATORS = re.compile(rf"({'|'.join(map(str.lower, BY_KIND))})-(.+)-[0-9a-f]{{5}}")
_SERVERS = {kind.lower() for kind in (*SERVERS, "LeaderWorkerSet")}


@dataclass(frozen=True)
class WorkloadName:
    """The name of what runs pods. Its text is NAMESPACE/KIND/NAME, such as `llm/deployment/gemma`.

    Names are in the order of their texts. One of empty parts, whose text is empty too, names nothing and is false.
    """

    namespace: str
    kind: str
    """In lower case, such as `deployment`."""
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.kind}/{self.name}" if self else ""

    def __bool__(self) -> bool:
        return bool(self.name)

    def __lt__(self, other: WorkloadName) -> bool:
        return str(self) < str(other)

    @classmethod
    def of(cls, namespace: str, kind: object, name: object) -> Self:
        """Returns the name of an object of a kind, such as `Deployment`."""
        return cls(namespace, str(kind).lower(), str(name))

    @classmethod
    def parse(cls, text: object) -> Self:
        """Returns the name of a text, which may be empty. Raises ValueError if it is none."""
        parts = str(text).split("/") if text != "" else ["", "", ""]
        if len(parts) != 3:
            raise ValueError(f"{text!r} is no NAMESPACE/KIND/NAME")
        return cls(*parts)

    @classmethod
    def of_object(cls, kind: str, item: Object) -> Self:
        """Returns the name of an object itself."""
        return cls.of(item["metadata"]["namespace"], kind, item["metadata"]["name"])

    @classmethod
    def of_run(cls, kind: str, item: Object) -> Self:
        """Returns the name of the run that an object belongs to: of a JobSet's child Job that of the JobSet."""
        jobset = label(item, JOBSET_NAME)
        return cls.of(item["metadata"]["namespace"], "jobset", jobset) if jobset else cls.of_object(kind, item)

    @classmethod
    def of_pod(cls, pod: Object) -> Self:
        """Returns the name of a pod's Deployment, JobSet, Job, TrainJob, RayJob or other owner, else its own."""
        namespace, owner = pod["metadata"]["namespace"], owner_of(pod)
        if run := _OF_OPERATORS.fullmatch(annotation(pod, WORKLOAD)):
            return cls.of(namespace, run[1], run[2])
        if jobset := label(pod, JOBSET_NAME):
            return cls.of(namespace, "jobset", jobset)
        if group := label(pod, LEADER_WORKER_SET_NAME):
            return cls.of(namespace, "leaderworkerset", group)
        if owner.get("kind") == "ReplicaSet":
            return cls.of(namespace, "deployment", str(owner["name"]).removesuffix(f"-{label(pod, TEMPLATE_HASH)}"))
        return cls.of(namespace, owner["kind"], owner["name"]) if owner else cls.of_object("pod", pod)

    @classmethod
    def of_workload(cls, workload: Object, pods: Mapping[str, Object]) -> Self:
        """Returns the name of a Workload's owner. `pods` are by uid, also those that no longer exist."""
        namespace, owner = workload["metadata"]["namespace"], owner_of(workload)
        if owner.get("kind") == "Pod" and (pod := pods.get(owner.get("uid", ""))):
            return cls.of_pod(pod)
        if owner:
            return cls.of(namespace, owner["kind"], owner["name"])
        # A restored Workload has lost an owner whose kind a snapshot lacks.
        if kind := annotation(workload, OWNER_KIND).rpartition("Kind=")[2]:
            return cls.of(namespace, kind, annotation(workload, OWNER_NAME))
        if run := _OF_OPERATORS.fullmatch(str(workload["metadata"]["name"])):
            return cls.of(namespace, run[1], run[2])
        return cls.of_object("workload", workload)

    @property
    def has_replicas(self) -> bool:
        """Whether its pods are replicas, which its controller creates again."""
        return self.kind in _SERVERS


NO_WORKLOAD = WorkloadName("", "", "")


def is_part(item: Object) -> bool:
    """Whether a controller created the object as a part of another one. Another owner only deletes it."""
    return any(reference.get("controller") for reference in item["metadata"].get("ownerReferences") or [])


def owner_of(item: Object) -> Mapping[str, Any]:
    """Returns the controller of an object, else its first owner that is no pod, else its first, else an empty one."""
    references = item["metadata"].get("ownerReferences") or []
    controllers = [reference for reference in references if reference.get("controller")]
    # The Workload of a StatefulSet has its pods as owners too.
    others = [reference for reference in references if reference.get("kind") != "Pod"]
    return next(iter(controllers or others or references), {})
