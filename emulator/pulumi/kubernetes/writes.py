"""Creates and applies objects, with the retries and the field managers of the official plugin (await.go, retry.go)."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable

from emulator.pulumi.kubernetes import objects, refusals
from emulator.pulumi.kubernetes.api import CREATOR, ApiError, Cluster, Resource
from emulator.pulumi.kubernetes.objects import Object, Path, Properties, annotation, is_true, metadata
from emulator.pulumi.plugin import Refused, plain

# Pauses while the kind or the namespace doesn't exist. The official plugin also pauses after the last try (retry.go).
CREATE_PAUSES_SECONDS = (1, 2, 4, 8, 16, 32)
UPDATE_RETRIES = 5


def field_manager(urn: str, state: Properties, obj: Object) -> str:
    """The field manager of a resource.

    Each resource has its own, so two resources never overwrite one another.
    """
    recorded = annotation(obj, objects.FIELD_MANAGER) or plain(state.get("__fieldManager"))
    return recorded or f"{CREATOR}-{hashlib.sha256(urn.encode()).hexdigest()[:8]}"


class Writer:
    """Writes objects to one cluster.

    Args:
        cluster: The API server.
        force: The provider's `enablePatchForce`.
        canceled: Ends the pauses between retries when set.
    """

    def __init__(self, cluster: Cluster, force: bool, canceled: threading.Event) -> None:
        self._cluster = cluster
        self._force = force
        self._canceled = canceled

    def create(self, urn: str, inputs: Properties, report: Callable[[str], None]) -> tuple[Resource, Object]:
        """Creates an object; tries again while its kind or its namespace doesn't exist.

        Raises:
            Refused: The API server refused the object, or the kind or the namespace still doesn't exist.
        """
        obj = plain(inputs)
        namespace = metadata(obj).get("namespace", "")
        cause = ""
        for pause in CREATE_PAUSES_SECONDS:
            resource = self._cluster.resource(str(obj["apiVersion"]), str(obj["kind"]))
            if resource is None:
                cause = refusals.no_match(obj)
            else:
                try:
                    return resource, self._cluster.create(resource, namespace, obj, dry_run=False)
                except ApiError as error:
                    if error.code != 404:
                        raise refusals.create_refused(urn, inputs, error) from None
                    cause = error.message
                    self._cluster.forget(str(obj["apiVersion"]), str(obj["kind"]))
            report(f"not created yet, next try in {pause} s: {cause}")
            if self._canceled.wait(pause):
                break
        raise Refused(f"{refusals.display_name(inputs)} was not created by the Kubernetes API server: {cause}")

    def apply(self, resource: Resource, obj: Object, manager: str, ignored: list[Path], *, dry_run: bool) -> Object:
        """Applies an object; tries again if a controller writes it at the same time."""
        for attempt in range(UPDATE_RETRIES + 1):
            try:
                return self._apply_once(resource, obj, manager, ignored, dry_run=dry_run)
            except ApiError as error:  # a conflict without causes: a controller wrote between our read and our write
                if error.reason != "Conflict" or error.causes or attempt == UPDATE_RETRIES:
                    raise
        raise AssertionError

    def _apply_once(
        self, resource: Resource, obj: Object, manager: str, ignored: list[Path], *, dry_run: bool
    ) -> Object:
        namespace, name = metadata(obj).get("namespace", ""), str(metadata(obj)["name"])
        live = self._cluster.get(resource, namespace, name)
        force = self._force or is_true(obj, objects.PATCH_FORCE)
        version = metadata(live)["resourceVersion"]
        managed_fields = objects.adopted_fields(metadata(live).get("managedFields") or [], manager)
        if managed_fields is not None and not dry_run:
            operations = [
                {"op": "replace", "path": "/metadata/managedFields", "value": managed_fields},
                {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
            ]
            live = self._cluster.patch(resource, namespace, name, operations)
        desired = objects.with_ignored(obj, live, ignored, manager)
        force = force or (dry_run and managed_fields is not None)
        return self._cluster.apply(resource, namespace, name, desired, manager, force=force, dry_run=dry_run)
