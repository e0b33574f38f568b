"""Draws simulated days: quota in use, waiting runs and preemptions, by cluster queue and configuration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gke_ai.forecast.render import simulation
from gke_ai.forecast.result.simulation import Configuration, Simulation, Track
from gke_ai.formats.sentences import plural
from gke_ai.formats.svg import EDGE, LINE, Canvas, fitted, number, width, wrapped

QUOTA, BORROWED, WAITING, PREEMPTED = "blue", "violet", "amber", "red"
WIDE, AXIS, GAP = 1120.0, 44.0, 28.0
# A column never gets narrower: more configurations make a wider picture.
NARROWEST = 350.0
TOP = 84.0
# Heights in the panel of a queue: its title, use of quota, preemptions, waiting runs, and the space below.
TITLE, USE, MARKS, WAITS, BELOW = 40.0, 84.0, 12.0, 34.0, 18.0
PANEL = TITLE + USE + MARKS + WAITS + BELOW
MAX_QUEUES = 8
HOURS = (1, 2, 3, 4, 6, 12, 24, 48, 168)


@dataclass(frozen=True)
class Axes:
    """The scale of a panel: its left edge and width, and the highest values of use and of waiting."""

    left: float
    wide: float
    bins: int
    most_use: float
    most_waiting: float

    def x(self, bins: float) -> float:
        """The position of the beginning of a bin."""
        return self.left + self.wide * bins / max(self.bins, 1)


def drawn(result: Simulation) -> str:
    """The days of the first seed as SVG."""
    tracks = (track for configuration in result.configurations for track in configuration.tracks)
    names = list(dict.fromkeys(track.queue for track in tracks))
    busy = [name for name in names if any(map(is_busy, tracks_of(result, name)))]
    shown = busy[:MAX_QUEUES]
    count = len(result.configurations)
    column = max(NARROWEST, (WIDE - 2 * EDGE - GAP * (count - 1)) / count)
    wide = 2 * EDGE + column * count + GAP * (count - 1)
    headline = wrapped(simulation.sentence(result), wide - 2 * EDGE, 17, True)
    top = TOP + LINE * (len(headline) - 1) + 26
    base = top + PANEL * len(shown)
    canvas = Canvas(wide, base + 84, alternative(result, shown))
    canvas.page(headline)
    seed = f", seed {result.seeds[0]} of {len(result.seeds)}" if len(result.seeds) > 1 else ""
    subtitle = f"Stack {result.stack}, trace {result.trace}{seed}"
    canvas.text(EDGE, 38 + LINE * len(headline), fitted(subtitle, wide - 2 * EDGE, 12.5), 12.5, "muted")
    for position, configuration in enumerate(result.configurations):
        left = EDGE + position * (column + GAP)
        if count > 1:
            canvas.text(left, top - 8, fitted(configuration.name, column, 14, True), 14, bold=True)
        for row, name in enumerate(shown):
            axes = axes_of(tracks_of(result, name), left + AXIS, column - AXIS)
            track = next((track for track in configuration.tracks if track.queue == name), None)
            words = summary(result, configuration, track) if track else "no such cluster queue"
            _panel(canvas, name, track, words, axes, left, top + PANEL * row)
        _hours(canvas, result, left + AXIS, column - AXIS, top, base)
    _legend(canvas, base + 48)
    if hidden := len(names) - len(shown):
        canvas.text(
            EDGE, base + 70, f"{plural(hidden, 'more cluster queue')} without runs or space: not shown.", 12, "muted"
        )
    return canvas.rendered()


def tracks_of(result: Simulation, name: str) -> list[Track]:
    """The tracks of a queue in all configurations that have it."""
    return [track for configuration in result.configurations for track in configuration.tracks if track.queue == name]


def is_busy(track: Track) -> bool:
    """Whether a run of the queue ran or waited."""
    return any(track.use) or any(track.waiting)


def axes_of(tracks: Sequence[Track], left: float, wide: float) -> Axes:
    """Axes on which the tracks of all configurations fit, so that panels can be compared."""
    bins = max(len(track.use) for track in tracks)
    most_use = max(max([track.quota, *track.use]) for track in tracks)
    return Axes(left, wide, bins, most_use or 1.0, max([1.0, *(value for track in tracks for value in track.waiting)]))


def alternative(result: Simulation, shown: Sequence[str]) -> str:
    """The picture in words, for screen readers."""
    several = len(result.configurations) > 1
    parts = [
        f"{track.queue}{f' with {configuration.name}' if several else ''}: {summary(result, configuration, track)}"
        for name in shown
        for configuration in result.configurations
        for track in configuration.tracks
        if track.queue == name
    ]
    return f"A simulated day of stack {result.stack}. {simulation.sentence(result)} {'. '.join(parts)}."


def summary(result: Simulation, configuration: Configuration, track: Track) -> str:
    """A panel in words. The mean is over the configuration's own day, and the track is as long as the longest one."""
    bins = configuration.hours * 3600 / result.bin_seconds
    mean = sum(track.use) / bins if bins else 0.0
    parts = [f"{mean:.1f} of {track.quota:g} {track.resource} in use on average"]
    if any(track.waiting):
        parts.append(f"up to {max(track.waiting):.0f} waiting" if max(track.waiting) >= 1 else "hardly any waiting")
    if any(track.preempted):
        parts.append(plural(sum(track.preempted), "preemption"))
    return ", ".join(parts)


def _panel(canvas: Canvas, name: str, track: Track | None, words: str, axes: Axes, left: float, y: float) -> None:
    """A queue: use of quota upwards, preemptions as marks, waiting runs downwards."""
    title = fitted(name, axes.wide * 0.6, 13, True)
    canvas.text(left, y + 26, title, 13, bold=True)
    after = width(title, 13, True) + 10
    canvas.text(left + after, y + 26, fitted(words, AXIS + axes.wide - after, 12), 12, "muted")
    if track is None:
        return
    floor = y + TITLE + USE
    scale = USE / axes.most_use
    canvas.rect(axes.left, y + TITLE, axes.wide, USE, "card", radius=0)
    if any(use > track.quota for use in track.use):
        canvas.path(_area(axes, track.use, floor, -scale), None, fill=BORROWED)
    canvas.path(_area(axes, [min(use, track.quota) for use in track.use], floor, -scale), None, fill=QUOTA)
    line = floor - scale * track.quota
    canvas.line(axes.left, line, axes.left + axes.wide, line, "ink", 1.4, dashed=True)
    canvas.text(axes.left - 6, line + 4, f"{track.quota:g}", 11.5, anchor="end")
    for place, count in enumerate(track.preempted):
        if count:
            canvas.rect(axes.x(place + 0.5) - 1.5, floor + 2, 3, MARKS - 4, PREEMPTED, radius=1)
    below = floor + MARKS
    canvas.path(_area(axes, track.waiting, below, WAITS / axes.most_waiting), None, fill=WAITING)
    canvas.line(axes.left, below, axes.left + axes.wide, below, "line", 0.6)
    canvas.text(axes.left - 6, below + WAITS, f"{axes.most_waiting:.0f}", 11.5, "muted", anchor="end")


def _area(axes: Axes, values: Sequence[float], floor: float, scale: float) -> str:
    """The outline of a step function over the bins. Equal neighbors share a step."""
    steps: list[str] = []
    last: float | None = None
    for place, value in enumerate(values):
        if value != last:
            steps.append(f"H{number(axes.x(place))}V{number(floor + scale * value)}")
        last = value
    return f"M{number(axes.left)} {number(floor)}{''.join(steps)}H{number(axes.x(len(values)))}V{number(floor)}Z"


def _hours(canvas: Canvas, result: Simulation, left: float, wide: float, top: float, base: float) -> None:
    """Grid lines and hours below the lowest panel."""
    for hour, at in _ticks(result.configurations, result.bin_seconds):
        x = left + wide * at
        canvas.line(x, top + TITLE, x, base - BELOW, "line", 0.6)
        canvas.text(x, base + 2, f"{hour} h", 11.5, "muted", anchor="middle")


def _ticks(configurations: Sequence[Configuration], length: float) -> Iterator[tuple[int, float]]:
    """Whole hours, at most about eight, with their place from 0 to 1."""
    bins = max((len(track.use) for configuration in configurations for track in configuration.tracks), default=0)
    hours = bins * length / 3600
    step = next((step for step in HOURS if hours / step <= 8), HOURS[-1])
    yield from ((hour, hour / hours) for hour in range(0, int(hours) + 1, step) if hours)


def _legend(canvas: Canvas, y: float) -> None:
    used = ((QUOTA, False, "nominal quota in use"), (BORROWED, False, "borrowed"))
    x = canvas.legend(y, (*used, (WAITING, False, "waiting runs (downwards)"), (PREEMPTED, False, "preemptions")))
    canvas.line(x, y - 4, x + 20, y - 4, "ink", 1.4, dashed=True)
    canvas.text(x + 27, y, "nominal quota", 12, "muted")
