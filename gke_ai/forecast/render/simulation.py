"""The result of a simulation in words and tables, for the terminal and for the report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from statistics import fmean

from gke_ai.forecast.render import measures, shares
from gke_ai.forecast.render.measures import Measure, Measures, Unit, written
from gke_ai.forecast.render.rehearsal import Row, TableParts
from gke_ai.forecast.result.simulation import LOCAL, POOL, QUEUE, Figure, Simulation, Unhappy
from gke_ai.forecast.result.spread import Difference
from gke_ai.formats.sentences import join_names, plural

# Marks in a table of several configurations.
MORE, LESS, WITHIN = "▲", "▼", "≈"
MARKS = f"{MORE} {LESS} more or less than in the first configuration. {WITHIN} differs, but not more than the seeds do."
MARKS_OF_ONE = f"{MORE} {LESS} more or less than in the first configuration."
ONE_SEED = "One seed cannot show whether a difference exceeds the spread of days: add --seeds 5."
MAX_PARTS = 4
# Each table of figures: its title, what its rows are, and its columns.
TABLES: tuple[tuple[str, str, Measures], ...] = (
    ("Waiting", QUEUE, measures.WAITING),
    ("Quota and work", QUEUE, measures.WORK),
    ("Shares while all of the tree have runs waiting", LOCAL, measures.SHARES),
    ("Who gives way", QUEUE, measures.GIVING_WAY),
    ("Nodes", POOL, measures.NODES),
)
ITEMS = {QUEUE: "cluster queue", POOL: "pool", LOCAL: "local queue"}
SIZES = {QUEUE: "runs", POOL: "nodes", LOCAL: "by_weight"}
MEASURES = {(kind, key): measure for _, kind, columns in TABLES for key, measure in columns.items()}


def sentence(result: Simulation) -> str:
    """Returns the verdict in a few sentences: one for each compared configuration, or one for a single one."""
    first, *others = result.configurations
    if not others:
        return _day(result)
    verdicts = [_verdict(result, number, other.name, first.name) for number, other in enumerate(others, 1)]
    return " ".join([*verdicts, *([ONE_SEED] if len(result.seeds) == 1 else [])])


def _day(result: Simulation) -> str:
    """What the queue with the longest waits shows."""

    def wait(queue: str, key: str = "wait_p90") -> float:
        figure = result.figure(QUEUE, queue, key)
        return (figure and figure.mean(0)) or 0.0

    queues = result.names(QUEUE)
    slowest = max(queues, key=lambda queue: (wait(queue), wait(queue, "wait_longest")))
    parts = []
    if wait(slowest, "wait_longest") < 1:
        parts.append("No run waits for quota." if all(not wait(queue, "wait_longest") for queue in queues) else "")
    else:
        half, most, last = (measures.duration(wait(slowest, f"wait_{name}")) for name in ("p50", "p90", "longest"))
        parts.append(
            f"The runs of {slowest} wait longest: half of them start within {half}, 90 % within {most}, and all "
            f"that start within {last}."
        )
    if preemptions := _sum(result, "preemptions"):
        parts.append(f"Kueue preempts runs {measures.times(preemptions)}.")
    if never := _sum(result, "never_started"):
        parts.append(f"{written(never, Unit.COUNT)} of {written(_sum(result, 'runs'), Unit.COUNT)} runs never start.")
    if failed := _sum(result, "failed"):
        parts.append(f"{written(failed, Unit.COUNT)} of {written(_sum(result, 'runs'), Unit.COUNT)} runs are given up.")
    return " ".join(filter(None, parts))


def _sum(result: Simulation, key: str) -> float:
    """The sum of a figure over all queues of the first configuration."""
    return sum(figure.mean(0) or 0.0 for figure in result.figures if figure.key == key)


def _verdict(result: Simulation, number: int, name: str, first: str) -> str:
    """What a configuration changes: differences that exceed the spread of the seeds, or all if there is one seed."""
    ranked = sorted(_measured(result), key=lambda entry: _RANKS[entry[0].key])
    differences = [(figure, _difference(figure, measure, number)) for figure, measure in ranked]
    moved = [(figure, difference) for figure, difference in differences if difference]
    shown = [
        figure for figure, difference in moved if difference.exceeds is not False and len(_sides(figure, number)) > 1
    ]
    # A queue or pool that only one of the two has figures of is said once, by the most important of them.
    lacking = {(f.kind, f.name): f for f, _ in reversed(differences) if _is_lacking(f, number)}
    parts = [
        _phrase(result, figure, number) for figure, _ in differences if figure in shown or figure in lacking.values()
    ]
    if not parts:
        parts = ["no figure differs by more than the seeds do" if moved else "every figure is the same"]
    text = f"With {name} instead of {first}, {join_names(parts[:MAX_PARTS])}."
    others = len(parts) - MAX_PARTS
    verb = "differs" if others == 1 else "differ"
    return f"{text} {plural(others, 'other figure')} of the tables {verb} too." if others > 0 else text


# How a verdict says a figure, the most important first.
PHRASES: Mapping[str, str] = {
    "never_started": "{after} instead of {before} runs of {name} never start",
    "failed": "{after} instead of {before} runs of {name} are given up",
    "wait_p90": "90 % of the runs of {name} start within {after} instead of {before}",
    "wait_p50": "half of the runs of {name} start within {after} instead of {before}",
    "wait_p99": "99 % of the runs of {name} start within {after} instead of {before}",
    "wait_longest": "the longest wait of a run of {name} is {after} instead of {before}",
    "wait_for_nodes": "90 % of the runs of {name} wait at most {after} instead of {before} for nodes",
    "cost": "{name} costs {after} instead of {before}",
    "paid_hours": "{name} takes {after} instead of {before} accelerator-hours",
    "nodes": "{name} has {after} instead of {before} nodes on average",
    "most_nodes": "{name} has {after} instead of {before} nodes in its busiest hour",
    "preemptions": "Kueue preempts runs of {name} {after} instead of {before} times",
    "lost_hours": "{name} loses {after} instead of {before} accelerator-hours of work",
    "lost_cost": "lost work of {name} costs {after} instead of {before}",
    "use": "runs hold {after} instead of {before} of the quota of {name}",
    "busiest": "runs hold {after} instead of {before} of the quota of {name} in the busiest hour",
    "used_hours": "runs use {after} instead of {before} accelerator-hours of {name}",
    "idle_cost": "idle accelerators of {name} cost {after} instead of {before}",
    "idle_hours": "{after} instead of {before} accelerator-hours of {name} are idle",
    "starting_hours": "nodes of {name} start for {after} instead of {before} accelerator-hours",
    "reclaims": "Spot reclaims stop runs or nodes of {name} {after} instead of {before} times",
    "refused": "{after} instead of {before} nodes of {name} are refused",
    "stockout_hours": "{name} has no capacity for {after} instead of {before} hours",
}
_RANKS = {key: rank for rank, key in enumerate(PHRASES)}


def _difference(figure: Figure, measure: Measure, number: int) -> Difference | None:
    """The difference from the first configuration, None if there is none. A certain one is no matter of the spread."""
    difference = figure.difference(number)
    if difference is None or (difference.is_zero and not difference.half):
        return None
    return replace(difference, half=0.0) if _is_certain(figure, measure, number) else difference


def _is_certain(figure: Figure, measure: Measure, number: int) -> bool:
    """Whether a difference of several seeds is certain: not decided by chance, and no seed says the opposite."""
    pairs = figure.pairs(number)
    signs = {(a < b) - (a > b) for a, b in pairs} - {0}
    return measure.certain and len(pairs) > 1 and len(signs) == 1


def _is_lacking(figure: Figure, number: int) -> bool:
    """Whether one of the two configurations has a value in no seed, and the other has one."""
    return (figure.mean(0) is None) != (figure.mean(number) is None)


def _phrase(result: Simulation, figure: Figure, number: int) -> str:
    if _is_lacking(figure, number):
        lacks = result.configurations[0 if figure.mean(0) is None else number].name
        title = MEASURES[figure.kind, figure.key].title
        what = "no run of {} starts" if figure.key in measures.WAITING else f"{{}} has no {title}"
        return f"{what.format(figure.name)} with {lacks}"
    before, after = _sides(figure, number)
    pairs, seeds = len(figure.pairs(number)), len(figure.values[number])
    of_some = f" (in {pairs} of {seeds} seeds)" if pairs < seeds else ""
    mean = "on average, " if figure.key in ("never_started", "failed") and "." in before + after else ""
    return mean + PHRASES[figure.key].format(name=figure.name, before=before, after=after) + of_some


def _sides(figure: Figure, number: int) -> tuple[str, ...]:
    """The means over the seeds that have both values, as they are written; one if they look the same."""
    unit = MEASURES[figure.kind, figure.key].unit
    return tuple(dict.fromkeys(written(fmean(values), unit) for values in zip(*figure.pairs(number), strict=True)))


def tables(result: Simulation) -> list[TableParts]:
    """Returns the tables that have rows: title, columns and rows."""
    several = f", means of {len(result.seeds)} seeds" if len(result.seeds) > 1 else ""
    everything: list[TableParts] = [
        *((f"{title}{several}", *_values(result, kind, columns)) for title, kind, columns in TABLES),
        ("Differences" if len(result.configurations) > 1 else "Spread over the seeds", *_spread(result)),
        *_unhappiest(result),
    ]
    return [(title, columns, rows) for title, columns, rows in everything if rows]


def _values(result: Simulation, kind: str, columns: Measures) -> tuple[Row, list[Row]]:
    """A row for each queue or pool and configuration. Marks say what differs from the first configuration."""
    several = len(result.configurations) > 1
    head = (ITEMS[kind], *(["configuration"] if several else []))
    present = [key for key, measure in columns.items() if _is_shown(result, kind, key, measure)]
    rows = []
    for name in shown_names(result, kind) if present else ():
        for number, configuration in enumerate(result.configurations):
            cells = [_cell(result.figure(kind, name, key), columns[key], number) for key in present]
            label = name if number == 0 else ""
            rows.append((label, *([configuration.name] if several else []), *cells))
    return (*head, *(columns[key].title for key in present)), rows


def shown_names(result: Simulation, kind: str) -> list[str]:
    """The queues that have runs, the pools that have nodes, or the local queues that share by weight."""
    sizes = {name: result.figure(kind, name, SIZES[kind]) for name in result.names(kind)}
    return [
        name for name, size in sizes.items() if size is None or any(value for side in size.values for value in side)
    ]


def _is_shown(result: Simulation, kind: str, key: str, measure: Measure) -> bool:
    """Whether a table has a column for a figure."""
    values = [value for f in result.figures if (f.kind, f.key) == (kind, key) for side in f.values for value in side]
    return any(values) or (bool(values) and not measure.rare)


def _cell(figure: Figure | None, measure: Measure, number: int) -> str:
    """The mean, with a mark if it differs from that of the first configuration."""
    if figure is None:
        return "–"
    text = written(figure.mean(number), measure.unit)
    present, seeds = sum(value is not None for value in figure.values[number]), len(figure.values[number])
    text += f" (in {present} of {seeds} seeds)" if 0 < present < seeds else ""
    difference = _difference(figure, measure, number) if number and not measure.given else None
    if difference is None or difference.is_zero:
        return text
    return f"{text} {WITHIN if difference.exceeds is False else MORE if difference.mean > 0 else LESS}"


def _spread(result: Simulation) -> tuple[Row, list[Row]]:
    """The figures that vary or differ, with their smallest and largest value over the seeds. Empty with one seed."""
    columns: Row = ("of", "figure", "mean", "smallest", "largest")
    if len(result.seeds) == 1:
        return columns, []
    if len(result.configurations) == 1:
        return columns, [
            (figure.name, measure.title, *(written(value, measure.unit) for value in _range(figure.values[0])))
            for figure, measure in _measured(result)
            if len({value for value in figure.values[0] if value is not None}) > 1
        ]
    rows = []
    first, *others = result.configurations
    several = len(others) > 1
    for figure, measure in _measured(result):
        for number, configuration in enumerate(others, 1):
            difference = _difference(figure, measure, number)
            if difference is None or difference.half is None or difference.is_zero:
                continue
            sides = (_between(values, measure.unit) for values in zip(*figure.pairs(number), strict=True))
            moved, verdict = measures.change(difference.mean, measure.unit), "certain"
            if not _is_certain(figure, measure, number):
                moved += f" ± {measures.change(difference.half, measure.unit).lstrip('+±')}"
                verdict = "yes" if difference.exceeds else "no"
            label = (configuration.name,) if several else ()
            rows.append((figure.name, measure.title, *label, *sides, moved, verdict))
    compared = ("configuration", first.name, "with it") if several else (first.name, others[0].name)
    return ("of", "figure", *compared, "difference", "more than the seeds do"), rows


def _measured(result: Simulation) -> Iterator[tuple[Figure, Measure]]:
    """The figures that are results, with their measures."""
    for figure in result.figures:
        measure = MEASURES.get((figure.kind, figure.key))
        if measure and not measure.given:
            yield figure, measure


def _range(values: Iterable[float | None]) -> tuple[float, float, float]:
    """The mean, the smallest and the largest of the values that exist."""
    present = [value for value in values if value is not None]
    return fmean(present), min(present), max(present)


def _between(values: Iterable[float], unit: Unit) -> str:
    """The mean, with the smallest and the largest value if they differ."""
    mean, low, high = (written(value, unit) for value in _range(values))
    return mean if low == high else f"{mean} ({low} to {high})"


def _unhappiest(result: Simulation) -> Iterator[TableParts]:
    several = len(result.configurations) > 1
    of_seed = f" of seed {result.seeds[0]}" if len(result.seeds) > 1 else ""
    for configuration in result.configurations:
        title = f"Unhappiest runs{of_seed}{f' with {configuration.name}' if several else ''}"
        columns = ("run", "cluster queue", "priority", "asks for", "submitted", "needs", "delay", "why")
        yield title, columns, [_run(run) for run in configuration.unhappiest]


def _run(run: Unhappy) -> Row:
    submitted, needs = f"hour {run.submitted / 3600:.1f}", measures.duration(run.duration)
    delay = "never ends" if run.delay is None else measures.duration(run.delay)
    return str(run.row), run.queue, run.priority or "–", run.asks, submitted, needs, delay, " ".join(run.why) or "–"


def remarks(result: Simulation) -> list[str]:
    """Returns what a reader must know of the result."""
    lines = shares.sentences(result)
    if len(result.configurations) > 1:
        lines.append(MARKS if len(result.seeds) > 1 else MARKS_OF_ONE)
        if len(result.seeds) > 1:
            lines.append(
                f"A difference exceeds the spread of the {len(result.seeds)} seeds if the 95 % interval of the paired "
                f"differences (Student's t) excludes 0. By chance, one of 20 figures does so without a reason. A run "
                "that never starts is no matter of chance: its difference is certain, unless the seeds disagree."
            )
    if any(configuration.unhappiest for configuration in result.configurations):
        lines.append(
            "Delay: from submission to end, less the duration. It counts waiting, interruptions and repeated work."
        )
    for configuration in result.configurations:
        if configuration.late:
            lines.append(
                f"With {configuration.name}, Kueue decided {measures.times(configuration.late)} after the clock had "
                "moved on: these times are too late."
            )
    return [*lines, *result.notes]
