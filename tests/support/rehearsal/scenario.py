"""A scenario of queues and workloads as plain data, and the objects that the program and its tenants create for it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gke_ai.catalog.nodes.quota import QUEUE_LABEL
from gke_ai.catalog.nodes.shape import GKE_ACCELERATOR, GKE_NODEPOOL, NVIDIA_GPU
from gke_ai.forecast.snapshot.fields import kinds
from gke_ai.manifests.cluster_queue import NodeFlavor, cluster_queue, cohort_spec, flavor_spec, local_queue
from gke_ai.settings.model import Queues

Object = dict[str, Any]
ACCELERATOR = "nvidia-l4"


@dataclass(frozen=True)
class Run:
    """A workload of one tenant: a Job with one pod, or a Deployment with `replicas` pods."""

    name: str
    queue: str
    gpus: int
    priority: str | None = None
    kind: Literal["Job", "Deployment"] = "Job"
    replicas: int = 1


@dataclass(frozen=True)
class Pool:
    """An autoscaled pool of nodes with 2 GPUs. The flavor of its name has its nodes."""

    name: str
    max_nodes: int
    capacity: str = "onDemand"


@dataclass(frozen=True)
class Scenario:
    """Queues in the form of the section `gke-ai:queues`, and the workloads of the tenants in order of submission.

    Every cluster queue has a local queue with its name in the namespace of the scenario. Those of the section are there
    besides, whatever their namespace says.
    """

    queues: Mapping[str, Any]
    runs: tuple[Run, ...] = ()
    stopped: Mapping[str, str] = field(default_factory=dict)
    """Stop policies that an operator set on cluster queues, by name. The program has no key for them."""
    pools: tuple[Pool, ...] = ()
    """Pools of nodes. Without them, every flavor has any node."""


@dataclass(frozen=True)
class Change:
    """A scenario before and after a change. Its namespace is also the prefix of everything outside the namespace."""

    namespace: str
    scenario: Scenario
    changed: Scenario


def path_of(obj: Object) -> str:
    metadata = obj["metadata"]
    return f"{kinds()[obj['kind']].path(metadata.get('namespace', ''))}/{metadata['name']}"


def make(kind: str, name: str, namespace: str | None = None, **content: Any) -> Object:
    place = {"namespace": namespace} if namespace else {}
    return {"apiVersion": kinds()[kind].api, "kind": kind, "metadata": {"name": name, **place}, **content}


def queue_objects(scenario: Scenario, namespace: str) -> Iterator[Object]:
    """The objects that the program registers for the queues, in its order, with the specs that its components write.

    What is not in a namespace has the namespace as a prefix, so that scenarios share a cluster without meeting.
    """
    queues = Queues.model_validate(scenario.queues)
    prefix = f"{namespace}-"
    yield make("Namespace", namespace)
    for priority in queues.priority_classes:
        default, policy = priority.global_default, priority.preemption
        name, value = prefix + priority.name, priority.value
        yield make("PriorityClass", name, value=value, preemptionPolicy=policy, globalDefault=default)
    for flavor in queues.flavors:
        pools = [pool for pool in scenario.pools if pool.name == flavor.name]
        labels = {GKE_ACCELERATOR: ACCELERATOR, GKE_NODEPOOL: prefix + flavor.name} if pools else None
        yield make("ResourceFlavor", prefix + flavor.name, spec=flavor_spec(NodeFlavor(flavor.name, labels)))
    for cohort in queues.cohorts:
        yield make("Cohort", prefix + cohort.name, spec=_prefixed(cohort_spec(cohort), prefix))
    for queue in queues.cluster_queues:
        spec = cluster_queue(queue, [quota.quota for quota in queue.flavors if isinstance(quota.quota, dict)])
        if queue.name in scenario.stopped:
            spec["stopPolicy"] = scenario.stopped[queue.name]
        yield make("ClusterQueue", prefix + queue.name, spec=_prefixed(spec, prefix))
    for queue in queues.cluster_queues:
        yield make("LocalQueue", queue.name, namespace, spec={"clusterQueue": prefix + queue.name})
    for local in queues.local_queues:
        yield make(
            "LocalQueue", local.name, namespace, spec=local_queue(prefix + local.cluster_queue, local.fair_sharing)
        )


def _prefixed(spec: Object, prefix: str) -> Object:
    """The spec of a cohort or a cluster queue with the prefix of its scenario before the names in it."""
    for group in spec.get("resourceGroups", ()):
        for flavor in group["flavors"]:
            flavor["name"] = prefix + flavor["name"]
    return spec | {key: prefix + spec[key] for key in ("cohortName", "parentName") if key in spec}


def run_object(run: Run, namespace: str) -> Object:
    """The object with which a tenant submits the workload."""
    gpus = {NVIDIA_GPU: str(run.gpus)}
    pod = {
        "containers": [{"name": "main", "image": "example.com/training:1", "resources": {"limits": gpus}}],
        "terminationGracePeriodSeconds": 1,
        **({"priorityClassName": f"{namespace}-{run.priority}"} if run.priority else {}),
    }
    if run.kind == "Job":
        spec: Object = {"backoffLimit": 100, "template": {"spec": {**pod, "restartPolicy": "Never"}}}
    else:
        labels = {"app": run.name}
        template = {"metadata": {"labels": labels}, "spec": pod}
        spec = {"replicas": run.replicas, "selector": {"matchLabels": labels}, "template": template}
    obj = make(run.kind, run.name, namespace, spec=spec)
    obj["metadata"]["labels"] = {QUEUE_LABEL: run.queue}
    return obj
