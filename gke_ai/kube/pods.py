"""Pods, their templates in other objects, and what they request, as the scheduler, quotas and Kueue count it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from gke_ai.catalog.kueue.operators import BY_KIND
from gke_ai.catalog.nodes.shape import ACCELERATORS
from gke_ai.catalog.quantities import added
from gke_ai.kube.objects import Object
from gke_ai.kube.values import items, mapping, quantity, value

Spec = Mapping[str, Any]
_NOTHING = Fraction(0)
# Fields of a TrainJob's trainer that are those of its container:
# https://www.kubeflow.org/docs/components/trainer/reference/ (Trainer)
OF_TRAINERS_CONTAINER = ("image", "command", "args", "env")
# The pod that submits a RayJob, unless the job states one. Kueue counts it too:
# https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobs/rayjob/rayjob_controller.go
SUBMITTER: Object = {
    "spec": {
        "containers": [{"name": "ray-job-submitter", "resources": {"requests": {"cpu": "500m", "memory": "200Mi"}}}]
    }
}


def requests(spec: Spec) -> dict[str, Fraction]:
    """What a pod with this spec requests, by resource.

    Containers and sidecars count together, or an init container that is larger beside the sidecars before it. Requests
    of the whole pod stand for those of its containers. The overhead of its runtime class is added. Amounts that are not
    known yet are not counted.

    https://github.com/kubernetes/kubernetes/blob/v1.36.1/staging/src/k8s.io/component-helpers/resource/helpers.go
    """
    together: Counter[str] = Counter()
    peak: dict[str, Fraction] = {}
    for container in items(spec, "initContainers"):
        own = container_requests(container)
        if container.get("restartPolicy") == "Always":
            together.update(own)
            own = {}
        for resource, amount in own.items():
            peak[resource] = max(peak.get(resource, _NOTHING), amount + together[resource])
    for container in items(spec, "containers"):
        together.update(container_requests(container))
    total = {
        resource: max(Fraction(together[resource]), peak.get(resource, _NOTHING)) for resource in {*together, *peak}
    }
    total |= {resource: amount for resource, amount in container_requests(spec).items() if _of_whole_pod(resource)}
    return added(total, amounts(mapping(spec, "overhead")))


def limited_only(spec: Spec) -> Iterator[tuple[str, list[str]]]:
    """Yields each container with resources that it limits and does not request, and these resources.

    The API sets such requests in pods, and not in templates.
    """
    for container in (*items(spec, "initContainers"), *items(spec, "containers")):
        limits, requested = (mapping(container, "resources", key) for key in ("limits", "requests"))
        if missing := sorted(limits.keys() - _stated(requested).keys()):
            yield str(container.get("name")), missing


def accelerators(spec: Spec) -> dict[str, int]:
    """The GPUs and TPU chips that a pod with this spec requests, by resource."""
    requested = requests(spec)
    return {resource: count for resource in ACCELERATORS if (count := int(requested.get(resource, 0)))}


def accelerator_count(spec: Spec) -> int:
    """The number of GPUs and TPU chips that a pod with this spec requests."""
    return sum(accelerators(spec).values())


def accelerators_on(node: Object) -> int:
    """Returns the GPUs or TPU chips of a node."""
    allocatable = mapping(node, "status", "allocatable")
    return sum(int(allocatable.get(resource) or 0) for resource in ACCELERATORS)


def templates(kind: str, item: Object) -> Iterator[Object]:
    """Yields the pod templates of an object. A JobSet has one per job, a Workload one per pod set; a pod is one.

    Those of a TrainJob are in its runtime. Its trainer stands for them.
    """
    if kind == "Pod":
        yield item
    elif kind == "PodTemplate":
        yield mapping(item, "template")
    elif kind in ("JobSet", *BY_KIND):
        yield from (template for _, template in pod_sets(item))
    elif kind == "Workload":
        yield from (mapping(pod_set, "template") for pod_set in items(item, "spec", "podSets"))
    elif kind == "CronJob":
        yield mapping(item, "spec", "jobTemplate", "spec", "template")
    elif isinstance(template := value(item, "spec", "template"), Mapping):
        yield template


def wanted_pods(item: Object) -> int:
    """How many pods the controller of a server or a run keeps at most. By default each count is 1."""
    return sum(count for count, _ in pod_sets(item))


def pod_sets(item: Object) -> Iterator[tuple[int, Object]]:
    """Yields how many equal pods a server or a run keeps at most, with the template of each group."""
    spec = mapping(item, "spec")
    if jobs := items(spec, "replicatedJobs"):
        for job in jobs:
            of_job = mapping(job, "template", "spec")
            yield _count(job, "replicas") * _count(of_job, "parallelism"), mapping(of_job, "template")
    elif "runtimeRef" in spec:
        trainer = mapping(spec, "trainer")
        own = {key: value for key, value in trainer.items() if key in OF_TRAINERS_CONTAINER}
        container = {**own, "name": "node", "resources": mapping(trainer, "resourcesPerNode")}
        yield _count(trainer, "numNodes"), {"spec": {"containers": [container]}}
    elif "headGroupSpec" in spec:
        yield from _ray_groups(spec)
    elif "rayClusterSpec" in spec:
        yield from _ray_groups(mapping(spec, "rayClusterSpec"))
        if spec.get("submissionMode") != "HTTPMode":
            yield 1, mapping(spec, "submitterPodTemplate") or SUBMITTER
    else:
        yield _count(spec, "replicas" if "replicas" in spec else "parallelism"), mapping(spec, "template")


def counted(sets: Iterable[tuple[int, Object]]) -> dict[str, Fraction]:
    """What a ResourceQuota counts of sets of equal pods, by its own names."""
    total: defaultdict[str, Fraction] = defaultdict(Fraction)
    for count, template in sets:
        spec = mapping(template, "spec")
        for resource, amount in requests(spec).items():
            total[f"requests.{resource}"] += amount * count
            if resource in ("cpu", "memory", "ephemeral-storage"):
                total[resource] += amount * count
        total["pods"] += count
        total["count/pods"] += count
    return dict(total)


def _ray_groups(cluster: Object) -> Iterator[tuple[int, Object]]:
    """The head of a Ray cluster, and its groups of workers, whose replicas are 0 by default."""
    yield 1, mapping(cluster, "headGroupSpec", "template")
    for group in items(cluster, "workerGroupSpecs"):
        yield int(group.get("replicas") or 0) * _count(group, "numOfHosts"), mapping(group, "template")


def _count(spec: Object, key: str) -> int:
    return 1 if spec.get(key) is None else int(spec[key])


def container_statuses(pod: Object) -> list[Object]:
    """The status of each container of a pod, init containers first."""
    return [*items(pod, "status", "initContainerStatuses"), *items(pod, "status", "containerStatuses")]


def waiting_containers(pod: Object) -> Iterator[tuple[Object, Object]]:
    """Yields the status of each container that has not started, and what its state says of that."""
    for status in container_statuses(pod):
        if waiting := mapping(status, "state", "waiting"):
            yield status, waiting


def ended(pod: Object) -> bool:
    """Whether a pod has run to its end."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def amounts(texts: Mapping[str, Any]) -> dict[str, Fraction]:
    """Parses quantities by resource. Leaves out what is not known yet, or secret."""
    return {resource: amount for resource, text in texts.items() if (amount := quantity(text)) is not None}


def container_requests(container: Spec) -> dict[str, Fraction]:
    """What a container requests, by resource. A limit stands for a request that is not stated, as the API sets it."""
    limits, requested = mapping(container, "resources", "limits"), mapping(container, "resources", "requests")
    return amounts({**limits, **_stated(requested)})


def _of_whole_pod(resource: str) -> bool:
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


def _stated(texts: Mapping[str, Any]) -> dict[str, Any]:
    return {resource: text for resource, text in texts.items() if text is not None}
