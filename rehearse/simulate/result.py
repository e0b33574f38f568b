"""What a simulated day shows: waiting, preemptions, lost work and the use of quota, by cluster queue. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

from rehearse.simulate.objects import Queues
from rehearse.simulate.replay import Run

HOUR = 3600.0
PERCENTILES = (50, 90, 99)


@dataclass(frozen=True)
class QueueDay:
    """The day of a cluster queue.

    Attributes:
        queue: Name of the cluster queue.
        submitted: Runs that were submitted.
        never_started: Runs that still wait after everything else has ended.
        waited: Seconds from submission to first start: percentiles by number, and `longest`. Empty if no run started.
        preemptions: Times that Kueue evicted a run.
        lost_hours: Accelerator-hours of work that evictions lost.
        used_hours: Accelerator-hours that runs held, lost work included.
        quota: Accelerators of the nominal quota.
        use: For each hour from the first submission: mean number of accelerators in use.
    """

    queue: str
    submitted: int
    never_started: int
    waited: dict[str, float]
    preemptions: int
    lost_hours: float
    used_hours: float
    quota: float
    use: list[float]


@dataclass(frozen=True)
class Day:
    """A simulated day.

    Attributes:
        stack: Name of the stack.
        trace: Where the submissions come from.
        hours: Hours from the beginning of the trace to the last end.
        late: Decisions of Kueue that came after the simulated clock had moved on. More than 0: their times are wrong.
        seconds: Seconds that the replay took.
        queues: The cluster queues, in the order of the configuration.
    """

    stack: str
    trace: str
    hours: float
    late: int
    seconds: float
    queues: list[QueueDay]

    def to_json(self, runs: Iterable[Run]) -> str:
        """Returns the day as JSON, with every run: its submission, when it ran, and the work that it lost."""
        return json.dumps({"version": 1, **asdict(self), "runs": [*map(_written, runs)]}, indent=1) + "\n"


def _written(run: Run) -> dict[str, object]:
    return {**asdict(run.row), "clusterQueue": run.cluster_queue, "ran": run.spans, "lost": run.lost}


def day(stack: str, trace: str, queues: Queues, runs: Sequence[Run], late: int, seconds: float) -> Day:
    """Returns the result of a replay."""
    end = max((end for run in runs for _, end in run.spans if end is not None), default=0.0)
    names = queues.cluster_queues
    days = [
        queue_day(
            name, queues.quota(name, queues.accelerator(name)), [run for run in runs if run.cluster_queue == name], end
        )
        for name in names
    ]
    return Day(stack, trace, round(end / HOUR, 3), late, round(seconds, 1), days)


def queue_day(name: str, quota: float, runs: Sequence[Run], end: float) -> QueueDay:
    """Returns the day of a cluster queue with these runs, until a time of the simulated clock."""
    waits = sorted(wait for run in runs if (wait := run.waited) is not None)
    use = list(_use(runs, end))
    return QueueDay(
        queue=name,
        submitted=len(runs),
        never_started=len(runs) - len(waits),
        waited=_waited(waits),
        preemptions=sum(run.evictions for run in runs),
        lost_hours=round(sum(run.lost * accelerators(run) for run in runs) / HOUR, 3),
        used_hours=round(sum(use), 3),
        quota=quota,
        use=[round(mean, 3) for mean in use],
    )


def _waited(waits: list[float]) -> dict[str, float]:
    if not waits:
        return {}
    named = {f"p{percent}": percentile(waits, percent) for percent in PERCENTILES}
    return {name: round(seconds, 3) for name, seconds in {**named, "longest": waits[-1]}.items()}


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Returns the smallest value that at least so many percent of the values do not exceed."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def accelerators(run: Run) -> int:
    """The accelerators of all pods of a run."""
    return run.row.pods * run.row.accelerators


def _use(runs: Iterable[Run], end: float) -> Iterator[float]:
    hours = [0.0] * int(-(-end // HOUR))
    for run in runs:
        for start, stopped in run.spans:
            stop = end if stopped is None else stopped
            for hour in range(int(start // HOUR), int(-(-stop // HOUR))):
                within = min(stop, (hour + 1) * HOUR) - max(start, hour * HOUR)
                hours[hour] += within / HOUR * accelerators(run)
    yield from hours
