"""Converts the emulator's seconds into those of Google Cloud.

A rehearsal shortens Google's durations, such as the start or the drain of a node, and marks each object that waits.
What follows its wait comes `compression` times as late on Google Cloud. What Kueue, the scheduler and other controllers
decide meanwhile does not: they are real, and so are their seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf

from gke_ai.forecast.outcome.timeline import Histories, History
from gke_ai.kube.objects import annotation, holds
from gke_ai.workspace.emulation import PASSES_TIME, READY_AFTER, UPGRADED


@dataclass(frozen=True)
class Clock:
    """Seconds of Google Cloud by the emulator's seconds, both since the change began.

    `delays` are the times during which delays run.
    """

    compression: float = 1.0
    delays: tuple[tuple[float, float], ...] = ()

    def exactly(self, second: float) -> float:
        """Returns the time on Google Cloud. A delay that has an end counts from then on."""
        over = _merged((max(begin, 0.0), min(end, second)) for begin, end in self.delays if end <= second or end == inf)
        shortened = sum(max(0.0, end - begin) for begin, end in over)
        return second + shortened * (self.compression - 1)

    def seconds(self, second: float) -> int:
        """Returns the time on Google Cloud in whole seconds. Before the change it is 0."""
        return round(self.exactly(max(second, 0.0)))


def clock(histories: Histories, compression: float) -> Clock:
    """Returns the clock of a rehearsal."""
    if compression == 1:
        return Clock()
    nodes, pods = histories.get("Node", {}).values(), histories.get("Pod", {}).values()
    spans = [span for node in nodes for span in (*_delay(node, node.first), *_waits(node))]
    for pod in pods:
        bound = next((at for at, version in pod.versions if version["spec"].get("nodeName")), None)
        if bound is not None:
            spans += _delay(pod, bound)
    return Clock(compression, tuple(spans))


def _delay(history: History, begin: float) -> Iterator[tuple[float, float]]:
    """Yields the time during which an object is held back, until it is ready or gone."""
    delay = annotation(history.last, READY_AFTER).removesuffix("s")
    if not delay:
        return
    ready = next((at for at, version in history.versions if at >= begin and holds(version, "Ready")), None)
    ends = [begin + float(delay), *(at for at in (ready, history.gone) if at is not None)]
    if min(ends) > begin:
        yield begin, min(ends)


def _waits(node: History) -> Iterator[tuple[float, float]]:
    """Yields the times during which GKE waits for a disruption budget, or lets an upgraded pool soak."""
    ends = [*(at for at, _ in node.versions[1:]), inf if node.gone is None else node.gone]
    for (at, version), end in zip(node.versions, ends, strict=True):
        if annotation(version, UPGRADED) in PASSES_TIME:
            yield at, end


def _merged(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The spans in order, overlapping ones as one."""
    merged: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return merged
