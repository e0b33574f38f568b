"""The unhappiest runs of a simulated day, and why: what they waited for, and what interruptions cost them. Pure.

The delay of a run is the time from its submission to its end, less its duration: waiting, interruptions, and work that
it repeats. A run that never ends is unhappier than every other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gke_ai.catalog.nodes.shape import NVIDIA_GPU
from gke_ai.forecast.render.measures import duration, times
from gke_ai.forecast.result.simulation import Unhappy
from gke_ai.forecast.simulate.objects import Queues
from gke_ai.forecast.simulate.result import end_of
from gke_ai.forecast.simulate.run import Run, closed
from gke_ai.formats.sentences import join_names, plural

SHOWN = 10
# A run with so large a share of the quota that others held is named.
DOMINANT = 0.25
# Accelerators that are too few to be named.
SMALL = 0.05


def unhappiest(runs: Sequence[Run], queues: Queues) -> tuple[Unhappy, ...]:
    """Returns the runs with the longest delays, the longest first. A run without delay is not listed."""
    end = end_of(runs)
    delays = [(run, delay(run)) for run in runs]
    delayed = [(run, seconds) for run, seconds in delays if seconds is None or seconds >= 1]
    delayed.sort(key=lambda item: (item[1] is not None, -(item[1] or 0.0), item[0].row.time, item[0].number))
    return tuple(_unhappy(run, seconds, Waited(run, runs, queues, end)) for run, seconds in delayed[:SHOWN])


def delay(run: Run) -> float | None:
    """Seconds from the submission to the end, less the duration. None if it has not ended."""
    return None if run.ended_at is None else run.ended_at - run.row.time - run.row.duration


def _unhappy(run: Run, seconds: float | None, waited: Waited) -> Unhappy:
    row = run.row
    return Unhappy(
        row=run.number + 1,
        queue=run.cluster_queue,
        priority=row.priority,
        asks=asks(run, waited.unit),
        submitted=row.time,
        duration=row.duration,
        delay=None if seconds is None else round(seconds, 3),
        preemptions=run.evictions,
        lost=round(run.lost + run.lost_with_nodes, 3),
        why=tuple(waited.sentences()),
    )


def asks(run: Run, unit: str) -> str:
    """The pods of a run in words, with what each asks for."""
    row = run.row
    accelerators = f"{row.accelerators} {unit if row.accelerators > 1 else unit[:-1]}"
    each = accelerators if row.accelerators else f"{row.cpu:g} cores"
    return f"{plural(row.pods, 'pod')} with {each}"


def unit_of(queues: Queues, name: str) -> str:
    """What the accelerators of a cluster queue are called."""
    return "GPUs" if queues.accelerator(name) == NVIDIA_GPU else "TPU chips"


def sharing(queues: Queues, name: str) -> list[str]:
    """A cluster queue, and those of its cohort with the same accelerator, whose quota it can borrow."""
    others = (other for other, tree in queues.trees.items() if tree == queues.trees[name])
    same = (other for other in others if queues.accelerator(other) == queues.accelerator(name))
    return list(dict.fromkeys([name, *same]))


class Waited:
    """What a run waited for, by comparison with the other runs of its queue and cohort."""

    def __init__(self, run: Run, runs: Sequence[Run], queues: Queues, end: float) -> None:
        self._run = run
        self._queues = queues
        self._end = end
        self._span = max(run.waits(end), key=lambda span: span[1] - span[0], default=(0.0, 0.0))
        names = sharing(queues, run.cluster_queue)
        self._others = [other for other in runs if other.cluster_queue in names and other is not run]
        self.unit = unit_of(queues, run.cluster_queue)

    def sentences(self) -> Iterator[str]:
        """Yields the reasons, the main one first."""
        most = self._most()
        if most is not None and self._run.accelerators > most:
            asked = f"{self._run.accelerators} {self.unit}"
            yield f"It asks for {asked}; {self._run.cluster_queue} can use at most {most:g}."
        elif self._span[1] > self._span[0]:
            yield from self._quota()
        yield from self._nodes()
        yield from self._interruptions()

    def _quota(self) -> Iterator[str]:
        run, (start, stop) = self._run, self._span
        first = "for quota" if start == run.row.time else "to get quota again"
        kind, _, level = run.row.topology.partition("=")
        first += f", with room for all pods in one {level}" if kind == "required" else ""
        never = "" if run.admitted and run.admitted[-1][0] >= stop else ", until the end of the day"
        holders = list(self._holders())
        meanwhile = f": {'; '.join(holders)}" if holders else ""
        yield f"Waited {duration(stop - start)} {first}{never}{meanwhile}."
        yield from self._overtaken()

    def _most(self) -> float | None:
        """The most accelerators that its queue can use."""
        name = self._run.cluster_queue
        limits = [limit.get(self._queues.accelerator(name)) for _, limit in self._queues.cluster_queues[name].limits()]
        present = [float(limit) for limit in limits if limit is not None]
        return max(present) if present else None

    def _holders(self) -> Iterator[str]:
        """Yields who held how much of the quota meanwhile, by queue, and the run that held most."""
        held = {other.number: self._held(other) for other in self._others}
        length = self._span[1] - self._span[0]
        for name in sharing(self._queues, self._run.cluster_queue):
            holders = [other for other in self._others if other.cluster_queue == name and held[other.number]]
            mean = sum(held[other.number] for other in holders) / length
            if mean >= SMALL:
                quota = self._queues.quota(name, self._queues.accelerator(name))
                yield f"{plural(len(holders), 'run')} of {name} held {mean:.1f} of its {quota:g} {self.unit} on average"
        if held and max(held.values()):
            most = max(self._others, key=lambda other: (held[other.number], -other.number))
            share = held[most.number] / sum(held.values())
            if share >= DOMINANT:
                stuck = ", although no nodes can hold its pods" if most.unplaced else ""
                yield f"run {most.number + 1} alone held {share:.0%} of that{stuck}"

    def _held(self, other: Run) -> float:
        """Accelerator-seconds that a run held meanwhile."""
        start, stop = self._span
        spans = closed(other.admitted, self._end)
        return other.accelerators * sum(max(0.0, min(end, stop) - max(begin, start)) for begin, end in spans)

    def _overtaken(self) -> Iterator[str]:
        """Says which runs of its queue got quota meanwhile: those ahead of it, and later ones, and why they could."""
        start, stop = self._span
        same_queue = (other for other in self._others if other.cluster_queue == self._run.cluster_queue)
        started = [other for other in same_queue if any(start <= begin < stop for begin, _ in other.admitted)]
        priorities = self._queues.priorities
        own = priorities[self._run.row.priority]
        higher = [other for other in started if priorities[other.row.priority] > own]
        equal = [other for other in started if other not in higher]
        ahead = [other for other in equal if other.number < self._run.number]
        later = [other for other in equal if other.number > self._run.number]
        smaller = [other for other in later if other.accelerators < self._run.accelerators]
        groups = [(higher, "of a higher priority"), (ahead, "submitted earlier")]
        groups.append((smaller, "submitted later that needed less"))
        if parts := [f"{plural(len(group), 'run')} {text}" for group, text in groups if group]:
            yield f"Meanwhile {join_names(parts)} got quota in its queue."

    def _nodes(self) -> Iterator[str]:
        run = self._run
        if run.unplaced:
            yield f"No nodes can hold its pods: {run.unplaced}."
        elif run.waited_for_nodes >= 1:
            yield f"Waited {duration(run.waited_for_nodes)} for nodes and their start."

    def _interruptions(self) -> Iterator[str]:
        run = self._run
        causes = (
            (run.evictions, "Kueue preempted it"),
            (run.reclaims, "Spot reclaims took its nodes"),
            (run.expiries, "flex-start nodes reached their maximum run time"),
        )
        if parts := [f"{text} {times(count)}" for count, text in causes if count]:
            lost = run.lost + run.lost_with_nodes
            parts[0] = parts[0][0].upper() + parts[0][1:]
            yield f"{join_names(parts)}. It lost {f'{duration(lost)} of' if lost >= 1 else 'no'} work."
        if run.failed:
            yield "It was given up, because it lost its nodes again and again before a checkpoint."
