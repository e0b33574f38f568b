"""What part of the accelerators each local queue holds while all have runs waiting, beside its part by weight. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gke_ai.catalog.kueue.cohort_tree import Member
from gke_ai.catalog.nodes.shape import ACCELERATORS
from gke_ai.forecast.simulate.objects import Queues
from gke_ai.forecast.simulate.run import Run, closed
from gke_ai.settings.model.sharing import USAGE_BASED
from gke_ai.settings.resolved.queues import weight_of

HOUR = 3600.0
Window = tuple[float, float]


@dataclass(frozen=True)
class QueueShare:
    """What a local queue held in the hours in which every local queue of its tree of cohorts had a run waiting.

    Attributes:
        queue: Local queue, as NAMESPACE/NAME.
        tree: The queues that share quota, as in Kueue's log: `cohort/NAME` or `queue/NAME`.
        hours: Accelerator-hours that its admitted runs held then.
        part: Its part of what all of the tree held then. None if there was no such hour.
        weight: Its weight: that of its cluster queue, or its own if the cluster queue has several local queues.
        by_weight: The part that quotas and weights give it. None if nothing is shared by weight.
        windows: When those hours were, in seconds.
    """

    queue: str
    tree: str
    hours: float
    part: float | None
    weight: float
    by_weight: float | None
    windows: Sequence[Window]


def shares(runs: Sequence[Run], queues: Queues, end: float) -> list[QueueShare]:
    """Returns the shares of the local queues that share quota with others, until the end of the day."""
    found = []
    for tree in dict.fromkeys(queues.trees.values()):
        names = [local for local, name in queues.by_local.items() if queues.trees[name] == tree]
        if len(names) < 2:
            continue
        own = {name: [run for run in runs if run.row.queue == name] for name in names}
        windows = contended([[span for run in own[name] for span in run.waits(end)] for name in names])
        hours = {name: sum(held(run, windows, end) for run in own[name]) / HOUR for name in names}
        total, parts = sum(hours.values()), parts_by_weight(queues, tree)
        for name in names:
            part, of_queue = hours[name] / total if total else None, queues.by_local[name]
            weights, member = local_queues(queues, of_queue), queues.cluster_queues[of_queue].member
            weight = weights[name] if len(weights) > 1 else float(member.weight)
            found.append(QueueShare(name, tree, round(hours[name], 3), part, weight, parts.get(name), windows))
    return found


def contended(waits: Sequence[Sequence[Window]]) -> list[Window]:
    """The times in which each of several queues has a run that waits."""
    spans = ((number, span) for number, spans in enumerate(waits) for span in spans)
    steps = ((at, number, step) for number, (start, stop) in spans for at, step in ((start, 1), (stop, -1)))
    waiting, windows = [0] * len(waits), list[Window]()
    since: float | None = None
    for at, number, step in sorted(steps):
        waiting[number] += step
        if since is not None and not waiting[number]:
            windows.append((since, at))
            since = None
        elif since is None and all(waiting):
            since = at
    return [(start, stop) for start, stop in windows if start < stop]


def held(run: Run, windows: Sequence[Window], end: float) -> float:
    """Accelerator-seconds of quota that a run held in some times."""
    return run.accelerators * sum(stop - start for start, stop in overlap(closed(run.admitted, end), windows))


def overlap(spans: Sequence[Window], windows: Sequence[Window]) -> list[Window]:
    """The times that are in a span and in a window."""
    both = ((max(a, c), min(b, d)) for a, b in spans for c, d in windows)
    return [(start, stop) for start, stop in both if start < stop]


def local_queues(queues: Queues, name: str) -> dict[str, float]:
    """The local queues of a cluster queue with their weights."""
    return {
        f"{local.namespace}/{local.name}": float(weight_of(local.fair_sharing))
        for local in queues.stack.queues.local_queues
        if local.cluster_queue == name
    }


def parts_by_weight(queues: Queues, tree: str) -> Mapping[str, float]:
    """The part of each local queue if all have runs waiting, so that nobody lends. Empty if nothing goes by weight.

    A cluster queue has its own quota. What a cohort itself has goes to its members by their weights: fair sharing
    compares what they borrow, divided by their weights. https://kueue.sigs.k8s.io/docs/concepts/fair_sharing/
    """
    kind, _, root = tree.partition("/")
    entitled = {root: 1.0} if kind == "queue" else dict(_entitled(queues, queues.stack.cohorts[root], 0.0))
    if len(entitled) > 1 and not queues.stack.queues.fair_sharing:
        return {}
    total, parts = sum(entitled.values()), dict[str, float]()
    for name, amount in entitled.items():
        weights = local_queues(queues, name)
        if total and (len(weights) == 1 or queues.cluster_queues[name].section.admission_mode == USAGE_BASED):
            every = sum(weights.values()) or 1.0
            parts |= {local: amount / total * weight / every for local, weight in weights.items()}
    return parts


def _entitled(queues: Queues, cohort: Member, more: float) -> Iterator[tuple[str, float]]:
    """Yields the accelerators of each cluster queue below a cohort, which gets some more from its parent."""
    own = sum(amount for (_, resource), amount in cohort.nominal.items() if resource in ACCELERATORS)
    for child in cohort.children:
        part = (more + float(own)) * float(child.part)
        if child.is_queue:
            yield child.name, queues.quota(child.name, queues.accelerator(child.name)) + part
        else:
            yield from _entitled(queues, child, part)
