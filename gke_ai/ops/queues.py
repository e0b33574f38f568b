"""The quota that a stack's queues use, for the status."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gke_ai.catalog.quantities import parse_quantity, readable
from gke_ai.catalog.versions import KUEUE_API
from gke_ai.kube.client import list_objects
from gke_ai.kube.objects import Object, holds

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

# Kueue writes the status of a queue a second after a decision (`UpdatesBatchPeriod`, a constant of Kueue).
COUNT_READS, COUNT_PAUSE = 6, 0.5


def queues_and_workloads(api: ApiClient) -> tuple[list[Object], list[Object]]:
    """Reads cluster queues and workloads, again if Kueue has not yet counted what it has admitted."""
    for left in reversed(range(COUNT_READS)):
        workloads = list_objects(api, f"/apis/{KUEUE_API}/workloads")
        queues = list_objects(api, f"/apis/{KUEUE_API}/clusterqueues")
        counted = {queue["metadata"]["name"]: queue.get("status", {}).get("reservingWorkloads", 0) for queue in queues}
        admitted = Counter(
            workload["status"]["admission"]["clusterQueue"]
            for workload in workloads
            if workload.get("status", {}).get("admission") and not holds(workload, "Finished")
        )
        if not left or all(admitted[name] == count for name, count in counted.items()):
            break
        time.sleep(COUNT_PAUSE)
    return queues, workloads


def quota_rows(cluster_queues: Iterable[Object]) -> Iterator[tuple[str, ...]]:
    """Yields a row per queue, flavor and resource: used, borrowed from the cohort, and nominal quota."""
    for queue in cluster_queues:
        reserved = {
            (flavor["name"], resource["name"]): resource
            for flavor in queue.get("status", {}).get("flavorsReservation") or []
            for resource in flavor["resources"]
        }
        for group in queue["spec"].get("resourceGroups") or []:
            for flavor in group["flavors"]:
                for resource in flavor["resources"]:
                    resource_name = resource["name"]
                    taken = reserved.get((flavor["name"], resource_name), {})
                    used, borrowed = (parse_quantity(str(taken.get(key, 0))) for key in ("total", "borrowed"))
                    yield (
                        queue["metadata"]["name"],
                        flavor["name"],
                        resource_name,
                        readable(resource_name, used)
                        + (f", {readable(resource_name, borrowed)} borrowed" if borrowed else ""),
                        readable(resource_name, parse_quantity(str(resource["nominalQuota"]))),
                    )
