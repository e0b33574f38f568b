"""Workloads that wait at the end: for what, whether they waited before, and which can never start."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from gke_ai.catalog.kueue.cohort_tree import Cell
from gke_ai.catalog.kueue.namespaces import PUBLIC
from gke_ai.catalog.nodes.quota import QUEUE_LABEL
from gke_ai.forecast.outcome import reasons
from gke_ai.forecast.outcome.cluster import Owners, workload_of
from gke_ai.forecast.outcome.queue import Queue, is_queued, priority_of, queue_of, replicas_of, together
from gke_ai.forecast.outcome.timeline import Histories, History
from gke_ai.forecast.result.forecast import Wait
from gke_ai.formats.sentences import join_names
from gke_ai.kube.creation import CREATORS, EVENT, OWN, children, creator, has_ended, missing
from gke_ai.kube.events import NOT_SCALED_UP
from gke_ai.kube.kueue import selects
from gke_ai.kube.names import WorkloadName, owner_of
from gke_ai.kube.objects import Object, condition, key_of, label
from gke_ai.kube.pods import ended
from gke_ai.kube.queues import flavors_of, held_by_queue, shape_of
from gke_ai.kube.values import items, mapping, value
from gke_ai.kube.workloads import priority_class_of

STRICT = "StrictFIFO"


class Reason(NamedTuple):
    """Why a workload waits: Kueue's word, plain words, and whether it can never start."""

    kind: str
    text: str
    never: bool = False


def waits(histories: Histories, queued: Queue, owners: Owners) -> tuple[Wait, ...]:
    """Returns the workloads that wait at the end. `owners` are the Workloads of pods, as `workload_of` expects them."""
    for_quota, for_pods = together(_for_quota(histories, queued)), (_for_pods, _uncreated, _suspended)
    # Child Jobs of a JobSet wait as one.
    return tuple(sorted({*for_quota, *(wait for found in for_pods for wait in found(histories, owners))}))


# --------------------------------------------------------------------------------------------------------------- quota
@dataclass(frozen=True)
class _Moment:
    """The workloads that wait at a time, by uid with their names, and what was observed of queues and namespaces."""

    waiting: Mapping[str, tuple[WorkloadName, Object]]
    local: Mapping[tuple[str, str], Object] | None
    queues: Mapping[str, Object] | None
    namespaces: Mapping[str, Object] | None
    held: Mapping[str, Mapping[Cell, Fraction]]

    def reason(self, uid: str) -> Reason:
        """Returns why a workload waits."""
        workload = self.waiting[uid][1]
        kind, text = reasons.stated_reason(workload)
        if kind == reasons.ADMISSION_CHECKS:
            return Reason(kind, text)
        if lost := self._lost(workload):
            return lost
        if text and text != reasons.OVERTAKEN:
            return Reason(kind, text, self._never(workload))
        return self._of_another(workload) or Reason(reasons.PENDING, text or reasons.UNPROCESSED)

    def _lost(self, workload: Object) -> Reason | None:
        """Why the queues of a workload admit nothing, whatever Kueue said of it before."""
        name, namespace = queue_of(workload), str(workload["metadata"]["namespace"])
        if self.local is None or self.queues is None:
            return None
        if not name:
            return Reason(reasons.INADMISSIBLE, "a queue: it names none, and Kueue holds runs without one", never=True)
        local, queue = self.local.get((namespace, name)), self.queue(workload)
        title, name = f"LocalQueue {name}", str(value(local, "spec", "clusterQueue") or "")
        for called, found in ((title, local), (f"ClusterQueue {name}", queue)):
            if found is None:
                return Reason(reasons.INADMISSIBLE, f"{called}, which does not exist", never=True)
            if str(found["spec"].get("stopPolicy", "None")) != "None":
                return Reason(reasons.INADMISSIBLE, f"{called}, which is stopped")
        labels = mapping((self.namespaces or {}).get(namespace), "metadata", "labels")
        if self.namespaces is not None and not selects(value(queue, "spec", "namespaceSelector"), labels):
            text = f"ClusterQueue {name}, whose namespaceSelector does not select namespace {namespace}"
            return Reason(reasons.INADMISSIBLE, text, never=True)
        active = condition(queue or {}, "Active")
        if active.get("status") == "False":
            message = str(active.get("message", "")).rstrip(".")
            return Reason(reasons.INADMISSIBLE, f"ClusterQueue {name}: {message}", never=True)
        return None

    def _never(self, workload: Object) -> bool:
        """Whether Kueue says so. It may still start with fewer pods if it allows that."""
        if any(pod_set.get("minCount") for pod_set in workload["spec"].get("podSets") or []):
            return False
        return reasons.never_starts(reasons.message_of(workload), flavors_of(self.queue(workload) or {}))

    def queue(self, workload: Object) -> Object | None:
        """The cluster queue of a workload."""
        local = (self.local or {}).get((workload["metadata"]["namespace"], queue_of(workload)))
        return (self.queues or {}).get(str(local["spec"].get("clusterQueue", ""))) if local else None

    @cached_property
    def _stated(self) -> Mapping[str, list[tuple[WorkloadName, Object]]]:
        """The workloads of which Kueue says what they wait for, by cluster queue, in its order."""
        stated: dict[str, list[tuple[WorkloadName, Object]]] = defaultdict(list)
        for name, workload in sorted(self.waiting.values(), key=lambda item: (_order(item[1]), item[0])):
            queue = self.queue(workload)
            if queue is not None and reasons.stated_reason(workload)[1] not in ("", reasons.OVERTAKEN):
                stated[queue["metadata"]["name"]].append((name, workload))
        return stated

    @cached_property
    def _equal(self) -> Mapping[tuple[str, str], Object]:
        """The first of these workloads, by cluster queue and shape."""
        return {
            (queue, shape_of(workload)): workload
            for queue, stated in self._stated.items()
            for _, workload in reversed(stated)
        }

    def _of_another(self, workload: Object) -> Reason | None:
        """The reason of an equal workload, or of the first one in a queue that keeps its order."""
        queue = self.queue(workload)
        if queue is None:
            return None
        name = str(queue["metadata"]["name"])
        if queue["spec"].get("queueingStrategy") == STRICT:
            first, other = next(iter(self._stated.get(name, [])), ("", workload))
            if _order(other) >= _order(workload):
                return None
            text = f"{first}, which is before it in ClusterQueue {name} ({STRICT})"
            return Reason(reasons.PENDING, text, self._never(other))
        equal = self._equal.get((name, shape_of(workload)))
        return Reason(*reasons.stated_reason(equal), self._never(equal)) if equal else None


def _order(workload: Object) -> tuple[int, str]:
    """The place of a workload in its queue: by priority, then by age."""
    return -priority_of(workload), str(workload["metadata"].get("creationTimestamp", ""))


def _moment(histories: Histories, queued: Queue, version: Callable[[History], Object | None]) -> _Moment:
    def present(kind: str) -> Iterator[Object]:
        return (item for item in map(version, histories.get(kind, {}).values()) if item)

    waiting = {}
    for uid, (name, history) in queued.workloads.items():
        if (workload := version(history)) and is_queued(workload):
            waiting[uid] = name, workload
    local = {key_of(item): item for item in present("LocalQueue")}
    queues, namespaces = (
        {item["metadata"]["name"]: item for item in present(kind)} if kind in histories else None
        for kind in ("ClusterQueue", "Namespace")
    )
    held = held_by_queue(present("Workload"))
    return _Moment(waiting, local if "LocalQueue" in histories else None, queues, namespaces, held)


def _for_quota(histories: Histories, queued: Queue) -> Iterator[tuple[str, Wait]]:
    before = _moment(histories, queued, lambda history: history.before)
    after = _moment(histories, queued, lambda history: history.after)
    for uid, (name, workload) in after.waiting.items():
        if workload["metadata"].get("deletionTimestamp"):
            continue
        reason = after.reason(uid)
        earlier = before.reason(uid) if uid in before.waiting else None
        if earlier and earlier.text == reason.text and _is_free(workload, before, after):
            # Kueue tries none again if the local queue of a deleted workload is gone before it.
            reason = reason._replace(text=f"{reason.text}, which are free at the end: Kueue has not tried it again")
        same = earlier is not None and earlier.kind == reason.kind and (earlier.never or not reason.never)
        wait = Wait(name, queue_of(workload), priority_of(workload), reason.kind, reason.text, same)
        otherwise = earlier is not None and not same
        yield uid, replace(wait, count=replicas_of(name, workload), never=reason.never, otherwise=otherwise)


def _is_free(workload: Object, before: _Moment, after: _Moment) -> bool:
    """Whether the quota that Kueue last missed for a workload has become free in its cluster queue."""
    name = str(value(after.queue(workload), "metadata", "name"))
    old, new = before.held.get(name, {}), after.held.get(name, {})
    needed = reasons.missing_quota(reasons.message_of(workload))
    return bool(needed) and all(old.get(cell, 0) - new.get(cell, 0) >= more for cell, more in needed.items())


# --------------------------------------------------------------------------------------------------------------- nodes
def _for_pods(histories: Histories, owners: Owners) -> Iterator[Wait]:
    """Yields the workloads whose pods no node fits at the end, or stay gated although Kueue does not hold them back."""
    waiting: dict[tuple[WorkloadName, str, bool], list[Object]] = defaultdict(list)
    living: Counter[WorkloadName] = Counter()
    for history in histories.get("Pod", {}).values():
        pod, gates = history.last, items(history.last, "spec", "schedulingGates")
        if history.gone is not None or ended(pod) or pod["metadata"]["namespace"] in PUBLIC:
            continue
        name, owner = WorkloadName.of_pod(pod), workload_of(pod, owners)
        living[name] += 1
        if lacks_node(pod):
            waiting[name, reasons.NO_NODE, history.before is not None and lacks_node(history.before)].append(pod)
        elif gates and not pod["metadata"].get("deletionTimestamp") and not (owner and is_queued(owner.last)):
            waiting[name, reasons.GATED, bool(items(history.before, "spec", "schedulingGates"))].append(pod)
    events = [history.last for history in histories.get("Event", {}).values()]
    for (of, reason, before), pods in waiting.items():
        named = sorted({str(gate.get("name")) for pod in pods for gate in items(pod, "spec", "schedulingGates")})
        text = f"the removal of scheduling gate {join_names(named)} from {len(pods)} of its {living[of]} pods"
        text = text if reason == reasons.GATED else f"a node: {_why_no_node(pods, events)}"
        owner, count = workload_of(pods[0], owners), len(pods) if of.has_replicas else 1
        queue = queue_of(owner.last) if owner else label(pods[0], QUEUE_LABEL)
        yield Wait(of, queue, priority_of(owner.last if owner else pods[0]), reason, text, before, count)


def _uncreated(histories: Histories, owners: Owners) -> Iterator[Wait]:
    """Yields the workloads that lack pods at the end because the API server refuses them."""
    seen = (entry for history in histories.get(EVENT, {}).values() for entry in history.versions)
    events = sorted(seen, key=lambda entry: entry[0])
    messages = {creator(event): str(event.get("message", "")) for _, event in events}
    early = {creator(event) for at, event in events if at <= 0}
    present = {kind: [item for item in of_kind.values() if item.gone is None] for kind, of_kind in histories.items()}
    owned = children({kind: [history.last for history in present.get(kind, ())] for kind in OWN})
    of_creators = [(kind, history) for kind in CREATORS for history in present.get(kind, ())]
    for kind, history in of_creators:
        item, own = history.last, WorkloadName.of_object(kind, history.last)
        living = [pod for pod in owned[own] + owned[str(item["metadata"]["uid"])] if not ended(pod)]
        if own in messages and (lacking := missing(kind, item, len(living))):
            name = WorkloadName.of_run(kind, item)
            stated = label(item, QUEUE_LABEL) or label(mapping(item, "spec", "template"), QUEUE_LABEL)
            queue, priority = (queue_of(of.last), priority_of(of.last)) if (of := owners.get(name)) else (stated, 0)
            # Replicas of a server stay until the missing ones run. Those of a run end by themselves.
            text, never = reasons.why_refused(messages[own], living if name.has_replicas else ())
            before, count = history.before is not None and own in early, lacking if name.has_replicas else 1
            yield Wait(name, queue, priority, reasons.REFUSED, text, before, count, never)


def _suspended(histories: Histories, owners: Owners) -> Iterator[Wait]:
    """Yields the suspended runs without a Workload: Kueue does not know them, or can't create it, and says nothing."""
    for kind in ("Job", "JobSet"):
        for history in histories.get(kind, {}).values():
            item, owner = history.after, owners.get(WorkloadName.of_object(kind, history.last))
            known = owner is not None and owner.gone is None
            if item is None or known or owner_of(item) or not item["spec"].get("suspend") or has_ended(item):
                continue
            queue, (of_class, name) = label(item, QUEUE_LABEL), priority_class_of(kind, item)
            text = (
                "Kueue, which has created no Workload for it" if queue else "the end of its suspension (spec.suspend)"
            )
            text += f": check that {of_class} {name} exists" if queue and name else ""
            before = bool(history.before and history.before["spec"].get("suspend"))
            yield Wait(WorkloadName.of_object(kind, item), queue, 0, reasons.SUSPENDED, text, before)


def lacks_node(pod: Object) -> bool:
    """Whether no node fits a pod."""
    scheduled = condition(pod, "PodScheduled")
    return (
        not pod["metadata"].get("deletionTimestamp") and not ended(pod) and scheduled.get("reason") == "Unschedulable"
    )


def _why_no_node(pods: list[Object], events: list[Object]) -> str:
    """The autoscaler's newest reason for one of the pods, else the scheduler's."""
    uids = {pod["metadata"]["uid"] for pod in pods}
    own = [event for event in events if (event.get("involvedObject") or {}).get("uid") in uids]
    refused = [event for event in own if event.get("reason") == NOT_SCALED_UP]
    if refused:
        newest = max(refused, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))
        return str(newest.get("message", "")).removeprefix("pod didn't trigger scale-up: ")
    return str(condition(pods[0], "PodScheduled").get("message", ""))
