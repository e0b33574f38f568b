"""Questions about one run whose answer is public: clusters in namespaces of their own, the run, and what Kueue does.

Each cluster is written after the report that its `source` names, in the folder of issues of kubernetes-sigs/kueue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gke_ai.catalog.nodes.quota import QUEUE_LABEL
from tests.support.rehearsal.scenario import make

Object = dict[str, Any]
SPOT = "cloud.google.com/gke-provisioning"
CPU = "cpu"


@dataclass(frozen=True)
class Question:
    """A cluster, a run, and the answer.

    Attributes:
        name: Namespace, and prefix of what is in none.
        source: Number of the issue of kubernetes-sigs/kueue.
        objects: What the cluster runs.
        run: The run.
        starts: Whether Kueue admits it, perhaps after preemptions.
        flavors: The flavors that it gets, without prefix.
        pods: The pods that Kueue admits. 0: all, or none.
        preempts: The runs that it preempts.
        never: Whether it would wait in an empty cluster too.
        ahead: Runs that are before it.
        waits_for: What it waits for, in part.
        lacks: What some of its pods wait for although Kueue admits it, in part.
        pools: GPU pools that the cluster has.
    """

    name: str
    source: int
    objects: tuple[Object, ...]
    run: Object
    starts: bool = False
    flavors: tuple[str, ...] = ()
    pods: int = 0
    preempts: tuple[str, ...] = ()
    never: bool = False
    ahead: tuple[str, ...] = ()
    waits_for: str = ""
    lacks: str = ""
    pools: tuple[Object, ...] = ()


def flavor(space: str, name: str, **labels: str) -> Object:
    """A flavor, with the provisioning of its nodes."""
    return make("ResourceFlavor", f"{space}-{name}", spec={"nodeLabels": {SPOT: labels["nodes"]}} if labels else {})


def cluster_queue(space: str, name: str, quotas: Mapping[str, str], **spec: Any) -> list[Object]:
    """A cluster queue with quotas of CPU by flavor, and its local queue of the same name."""
    listed = [
        {"name": f"{space}-{key}", "resources": [{"name": CPU, "nominalQuota": quota}]} for key, quota in quotas.items()
    ]
    if "cohortName" in spec:
        spec["cohortName"] = f"{space}-{spec['cohortName']}"
    groups = {"resourceGroups": [{"coveredResources": [CPU], "flavors": listed}], "namespaceSelector": {}}
    return [
        make("ClusterQueue", f"{space}-{name}", spec={**groups, **spec}),
        make("LocalQueue", name, space, spec={"clusterQueue": f"{space}-{name}"}),
    ]


def job(space: str, name: str, queue: str, pods: int, cpu: str = "1", priority: str = "", **pod: Any) -> Object:
    """A Job of pods with these requests. `annotations` and `limits` are those of the Job and of the container."""
    labels = {QUEUE_LABEL: queue, **({"kueue.x-k8s.io/priority-class": f"{space}-{priority}"} if priority else {})}
    annotations, limits = pod.pop("annotations", {}), pod.pop("limits", {})
    resources = {"requests": {CPU: cpu}} if cpu else {"limits": limits} if limits else {}
    container = {"name": "main", "image": "registry.example.com/x:1", "resources": resources}
    template = {"spec": {"restartPolicy": "Never", "containers": [container], **pod}}
    spec = {"suspend": True, "parallelism": pods, "completions": pods, "template": template}
    item = make("Job", name, space, spec=spec)
    item["metadata"] |= {"labels": labels, "annotations": annotations}
    return item


def pair(space: str, name: str, queue: str, *sets: tuple[str, int, str]) -> Object:
    """A Workload of several pod sets: name, count and CPU of each pod."""

    def pod_set(title: str, count: int, cpu: str) -> Object:
        container = {"name": "main", "image": "x", "resources": {"requests": {CPU: cpu}}}
        return {
            "name": title,
            "count": count,
            "template": {"spec": {"containers": [container], "restartPolicy": "Never"}},
        }

    return make("Workload", name, space, spec={"queueName": queue, "podSets": [pod_set(*entry) for entry in sets]})


def classes(space: str) -> list[Object]:
    """Two priority classes."""
    return [
        make("WorkloadPriorityClass", f"{space}-{name}", value=value) for name, value in (("low", 100), ("high", 1000))
    ]


def namespace(space: str) -> Object:
    """The namespace of a cluster."""
    return make("Namespace", space)


def _borrowing() -> Question:
    space = "q16049"
    reclaim = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
    objects = (
        *(namespace(space), flavor(space, "f"), *classes(space)),
        *cluster_queue(
            space, "a", {"f": "2"}, cohortName="pool", preemption={**reclaim, "borrowWithinCohort": {"policy": "Never"}}
        ),
        *cluster_queue(space, "b", {"f": "2"}, cohortName="pool", preemption=reclaim),
        job(space, "low", "a", 4, priority="low"),
    )
    return Question(space, 16049, objects, job(space, "high", "a", 4, priority="high"))


def _strict_head() -> Question:
    space = "q4809"
    policies = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "LowerPriority"}
    objects = (
        *(namespace(space), flavor(space, "f")),
        *cluster_queue(space, "g", {"f": "2"}, cohortName="root", queueingStrategy="StrictFIFO", preemption=policies),
        *cluster_queue(space, "be", {"f": "0"}, cohortName="root"),
        *(job(space, "guaranteed-1", "g", 1), job(space, "guaranteed-2", "g", 2)),
    )
    ahead = (f"{space}/job/guaranteed-2",)
    return Question(space, 4809, objects, job(space, "best-effort-1", "be", 1), ahead=ahead)


def _behind_the_head() -> Question:
    space = "q4809-same"
    objects = (
        *(namespace(space), flavor(space, "f")),
        *cluster_queue(space, "q", {"f": "2"}, queueingStrategy="StrictFIFO"),
        *(job(space, "runs", "q", 1), job(space, "head", "q", 2)),
    )
    head = f"{space}/job/head"
    return Question(
        space, 4809, objects, job(space, "small", "q", 1), ahead=(head,), waits_for=f"{head}, which is before"
    )


def _on_hold() -> Question:
    space = "q1651"
    objects = (namespace(space), flavor(space, "f"), *cluster_queue(space, "q", {"f": "4"}, stopPolicy="Hold"))
    return Question(
        space, 1651, objects, job(space, "new", "q", 1), waits_for=f"ClusterQueue {space}-q, which is stopped"
    )


def _occupied_node() -> Question:
    """The only node of a topology is in use, and big enough."""
    space = "q10659"
    runs, asked = job(space, "runs", "q", 1, "20"), job(space, "next", "q", 1, "20")
    return Question(space, 10659, (*_by_node(space), runs), asked, waits_for="topology", pools=(_pool(space, 1),))


def _by_node(space: str) -> tuple[Object, ...]:
    """A queue whose flavor has a topology of nodes."""
    place = {"nodeLabels": {"cloud.google.com/gke-nodepool": space}, "topologyName": space}
    tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    return (
        *(namespace(space), make("Topology", space, spec={"levels": [{"nodeLabel": "kubernetes.io/hostname"}]})),
        make("ResourceFlavor", f"{space}-f", spec={**place, "tolerations": tolerations}),
        *cluster_queue(space, "q", {"f": "100"}),
    )


def _pool(name: str, nodes: int) -> Object:
    return {"name": name, "machine_type": "g2-standard-24", "nodes_per_zone": nodes}


def _incomplete_slice() -> Question:
    """Kueue gives no place to the pod that is left over."""
    space = "q15277"
    run = job(space, "sliced", "q", 5)
    slices = {"podset-slice-required-topology": "kubernetes.io/hostname", "podset-slice-size": "2"}
    run["spec"]["template"]["metadata"] = {"annotations": {f"kueue.x-k8s.io/{key}": slices[key] for key in slices}}
    gate = "scheduling gate kueue.x-k8s.io/topology from 1 of its 5 pods"
    pools = (_pool(space, 3),)
    return Question(space, 15277, _by_node(space), run, starts=True, flavors=("f",), lacks=gate, pools=pools)


def _resource_quota() -> Question:
    """Kueue does not know of ResourceQuotas. The report is argoproj/argo-workflows#1096."""
    space = "q1096"
    objects = (
        *(namespace(space), flavor(space, "f")),
        make("ResourceQuota", "pods", space, spec={"hard": {"pods": "1"}}),
        *cluster_queue(space, "q", {"f": "10"}),
    )
    return Question(
        space, 1096, objects, job(space, "three", "q", 3), starts=True, flavors=("f",), lacks="ResourceQuota pods"
    )


def _affinity() -> Question:
    space = "q12446"
    wanted = {"matchExpressions": [{"key": SPOT, "operator": "In", "values": ["spot"]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [wanted]}}}
    objects = (
        *(namespace(space), flavor(space, "standard", nodes="standard"), flavor(space, "spot", nodes="spot")),
        *cluster_queue(space, "q", {"standard": "4", "spot": "4"}),
        job(space, "filler", "q", 1, "4", nodeSelector={SPOT: "spot"}),
    )
    return Question(space, 12446, objects, job(space, "wants-spot", "q", 1, "4", affinity=affinity))


def _pod_sets(space: str, quotas: Mapping[str, str], **answer: Any) -> Question:
    sets = (("master", 1, "2"), ("worker", 2, "2"))
    flavors = [flavor(space, name) for name in quotas]
    objects = (namespace(space), *flavors, *cluster_queue(space, "q", quotas))
    return Question(space, 3909, objects, pair(space, "wide", "q", *sets), **answer)


def _partial(space: str, annotations: Mapping[str, str], **answer: Any) -> Question:
    objects = (
        *(namespace(space), flavor(space, "f")),
        *cluster_queue(space, "q", {"f": "9"}),
        job(space, "filler", "q", 2),
    )
    return Question(space, 3108, objects, job(space, "partial", "q", 20, annotations=annotations), **answer)


def _limit_range() -> Question:
    space = "q15020"
    limits = [{"type": "Container", "defaultRequest": {CPU: "1"}, "default": {CPU: "1"}}]
    objects = (
        *(namespace(space), flavor(space, "f")),
        make("LimitRange", "defaults", space, spec={"limits": limits}),
        *cluster_queue(space, "q", {"f": "4"}),
        job(space, "filler", "q", 1, "2"),
    )
    # Kueue counts the default request of the LimitRange, not the limit of the container.
    run = job(space, "limits-only", "q", 1, "", limits={CPU: "3"})
    return Question(space, 15020, objects, run, starts=True, flavors=("f",))


QUESTIONS = (
    _borrowing(),
    _strict_head(),
    _behind_the_head(),
    _on_hold(),
    _occupied_node(),
    _incomplete_slice(),
    _resource_quota(),
    _affinity(),
    _pod_sets("q3909-split", {"single": "4", "multi": "4"}, starts=True, flavors=("multi", "single")),
    _partial("q3108", {"kueue.x-k8s.io/job-min-parallelism": "5"}, starts=True, flavors=("f",), pods=7),
    _partial("q3108-whole", {}, never=True),
    _limit_range(),
)
