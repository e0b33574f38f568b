"""Asks Kueue about a run as if the cluster had no other: in copies of its queues, which are empty."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gke_ai.catalog.versions import KUEUE_API
from gke_ai.forecast.answer import is_decided, roots, sharing
from gke_ai.forecast.reasons import why_it_waits
from gke_ai.forecast.simulate.objects import new_object
from gke_ai.kube.client import list_objects, request
from gke_ai.kube.objects import Object, condition, holds
from gke_ai.kube.queues import flavors_of
from gke_ai.terminal import Stop

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

KUEUE = f"/apis/{KUEUE_API}"
# Kueue decides within a second, but can pause for seconds on a busy machine.
SECONDS, LOOK_EVERY = 30.0, 0.2
PREFIX = "alone-"
_KINDS = {"ResourceFlavor": "resourceflavors", "Cohort": "cohorts", "ClusterQueue": "clusterqueues"}


@dataclass(frozen=True)
class Alone:
    """What Kueue decides about a run that is alone.

    Attributes:
        why: Why it waits there too. Empty: Kueue gives it quota.
        cells: The flavors that it gets, each with a resource.
    """

    why: str
    cells: frozenset[tuple[str, str]] = frozenset()


def ask_alone(api: ApiClient, workload: Object, queue: str) -> Alone:
    """Creates copies of the queues that share quota with a cluster queue, and of a Workload, and returns the decision.

    Flavors are copied too, because Kueue counts the use of a topology by its flavor.
    """
    for path, item in copies(api, queue):
        _create(api, path, item)
    namespace = workload["metadata"]["namespace"]
    inside = f"{KUEUE}/namespaces/{namespace}"
    name = workload["metadata"]["name"]
    _create(api, f"{inside}/localqueues", _copy("LocalQueue", name, {"clusterQueue": PREFIX + queue}, namespace))
    _await(api, f"{KUEUE}/clusterqueues/{PREFIX}{queue}", lambda item: bool(condition(item, "Active")))
    spec = {**workload["spec"], "queueName": PREFIX + name, "active": True}
    _create(api, f"{inside}/workloads", _copy("Workload", name, spec, namespace))
    decided = _await(
        api, f"{inside}/workloads/{PREFIX}{name}", lambda item: holds(item, "QuotaReserved") or is_decided(item)
    )
    if not holds(decided, "QuotaReserved"):
        return Alone(why_it_waits(decided)[1].replace(PREFIX, ""))
    assignments = decided["status"]["admission"]["podSetAssignments"]
    return Alone(
        "",
        frozenset(
            (flavor.removeprefix(PREFIX), resource)
            for item in assignments
            for resource, flavor in (item.get("flavors") or {}).items()
        ),
    )


def copies(api: ApiClient, queue: str) -> Iterator[tuple[str, Object]]:
    """Yields copies of the flavors, cohorts and cluster queues that share quota with a queue, with their API paths."""
    all_flavors, cohorts, queues = (list_objects(api, f"{KUEUE}/{kind}") for kind in _KINDS.values())
    of_queues, of_cohorts = roots(queues, cohorts)
    names = sharing(queue, of_queues)
    cohorts = [item for item in cohorts if of_cohorts[item["metadata"]["name"]] == of_queues[queue]]
    queues = [item for item in queues if item["metadata"]["name"] in names]
    used = {name for item in (*cohorts, *queues) for group in flavors_of(item) for name in group}
    own = [item for item in all_flavors if item["metadata"]["name"] in used]
    for (kind, plural), items in zip(_KINDS.items(), (own, cohorts, queues), strict=True):
        for item in items:
            yield f"{KUEUE}/{plural}", _copy(kind, item["metadata"]["name"], renamed(item.get("spec") or {}))


def renamed(spec: Object) -> Object:
    """Returns the spec of a queue, cohort or flavor with the names of copies in it."""
    groups = [
        {**group, "flavors": [{**flavor, "name": PREFIX + flavor["name"]} for flavor in group.get("flavors") or []]}
        for group in spec.get("resourceGroups") or []
    ]
    strategy = spec.get("admissionChecksStrategy") or {}
    checks = [
        {**check, **({"onFlavors": [PREFIX + name for name in check["onFlavors"]]} if check.get("onFlavors") else {})}
        for check in strategy.get("admissionChecks") or []
    ]
    return {
        **spec,
        **({"resourceGroups": groups} if groups else {}),
        **{key: PREFIX + spec[key] for key in ("cohortName", "parentName") if spec.get(key)},
        **({"admissionChecksStrategy": {"admissionChecks": checks}} if checks else {}),
    }


def _copy(kind: str, name: str, spec: Object, namespace: str = "") -> Object:
    return new_object(kind, PREFIX + name, {**spec}, namespace)


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
