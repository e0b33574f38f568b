"""Waits until an object is ready or deleted, within its timeout and until the engine cancels."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable

from emulator.pulumi.kubernetes import readiness
from emulator.pulumi.kubernetes.api import Cluster, Resource
from emulator.pulumi.kubernetes.objects import (
    SKIP_AWAIT,
    TIMEOUT_SECONDS,
    WAIT_FOR,
    Object,
    annotation,
    is_true,
    metadata,
)
from emulator.pulumi.plugin import Refused
from gke_ai.kube.values import items

DEFAULT_SECONDS = 600.0
LOOK_AGAIN_SECONDS = 2  # a watch shows changes of the object itself; other changes and cancellation are polled
ENDPOINTS_SETTLE_SECONDS = 10
VOLUME_SECONDS = 300.0
DELETED_AT_ONCE = {
    ("v1", "Namespace"),
    ("v1", "Pod"),
    ("v1", "ReplicationController"),
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "StatefulSet"),
    ("batch/v1", "Job"),
}
"""Kinds for which `pulumi.com/skipAwait` also skips the wait for deletion (the official plugin's overrides.go)."""
UNKNOWN_WAITS = {
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "StatefulSet"),
    ("networking.k8s.io/v1", "Ingress"),
    ("v1", "PersistentVolume"),
    ("v1", "ReplicationController"),
}
"""Kinds that the official plugin waits for and this one can't."""

Report = Callable[[str], None]


def kept_by(live: Object) -> str:
    """What keeps an object that is deleted: its finalizers, or what a namespace still has."""
    if finalizers := metadata(live).get("finalizers"):
        return f"Finalizers that block it: {', '.join(finalizers)}"
    return "; ".join(each["message"] for each in items(live, "status", "conditions") if each["status"] == "True")


class NotReadyError(Exception):
    """The object exists but isn't ready. `live` is its last state."""

    def __init__(self, reasons: list[str], live: Object) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = reasons
        self.live = live


def kind_of(obj: Object) -> tuple[str, str]:
    return str(obj.get("apiVersion")), str(obj.get("kind"))


def seconds_for(inputs: Object, custom_timeout: float) -> float:
    """The timeout: the resource option `customTimeouts`, else the annotation, else ten minutes."""
    stated = annotation(inputs, TIMEOUT_SECONDS)
    return custom_timeout or (float(stated) if stated.isdigit() else DEFAULT_SECONDS)


def refuse_unknown_wait(inputs: Object) -> None:
    """Refuses an object before it is created if this plugin can't wait for it as the official one does."""
    if kind_of(inputs) in UNKNOWN_WAITS and not is_true(inputs, SKIP_AWAIT) and not annotation(inputs, WAIT_FOR):
        raise Refused(
            f"the emulator doesn't know when a {inputs['kind']} is ready: annotate it with {WAIT_FOR} or {SKIP_AWAIT}"
        )
    if annotation(inputs, WAIT_FOR):
        readiness.WaitFor(annotation(inputs, WAIT_FOR))


class Waiter:
    """Waits for objects of one cluster.

    Args:
        cluster: The cluster of the objects.
        canceled: Ends every wait when set.
    """

    def __init__(self, cluster: Cluster, canceled: threading.Event) -> None:
        self._cluster = cluster
        self._canceled = canceled

    def until_ready(
        self, resource: Resource, live: Object, inputs: Object, custom_timeout: float, report: Report, *, created: bool
    ) -> Object:
        """Returns the object once it is ready.

        Raises:
            NotReadyError: The timeout expired, the engine canceled, or the object failed.
        """
        if is_true(inputs, SKIP_AWAIT):
            return live
        wait_for = annotation(inputs, WAIT_FOR)
        if wait_for:
            rule: Callable[[Object], list[str]] = readiness.WaitFor(wait_for).missing
        elif kind_of(live) == ("v1", "Service"):
            rule = self._settling_service(live)
        else:
            rule = functools.partial(self._reasons_now, created=created)
        seconds = seconds_for(inputs, custom_timeout)
        if kind_of(live) == ("v1", "PersistentVolumeClaim") and not wait_for:
            seconds = min(seconds, VOLUME_SECONDS)
        deadline = time.monotonic() + seconds
        while True:
            try:
                reasons = rule(live)
            except readiness.Failed as failed:
                raise NotReadyError([str(failed)], live) from None
            if not reasons:
                return live
            report(reasons[0])
            left = deadline - time.monotonic()
            if self._canceled.is_set():
                raise NotReadyError(["canceled while waiting", *reasons], live)
            if left <= 0:
                raise NotReadyError([f"not ready after {seconds:.0f} s", *reasons], live)
            self._cluster.wait_for_change(resource, live, min(left, LOOK_AGAIN_SECONDS))
            meta = metadata(live)
            current = self._cluster.find(resource, meta.get("namespace", ""), meta["name"])
            if current is None or metadata(current)["uid"] != meta["uid"]:
                raise NotReadyError(["deleted by someone else while waiting"], live)
            live = current

    def _reasons_now(self, obj: Object, *, created: bool) -> list[str]:
        """Why the object isn't ready.

        Its status counts only once its controller has seen the newest version.
        """
        stale = readiness.outdated(obj)
        return ["its controller hasn't seen the newest version"] if stale else self.reasons(obj, created=created)

    def reasons(self, obj: Object, *, created: bool = False) -> list[str]:
        """Why the object isn't ready by the rules of its kind.

        A kind without rules is always ready.
        """
        match kind_of(obj):
            case ("apps/v1", "Deployment"):
                sets = self._all("apps/v1", "ReplicaSet", obj)
                return readiness.deployment(obj, sets, []) and readiness.deployment(
                    obj, sets, self._all("v1", "Pod", obj)
                )
            case ("batch/v1", "Job"):
                return readiness.job(obj, []) and readiness.job(obj, self._all("v1", "Pod", obj))
            case ("v1", "Pod"):
                return readiness.pod(obj)
            case ("v1", "PersistentVolumeClaim"):
                return readiness.volume_claim(obj, self._binding_mode(obj), created=created)
            case ("v1", "ResourceQuota"):
                return readiness.quota(obj)
            case ("v1", "Service"):
                return self._service(obj)
        return []

    def _all(self, api_version: str, kind: str, beside: Object) -> list[Object]:
        resource = self._cluster.resource(api_version, kind)
        return self._cluster.select(resource, metadata(beside).get("namespace", "")) if resource else []

    def _binding_mode(self, claim: Object) -> str:
        name = (claim.get("spec") or {}).get("storageClassName")
        resource = self._cluster.resource("storage.k8s.io/v1", "StorageClass")
        storage_class = self._cluster.find(resource, "", name) if resource and name else None
        return str((storage_class or {}).get("volumeBindingMode") or "")

    def _service(self, obj: Object) -> list[str]:
        if not readiness.service_has_address(obj):
            return ["the load balancer has no address yet"]
        if not readiness.service_needs_endpoints(obj):
            return []
        resource = self._cluster.resource("v1", "Endpoints")
        meta = metadata(obj)
        endpoints = self._cluster.find(resource, meta.get("namespace", ""), meta["name"]) if resource else None
        return ["some of its pods aren't ready"] if readiness.endpoints_pending(endpoints) else []

    def _settling_service(self, live: Object) -> Callable[[Object], list[str]]:
        """Waits some seconds for a Service's endpoints to appear.

        A headless Service needs none.
        """
        settled = time.monotonic() + (ENDPOINTS_SETTLE_SECONDS if readiness.service_needs_endpoints(live) else 0)

        def reasons(obj: Object) -> list[str]:
            if time.monotonic() < settled:
                return ["finding pods to direct traffic to"]
            return self._service(obj)

        return reasons

    def until_gone(
        self, resource: Resource, namespace: str, name: str, inputs: Object, custom_timeout: float, report: Report
    ) -> None:
        """Returns once the object is deleted.

        Raises:
            Refused: The object still exists when the timeout expires or the engine cancels.
        """
        if is_true(inputs, SKIP_AWAIT) and kind_of(inputs) in DELETED_AT_ONCE:
            return
        seconds = seconds_for(inputs, custom_timeout)
        deadline = time.monotonic() + seconds
        first: Object | None = None
        while True:
            live = self._cluster.find(resource, namespace, name)
            first = first or live
            if live is None or first is None or metadata(live)["uid"] != metadata(first)["uid"]:
                return
            reasons = kept_by(live)
            report(f"waiting for its deletion ({reasons or 'its controller has not ended it'})")
            left = deadline - time.monotonic()
            if left <= 0 or self._canceled.is_set():
                cause = "canceled" if self._canceled.is_set() else f"still exists after {seconds:.0f} s"
                raise Refused(
                    f"deletion of {live['kind']} {name}: {cause}. {f'{reasons}. ' if reasons else ''}"
                    "Let their owners end them, then run the same command again."
                )
            self._cluster.wait_for_change(resource, live, min(left, LOOK_AGAIN_SECONDS))
