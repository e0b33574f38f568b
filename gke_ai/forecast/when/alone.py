"""Asks Kueue about a run as if the cluster had no other: in copies of its queues, on copies of nodes, all empty."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from fractions import Fraction

from gke_ai.catalog.kueue.cohort_tree import Cell
from gke_ai.catalog.quantities import format_quantity
from gke_ai.catalog.versions import KUEUE_API
from gke_ai.forecast.outcome.reasons import why_it_waits
from gke_ai.forecast.simulate.objects import new_object
from gke_ai.forecast.when.answer import is_decided, roots, sharing
from gke_ai.kube.client import ApiClient, list_objects, request
from gke_ai.kube.objects import Object, condition, holds
from gke_ai.kube.queues import flavors_of
from gke_ai.kube.values import items, mapping
from gke_ai.ops.verify.nodes import daemon_requests, free_of
from gke_ai.terminal import Stop

KUEUE = f"/apis/{KUEUE_API}"
# Kueue decides within a second, but can pause for seconds on a busy machine.
SECONDS, LOOK_EVERY = 30.0, 0.2
PREFIX = "alone-"
# What only copies of nodes have: a label, and a taint that keeps all other pods from them.
EMPTY = "gke-ai-empty"
_NODES = "/api/v1/nodes"
# Of cordoned nodes, and of those that are not ready.
_OF_KUBERNETES = "node.kubernetes.io/"
_TOLERATED = [{"key": key, "operator": "Exists"} for key in (EMPTY, f"{_OF_KUBERNETES}not-ready")]
_KINDS = {"ResourceFlavor": "resourceflavors", "Cohort": "cohorts", "ClusterQueue": "clusterqueues"}


def ask_alone(api: ApiClient, workload: Object, queue: str) -> tuple[str, set[Cell]]:
    """Creates copies of the queues that share quota with a cluster queue, and of a Workload, and asks Kueue about it.

    Returns why it waits there too, or an empty text and the flavors that it gets, each with a resource.

    Flavors and nodes are copied too, because Kueue counts the use of a topology by flavor, and that of a node over all
    flavors that it is in:
    https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/cache/scheduler/snapshot.go, snapshotTopologyDomainUsages
    """
    copied = [*copies(api, queue)]
    nodes = [*empty_nodes(api)] if any(item["spec"].get("topologyName") for _, item in copied) else []
    for path, item in (*((_NODES, node) for node in nodes), *copied):
        _create(api, path, item)
    try:
        return _decided(api, workload, queue)
    finally:
        for node in nodes:
            request(api, "DELETE", f"{_NODES}/{node['metadata']['name']}")


def _decided(api: ApiClient, workload: Object, queue: str) -> tuple[str, set[Cell]]:
    namespace, name = workload["metadata"]["namespace"], PREFIX + workload["metadata"]["name"]
    inside = f"{KUEUE}/namespaces/{namespace}"
    _create(api, f"{inside}/localqueues", new_object("LocalQueue", name, {"clusterQueue": PREFIX + queue}, namespace))
    _await(api, f"{KUEUE}/clusterqueues/{PREFIX}{queue}", lambda item: bool(condition(item, "Active")))
    spec = {**workload["spec"], "queueName": name, "active": True}
    _create(api, f"{inside}/workloads", new_object("Workload", name, spec, namespace))
    decided = _await(api, f"{inside}/workloads/{name}", is_decided)
    if not holds(decided, "QuotaReserved"):
        return why_it_waits(decided)[1].replace(PREFIX, ""), set()
    flavors = [mapping(item, "flavors") for item in items(decided, "status", "admission", "podSetAssignments")]
    return "", {(name.removeprefix(PREFIX), resource) for of_set in flavors for resource, name in of_set.items()}


def copies(api: ApiClient, queue: str) -> Iterator[tuple[str, Object]]:
    """Yields copies of the flavors, cohorts and cluster queues that share quota with a queue, with their API paths."""
    all_flavors, cohorts, queues = (list_objects(api, f"{KUEUE}/{kind}") for kind in _KINDS.values())
    of_queues, of_cohorts = roots(queues, cohorts)
    names = sharing(queue, of_queues)
    cohorts = [item for item in cohorts if of_cohorts[item["metadata"]["name"]] == of_queues[queue]]
    queues = [item for item in queues if item["metadata"]["name"] in names]
    used = {name for item in (*cohorts, *queues) for group in flavors_of(item) for name in group}
    own = [item for item in all_flavors if item["metadata"]["name"] in used]
    for (kind, plural), originals in zip(_KINDS.items(), (own, cohorts, queues), strict=True):
        for item in originals:
            name, spec = PREFIX + item["metadata"]["name"], {**renamed(item.get("spec") or {})}
            yield f"{KUEUE}/{plural}", new_object(kind, name, spec)


def empty_nodes(api: ApiClient) -> Iterator[Object]:
    """Yields copies of all nodes, ready, with room for all pods but those of DaemonSets."""
    daemons = daemon_requests(list_objects(api, "/api/v1/pods"))
    for number, node in enumerate(list_objects(api, _NODES)):
        name = f"{PREFIX}{number}"
        taints = [taint for taint in items(node, "spec", "taints") if not taint["key"].startswith(_OF_KUBERNETES)]
        spec = {"taints": [*taints, {"key": EMPTY, "effect": "NoSchedule"}]}
        copied = new_object("Node", name, spec, version="v1")
        copied["metadata"]["labels"] = {
            **mapping(node, "metadata", "labels"),
            "kubernetes.io/hostname": name,
            EMPTY: "true",
        }
        free = {key: format_quantity(key, max(amount, Fraction(0))) for key, amount in free_of(node, daemons).items()}
        copied["status"] = {"allocatable": free, "conditions": [{"type": "Ready", "status": "True"}]}
        yield copied


def renamed(spec: Object) -> Object:
    """Returns the spec of a queue, cohort or flavor with the names of copies in it. No copy is stopped."""
    groups = [
        {**group, "flavors": [{**flavor, "name": PREFIX + flavor["name"]} for flavor in group.get("flavors") or []]}
        for group in spec.get("resourceGroups") or []
    ]
    strategy = spec.get("admissionChecksStrategy") or {}
    checks = [
        {**check, **({"onFlavors": [PREFIX + name for name in check["onFlavors"]]} if check.get("onFlavors") else {})}
        for check in strategy.get("admissionChecks") or []
    ]
    placed = {
        "nodeLabels": {**(spec.get("nodeLabels") or {}), EMPTY: "true"},
        "tolerations": [*(spec.get("tolerations") or ()), *_TOLERATED],
    }
    return {
        **{key: value for key, value in spec.items() if key != "stopPolicy"},
        **(placed if spec.get("topologyName") else {}),
        **({"resourceGroups": groups} if groups else {}),
        **{key: PREFIX + spec[key] for key in ("cohortName", "parentName") if spec.get(key)},
        **({"admissionChecksStrategy": {"admissionChecks": checks}} if checks else {}),
    }


def _create(api: ApiClient, path: str, item: Object) -> None:
    answer = request(api, "POST", path, body=item)
    if answer.code >= 400 and answer.code != 409:
        raise Stop(f"The scratch cluster refuses a copy of {item['kind']} {item['metadata']['name']}: {answer.reason}")


def _await(api: ApiClient, path: str, is_ready: Callable[[Object], bool]) -> Object:
    deadline = time.monotonic() + SECONDS
    while True:
        item: Object = request(api, "GET", path).body
        if is_ready(item):
            return item
        if time.monotonic() > deadline:
            raise Stop("Kueue does not decide about the run alone. Ask again on a machine that is less busy.")
        time.sleep(LOOK_EVERY)
