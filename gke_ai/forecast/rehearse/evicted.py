"""Releases the quota of evicted Workloads whose kinds have no controller in a rehearsal: TrainJobs, RayJobs and others.

Kueue waits until the controller of such a kind has ended the pods, and then takes back the admission itself:
pkg/controller/jobframework/reconciler.go of its repository, "handle eviction".
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from gke_ai.catalog.versions import KUEUE_API
from gke_ai.forecast.snapshot.fields import kinds
from gke_ai.forecast.snapshot.format import Snapshot
from gke_ai.kube.client import ApiClient, list_objects, send
from gke_ai.kube.objects import Object, condition, holds
from gke_ai.kube.workloads import released_conditions
from gke_ai.terminal import Stop

LOOK_EVERY = 0.5
_MERGE = {"Accept": "application/json", "Content-Type": "application/merge-patch+json"}


class Evictions(threading.Thread):
    """Looks for such Workloads until it is stopped."""

    def __init__(self, api: ApiClient, snapshot: Snapshot) -> None:
        super().__init__(daemon=True)
        self._api = api
        self._parts = absent(snapshot)
        self._ended = threading.Event()

    def run(self) -> None:
        while self._parts and not self._ended.wait(LOOK_EVERY):
            with suppress(Stop):  # the cluster does not answer for a moment
                self.look(list_objects(self._api, f"/apis/{KUEUE_API}/workloads"))

    def look(self, workloads: Iterable[Object]) -> None:
        """Releases those that are evicted."""
        for workload in workloads:
            metadata = workload["metadata"]
            if metadata.get("uid") in self._parts and (status := released(workload, datetime.now(UTC))):
                for path in self._parts[metadata["uid"]]:
                    send(self._api, "DELETE", path, query={"propagationPolicy": "Background"})
                path = f"/apis/{KUEUE_API}/namespaces/{metadata['namespace']}/workloads/{metadata['name']}/status"
                send(self._api, "PATCH", path, body={"status": status}, headers=_MERGE)

    def stop(self) -> None:
        """Ends it."""
        self._ended.set()


def absent(snapshot: Snapshot) -> dict[str, list[str]]:
    """Returns the Workloads of kinds that a snapshot does not have, by uid, with the API paths of what they run."""
    return {
        item["metadata"]["uid"]: list(_parts(owner, item["metadata"]["namespace"], snapshot))
        for item in snapshot.of("Workload")
        for owner in absent_owners(item)
    }


def absent_owners(workload: Object) -> list[Object]:
    """Returns the controller of a Workload, if a snapshot does not have its kind."""
    owners = workload["metadata"].get("ownerReferences", [])
    return [owner for owner in owners if owner.get("controller") and owner.get("kind") not in kinds()]


def _parts(owner: Object, namespace: str, snapshot: Snapshot) -> Iterator[str]:
    """The JobSets, Jobs and pods of an owner, or of objects that it created and named after itself: RayClusters."""
    for kind in ("JobSet", "Job", "Pod"):
        for item in snapshot.of(kind):
            metadata = item["metadata"]
            if metadata.get("namespace") == namespace and any(
                other.get("uid") == owner.get("uid") or str(other.get("name")).startswith(f"{owner.get('name')}-")
                for other in absent_owners(item)
            ):
                yield f"{kinds()[kind].path(namespace)}/{metadata['name']}"


def released(workload: Object, now: datetime) -> dict[str, Any] | None:
    """Returns the status of an evicted Workload without its admission; None if it has none or is not evicted."""
    if not holds(workload, "Evicted") or not holds(workload, "QuotaReserved"):
        return None
    evicted = condition(workload, "Evicted")
    reason, message = evicted.get("reason", "Preempted"), evicted.get("message", "")
    conditions = released_conditions(workload, reason, message, f"{now:%Y-%m-%dT%H:%M:%SZ}")
    return {"admission": None, "conditions": conditions}
