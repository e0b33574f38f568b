"""The objects of a simulation: the queues of a configuration as its components write them, and Workloads. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from gke_ai.catalog.fabric.topology import TOPOLOGY, TOPOLOGY_LEVELS
from gke_ai.catalog.machines.tpus import GOOGLE_TPU
from gke_ai.catalog.nodes.shape import ACCELERATORS, NVIDIA_GPU
from gke_ai.catalog.versions import KUEUE_API
from gke_ai.forecast.simulate import blocks
from gke_ai.forecast.simulate.generate import Source
from gke_ai.forecast.simulate.nodes import Nodes
from gke_ai.forecast.simulate.trace import Submission, Trace
from gke_ai.kube.blocks import assigned
from gke_ai.kube.workloads import released_conditions
from gke_ai.manifests.cluster_queue import NodeFlavor, cluster_queue, cohort_spec, flavor_spec, local_queue
from gke_ai.settings.model import AdmissionFairSharing
from gke_ai.settings.model.sharing import USAGE_BASED
from gke_ai.settings.resolved import ResolvedStack
from gke_ai.settings.resolved.queues import Queue
from gke_ai.terminal import Stop

Object = dict[str, Any]
# Kueue compares times in whole seconds, and only with one another. Each submission and each admission gets a second of
# its own from here on, in the order of the simulated clock. They are in the past, as Kueue expects.
MOST_PODS = 8
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


def second(number: int) -> str:
    """Returns the number-th second of the simulation, as Kubernetes writes times."""
    return (EPOCH + timedelta(seconds=number)).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class Queues:
    """The queues of a configuration."""

    stack: ResolvedStack

    @property
    def pools(self) -> list[Object]:
        """The pools on whose nodes Kueue places pods, as the emulator records them."""
        return blocks.pools(self.stack)

    @property
    def manager(self) -> Mapping[str, Any]:
        """What the configuration of Kueue's manager has in place of the program's."""
        return {}

    @cached_property
    def cluster_queues(self) -> dict[str, Queue]:
        """The cluster queues by name."""
        return {queue.section.name: queue for queue in self.stack.cluster_queues}

    @cached_property
    def by_local(self) -> dict[str, str]:
        """The cluster queue of each local queue, which is NAMESPACE/NAME."""
        return {f"{local.namespace}/{local.name}": local.cluster_queue for local in self.stack.queues.local_queues}

    @cached_property
    def priorities(self) -> dict[str, int]:
        """The value of each priority class, and that of pods that name none."""
        classes = self.stack.queues.priority_classes
        default = next((section.value for section in classes if section.global_default), 0)
        return {"": default, **{section.name: section.value for section in classes}}

    @cached_property
    def trees(self) -> dict[str, str]:
        """What Kueue's log calls the queues that share quota: `cohort/NAME` of the root, or `queue/NAME`."""
        return {
            name: f"cohort/{queue.member.root.name}" if queue.section.cohort else f"queue/{name}"
            for name, queue in self.cluster_queues.items()
        }

    @property
    def usage(self) -> AdmissionFairSharing | None:
        """How Kueue counts past usage, if it orders a cluster queue by it."""
        by_usage = any(queue.section.admission_mode == USAGE_BASED for queue in self.cluster_queues.values())
        return self.stack.queues.admission_fair_sharing if by_usage else None

    @cached_property
    def placed(self) -> frozenset[str]:
        """The flavors on which Kueue places pods by topology."""
        return frozenset(flavor.section.name for flavor in self.stack.flavors if flavor.has_topology)

    def groups(self, nodes: Nodes | None = None) -> list[frozenset[str]]:
        """Cluster queues that share quota or, if there are any, nodes: those that need a common clock.

        Kueue has one clock of past usage, for all cluster queues.
        """
        if self.usage:
            return [frozenset(self.cluster_queues)]
        groups: list[tuple[set[str], set[str]]] = []  # names, and what they share with others
        for name in self.cluster_queues:
            shared = {self.trees[name]}
            if nodes:
                shared |= {f"pool/{pool}" for flavor in self.flavors([name]) for pool in nodes.pools_of(flavor)}
            common = [group for group in groups if group[1] & shared]
            groups = [group for group in groups if group not in common]
            groups.append(({name}.union(*(own for own, _ in common)), shared.union(*(theirs for _, theirs in common))))
        return [frozenset(names) for names, _ in groups]

    def flavors(self, names: Iterable[str]) -> frozenset[str]:
        """The flavors of cluster queues."""
        return frozenset(quota.section.flavor for name in names for quota in self.cluster_queues[name].quotas)

    def first_flavor(self, name: str) -> str:
        """The flavor that a cluster queue prefers."""
        return self.cluster_queues[name].quotas[0].section.flavor

    def is_strict(self, name: str) -> bool:
        """Whether a workload that does not fit blocks later ones."""
        return self.cluster_queues[name].section.queueing_strategy == "StrictFIFO"

    def can_preempt(self, names: Iterable[str], priorities: set[int]) -> bool:
        """Whether Kueue may evict a workload of these queues for another one, if their priorities are these."""
        policies = {policy for name in names for policy in self.policies(name)}
        return bool(policies & {"Any", "LowerOrNewerEqualPriority"}) or (policies != {"Never"} and len(priorities) > 1)

    def policies(self, name: str) -> tuple[str, ...]:
        """Which workloads one of a cluster queue may preempt: of its own queue, and of its cohort."""
        section = self.cluster_queues[name].section.preemption
        return section.within_cluster_queue, section.reclaim_within_cohort

    def accelerator(self, name: str) -> str:
        """The accelerator resource of a cluster queue; that of GPUs if its quota has none."""
        resources = {resource for quota in self.cluster_queues[name].quotas for resource in quota.amounts}
        return next((resource for resource in ACCELERATORS if resource in resources), NVIDIA_GPU)

    def quota(self, name: str, resource: str) -> float:
        """The nominal quota of a cluster queue, over its flavors."""
        return float(sum(quota.amounts.get(resource, 0) for quota in self.cluster_queues[name].quotas))

    def most(self, name: str, resource: str) -> float:
        """The most that a cluster queue can use, over its flavors, with all that its cohort lends."""
        return float(sum(limits.get(resource, 0) for _, limits in self.cluster_queues[name].limits()))

    def check(self, trace: Trace) -> None:
        """Stops if a submission names a local queue or a priority class that the configuration does not have."""
        for row in trace:
            if row.queue not in self.by_local:
                known = ", ".join(self.by_local)
                raise Stop(
                    f"The trace submits to {row.queue}, but the configuration has no such queue. It has {known}."
                )
            if row.priority not in self.priorities:
                known = ", ".join(filter(None, self.priorities)) or "none"
                raise Stop(
                    f"The trace has priority class {row.priority}, but the configuration does not. It has {known}."
                )
            if row.topology and not self.flavors([self.by_local[row.queue]]) & self.placed:
                raise Stop(
                    f"The trace has topology {row.topology} in {row.queue}, whose flavors have no topology. The run "
                    "would never start. Leave it out, or use a flavor with topology: docs/topology.md."
                )

    def sources(self) -> list[Source]:
        """Where generated runs go: each local queue, with the lowest priority and pods that fit on its nodes."""
        return [self._source(local, name) for local, name in self.by_local.items()]

    def _source(self, local: str, name: str) -> Source:
        """A pod has an eighth of the quota and at most a node. A TPU pod has all chips of a node, as GKE demands.

        https://cloud.google.com/kubernetes-engine/docs/concepts/tpus#how-tpus-work
        """
        may_use = self.quota if self.quota(name, self.accelerator(name)) else self.most
        accelerators, kinds = may_use(name, self.accelerator(name)), Nodes(self.stack).of(self.first_flavor(name))
        room = kinds[0].room if kinds else None
        per_pod = max(1, int(accelerators // MOST_PODS)) if accelerators else 0
        if room and room.accelerators and per_pod:
            tpu = self.accelerator(name) == GOOGLE_TPU
            per_pod = room.accelerators if tpu else 2 ** (min(per_pod, room.accelerators).bit_length() - 1)
        pods = max(1, int(accelerators // per_pod)) if per_pod else MOST_PODS
        cpu, memory = may_use(name, "cpu") / pods, may_use(name, "memory") / pods / 2**30
        if room and per_pod and room.accelerators:
            on_node = room.accelerators // per_pod
            cpu, memory = min(cpu, room.cpu / 1000 / on_node), min(memory, room.memory / 2**30 / on_node)
        classes = self.stack.queues.priority_classes
        lowest = min(classes, key=lambda section: section.value).name if classes else ""
        spot = bool(kinds) and all(kind.is_spot for kind in kinds)
        return Source(local, lowest, per_pod, int(cpu * 900) / 1000, int(memory * 0.9), min(pods, MOST_PODS), spot)

    def objects(self) -> Iterator[tuple[str, Object]]:
        """Yields the objects with the paths of their collections, in the order in which the program creates them."""
        kueue = f"/apis/{KUEUE_API}"
        for namespace in sorted({local.namespace for local in self.stack.queues.local_queues} - {"default"}):
            yield "/api/v1/namespaces", new_object("Namespace", namespace, version="v1")
        if self.placed:
            yield f"{kueue}/topologies", new_object("Topology", TOPOLOGY, {"levels": list(TOPOLOGY_LEVELS)})
        for flavor in self.stack.flavors:
            # No controller provisions nodes, so the admission check of queued provisioning is left out.
            spec = flavor_spec(NodeFlavor(flavor.section.name, flavor.labels, topology=flavor.has_topology))
            yield f"{kueue}/resourceflavors", new_object("ResourceFlavor", flavor.section.name, spec)
        for cohort in self.stack.queues.cohorts:
            yield f"{kueue}/cohorts", new_object("Cohort", cohort.name, cohort_spec(cohort))
        for name, queue in self.cluster_queues.items():
            spec = cluster_queue(queue.section, [quota.texts for quota in queue.quotas])
            yield f"{kueue}/clusterqueues", new_object("ClusterQueue", name, spec)
        for local in self.stack.queues.local_queues:
            spec = local_queue(local.cluster_queue, local.fair_sharing)
            item = new_object("LocalQueue", local.name, spec, local.namespace)
            yield f"{kueue}/namespaces/{local.namespace}/localqueues", item


def workload(number: int, row: Submission, priority: int, accelerator: str) -> Object:
    """Returns the Workload of a submission. Its creation is the number-th second, so Kueue keeps the order."""
    namespace, _, queue = row.queue.partition("/")
    requests = {"cpu": f"{round(row.cpu * 1000)}m", "memory": str(round(row.memory * 2**30))}
    if row.accelerators:
        requests[accelerator] = str(row.accelerators)
    container = {"name": "main", "image": "simulated", "resources": {"requests": requests}}
    pod = {"containers": [container], "restartPolicy": "Never"}
    template = {"metadata": {}, "spec": pod}
    pod_sets = [{"name": "main", "count": row.pods, "template": template, **blocks.request(row.topology)}]
    return numbered(number, namespace, {"queueName": queue, "priority": priority, "podSets": pod_sets})


def numbered(number: int, namespace: str, spec: Object) -> Object:
    """Returns the Workload of the number-th submission with a spec."""
    item = new_object("Workload", name_of(number), {"active": True, **spec}, namespace)
    item["metadata"] |= {
        "uid": f"00000000-0000-4000-8000-{number:012d}",
        "creationTimestamp": second(number),
        "generation": 1,
    }
    return item


def flavor_of(item: Mapping[str, Any]) -> str:
    """The flavor of an admitted Workload: that of its accelerators, else that of another resource. Empty: unknown."""
    assignments = item["status"]["admission"].get("podSetAssignments") or [{}]
    flavors = assignments[0].get("flavors") or {}
    return str(next((flavors[name] for name in (*ACCELERATORS, *flavors) if name in flavors), ""))


def pods_by_node(item: Mapping[str, Any]) -> Counter[str]:
    """The pods of an admitted Workload by node. Empty: Kueue did not place them."""
    found = Counter[str]()
    for assignment in item["status"]["admission"].get("podSetAssignments") or ():
        for (*_, node), pods in assigned(assignment.get("topologyAssignment") or {}):
            found[node] += pods
    return found


def name_of(number: int) -> str:
    """The name of the Workload of a submission."""
    return f"run-{number:06d}"


def evicted(item: Mapping[str, Any]) -> Object:
    """Returns an evicted Workload without its quota reservation."""
    status = {key: value for key, value in item["status"].items() if key != "admission"}
    conditions = released_conditions(item, "Preempted", "Evicted in the simulation", second(0))
    return {**item, "status": {**status, "conditions": conditions}}


def stamped(item: Mapping[str, Any], number: int) -> Object:
    """Returns an admitted Workload whose reservation is of the number-th second: Kueue preempts the newest first."""
    conditions = [
        {**entry, "lastTransitionTime": second(number)} if entry["type"] in ("QuotaReserved", "Admitted") else entry
        for entry in item["status"]["conditions"]
    ]
    return {**item, "status": {**item["status"], "conditions": conditions}}


def new_object(
    kind: str, name: str, spec: Object | None = None, namespace: str = "", version: str = KUEUE_API
) -> Object:
    """Returns an object, by default of an API of Kueue."""
    place = {"namespace": namespace} if namespace else {}
    content = {} if spec is None else {"spec": spec}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **place}, **content}
