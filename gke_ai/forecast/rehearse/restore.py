"""Brings a scratch emulator to the state of a snapshot: replaces its objects while no controller runs."""

from __future__ import annotations

import copy
import json
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gke_ai.catalog.kueue.namespaces import JOBSET, KUEUE
from gke_ai.forecast.rehearse.differences import Difference, differences
from gke_ai.forecast.rehearse.graft import complete, graft
from gke_ai.forecast.rehearse.scratch import Scratch
from gke_ai.forecast.snapshot.command import Forbidden, list_all
from gke_ai.forecast.snapshot.fields import kinds
from gke_ai.forecast.snapshot.format import Snapshot
from gke_ai.kube.client import Answer, ApiClient, list_objects, request, send
from gke_ai.kube.objects import key_of
from gke_ai.terminal import Stop

Object = dict[str, Any]
Objects = Mapping[str, Iterable[Mapping[str, Any]]]
# Kinds that stay in the scratch cluster although the snapshot does not have them: they hold objects of other kinds.
_KEPT = ("Namespace",)
# Objects on which the webhooks of Kueue and JobSet decide.
_PROBES: Mapping[str, Object] = {"ResourceFlavor": {}, "JobSet": {"replicatedJobs": []}}
_SERVICES = tuple(f"/api/v1/namespaces/{namespace}/services" for namespace in (KUEUE, JOBSET))
SERVER_ERROR = 500
# How often a restore is tried in which Kueue admits a workload too early.
RESTORES = 3
WEBHOOK_SECONDS = 180
REVISION_SECONDS = 15
# What client-go writes of a list that it can't decode, in tools/cache/reflector.go. A lost connection is another one.
_UNREADABLE = re.compile(r'failed to list [^:"]+: [^"\n]*(?:unmarshal|quantit|decod|pars)[^"\\\n]*')
_REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
_JOB_UID = "kueue.x-k8s.io/job-uid"
_REVISION = "controller-revision-hash"
# The field manager of PatchAdmissionStatus, and the fields of admissionStatusPatch:
# https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/workload/workload.go
MANAGER = "kueue-admission"
_FIELDS = ("accumulatedPastExecutionTimeSeconds", "admission", "conditions", "requeueState", "resourceRequests")
# Lists whose items are merged by a key, in Workloads. The items of any other list belong together.
_KEYS: Mapping[str, str] = {"conditions": "type", "podSetAssignments": "name", "resourceRequests": "name"}


@dataclass
class Restoration:
    """What to write into a scratch cluster and what to delete from it, as whole objects."""

    put: list[Object] = field(default_factory=list)
    delete: list[Object] = field(default_factory=list)

    def to_json(self) -> str:
        """Returns the plan as `emulator/run cluster load` reads it."""
        return json.dumps({"put": self.put, "delete": self.delete})


def plan(snapshot: Snapshot, scratch: Objects) -> Restoration:
    """Returns what brings a scratch cluster with these objects to the state of a snapshot.

    An object that both have keeps its unlisted fields, such as images. An object of a controller takes them from its
    owner. Any other object gets placeholders. Objects that the snapshot does not have are deleted, unless the snapshot
    misses their kind.
    """
    planner = _Planner(snapshot, scratch)
    for kind in kinds():
        for item in snapshot.of(kind):
            planner.put(kind, item)
    planner.delete()
    return planner.plan


class _Planner:
    def __init__(self, snapshot: Snapshot, scratch: Objects) -> None:
        self.plan = Restoration()
        self._snapshot = snapshot
        self._scratch = {kind: {key_of(item): item for item in items} for kind, items in scratch.items()}
        self._by_uid: dict[str, tuple[str, Object]] = {}
        self._uids = {item["metadata"].get("uid") for items in snapshot.objects.values() for item in items}

    def put(self, kind: str, item: Mapping[str, Any]) -> None:
        own = self._scratch.get(kind, {}).get(key_of(item))
        owners = self._owners(item)
        base = self._inherited(kind, item, owners, own or {})
        # Copied, because conditions and templates get placeholders.
        whole = complete(kind, copy.deepcopy(graft(kind, item, base)))
        metadata = whole["metadata"]
        metadata.setdefault("uid", str(uuid.uuid4()))
        stated = metadata.pop("ownerReferences", [])
        if references := [owner for owner in stated if owner.get("uid") in self._uids]:
            # The garbage collector would delete an object whose owner does not exist.
            metadata["ownerReferences"] = references
        elif stated and kind == "Workload":
            # Kueue ends a Workload that has this label and no owner: pkg/controller/core/workload_controller.go
            metadata.get("labels", {}).pop(_JOB_UID, None)
        if kind == "Pod" and (revision := _revision(owners)):
            metadata.setdefault("labels", {})[_REVISION] = revision
        whole = {"apiVersion": kinds()[kind].api, "kind": kind, **whole}
        if kind == "Workload":
            metadata["managedFields"] = managed_fields(whole)
        self._by_uid[metadata["uid"]] = kind, whole
        self.plan.put.append(whole)
        if kind == "Namespace" and own is None:
            self.plan.put.append(_service_account(metadata["name"], metadata.get("creationTimestamp")))

    def delete(self) -> None:
        for kind, items in self._scratch.items():
            if kind in _KEPT or kind in self._snapshot.missing:
                continue
            kept = {key_of(item) for item in self._snapshot.of(kind)}
            for namespace, name in items.keys() - kept:
                metadata = {"namespace": namespace, "name": name} if namespace else {"name": name}
                self.plan.delete.append({"apiVersion": kinds()[kind].api, "kind": kind, "metadata": metadata})

    def _owners(self, item: Mapping[str, Any]) -> list[tuple[str, Object]]:
        """The owners that are already planned; the controller first."""
        references = item["metadata"].get("ownerReferences", [])
        in_order = sorted(references, key=lambda owner: not owner.get("controller", False))
        return [self._by_uid[owner["uid"]] for owner in in_order if owner.get("uid") in self._by_uid]

    def _inherited(
        self, kind: str, item: Mapping[str, Any], owners: list[tuple[str, Object]], own: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """The object from which an object takes its unlisted fields."""
        if not owners:
            return own
        owner_kind, owner = owners[0]
        spec: Object = owner.get("spec", {})
        if kind == "Pod" and "template" in spec:
            template = spec["template"]
            return {**own, "metadata": {**template.get("metadata", {}), **own.get("metadata", {})}, **_spec(template)}
        if kind == "ReplicaSet":
            return {**own, "spec": {**own.get("spec", {}), "template": spec.get("template", {})}}
        if kind == "Job" and owner_kind == "JobSet":
            return {**_job_of(owner, item["metadata"].get("labels", {}).get(_REPLICATED_JOB, "")), **own}
        if kind == "Workload":
            pod_sets = [_pod_set(pod_set, owner_kind, owner) for pod_set in item.get("spec", {}).get("podSets", [])]
            return {**own, "spec": {**own.get("spec", {}), "podSets": pod_sets}}
        return own


def _revision(owners: list[tuple[str, Object]]) -> str:
    """The revision of a StatefulSet's pods: that of the scratch cluster, whose controller hashes whole templates."""
    kind, owner = owners[0] if owners else ("", {})
    return str(owner.get("status", {}).get("updateRevision", "")) if kind == "StatefulSet" else ""


def _spec(template: Mapping[str, Any]) -> Object:
    return {"spec": template["spec"]} if "spec" in template else {}


def _job_of(jobset: Mapping[str, Any], name: str) -> Object:
    jobs = jobset.get("spec", {}).get("replicatedJobs", [])
    template: Object = next((job["template"] for job in jobs if job["name"] == name), {})
    return template


def _pod_set(pod_set: Mapping[str, Any], owner_kind: str, owner: Mapping[str, Any]) -> Object:
    """A pod set with the unlisted fields of its owner's pods."""
    if owner_kind == "JobSet":
        template = _job_of(owner, pod_set["name"]).get("spec", {}).get("template", {})
    elif owner_kind == "Pod":
        template = {"metadata": owner["metadata"], "spec": owner.get("spec", {})}
    else:
        template = owner.get("spec", {}).get("template", {})
    return {"name": pod_set["name"], "template": _spec(template)}


def _service_account(namespace: str, created: str | None) -> Object:
    """The service account that Kubernetes creates in a namespace. Without it, a controller can't create pods yet."""
    metadata = {"name": "default", "namespace": namespace, "uid": str(uuid.uuid4()), "creationTimestamp": created}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}


# ------------------------------------------------------------------------------------------------------------ ownership
# Kueue takes back an admission by applying a status without it. The API server then deletes only fields that Kueue had
# applied before: https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management. Without that, an
# evicted workload would keep its admission, and Kueue would admit it again before the workload that evicted it.
def managed_fields(workload: Mapping[str, Any]) -> list[Object]:
    """Returns the entries of `metadata.managedFields` of a Workload whose status Kueue wrote; none without a status."""
    status = {name: value for name, value in workload.get("status", {}).items() if name in _FIELDS}
    if not status:
        return []
    entry = {
        "manager": MANAGER,
        "operation": "Apply",
        "apiVersion": workload["apiVersion"],
        "time": workload["metadata"].get("creationTimestamp"),
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:status": _fields(status)},
        "subresource": "status",
    }
    return [entry]


def _fields(value: Any, name: str = "") -> Object:
    """Returns the paths of all fields in a value, in the form of managed fields."""
    if isinstance(value, Mapping):
        return {f"f:{key}": _fields(part, key) for key, part in value.items()}
    if isinstance(value, list) and (key := _KEYS.get(name)):
        return {f'k:{{"{key}":"{item[key]}"}}': {".": {}, **_fields(item)} for item in value}
    return {}


# --------------------------------------------------------------------------------------------------------------- driver
def restore(snapshot: Snapshot, api: ApiClient, state: Path, cluster: str = "") -> Snapshot:
    """Brings the cluster of a scratch emulator to the state of a snapshot, and returns the snapshot as it was written.

    In the returned snapshot all times are later, so every age is that of the snapshot.

    Args:
        snapshot: The state.
        api: Client of the scratch cluster, which has the base configuration.
        state: State folder of the scratch emulator.
        cluster: Name of its cluster. Default: the only one.
    """
    emulator, picked = Scratch(state), [cluster] if cluster else []
    wait_for_revisions(api)
    for _ in range(RESTORES):
        emulator.run("cluster", "pause", *picked)
        moved = snapshot.at(datetime.now(UTC).replace(microsecond=0))
        planned = plan(moved, dict(objects_of(api)))
        forget_conditions(planned)
        if "Pod" not in moved.missing:
            check_services(planned, [item for path in _SERVICES for item in list_objects(api, path)])
        emulator.run("cluster", "load", *picked, stdin=planned.to_json())
        emulator.run("cluster", "resume", *picked)
        wait_for_webhooks(api)
        wait_for_queues(api)
        if not admitted_at_once(api, moved):
            break
    return moved


def check_services(planned: Restoration, services: Iterable[Mapping[str, Any]]) -> None:
    """Stops if Services of Kueue or JobSet would find no pod: their webhooks would never answer."""
    pods = [item["metadata"] for item in planned.put if item["kind"] == "Pod"]
    for service in services:
        namespace, selector = service["metadata"]["namespace"], service["spec"].get("selector") or {}
        there = [pod.get("labels", {}) for pod in pods if pod.get("namespace") == namespace]
        if not any(selector.items() <= labels.items() for labels in there):
            stated = ", ".join(f"{key}: {value}" for key, value in selector.items())
            raise Stop(
                f"The snapshot has no pod in {namespace} with the labels of Service {service['metadata']['name']} "
                f"({stated}), so no webhook would answer. Earlier versions hashed these labels. "
                "Take the snapshot again, with this version."
            )


def forget_conditions(planned: Restoration) -> None:
    """Removes the conditions of ClusterQueues from a plan. Kueue states them once it has read a queue."""
    for item in planned.put:
        if item["kind"] == "ClusterQueue":
            item.get("status", {}).pop("conditions", None)


def wait_for_revisions(api: ApiClient, seconds: float = REVISION_SECONDS) -> None:
    """Waits until the controller of StatefulSets has named the revision of each: the restored pods get its name."""
    deadline = time.monotonic() + seconds
    sets = kinds()["StatefulSet"]
    while time.monotonic() < deadline and not all(
        item.get("status", {}).get("updateRevision") for item in list_all(api, sets)
    ):
        time.sleep(0.3)


def unreadable(api: ApiClient) -> str:
    """Returns what Kueue's log says of a kind whose objects it can't decode; empty if it says nothing of the kind."""
    path = f"/api/v1/namespaces/{KUEUE}/pods"
    for pod in list_objects(api, path):
        log = send(api, "GET", f"{path}/{pod['metadata']['name']}/log", {"tailLines": "100"})
        if log.code == 200 and (match := _UNREADABLE.search(str(log.body))):
            return match[0]
    return ""


def _check(api: ApiClient, deadline: float, late: str) -> None:
    """Waits a moment. Stops after a deadline, or if Kueue can't decode an object, which no waiting ends."""
    if reason := unreadable(api):
        raise Stop(
            f"Kueue cannot read the snapshot's objects ({reason}), so it decides nothing. Take the snapshot again."
        )
    if time.monotonic() > deadline:
        raise Stop(late)
    time.sleep(0.3)


def wait_for_queues(api: ApiClient, seconds: float = WEBHOOK_SECONDS) -> None:
    """Waits until Kueue has read every ClusterQueue with its workloads."""
    deadline = time.monotonic() + seconds
    while unread := [
        item for item in list_all(api, kinds()["ClusterQueue"]) if not item.get("status", {}).get("conditions")
    ]:
        names = ", ".join(sorted(item["metadata"]["name"] for item in unread))
        _check(api, deadline, f"The scratch cluster runs, but Kueue has not read its ClusterQueues: {names}")


def admitted_at_once(api: ApiClient, written: Snapshot) -> set[tuple[str, str]]:
    """Returns the workloads that wait in a snapshot and were admitted as soon as Kueue ran.

    Kueue reads one ClusterQueue after the other. Until it has read a whole cohort, it may admit a waiting workload to
    quota that another queue borrows.
    """
    if "Workload" in written.missing:
        return set()
    return _admitted(list_all(api, kinds()["Workload"])) - _admitted(written.of("Workload"))


def _admitted(workloads: Iterable[Mapping[str, Any]]) -> set[tuple[str, str]]:
    return {key_of(item) for item in workloads if item.get("status", {}).get("admission")}


def wait_for_webhooks(api: ApiClient, seconds: float = WEBHOOK_SECONDS) -> None:
    """Waits until Kueue and JobSet answer, if the cluster has them: each decides on an object that is not created."""
    deadline = time.monotonic() + seconds
    for kind in _PROBES:
        while (answer := probe(api, kind)).code >= SERVER_ERROR:
            _check(api, deadline, f"The scratch cluster runs, but a controller does not answer: {answer.reason}")


def probe(api: ApiClient, kind: str) -> Answer:
    """Returns the answer to the creation of an object that is not created. An error from 500 on is a webhook's."""
    probed, spec = kinds()[kind], _PROBES[kind]
    namespace = "default" if kind == "JobSet" else ""
    body = {"apiVersion": probed.api, "kind": kind, "metadata": {"name": "rehearsal-probe"}, "spec": spec}
    return request(api, "POST", probed.path(namespace), {"dryRun": "All"}, body)


def lasting_differences(written: Snapshot, look: Callable[[], Snapshot], seconds: float) -> list[Difference]:
    """Returns what differs from a restored snapshot once the queues agree, or after `seconds`.

    Kueue counts the workloads of its queues only after it has read them all. Before that, it would decide on a change
    without knowing who else waits.
    """
    deadline = time.monotonic() + seconds
    while True:
        found = differences(written, look())
        if not any(difference.kind.endswith("Queue") for difference in found) or time.monotonic() > deadline:
            return found
        time.sleep(1)


def objects_of(api: ApiClient) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    """Yields every kind of a snapshot with the whole objects of a scratch cluster."""
    for name, kind in kinds().items():
        try:
            yield name, list_all(api, kind)
        except Forbidden as forbidden:
            raise Stop(f"The scratch cluster refuses to list {kind.plural}: {forbidden}") from None
