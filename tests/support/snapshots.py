"""Synthetic snapshots: many Workloads of many teams, in the state in which Kueue and Kubernetes leave them."""

import random
import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

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


TEMPLATES: dict[str, Object] = yaml.load(Path(__file__).with_suffix(".yaml").read_text(), yaml.CSafeLoader)


def filled(template: Any, values: Mapping[str, Any]) -> Any:
    """A template with values in the place of `$NAME`."""
    if isinstance(template, dict):
        return {key: filled(item, values) for key, item in template.items()}
    if isinstance(template, list):
        return [filled(item, values) for item in template]
    is_value = isinstance(template, str) and template.startswith("$")
    return values[template.removeprefix("$")] if is_value else template


class Synthesizer:
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
        times = {"lastTransitionTime": self.at(age), "observedGeneration": 1}
        return {"type": condition_type, "status": str(status), "reason": reason, **times}

    def fill(self, kind: str, name: str, namespace: str = "", age: float = 90000, **values: Any) -> Object:
        """Adds the object of a kind as snapshots.yaml has it."""
        return self.add(kind, name, namespace, age, **filled(TEMPLATES[kind], {"name": name, **values}))

    def team(self, name: str, running: int, pending: int) -> None:
        """A team with a queue that its running Jobs fill, and Jobs that wait."""
        self.fill("Namespace", name)
        used = {"cpu": str(4 * running), "memory": f"{8 * running}Gi", "nvidia.com/gpu": str(running)}
        counts = {"pendingWorkloads": pending, "reservingWorkloads": running, "admittedWorkloads": running}
        status = {"conditions": [self.condition("Active", True, "Ready", 80000)], **counts}
        totals = [{"name": key, "total": amount} for key, amount in used.items()]
        usage = [{"name": FLAVOR, "resources": totals}]
        borrowed = [{"name": FLAVOR, "resources": [{**total, "borrowed": "0"} for total in totals]}]
        of_queue = {**status, "flavorsReservation": borrowed, "flavorsUsage": borrowed}
        quotas = [{"name": key, "nominalQuota": amount} for key, amount in used.items()]
        self.fill("ClusterQueue", name, quotas=quotas, status=of_queue)
        local = filled(TEMPLATES["LocalQueue"], {"name": name, "status": status})
        local["status"] |= {"flavorsReservation": usage, "flavorsUsage": usage}
        self.add("LocalQueue", QUEUE, name, **local)
        for number in range(running):
            # Those that run came first and have the higher priority: Kueue preempts none of them.
            self.job(name, f"run-{number}", True, self.random.uniform(5000, 80000), "team-high")
        for number in range(pending):
            self.job(name, f"wait-{number}", False, self.random.uniform(10, 5000), self.random.choice(list(PRIORITIES)))

    def job(self, namespace: str, name: str, runs: bool, age: float, priority: str) -> None:
        """A Job with its Workload, and with its pod on a node if it runs."""
        uid = self.uid()
        pod = filled(TEMPLATES["pod"], {"requests": REQUESTS, "class": priority})
        own = {"batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": name}
        own |= {"controller-uid": uid, "job-name": name}
        workload = f"job-{name}-{self.random.getrandbits(20):05x}"
        template: Object = {"metadata": {"labels": own}, "spec": pod}
        if runs:
            labels = {**own, "kueue.x-k8s.io/podset": "main"}
            metadata = {"labels": labels, "annotations": {"kueue.x-k8s.io/workload": workload}}
            selected = {**pod, "nodeSelector": {"cloud.google.com/gke-nodepool": POOL}}
            template = {"metadata": metadata, "spec": selected}
        of_job = {"generation": 2 if runs else 1, "waits": not runs, "status": self._job_status(runs, age)}
        self.fill("Job", name, namespace, age, uid=uid, template=template, **of_job)
        values = {"name": name, "uid": uid, "pod": pod, "priority": PRIORITIES[priority], "class": priority}
        values["status"] = self._workload_status(namespace, runs, age)
        self.add("Workload", workload, namespace, age - 1, **filled(TEMPLATES["Workload"], values))
        if runs:
            self._pod(values, namespace, template, age - 4)

    def _job_status(self, runs: bool, age: float) -> Object:
        suspended = {"type": "Suspended", "status": str(not runs), "reason": "JobResumed" if runs else "JobSuspended"}
        times = {"lastTransitionTime": self.at(age - 3), "lastProbeTime": self.at(age - 3)}
        status: Object = {"conditions": [suspended | times], "ready": 0, "terminating": 0}
        if runs:
            status |= {"active": 1, "ready": 1, "startTime": self.at(age - 3)}
        return {**status, "uncountedTerminatedPods": {}}

    def _workload_status(self, queue: str, runs: bool, age: float) -> Object:
        if not runs:
            waits = self.condition("QuotaReserved", False, "Pending", age - 2)
            return {"conditions": [waits], "resourceRequests": [{"name": "main", "resources": REQUESTS}]}
        assignment = {"name": "main", "count": 1, "flavors": dict.fromkeys(REQUESTS, FLAVOR), "resourceUsage": REQUESTS}
        reached = (("QuotaReserved", "QuotaReserved", 2), ("Admitted", "Admitted", 2), ("PodsReady", "Started", 6))
        return {
            "admission": {"clusterQueue": queue, "podSetAssignments": [assignment]},
            "conditions": [self.condition(name, True, reason, age - later) for name, reason, later in reached],
        }

    def _pod(self, job: Object, namespace: str, template: Object, age: float) -> None:
        """The pod of a Job, by what its Workload has."""
        values = {**job, **template["metadata"], "node": f"gke-shared-{self.running // JOBS_PER_NODE:04}"}
        self.running += 1
        content = filled(TEMPLATES["Pod"], {**values, "at": self.at(age)})
        content["spec"] = {**template["spec"], **content["spec"]}
        self.add("Pod", f"{job['name']}-{self.random.getrandbits(20):05x}", namespace, age, **content)

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
