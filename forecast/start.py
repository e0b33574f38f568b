"""When a run would start if it were submitted now: a forecast of the queue, calibrated on the runs of the past. Pure.

Each of many possible futures plays the queue from now on: durations and arrivals are drawn from the past, admissions
and preemptions follow `forecast.admission`. Past runs of the same cohort that had to wait are forecast in the same way.
Their starts move the bounds of the interval, so that it would have held 95 % of them on each side: conformalized
quantile regression (Romano, Patterson, Candès, 2019), with the newest runs weighing most (Barber et al., 2023).
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from forecast.admission import ClusterQueue, Cohort, Held, Line, Run
from forecast.durations import Arrivals, Durations, Record
from forecast.state import State

HORIZON = 14 * 86_400.0
DRAWS, CASE_DRAWS, CASES = 199, 39, 60
LOW, HIGH = 0.05, 0.95
# A past run counts half as much as one that was submitted 30 runs later.
HALF_LIFE = 30.0
# Assumption, for few past runs: of 10 runs on each side, 1 starts outside of the bound by a factor of 2.
PRIOR_CASES = ((0.0, 9.0), (math.log(2), 1.0))
# Differences are of logarithms: a minute matters less after an hour.
_MINUTE = 60.0
# Kueue has whole seconds, and takes a moment.
_AT_ONCE = 1.0


@dataclass(frozen=True)
class Draw:
    """One possible future.

    Attributes:
        wait: Seconds until the start. Infinite if there is none before the horizon.
        flavors: Flavors of the run.
        preempted: Runs that Kueue evicts for it.
        ended: Runs that end before the start.
    """

    wait: float
    flavors: tuple[str, ...] = ()
    preempted: tuple[Run, ...] = ()
    ended: frozenset[Run] = frozenset()


@dataclass(frozen=True)
class Holder:
    """A run that holds quota: for how long it has run, and the share of futures in which it ends before the start."""

    held: Held
    elapsed: float
    ends_before: float


@dataclass(frozen=True)
class Start:
    """When and why a run starts. All times are seconds from its submission.

    Attributes:
        run: The run.
        never: Why it can never start, in sentences.
        low: Lower bound of the interval.
        median: Half of the futures start it no later.
        high: Upper bound of the interval.
        flavors: Its flavors in most futures.
        preempts: Runs that Kueue evicts at once to start it.
        ahead: Waiting runs of its cluster queue that Kueue tries first.
        missing: Amounts by resource that it needs and that are not free now, in the flavor that lacks least.
        holders: Runs that hold quota in that cohort, the largest first.
        cases: Past runs that had to wait, and with which the interval was compared.
        covered: Share of them within their intervals, each made from earlier runs.
        ended: Ended runs of the cohort, of whose durations the forecast is made.
    """

    run: Run
    never: tuple[str, ...] = ()
    low: float = inf
    median: float = inf
    high: float = inf
    flavors: tuple[str, ...] = ()
    preempts: tuple[Run, ...] = ()
    ahead: tuple[Run, ...] = ()
    missing: Mapping[str, float] | None = None
    holders: tuple[Holder, ...] = ()
    cases: int = 0
    covered: float = 0.0
    ended: int = 0

    @property
    def at_once(self) -> bool:
        """Whether it starts without waiting."""
        return self.high == 0


@dataclass(frozen=True)
class Case:
    """A past run that had to wait, or one to come: the bounds of its forecast, and how long it waited."""

    created: float
    low: float
    high: float
    waited: float = inf

    def misses(self) -> tuple[float, float]:
        """How far the run started before the lower and after the upper bound. Negative: inside."""
        return _scale(self.low) - _scale(self.waited), _scale(self.waited) - _scale(self.high)


def forecast(
    cluster: State, run: Run, seed: int = 1, progress: Callable[[int, int], None] = lambda _done, _all: None
) -> Start:
    """Returns when a run starts that is submitted at the time of a state.

    Args:
        cluster: The state of the cluster.
        run: The run.
        seed: Seed of the possible futures.
        progress: Gets the number of past runs that have been forecast, and that of all.
    """
    chance = random.Random(seed)
    cohort = Cohort(members(cluster.queues, run.queue))
    records = [record for record in cluster.records if record.run.queue in cohort.queues]
    ahead = tuple(record.run for record in records if record.started is None and _is_before(record.run, run))
    if never := never_starts(cluster, cohort, run, ahead):
        return Start(run, never=never, ahead=ahead)
    futures = draws(cluster.queues, records, run, chance)
    waits = [future.wait for future in futures]
    first = futures[0]
    flavors, _ = Counter(future.flavors for future in futures if future.flavors or future is first).most_common(1)[0]
    if waits[-1] == 0:
        return Start(run, low=0.0, median=0.0, high=0.0, flavors=flavors, preempts=first.preempted, ahead=ahead)
    cases = past_cases(cluster.queues, records, run.created, chance, progress)
    raw = Case(run.created, quantile(waits, LOW), quantile(waits, HIGH))
    low, high = calibrated(raw, cases)
    missing, holders = _holders(cohort, records, run, futures)
    held = [calibrated(case, [c for c in cases if c.created + c.waited <= case.created]) for case in cases]
    covered = sum(low <= case.waited <= high for case, (low, high) in zip(cases, held, strict=True))
    return Start(
        run,
        low=low,
        median=min(max(quantile(waits, 0.5), low), high),
        high=high,
        flavors=flavors,
        ahead=ahead,
        missing=missing,
        holders=holders,
        cases=len(cases),
        covered=covered / len(cases) if cases else 0.0,
        ended=sum(record.ended is not None for record in records),
    )


def members(queues: Mapping[str, ClusterQueue], name: str) -> list[ClusterQueue]:
    """Returns the cluster queues that share quota with one, and itself."""
    own = queues[name]
    return [queue for queue in queues.values() if queue is own or (own.cohort and queue.cohort == own.cohort)]


def draws(
    queues: Mapping[str, ClusterQueue], records: Iterable[Record], run: Run, chance: random.Random, count: int = DRAWS
) -> list[Draw]:
    """Returns possible futures of a run from its submission on, the shortest wait first."""
    now, shared = run.created, members(queues, run.queue)
    names = {queue.name for queue in shared}
    before = (record.at(now) for record in records if record.run.queue in names and record.run is not run)
    known = [record for record in before if record]
    durations: dict[str, Durations] = {}

    def duration(other: Run, elapsed: float = 0.0) -> float:
        if other.endless:
            return inf
        if other.source not in durations:
            durations[other.source] = Durations(other.source, known, now)
        return durations[other.source].draw(chance, elapsed)

    arrivals = Arrivals(known, now)
    held = _held(known)
    futures = []
    for _ in range(count):
        line = Line(Cohort(shared), duration, now)
        for each in held:
            line.hold(each, each.since + duration(each.run, now - each.since))
        for other in (*(record.run for record in known if record.started is None), run):
            line.add(other)
        line.go(arrivals.draw(chance), until=run, horizon=now + HORIZON)
        futures.append(_draw(line, run, now))
    return sorted(futures, key=lambda future: future.wait)


def _draw(line: Line, run: Run, now: float) -> Draw:
    if run not in line.running:
        return Draw(inf)
    _, at, usage, victims = next(start for start in reversed(line.started) if start[0] is run)
    flavors = dict.fromkeys(flavor for (flavor, _), _ in usage)
    return Draw(at - now, tuple(flavors), victims, frozenset(line.ended))


def past_cases(
    queues: Mapping[str, ClusterQueue],
    records: Sequence[Record],
    now: float,
    chance: random.Random,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> list[Case]:
    """Returns forecasts of past runs that had to wait, the newest first."""
    known = [record for record in records if is_case(record, now)]
    known.sort(key=lambda record: -record.run.created)
    cases = []
    for done, record in enumerate(known[:CASES]):
        progress(done, min(len(known), CASES))
        cases.append(past_case(queues, records, record, chance))
    progress(len(known), len(known))
    return [case for case in cases if case]


def is_case(record: Record, now: float) -> bool:
    """Whether a forecast can be compared with a past run: it had to wait, and its first start is known."""
    if record.started is None or record.run.created >= now or not record.tested or record.run.endless:
        return False
    return record.started > record.run.created + _AT_ONCE


def past_case(
    queues: Mapping[str, ClusterQueue], records: Iterable[Record], record: Record, chance: random.Random
) -> Case | None:
    """Returns the forecast of a past run from what was known at its submission. None if it was to start at once."""
    waits = [future.wait for future in draws(queues, records, record.run, chance, CASE_DRAWS)]
    if record.started is None or waits[-1] == 0:
        return None
    bounds = quantile(waits, LOW), quantile(waits, HIGH)
    return Case(record.run.created, *bounds, record.started - record.run.created)


def calibrated(case: Case, cases: Sequence[Case]) -> tuple[float, float]:
    """Returns the bounds of a forecast, moved by how far earlier runs missed theirs. `cases` are the newest first."""
    misses = [(*each.misses(), 0.5 ** (rank / HALF_LIFE)) for rank, each in enumerate(cases)]
    below = _weighted([(low, weight) for low, _, weight in misses])
    above = _weighted([(high, weight) for _, high, weight in misses])
    return _unscale(_scale(case.low) - below), _unscale(_scale(case.high) + above)


def _weighted(misses: list[tuple[float, float]]) -> float:
    """The miss that 95 % of the misses do not exceed, by weight."""
    ordered = sorted([*misses, *PRIOR_CASES])
    rest = HIGH * sum(weight for _, weight in ordered)
    for miss, weight in ordered:
        rest -= weight
        if rest <= 0:
            return miss
    return ordered[-1][0]


def _scale(seconds: float) -> float:
    return math.log(_MINUTE + min(seconds, HORIZON))


def _unscale(value: float) -> float:
    seconds = math.exp(value) - _MINUTE
    return inf if seconds >= HORIZON * (1 - 1e-9) else max(0.0, seconds)


def quantile(ordered: Sequence[float], share: float) -> float:
    """Returns the value that this share of the ordered values does not exceed."""
    return ordered[max(0, math.ceil(share * (len(ordered) + 1)) - 1)]


def never_starts(cluster: State, cohort: Cohort, run: Run, ahead: Iterable[Run] = ()) -> tuple[str, ...]:
    """Returns why Kueue never admits a run, whoever else ends. Empty if it can."""
    queue = cohort.queues[run.queue]
    if queue.stopped:
        return (f"Cluster queue {queue.name} is stopped or not active. Ask its owner to resume it.",)
    if run.source in cluster.stopped:
        return (f"Local queue {run.source} is stopped. Ask its owner to resume it.",)
    covered = {resource for resources, _ in queue.groups for resource in resources}
    if missing := sorted(run.needs.keys() - covered):
        return tuple(
            f"Cluster queue {queue.name} has no quota for {resource}. Add it to the queue." for resource in missing
        )
    choices = queue.choices(run)
    if not choices:
        return (f"The run selects nodes of no flavor of cluster queue {queue.name}. Change its node selector.",)
    too_much = [
        [(cell, amount) for cell, amount in usage if amount > cohort.most.get((queue.name, cell), 0.0) + 1e-6]
        for usage in choices
    ]
    if all(too_much):
        return tuple(
            f"It requests {_plain(resource, amount)} of {resource}, and the queue never has more than "
            f"{_plain(resource, cohort.most.get((queue.name, (flavor, resource)), 0.0))} in flavor {flavor}. "
            "Request less, or raise the quota."
            for usage in too_much
            for (flavor, resource), amount in usage
        )
    if queue.strict:
        for other in ahead:
            if never_starts(cluster, cohort, other):
                return (
                    f"{other.name} is ahead of it, can never start, and blocks its StrictFIFO queue. Delete that run.",
                )
    return ()


def _plain(resource: str, amount: float) -> str:
    return f"{amount / 2**30:.1f} GiB" if resource in ("memory", "ephemeral-storage") else f"{amount:g}"


def _is_before(other: Run, run: Run) -> bool:
    return other.queue == run.queue and other.order < run.order


def _held(records: Iterable[Record]) -> list[Held]:
    running = (record for record in records if record.ended is None)
    return [Held(record.run, record.usage, record.started) for record in running if record.started is not None]


def _holders(
    cohort: Cohort, records: Iterable[Record], run: Run, futures: Sequence[Draw]
) -> tuple[dict[str, float], tuple[Holder, ...]]:
    """What the run lacks now, in the choice of flavors that lacks least, and who holds quota of these flavors."""
    held = _held(records)
    for each in held:
        cohort.use(each.run.queue, each.usage)

    def lacking(usage: Iterable[tuple[tuple[str, str], float]]) -> dict[tuple[str, str], float]:
        gaps = {cell: amount - max(0.0, cohort.available(run.queue, cell)) for cell, amount in usage}
        return {cell: gap for cell, gap in gaps.items() if gap > 1e-6}

    choices = cohort.queues[run.queue].choices(run)
    missing = min((lacking(usage) for usage in choices), key=lambda gaps: (len(gaps), sum(gaps.values())))
    cells = missing.keys() or {cell for usage in choices for cell, _ in usage}
    started = [future for future in futures if future.wait < inf] or list(futures)
    holders = [
        Holder(each, run.created - each.since, sum(each.run in future.ended for future in started) / len(started))
        for each in held
        if any(cell in cells for cell, _ in each.usage)
    ]
    holders.sort(key=lambda holder: -sum(amount for cell, amount in holder.held.usage if cell in cells))
    return {resource: gap for (_, resource), gap in missing.items()}, tuple(holders)
