"""The queues and runs of a cluster, read from its objects for a forecast of starts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import Any

from catalog.objects import condition, holds
from catalog.quantities import parse_quantity
from forecast.admission import ClusterQueue, Run, Share
from forecast.durations import Record
from forecast.names import workload_name
from forecast.queue import SERVER
from forecast.timeline import Object

Objects = Mapping[str, Iterable[Object]]
_SERVING = "kueue.x-k8s.io/pod-group-serving"


@dataclass(frozen=True)
class State:
    """The queues and runs of a cluster at one time.

    Attributes:
        now: The time, in seconds since 1970.
        queues: Cluster queues by name.
        local: Cluster queue of each local queue, which is NAMESPACE/NAME.
        stopped: Local queues that admit nobody.
        flavors: Node labels of each flavor.
        priorities: Priority of each PriorityClass by name, and of each WorkloadPriorityClass as `kueue/NAME`.
        records: The runs.
        nested: Whether a cohort is part of another one.
    """

    now: float
    queues: Mapping[str, ClusterQueue]
    local: Mapping[str, str]
    stopped: frozenset[str]
    flavors: Mapping[str, Mapping[str, str]]
    priorities: Mapping[str, int]
    records: tuple[Record, ...]
    nested: bool

    def unsuitable(self, selector: Mapping[str, str]) -> frozenset[str]:
        """Returns the flavors whose labels contradict a node selector. Kueue compares only labels of the flavor."""
        return frozenset(
            name
            for name, labels in self.flavors.items()
            if any(key in selector and selector[key] != value for key, value in labels.items())
        )


def state(objects: Objects, taken_at: datetime) -> State:
    """Reads the state of a cluster from its objects by kind."""
    parents = {item["metadata"]["name"]: item.get("spec", {}).get("parentName") for item in objects.get("Cohort", ())}
    queues = [cluster_queue(item, parents) for item in objects.get("ClusterQueue", ())]
    flavors = {
        item["metadata"]["name"]: (item.get("spec") or {}).get("nodeLabels") or {}
        for item in objects.get("ResourceFlavor", ())
    }
    local = {_full_name(item): item for item in objects.get("LocalQueue", ())}
    read = State(
        taken_at.timestamp(),
        {queue.name: queue for queue in queues},
        {name: str(item["spec"]["clusterQueue"]) for name, item in local.items()},
        frozenset(name for name, item in local.items() if item["spec"].get("stopPolicy", "None") != "None"),
        flavors,
        {
            **{item["metadata"]["name"]: int(item["value"]) for item in objects.get("PriorityClass", ())},
            "": next((int(item["value"]) for item in objects.get("PriorityClass", ()) if item.get("globalDefault")), 0),
            **{
                f"kueue/{item['metadata']['name']}": int(item["value"])
                for item in objects.get("WorkloadPriorityClass", ())
            },
        },
        (),
        any(parents.values()),
    )
    pods = {item["metadata"]["uid"]: item for item in objects.get("Pod", ())}
    records = tuple(
        record for item in objects.get("Workload", ()) if (record := _record(item, read, workload_name(item, pods)))
    )
    return State(**{**vars(read), "records": records})


def cluster_queue(item: Object, parents: Mapping[str, str | None]) -> ClusterQueue:
    """Reads a ClusterQueue. Its cohort is the outermost one."""
    spec = item["spec"]
    groups, shares = [], {}
    for group in spec.get("resourceGroups") or []:
        flavors = group.get("flavors") or []
        groups.append((frozenset(group.get("coveredResources") or []), tuple(flavor["name"] for flavor in flavors)))
        for flavor in flavors:
            for resource in flavor.get("resources") or []:
                limits = (
                    _amount(resource[key]) if key in resource else inf for key in ("borrowingLimit", "lendingLimit")
                )
                shares[flavor["name"], resource["name"]] = Share(_amount(resource.get("nominalQuota", 0)), *limits)
    cohort = spec.get("cohortName") or ""
    seen = set[str]()
    while cohort not in seen and (parent := parents.get(cohort)):
        seen.add(cohort)
        cohort = parent
    preemption = spec.get("preemption") or {}
    return ClusterQueue(
        item["metadata"]["name"],
        shares,
        tuple(groups),
        cohort,
        strict=spec.get("queueingStrategy") == "StrictFIFO",
        within=preemption.get("withinClusterQueue", "Never"),
        reclaim=preemption.get("reclaimWithinCohort", "Never"),
        stopped=spec.get("stopPolicy", "None") != "None" or condition(item, "Active").get("status") == "False",
    )


def pod_sets(spec: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yields the number of pods and the pod spec of each pod set of a Workload."""
    for pod_set in spec.get("podSets") or []:
        yield int(pod_set.get("count", 1)), pod_set["template"]["spec"]


def requests(pods: Iterable[tuple[int, Mapping[str, Any]]]) -> dict[str, float]:
    """Returns the requests of pods by resource. A limit without a request counts, as in Kubernetes."""
    total: dict[str, float] = {}
    for count, spec in pods:
        for resource, amount in _pod_requests(spec).items():
            total[resource] = total.get(resource, 0.0) + count * amount
    return {resource: amount for resource, amount in total.items() if amount}


def _pod_requests(spec: Mapping[str, Any]) -> dict[str, float]:
    """https://kubernetes.io/docs/concepts/workloads/pods/init-containers/#resource-sharing-within-containers"""
    total: dict[str, float] = {}
    highest: dict[str, float] = {}
    for container in (*(spec.get("initContainers") or []), *(spec.get("containers") or [])):
        resources = container.get("resources") or {}
        wanted = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        stays = container in (spec.get("containers") or []) or container.get("restartPolicy") == "Always"
        for resource, text in wanted.items():
            before, amount = total.get(resource, 0.0), _amount(text)
            highest[resource] = max(highest.get(resource, 0.0), before + amount)
            if stays:
                total[resource] = before + amount
    overhead = spec.get("overhead") or {}
    return {
        resource: max(total.get(resource, 0.0), highest.get(resource, 0.0)) + _amount(overhead.get(resource, 0))
        for resource in {*total, *highest, *overhead}
    }


def _record(item: Object, read: State, name: str) -> Record | None:
    """Reads a Workload. None if its queue does not exist, or if it is deactivated."""
    spec, status = item["spec"], item.get("status") or {}
    admission = status.get("admission") or {}
    source = f"{item['metadata'].get('namespace', '')}/{spec.get('queueName', '')}"
    queue = admission.get("clusterQueue") or read.local.get(source, "")
    finished = holds(item, "Finished")
    if queue not in read.queues or not (finished or spec.get("active", True)):
        return None
    reserved = condition(item, "QuotaReserved")
    started = _seconds(reserved) if reserved.get("status") == "True" else None
    if finished and started is None:
        return None  # it was deleted or rejected while it waited
    usage: dict[tuple[str, str], float] = {}
    for pod_set in admission.get("podSetAssignments") or []:
        for resource, flavor in (pod_set.get("flavors") or {}).items():
            amount = _amount((pod_set.get("resourceUsage") or {}).get(resource, 0))
            usage[flavor, resource] = usage.get((flavor, resource), 0.0) + amount
    pods = [*pod_sets(spec)]
    run = Run(
        name,
        queue,
        datetime.fromisoformat(item["metadata"]["creationTimestamp"]).timestamp(),
        {resource: amount for (_, resource), amount in usage.items()} or requests(pods),
        int(spec.get("priority") or 0),
        read.unsuitable({key: value for _, pod in pods for key, value in (pod.get("nodeSelector") or {}).items()}),
        SERVER in name or bool((item["metadata"].get("annotations") or {}).get(_SERVING)),
        source,
    )
    evicted = condition(item, "Evicted") or (status.get("schedulingStats") or {}).get("evictions")
    ended = _seconds(condition(item, "Finished")) if finished else None
    return Record(run, started, ended, tuple(usage.items()), not evicted)


def _full_name(item: Object) -> str:
    return f"{item['metadata']['namespace']}/{item['metadata']['name']}"


def _seconds(entry: Object) -> float:
    return datetime.fromisoformat(entry["lastTransitionTime"]).timestamp()


def _amount(text: object) -> float:
    return float(parse_quantity(str(text)))
