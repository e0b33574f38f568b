"""Compares a snapshot with another one: each field that differs, except what controllers keep writing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gke_ai.forecast.snapshot.format import Snapshot
from gke_ai.kube.objects import key_of

# Fields that controllers write all the time, or that differ between two runs of the same controllers, by kind.
EXPECTED: tuple[tuple[str, str, str], ...] = (
    ("Node", r"status\.conditions\[.*\]\.last(Heartbeat|Transition)Time", "kubelets report their state again"),
    ("HorizontalPodAutoscaler", r"status\.(currentMetrics|conditions).*", "the autoscaler measures again"),
    (".*", r"status\.conditions\[.*\]\.(lastProbeTime|lastUpdateTime|observedGeneration)", "controllers look again"),
    (".*", r"(status\.observedGeneration|metadata\.generation)", "controllers write what they found"),
    ("Pod", r"metadata\.labels\[?\.?controller-revision-hash\]?", "controllers hash whole templates"),
    ("StatefulSet", r"spec\.updateStrategy.*", "pods whose images are not known stay"),
    ("Job", r"status\.conditions\[Suspended\]\.lastTransitionTime", "the Job controller states it again"),
    # Its admission is compared by itself.
    (
        "Workload",
        r"status\.(conditions\[QuotaReserved\]|resourceRequests)",
        "Kueue looks at every waiting workload again",
    ),
    ("ResourceQuota", r"status\.used\..*", "Kubernetes counts objects, which are compared by themselves"),
    (".*Queue", r"status\.conditions\[.*\]\.lastTransitionTime", "Kueue reads its queues again"),
    ("LocalQueue", r"status\.fairSharing\.admissionFairSharingStatus.*", "Kueue goes on counting from past usage"),
)
_ABSENT = "(absent)"
_IDENTITIES = ("name", "type", "uid", "key", "containerPort")


@dataclass(frozen=True, order=True)
class Difference:
    """A field that differs. An object that one of the snapshots lacks has an empty path."""

    kind: str
    name: str
    path: str
    expected: str
    actual: str

    def __str__(self) -> str:
        if self.path:
            return f"{self.kind} {self.name}: {self.path} is {self.actual} instead of {self.expected}"
        return f"{self.kind} {self.name} is {'missing' if self.actual == _ABSENT else 'additional'}"


def differences(snapshot: Snapshot, live: Snapshot) -> list[Difference]:
    """Returns what differs in a restored cluster from the snapshot, except the fields in EXPECTED.

    Kinds that one of the snapshots misses do not count.
    """
    kinds = (snapshot.objects.keys() | live.objects.keys()) - {*snapshot.missing, *live.missing}
    return [difference for kind in sorted(kinds) for difference in _of_kind(kind, snapshot, live)]


def _of_kind(kind: str, snapshot: Snapshot, live: Snapshot) -> Iterator[Difference]:
    before, after = ({_name(item): item for item in taken.of(kind)} for taken in (snapshot, live))
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            yield Difference(kind, name, "", "present", _ABSENT)
        elif name not in before:
            yield Difference(kind, name, "", _ABSENT, "present")
        else:
            for path, expected, actual in _compare(before[name], after[name], ""):
                if not is_expected(kind, path):
                    yield Difference(kind, name, path, expected, actual)


def is_expected(kind: str, path: str) -> bool:
    """Whether a difference of a field is expected after every restore."""
    return any(re.fullmatch(kinds, kind) and re.fullmatch(paths, path) for kinds, paths, _ in EXPECTED)


def _compare(before: Any, after: Any, path: str) -> Iterator[tuple[str, str, str]]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted(before.keys() | after.keys()):
            yield from _compare(before.get(key, _ABSENT), after.get(key, _ABSENT), f"{path}.{key}".lstrip("."))
    elif isinstance(before, list) and isinstance(after, list):
        first, second = _by_identity(before), _by_identity(after)
        for key in sorted(first.keys() | second.keys()):
            yield from _compare(first.get(key, _ABSENT), second.get(key, _ABSENT), f"{path}[{key}]")
    elif before != after and {str(before), str(after)} not in ({_ABSENT, "{}"}, {_ABSENT, "[]"}):
        yield path, str(before), str(after)


def _by_identity(items: list[Any]) -> dict[str, Any]:
    """The items of a list by what identifies them, so that their order does not matter; else by their position."""
    for identity in _IDENTITIES:
        values = [item.get(identity) for item in items if isinstance(item, Mapping)]
        if len(values) == len(items) == len(set(values)) and None not in values:
            return {str(value): item for value, item in zip(values, items, strict=True)}
    return {str(index): item for index, item in enumerate(items)}


def _name(item: Mapping[str, Any]) -> str:
    return "/".join(filter(None, key_of(item)))
