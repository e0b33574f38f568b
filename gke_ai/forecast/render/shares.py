"""Shares of local queues beside their weights: in sentences, and as a picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from gke_ai.forecast.render import measures
from gke_ai.forecast.render.measures import Unit, written
from gke_ai.forecast.result.simulation import LOCAL, QUEUE, Simulation
from gke_ai.formats.sentences import join_names
from gke_ai.formats.svg import EDGE, LINE, Canvas, fitted, number

# The weights hold if no local queue has more or less than its part by this much of the whole.
HOLDS = 0.02
COLORS = ("blue", "teal", "violet", "amber", "green", "red")
WIDE, PANEL, BARS, SIDE = 1120.0, 176.0, 104.0, 236.0
TITLE = "Shares of the accelerators while all teams have runs waiting"


def by_weight(result: Simulation, configuration: int, name: str) -> float | None:
    """The part of a local queue by weight: that of the configuration, or of the first one that shares by weight."""
    figure = result.figure(LOCAL, name, "by_weight")
    own = [figure.mean(place) for place in (configuration, *range(len(result.configurations)))] if figure else []
    return next((value for value in own if value is not None), None)


def shared_names(result: Simulation, configuration: int) -> list[str]:
    """The local queues of a configuration that have both a part and a part by weight."""
    parts = {name: result.figure(LOCAL, name, "part") for name in result.names(LOCAL)}
    present = [name for name, part in parts.items() if part and part.mean(configuration) is not None]
    return [name for name in present if by_weight(result, configuration, name) is not None]


def deviations(result: Simulation, configuration: int) -> list[tuple[str, float, float]]:
    """Each local queue with its part, and how much that is above its part by weight."""
    found = []
    for name in shared_names(result, configuration):
        figure = result.figure(LOCAL, name, "part")
        part = (figure and figure.mean(configuration)) or 0.0
        found.append((name, part, part - (by_weight(result, configuration, name) or 0.0)))
    return found


def sentences(result: Simulation) -> list[str]:
    """Whether the weights hold, and what preemption costs: a sentence or two for each configuration that shows it."""
    return [
        f"With {configuration.name}, {_verdict(result, place)} The parts are {_parts(result, place)}."
        for place, configuration in enumerate(result.configurations)
        if deviations(result, place)
    ]


def _parts(result: Simulation, configuration: int) -> str:
    return join_names([f"{name} {written(part, Unit.PART)}" for name, part, _ in deviations(result, configuration)])


def _verdict(result: Simulation, configuration: int) -> str:
    parts = deviations(result, configuration)
    if not parts:
        return "there is no hour in which all have runs waiting."
    worst, _, most = max(parts, key=lambda entry: abs(entry[2]))
    verb = "hold" if abs(most) <= HOLDS else "do not hold"
    side = f"{abs(most) * 100:.1f} points {'above' if most > 0 else 'below'} its part by weight"
    text = f"the weights {verb}: {worst} is {side}."
    preempted, lost = (_sum(result, configuration, key) for key in ("preemptions", "preemption_hours"))
    if not preempted:
        return f"{text} Kueue preempts no run."
    hours = f"{written(lost, Unit.HOURS)} accelerator-hours are lost"
    return f"{text} Kueue preempts runs {measures.times(preempted)}, and {hours}."


def _sum(result: Simulation, configuration: int, key: str) -> float:
    figures = (figure for figure in result.figures if (figure.kind, figure.key) == (QUEUE, key))
    return sum(figure.mean(configuration) or 0.0 for figure in figures)


def drawn(result: Simulation) -> str:
    """The parts of the local queues of the first shared tree over time, for each configuration, as SVG."""
    trees = [configuration.shares[0].tree if configuration.shares else "" for configuration in result.configurations]
    names = [own.queue for own in result.configurations[0].shares if own.tree == trees[0]][: len(COLORS)]
    height = 92 + PANEL * len(trees) + 44
    canvas = Canvas(WIDE, height, " ".join([f"{TITLE}.", *sentences(result)]))
    canvas.page([TITLE])
    subtitle = f"Stack {result.stack}, trace {result.trace}. Dashed: parts by weight."
    canvas.text(EDGE, 38 + LINE, fitted(subtitle, WIDE - 2 * EDGE, 12.5), 12.5, "muted")
    hours = _hours(result)
    for place in range(len(trees)):
        _panel(canvas, result, place, names, 92 + PANEL * place, hours)
    canvas.legend(height - 24, [(color, False, name) for name, color in zip(names, COLORS, strict=False)])
    return canvas.rendered()


def _hours(result: Simulation) -> float:
    """Until when all have runs waiting, in the longest configuration."""
    tracks = [own.held for configuration in result.configurations for own in configuration.shares]
    busy = [place + 1 for held in tracks for place, value in enumerate(held) if value]
    return max(busy, default=1) * result.bin_seconds / 3600


def _panel(canvas: Canvas, result: Simulation, place: int, names: Sequence[str], y: float, hours: float) -> None:
    """A configuration: its verdict, the parts over time as stacked areas, and beside them the parts of all hours."""
    configuration, wide = result.configurations[place], WIDE - 2 * EDGE - SIDE
    canvas.text(EDGE, y + 14, fitted(configuration.name, WIDE - 2 * EDGE, 14, True), 14, bold=True)
    verdict = _verdict(result, place)
    canvas.text(EDGE, y + 32, fitted(verdict[0].upper() + verdict[1:], WIDE - 2 * EDGE, 12), 12, "muted")
    top = y + 42
    canvas.rect(EDGE, top, wide, BARS, "card", radius=0)
    held = [own.held for name in names for own in configuration.shares if own.queue == name]
    scale = wide * result.bin_seconds / 3600 / hours
    for color, (low, high) in zip(COLORS, pairwise(_stacked(held)), strict=False):
        canvas.path(_band(low, high, top, scale), None, fill=color)
    targets = [by_weight(result, place, name) or 0.0 for name in names]
    for target in [*accumulate(targets)][:-1]:
        canvas.line(EDGE, top + BARS * target, EDGE + wide, top + BARS * target, "ink", 1.6, dashed=True)
    for row, (name, part, above) in enumerate(deviations(result, place)[: len(names)]):
        text = f"{written(part, Unit.PART)} {fitted(name, 110, 13)} {above * 100:+.1f}".replace(" -", " −")
        canvas.text(EDGE + wide + 14, top + 18 + 24 * row, text, 13, COLORS[row], bold=True)
    for day in range(int(hours // 24) + 1):
        canvas.text(EDGE + wide * day * 24 / hours, top + BARS + 16, f"day {day + 1}", 11, "muted")


def _stacked(held: Sequence[Sequence[float]]) -> Iterator[list[float]]:
    """Yields the edges between the parts of all queues in each bin, from 0 to 1."""
    totals = [sum(values) or 1.0 for values in zip(*held, strict=True)]
    edge = [0.0] * len(totals)
    yield edge
    for values in held:
        edge = [low + value / total for low, value, total in zip(edge, values, totals, strict=True)]
        yield edge


def _band(low: Sequence[float], high: Sequence[float], top: float, scale: float) -> str:
    """The outline between two edges, as steps."""
    forth = "".join(f"V{number(top + BARS * y)}H{number(EDGE + scale * (bin + 1))}" for bin, y in enumerate(low))
    steps = [*enumerate(high)][::-1]
    back = "".join(f"V{number(top + BARS * y)}H{number(EDGE + scale * bin)}" for bin, y in steps)
    return f"M{number(EDGE)} {number(top)}{forth}{back}Z"
