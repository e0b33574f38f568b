"""The result of a simulation: figures by configuration and seed. A versioned JSON file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import FiniteFloat

from gke_ai.forecast.result.result_file import ResultFile
from gke_ai.forecast.result.spread import MAX_SEEDS, Difference, difference, mean, paired

VERSION = 1
MAX_CONFIGURATIONS = 4
MAX_BINS = 2000
QUEUE, POOL, LOCAL = "queue", "pool", "local"


@dataclass(frozen=True)
class Figure:
    """A figure of a cluster queue, a node pool or a local queue.

    Attributes:
        kind: `queue`, `pool` or `local`.
        name: Name of the cluster queue or the node pool, NAMESPACE/NAME of the local queue.
        key: What the figure is, such as `wait_p90`; gke_ai/forecast/render/measures.py has the titles.
        values: For each configuration, the value in each seed: None if there is none, for example if no run started.
    """

    kind: str
    name: str
    key: str
    values: tuple[tuple[FiniteFloat | None, ...], ...]

    def mean(self, configuration: int) -> float | None:
        """Returns the mean over the seeds."""
        return mean(self.values[configuration])

    def difference(self, configuration: int) -> Difference | None:
        """Returns the difference from the first configuration, paired by seed."""
        return difference(self.values[0], self.values[configuration])

    def pairs(self, configuration: int) -> list[tuple[float, float]]:
        """Returns the values of the first configuration and of this one, for each seed that has both."""
        return paired(self.values[0], self.values[configuration])


@dataclass(frozen=True)
class Track:
    """A cluster queue over time, in bins of equal length, with the first seed.

    Attributes:
        queue: Name of the cluster queue.
        resource: What `quota` and `use` count, such as GPUs.
        quota: Nominal quota.
        use: Mean use of quota in each bin.
        waiting: Mean number of waiting runs in each bin.
        preempted: Number of preemptions in each bin.
    """

    queue: str
    resource: str
    quota: FiniteFloat
    use: tuple[FiniteFloat, ...]
    waiting: tuple[FiniteFloat, ...]
    preempted: tuple[int, ...]


@dataclass(frozen=True)
class ShareTrack:
    """A local queue over time, with the first seed, in the hours in which all of its tree have runs waiting.

    Attributes:
        queue: Local queue, as NAMESPACE/NAME.
        tree: The queues that share quota: `cohort/NAME` or `queue/NAME`.
        held: Mean number of accelerators that its admitted runs hold in each bin.
    """

    queue: str
    tree: str
    held: tuple[FiniteFloat, ...]


@dataclass(frozen=True)
class Unhappy:
    """A run with a long delay: the time from submission to end, less its duration.

    Attributes:
        row: Its row in the trace, in order of time, from 1.
        queue: Its cluster queue.
        priority: Its priority class, or empty.
        asks: Its pods and accelerators in words.
        submitted: Seconds from the beginning of the trace.
        duration: Seconds that it needs.
        delay: Seconds of delay until its end. None if it never ends.
        preemptions: Times that Kueue evicted it.
        lost: Seconds of work that it repeated.
        why: What it waited for, in sentences.
    """

    row: int
    queue: str
    priority: str
    asks: str
    submitted: FiniteFloat
    duration: FiniteFloat
    delay: FiniteFloat | None
    preemptions: int
    lost: FiniteFloat
    why: tuple[str, ...]


@dataclass(frozen=True)
class Configuration:
    """A configuration whose queues were simulated.

    Attributes:
        name: Name of its file.
        hours: Hours until the last run of the first seed stopped.
        late: Decisions of Kueue that came after the clock had moved on, in all seeds. Their times are wrong.
        tracks: Its cluster queues over time, with the first seed.
        unhappiest: The runs with the longest delays of the first seed.
        shares: The local queues that share quota with others over time, with the first seed.
    """

    name: str
    hours: FiniteFloat
    late: int
    tracks: tuple[Track, ...]
    unhappiest: tuple[Unhappy, ...]
    shares: tuple[ShareTrack, ...] = ()


@dataclass(frozen=True)
class Simulation:
    """The result: the same traces with the queues of one or more configurations.

    Attributes:
        version: Version of the file's format.
        stack: Name of the stack.
        trace: Where the submissions come from.
        seeds: Seeds of the generated trace and of the capacity.
        bin_seconds: Length of a bin of the tracks.
        configurations: The first one is the one that the others are compared with.
        figures: The figures of every queue and pool, in the order of the tables.
        notes: What a reader must know of the model.
        currency: That of figures in money. Empty: there are none.
    """

    version: int
    stack: str
    trace: str
    seeds: tuple[int, ...]
    bin_seconds: FiniteFloat
    configurations: tuple[Configuration, ...]
    figures: tuple[Figure, ...]
    notes: tuple[str, ...] = ()
    currency: str = ""

    def __post_init__(self) -> None:
        """Checks the shape."""
        configurations, seeds = len(self.configurations), len(self.seeds)
        if not 1 <= configurations <= MAX_CONFIGURATIONS or not 1 <= seeds <= MAX_SEEDS:
            raise ValueError(f"it has {configurations} configurations and {seeds} seeds")
        for figure in self.figures:
            if [len(values) for values in figure.values] != [seeds] * configurations:
                raise ValueError(f"figure {figure.key} does not have a value for each configuration and seed")
        for track in (track for configuration in self.configurations for track in configuration.tracks):
            if not len(track.use) == len(track.waiting) == len(track.preempted) <= MAX_BINS or self.bin_seconds <= 0:
                raise ValueError(f"the bins of queue {track.queue} do not agree")
        if any(len(own.held) > MAX_BINS for configuration in self.configurations for own in configuration.shares):
            raise ValueError(f"a local queue has more than {MAX_BINS} bins")

    def written(self, days: Iterable[Mapping[str, Any]] = ()) -> str:
        """Returns the JSON text of the file, with the days that the figures come from, one to a line."""
        text = json.dumps(asdict(self), indent=1)
        if joined := ",\n".join(json.dumps(day) for day in days):
            text = f'{text[:-2]},\n "days": [\n{joined}\n ]\n}}'
        return f"{text}\n"

    def figure(self, kind: str, name: str, key: str) -> Figure | None:
        """Returns a figure, or None."""
        return next((f for f in self.figures if (f.kind, f.name, f.key) == (kind, name, key)), None)

    def names(self, kind: str) -> list[str]:
        """Returns the names of the queues or pools, in order."""
        return list(dict.fromkeys(figure.name for figure in self.figures if figure.kind == kind))


FILE = ResultFile(Simulation, VERSION, "simulate", "configurations")
parse, read = FILE.parse, FILE.read
