"""Synthetic snapshots: many Workloads of many teams, in the state in which Kueue and Kubernetes leave them."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from emulator.cloud.records import ClusterRecord
from emulator.nodes.objects import node_object
from gke_ai.catalog.nodes.shape import NodeShape
from gke_ai.forecast.snapshot.format import Snapshot, build

Object = dict[str, Any]
TAKEN = datetime(2026, 11, 22, 10, tzinfo=UTC)
POOL, FLAVOR, QUEUE = "shared", "shared-l4", "runs"
ZONE = "us-central1-a"
CLUSTER = ClusterRecord("synthetic", "p", "us-central1", "standard", [ZONE], "1.36.1-gke.1")
JOBS_PER_NODE = 2
REQUESTS = {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "1"}
PRIORITIES = {"team-low": -10, "team-high": 100}


class Synthesizer:
    """Makes the objects of one snapshot."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.objects: dict[str, list[Object]] = {}
        self.running = 0

    def uid(self) -> str:
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))

    def at(self, seconds: float) -> str:
        """The time that many seconds before the snapshot."""
        return (TAKEN - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")

    def add(self, kind: str, name: str, namespace: str = "", age: float = 90000, **content: Any) -> Object:
        metadata = {"name": name, "uid": self.uid(), "creationTimestamp": self.at(age), "generation": 1}
        metadata |= {"namespace": namespace} if namespace else {}
        item = {**content, "metadata": {**metadata, **content.get("metadata", {})}}
        self.objects.setdefault(kind, []).append(item)
        return item

    def condition(self, condition_type: str, status: bool, reason: str, age: float) -> Object:
        return {
            "type": condition_type,
            "status": str(status),
            "reason": reason,
            "lastTransitionTime": self.at(age),
            "observedGeneration": 1,
        }

    def team(self, name: str, running: int, pending: int) -> None:
        """A team with a queue that its running Jobs fill, and Jobs that wait."""
        self.add(
            "Namespace", name, metadata={"labels": {"kubernetes.io/metadata.name": name}}, status={"phase": "Active"}
        )
        used = {"cpu": str(4 * running), "memory": f"{8 * running}Gi", "nvidia.com/gpu": str(running)}
        quotas = [{"name": key, "nominalQuota": amount} for key, amount in used.items()]
        group = {"coveredResources": list(REQUESTS), "flavors": [{"name": FLAVOR, "resources": quotas}]}
        spec = {
            "namespaceSelector": {},
            "resourceGroups": [group],
            "queueingStrategy": "BestEffortFIFO",
            "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
            "preemption": {
                "withinClusterQueue": "LowerPriority",
                "reclaimWithinCohort": "Never",
                "borrowWithinCohort": {"policy": "Never"},
            },
            "stopPolicy": "None",
        }
        in_use = {"finalizers": ["kueue.x-k8s.io/resource-in-use"]}
        status = {
            "conditions": [self.condition("Active", True, "Ready", 80000)],
            "pendingWorkloads": pending,
            "reservingWorkloads": running,
            "admittedWorkloads": running,
        }
        totals = [{"name": key, "total": amount} for key, amount in used.items()]
        usage = [{"name": FLAVOR, "resources": totals}]
        borrowed = [{"name": FLAVOR, "resources": [{**total, "borrowed": "0"} for total in totals]}]
        of_queue = {**status, "flavorsReservation": borrowed, "flavorsUsage": borrowed}
        self.add("ClusterQueue", name, metadata=in_use, spec=spec, status=of_queue)
        local = {**status, "flavorsReservation": usage, "flavorsUsage": usage}
        self.add("LocalQueue", QUEUE, name, spec={"clusterQueue": name, "stopPolicy": "None"}, status=local)
        for number in range(running):
            # Those that run came first and have the higher priority: Kueue preempts none of them.
            self.job(name, f"run-{number}", True, self.random.uniform(5000, 80000), "team-high")
        for number in range(pending):
            self.job(name, f"wait-{number}", False, self.random.uniform(10, 5000), self.random.choice(list(PRIORITIES)))

    def job(self, namespace: str, name: str, runs: bool, age: float, priority: str) -> None:
        """A Job with its Workload, and with its pod on a node if it runs."""
        container = {"name": "main", "resources": {"limits": REQUESTS, "requests": REQUESTS}}
        spec: Object = {
            "containers": [container],
            "restartPolicy": "Never",
            "schedulerName": "default-scheduler",
            "terminationGracePeriodSeconds": 30,
            "priorityClassName": priority,
        }
        uid = self.uid()
        own = {"batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": name}
        own |= {"controller-uid": uid, "job-name": name}
        workload = f"job-{name}-{self.random.getrandbits(20):05x}"
        placed = {**spec, "nodeSelector": {"cloud.google.com/gke-nodepool": POOL}} if runs else spec
        started = {
            "labels": {**own, "kueue.x-k8s.io/podset": "main"},
            "annotations": {"kueue.x-k8s.io/workload": workload},
        }
        template = {"metadata": started if runs else {"labels": own}, "spec": placed}
        job = self.add(
            "Job",
            name,
            namespace,
            age,
            metadata={"uid": uid, "labels": {"kueue.x-k8s.io/queue-name": QUEUE}, "generation": 2 if runs else 1},
            spec={
                "parallelism": 1,
                "completions": 1,
                "completionMode": "NonIndexed",
                "backoffLimit": 6,
                "suspend": not runs,
                "manualSelector": False,
                "podReplacementPolicy": "TerminatingOrFailed",
                "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}},
                "template": template,
            },
            status=self._job_status(runs, age),
        )
        owner = [{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}]
        owner[0]["blockOwnerDeletion"] = True
        queued = {"metadata": {"labels": {"batch.kubernetes.io/job-name": name}}, "spec": spec}
        pod_set = {"name": "main", "count": 1, "template": queued}
        self.add(
            "Workload",
            workload,
            namespace,
            age - 1,
            metadata={
                "ownerReferences": owner,
                "finalizers": ["kueue.x-k8s.io/resource-in-use"],
                "labels": {"kueue.x-k8s.io/job-uid": uid},
            },
            spec={
                "active": True,
                "podSets": [pod_set],
                "queueName": QUEUE,
                "priority": PRIORITIES[priority],
                "priorityClassRef": {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": priority},
            },
            status=self._workload_status(namespace, runs, age),
        )
        if runs:
            self._pod(job, template, age - 4)

    def _job_status(self, runs: bool, age: float) -> Object:
        suspended = {"type": "Suspended", "status": str(not runs), "reason": "JobResumed" if runs else "JobSuspended"}
        times = {"lastTransitionTime": self.at(age - 3), "lastProbeTime": self.at(age - 3)}
        status: Object = {"conditions": [suspended | times], "ready": 0, "terminating": 0}
        if runs:
            status |= {"active": 1, "ready": 1, "startTime": self.at(age - 3)}
        return {**status, "uncountedTerminatedPods": {}}

    def _workload_status(self, queue: str, runs: bool, age: float) -> Object:
        if not runs:
            return {
                "conditions": [self.condition("QuotaReserved", False, "Pending", age - 2)],
                "resourceRequests": [{"name": "main", "resources": REQUESTS}],
            }
        assignment = {"name": "main", "count": 1, "flavors": dict.fromkeys(REQUESTS, FLAVOR), "resourceUsage": REQUESTS}
        reached = (("QuotaReserved", "QuotaReserved", 2), ("Admitted", "Admitted", 2), ("PodsReady", "Started", 6))
        return {
            "admission": {"clusterQueue": queue, "podSetAssignments": [assignment]},
            "conditions": [self.condition(name, True, reason, age - later) for name, reason, later in reached],
        }

    def _pod(self, job: Object, template: Object, age: float) -> None:
        node = f"gke-shared-{self.running // JOBS_PER_NODE:04}"
        self.running += 1
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid}
        tolerations = [
            {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            for key in ("not-ready", "unreachable")
        ]
        gpu = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
        types = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
        self.add(
            "Pod",
            f"{name}-{self.random.getrandbits(20):05x}",
            job["metadata"]["namespace"],
            age,
            metadata={
                **template["metadata"],
                "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
                "finalizers": ["batch.kubernetes.io/job-tracking"],
            },
            spec={
                **template["spec"],
                "nodeName": node,
                "tolerations": [*tolerations, gpu],
                "priority": PRIORITIES[template["spec"]["priorityClassName"]],
                "preemptionPolicy": "PreemptLowerPriority",
            },
            status={
                "phase": "Running",
                "startTime": self.at(age),
                "qosClass": "Guaranteed",
                "conditions": [{"type": key, "status": "True", "lastTransitionTime": self.at(age)} for key in types],
                "containerStatuses": [
                    {
                        "name": "main",
                        "ready": True,
                        "started": True,
                        "restartCount": 0,
                        "state": {"running": {"startedAt": self.at(age)}},
                    }
                ],
            },
        )

    def node(self, number: int) -> None:
        shape = NodeShape(POOL, "g2-standard-24", "nvidia-l4", 2, "default", "onDemand", ZONE, 100, {}, True)
        node = node_object(CLUSTER, shape, f"gke-shared-{number:04}")
        times = {"lastTransitionTime": self.at(86000), "lastHeartbeatTime": self.at(30)}
        node["status"]["conditions"] = [{"type": "Ready", "status": "True", "reason": "KubeletReady", **times}]
        whole = {field: node[field] for field in ("metadata", "spec", "status")}
        self.add("Node", node["metadata"]["name"], age=88000, **whole)


def objects(workloads: int, teams: int = 10, seed: int = 0) -> dict[str, list[Object]]:
    """The objects of teams that have this many Workloads together. Half of them run, the others wait."""
    made = Synthesizer(seed)
    for name, value in PRIORITIES.items():
        made.add("PriorityClass", name, value=value, preemptionPolicy="PreemptLowerPriority")
    in_use = {"finalizers": ["kueue.x-k8s.io/resource-in-use"]}
    made.add("ResourceFlavor", FLAVOR, metadata=in_use, spec={"nodeLabels": {"cloud.google.com/gke-nodepool": POOL}})
    for number, share in enumerate(_shares(workloads, teams)):
        made.team(f"team-{number}", (share + 1) // 2, share // 2)
    for number in range(-(-made.running // JOBS_PER_NODE)):
        made.node(number)
    return made.objects


def synthetic(workloads: int, teams: int = 10, seed: int = 0, base: Snapshot | None = None) -> Snapshot:
    """A snapshot of teams that have this many Workloads together, beside those of a base snapshot."""
    made = build("synthetic", objects(workloads, teams, seed), TAKEN)
    if base is None:
        return made
    beside = base.at(TAKEN)
    merged = {kind: _merged(beside.of(kind), made.of(kind)) for kind in beside.objects.keys() | made.objects.keys()}
    return build(base.stack, merged, TAKEN, missing=base.missing)


def _merged(base: list[Object], more: list[Object]) -> list[Object]:
    """The objects of both. Those of `more` replace others of the same name."""
    by_name = {(item["metadata"].get("namespace"), item["metadata"]["name"]): item for item in (*base, *more)}
    return list(by_name.values())


def _shares(total: int, parts: int) -> Iterator[int]:
    return (total // parts + (number < total % parts) for number in range(parts))


def snapshot(**more: list[Object]) -> Snapshot:
    """Local queues as in prod."""
    queues = [
        {"metadata": {"name": name, "namespace": "training"}, "spec": {"clusterQueue": queue}}
        for name, queue in (("gpus", "training"), ("slices", "slices"))
    ]
    return build("prod", {"LocalQueue": queues, **more}, TAKEN)
