"""For how long, and how often, interrupted workloads have fewer ready pods than before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import accumulate

from catalog.objects import holds
from forecast.clock import Clock
from forecast.cluster import ended, replicas
from forecast.model import Interruption
from forecast.names import pod_name
from forecast.timeline import Histories, History, Object


def interruptions(
    histories: Histories, pods: Mapping[str, tuple[str, float]], clock: Clock, end: float
) -> tuple[Interruption, ...]:
    """Returns the interrupted pods, those of a workload as one, in order of their first end.

    `pods` are the cause and the second of each interrupted pod's end, by uid. `end` is the last second of the watch.
    """
    members: dict[str, list[History]] = defaultdict(list)
    for history in histories.get("Pod", {}).values():
        members[pod_name(history.last)].append(history)
    ends: dict[tuple[str, str], list[float]] = defaultdict(list)
    for uid, (cause, at) in pods.items():
        ends[pod_name(histories["Pod"][uid].last), cause].append(at)
    result = []
    for (name, cause), times in ends.items():
        first = min(times)
        lacks = list(_lacks(members[name], first, end, _wanted(histories, name)))
        lasted = sum(clock.exactly(until) - clock.exactly(since) for since, until in lacks)
        often = sum(any(since <= at <= until for at in times) for since, until in lacks)
        result.append(Interruption(name, cause, len(times), clock.seconds(first), max(often, 1), round(lasted)))
    return tuple(sorted(result, key=lambda entry: (entry.seconds, entry)))


def _lacks(members: list[History], first: float, end: float, wanted: int | None) -> Iterator[tuple[float, float]]:
    """Yields the times from `first` on at which fewer pods are ready than before it, or than are wanted at the end."""
    changes = sorted(change for member in members for change in _changes(member))
    before = sum(change for at, change in changes if at < first)
    needed = before if wanted is None else min(before, wanted)
    later = [(at, change) for at, change in changes if at >= first]
    counts = list(accumulate((change for _, change in later), initial=before))[1:]
    since = None
    for (at, _), ready in zip(later, counts, strict=True):
        if ready < needed and since is None:
            since = at
        elif ready >= needed and since is not None:
            yield since, at
            since = None
    if since is not None:
        yield since, max(end, since)


def _changes(pod: History) -> Iterator[tuple[float, int]]:
    """Yields the seconds at which a pod becomes ready (1) or stops being so (-1)."""
    was_ready = False
    for at, version in pod.versions:
        if (is_ready := _serves(version)) != was_ready:
            yield at, 1 if is_ready else -1
        was_ready = is_ready
    if was_ready and pod.gone is not None:
        yield pod.gone, -1


def _serves(pod: Object) -> bool:
    return holds(pod, "Ready") and not pod["metadata"].get("deletionTimestamp") and not ended(pod)


def _wanted(histories: Histories, name: str) -> int | None:
    """The replicas that a server asks for at the end; None for a run."""
    for history in histories.get("Deployment", {}).values():
        metadata = history.last["metadata"]
        if name == f"{metadata['namespace']}/deployment/{metadata['name']}":
            return replicas(history.last) if history.gone is None else 0
    return None
