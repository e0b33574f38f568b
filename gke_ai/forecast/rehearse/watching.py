"""Records a cluster by watches: every version of its Workloads, pods, nodes, servers and Jobs, with its second."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial

from gke_ai.forecast.outcome.timeline import Observation, Timeline
from gke_ai.forecast.rehearse.owed import owed
from gke_ai.forecast.snapshot.fields import kinds
from gke_ai.kube.client import ApiClient, client_of, follow
from gke_ai.kube.creation import EVENT, creator
from gke_ai.kube.events import AUTOSCALER_EVENTS
from gke_ai.kube.names import WorkloadName
from gke_ai.kube.objects import Object, holds
from gke_ai.terminal import Stop

_LISTED = (
    *("Workload", "ClusterQueue", "LocalQueue", "Cohort", "ResourceFlavor", "Pod", "Node", "Deployment"),
    *("StatefulSet", "Job", "JobSet", "Namespace"),
)
# The kinds that a forecast is read from: path, and field selector.
KINDS: Mapping[str, tuple[str, str]] = {
    **{kind: (kinds()[kind].path(), "") for kind in _LISTED},
    "Event": ("/api/v1/events", AUTOSCALER_EVENTS),
    # Among them those of controllers that can't create pods. The scheduler and Kueue say theirs in conditions.
    EVENT: ("/api/v1/events", "type=Warning,reason!=FailedScheduling,reason!=Pending"),
}
# They follow from the other kinds, so their changes don't count.
UNCOUNTED = ("Namespace", "Event", EVENT, "ClusterQueue", "LocalQueue", "Cohort", "ResourceFlavor")
LOOK_EVERY = 0.1
LIST_SECONDS = 30.0


class Recorder:
    """Watches a cluster in threads, until it is closed. Use it in a `with` statement.

    Args:
        kubeconfig: Text of a kubeconfig. Its user may list and watch the kinds in all namespaces.
    """

    def __init__(self, kubeconfig: str) -> None:
        self._api: ApiClient = client_of(kubeconfig, len(KINDS))
        self.restored: datetime | None = None  # the time of which a restored state is
        self._lock = threading.Lock()
        self._observations: list[tuple[float, str, Object, bool]] = []
        self._present: dict[str, dict[str, Object]] = {kind: {} for kind in KINDS}
        self._listed = {kind: threading.Event() for kind in KINDS}
        self._closed = threading.Event()
        self._begun = time.monotonic()
        self._changed = self._begun
        self._applied = self._begun
        self._refused: dict[WorkloadName, float] = {}
        self._threads = [threading.Thread(target=self._follow, args=(kind,), daemon=True) for kind in KINDS]

    def __enter__(self) -> Recorder:
        for thread in self._threads:
            thread.start()
        for kind, listed in self._listed.items():
            if not listed.wait(LIST_SECONDS):
                raise Stop(f"The scratch cluster did not list its objects of kind {kind} within {LIST_SECONDS:.0f} s.")
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()  # the threads end with their process, or with the next version that they get

    def begin(self) -> None:
        """Sets the time at which the change begins."""
        self._begun = self._changed = self._applied = time.monotonic()

    def applied(self) -> None:
        """Sets the time at which the change is applied."""
        self._applied = time.monotonic()

    @property
    def quiet(self) -> float:
        """Seconds since the last change of a Workload, pod, node, server or Job."""
        with self._lock:
            return time.monotonic() - self._changed

    def owed(self) -> list[str]:
        """The objects for which a controller will still do something, such as a Job that waits out its backoff."""
        with self._lock:
            present = {kind: [*items.values()] for kind, items in self._present.items()}
            refused = {name for name, at in self._refused.items() if at > self._changed}
        return owed(present, datetime.now(UTC), refused)

    def settle(self, quiet: float, limit: float) -> bool:
        """Waits until nothing has changed for `quiet` seconds and nothing is owed. False after `limit` seconds."""
        end = time.monotonic() + limit
        while time.monotonic() < end:
            if self.quiet >= quiet and not self.owed():
                return True
            time.sleep(LOOK_EVERY)
        return False

    def timeline(self, settled: bool) -> Timeline:
        """Returns everything recorded so far."""
        with self._lock:
            recorded = list(self._observations)
        observations = (Observation(at - self._begun, kind, item, gone) for at, kind, item, gone in recorded)
        ended = time.monotonic() - self._begun
        began = datetime.now(UTC) - timedelta(seconds=ended)
        aged = (began - self.restored).total_seconds() if self.restored else 0.0
        applied = self._applied - self._begun
        return Timeline(tuple(observations), applied, ended, settled, aged, self.restored or began)

    def _follow(self, kind: str) -> None:
        def listed(items: list[Object] | None) -> None:
            if items is not None:
                uids = {str(item["metadata"]["uid"]) for item in items}
                for uid, known in list(self._present[kind].items()):
                    if uid not in uids:
                        self._record(kind, known, gone=True)
                for item in items:
                    self._record(kind, item)
            self._listed[kind].set()

        path, selector = KINDS[kind]
        follow(self._api, path, listed, partial(self._record, kind), self._closed, field_selector=selector)

    def _record(self, kind: str, item: Object, gone: bool = False) -> None:
        now, uid = time.monotonic(), str(item["metadata"]["uid"])
        slim = {**item, "metadata": {key: value for key, value in item["metadata"].items() if key != "managedFields"}}
        with self._lock:
            before = self._present[kind].get(uid)
            if before and not gone and before["metadata"]["resourceVersion"] == slim["metadata"]["resourceVersion"]:
                return
            if gone:
                self._present[kind].pop(uid, None)
            else:
                self._present[kind][uid] = slim
            self._observations.append((now, kind, slim, gone))
            if kind == EVENT and (name := creator(slim)):
                self._refused[name] = now
            if kind not in UNCOUNTED and (gone or before is None or _signature(kind, before) != _signature(kind, slim)):
                self._changed = now


def _signature(kind: str, item: Object) -> tuple[object, ...]:
    """What counts as a change of an object."""
    status, deleted = item.get("status") or {}, item["metadata"].get("deletionTimestamp")
    if kind == "Workload":
        conditions = status.get("conditions") or []
        return (deleted, *sorted((entry["type"], entry["status"], entry.get("reason")) for entry in conditions))
    if kind == "Pod":
        return deleted, item["spec"].get("nodeName"), status.get("phase"), holds(item, "Ready")
    if kind == "Node":
        return deleted, holds(item, "Ready"), item["spec"].get("unschedulable")
    if kind in ("Deployment", "StatefulSet"):
        return deleted, item["spec"].get("replicas"), status.get("readyReplicas")
    return deleted, item.get("spec", {}).get("suspend"), len(status.get("conditions") or [])
