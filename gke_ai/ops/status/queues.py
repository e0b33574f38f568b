"""The quota that a stack's queues use, for the status."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction

from gke_ai.catalog.quantities import readable
from gke_ai.catalog.versions import KUEUE_API
from gke_ai.kube.client import ApiClient, list_objects
from gke_ai.kube.objects import Object, holds
from gke_ai.kube.queues import quotas_of, reserved
from gke_ai.kube.uncounted import uncounted
from gke_ai.kube.values import value

# Kueue writes the status of a queue a second after a decision (`UpdatesBatchPeriod`, a constant of Kueue).
COUNT_READS, COUNT_PAUSE = 6, 0.5
UNCOUNTED = "Accelerators that Kueue does not count"
UNCOUNTED_COLUMNS = ("tenant", "accelerator", "on nodes", "Kueue counts", "quota of the namespace", "why")


def queues_and_workloads(api: ApiClient) -> tuple[list[Object], list[Object]]:
    """Reads cluster queues and workloads, again if Kueue has not yet counted what it has admitted."""
    for left in reversed(range(COUNT_READS)):
        workloads = list_objects(api, f"/apis/{KUEUE_API}/workloads")
        queues = list_objects(api, f"/apis/{KUEUE_API}/clusterqueues")
        counted = {queue["metadata"]["name"]: queue.get("status", {}).get("reservingWorkloads", 0) for queue in queues}
        running = (workload for workload in workloads if not holds(workload, "Finished"))
        admitted = Counter(value(workload, "status", "admission", "clusterQueue") for workload in running)
        if not left or all(admitted[name] == count for name, count in counted.items()):
            break
        time.sleep(COUNT_PAUSE)
    return queues, workloads


def quota_rows(cluster_queues: Iterable[Object]) -> Iterator[tuple[str, ...]]:
    """Yields a row per queue, flavor and resource: used, borrowed from the cohort, and nominal quota."""
    for queue in cluster_queues:
        used, borrowed = reserved(queue), reserved(queue, "borrowed")
        for (flavor, resource), quota in quotas_of(queue).items():
            taken = readable(resource, used.get((flavor, resource), Fraction(0)))
            if more := borrowed.get((flavor, resource)):
                taken += f", {readable(resource, more)} borrowed"
            yield queue["metadata"]["name"], flavor, resource, taken, readable(resource, quota)


def uncounted_rows(
    quotas: Iterable[Object], pods: Iterable[Object], workloads: Iterable[Object]
) -> Iterator[tuple[str, ...]]:
    """Yields a row per tenant and accelerator of which more is on nodes than Kueue counts."""
    for found in uncounted(quotas, pods, workloads):
        on_nodes = f"{found.on_nodes}, {found.ending} of them end" if found.ending else str(found.on_nodes)
        yield found.namespace, found.resource, on_nodes, str(found.counted), found.bound or "none", found.cause
