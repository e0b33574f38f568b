"""Draws a forecast as a timeline: runs, servers and pools, by minutes of Google Cloud."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import fsum

from gke_ai.forecast.render import rehearsal, rehearsal_headline
from gke_ai.forecast.result.forecast import Count, Forecast, Lane
from gke_ai.formats.svg import LINE, Canvas, fitted, width, wrapped

# Color of each state of a run, whether it is an outline, and its meaning.
STATES = {
    "waiting": ("amber", True, "waits for quota"),
    "evicted": ("red", True, "evicted, waits to resume"),
    "starting": ("teal", False, "admitted, its pods start"),
    "no nodes": ("amber", False, "admitted, but no node fits its pods"),
    "running": ("blue", False, "runs"),
    "interrupted": ("red", False, "interrupted: pods are missing"),
    "ended": ("muted", True, "ended"),
}
SERVES, LACKS = "green", "red"
NODES = "violet"
TITLES = {"workload": "Runs", "server": "Ready replicas", "nodes": "Ready nodes"}
WIDTH, LEFT, RIGHT = 1120.0, 236.0, 92.0
TOP, LANE, BAR = 112.0, 36.0, 22.0
# Size of the text in a bar, and of a flag above a bar that is too narrow for its text; height of a row of flags.
SIZE, FLAG, ROW = 12.0, 11.0, 14.0
MAX_LANES = 24


@dataclass(frozen=True)
class Bar:
    """A state of a lane from left to right, in pixels. `row` is that of its flag, from below; None without a flag."""

    state: str | Count
    left: float
    right: float
    row: int | None = None

    @property
    def flag_end(self) -> float:
        """The right edge of its flag."""
        return self.left + 8 + width(str(self.state), FLAG, True)


def drawn(forecast: Forecast) -> str:
    """The timeline as SVG."""
    lanes = sorted(forecast.lanes, key=lambda lane: list(TITLES).index(lane.group))
    left_out = len(lanes) - MAX_LANES
    lanes = lanes[:MAX_LANES]
    # Room after the last change shows the state that it leaves.
    end = round(max(forecast.seconds, forecast.applied, 60) * 1.08)

    def x(second: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * min(second, end) / end

    bars = [_flagged(list(_bars(lane, end, x))) for lane in lanes]
    groups = len({lane.group for lane in lanes})
    headline = wrapped(rehearsal_headline.sentence(forecast), WIDTH - 48, 17, True)
    shift = LINE * (len(headline) - 1)
    top = TOP + shift
    base = top + fsum(LANE + _height(of_lane) for of_lane in bars) + 26 * groups
    canvas = Canvas(WIDTH, base + 78, f"What the change of {forecast.stack} does over time")
    canvas.page(headline)
    canvas.text(24, 60 + shift, fitted(" ".join(rehearsal.remarks(forecast)[:2]), WIDTH - 48, 12.5), 12.5, "muted")

    for minute in _ticks(end):
        canvas.line(x(minute), top - 6, x(minute), base, "line", 0.6)
        canvas.text(x(minute), base + 18, f"{minute // 60} min", 11.5, "muted", anchor="middle")
    # Pulumi changes one object after the other, and waits for servers: what the change causes begins before its end.
    canvas.rect(x(0), top - 30, max(x(forecast.applied) - x(0), 4), 18, "band", radius=4)
    canvas.text(x(0) + 8, top - 17, _applied(forecast), 11.5)
    canvas.line(x(forecast.applied), top - 30, x(forecast.applied), base, "muted", 1, dashed=True)
    y, group = top, ""
    for lane, of_lane in zip(lanes, bars, strict=True):
        if lane.group != group:
            group = lane.group
            canvas.text(24, y + 18, TITLES[group], 12.5, "muted", bold=True)
            y += 26
        y += _height(of_lane)
        canvas.text(34, y + LANE / 2 + 4, fitted(lane.name, LEFT - 46, 12.5), 12.5)
        for bar in of_lane:
            _draw(canvas, lane.group, bar, y + (LANE - BAR) / 2)
        y += LANE
    if left_out > 0:
        canvas.text(24, base + 18, f"{left_out} more are not shown.", 12, "muted")
    _legend(canvas, lanes, base + 52)
    return canvas.rendered()


def _applied(forecast: Forecast) -> str:
    """What the band from the beginning to the end of the update says."""
    subject = "The upgrade" if forecast.upgrade else "The change"
    how = "is refused after" if forecast.refused else "takes" if forecast.upgrade else "is applied in"
    return f"{subject} {how} {rehearsal.minutes(forecast.applied)}"


def _ticks(end: int) -> Iterator[int]:
    """Whole minutes, at most about ten."""
    step = next(size for size in (1, 2, 5, 10, 15, 30, 60, 120, 240, 1440) if end / (size * 60) <= 11 or size == 1440)
    yield from range(0, end + 1, step * 60)


def _bars(lane: Lane, end: int, x: Callable[[float], float]) -> Iterator[Bar]:
    """The bars of a lane, at least 3 pixels wide, with a gap between them."""
    for (begin, state), (until, _) in pairwise([*lane.steps, (end, "")]):
        if state not in ("gone", Count(0, 0)) and until > begin:
            yield Bar(state, x(begin) + 1, max(x(until) - 1, x(begin) + 4))


def _flagged(bars: Sequence[Bar]) -> list[Bar]:
    """Gives each bar that is too narrow for its text a flag above the flags that its own would cross."""
    done: list[Bar] = []
    for bar in reversed(bars):  # a flag reaches to the right
        if width(str(bar.state), SIZE, True) + 14 < bar.right - bar.left:
            done.append(bar)
            continue
        crossed = [other.row for other in done if other.row is not None and other.left < bar.flag_end]
        done.append(replace(bar, row=max(crossed, default=-1) + 1))
    return done[::-1]


def _height(bars: Sequence[Bar]) -> float:
    """The height of a lane's flags."""
    return ROW * (1 + max((bar.row for bar in bars if bar.row is not None), default=-1))


def _draw(canvas: Canvas, group: str, bar: Bar, y: float) -> None:
    room = bar.right - bar.left
    color, outline = STATES[bar.state][:2] if isinstance(bar.state, str) else (_color(group, bar.state), False)
    radius = min(5, room / 2)
    if outline:
        canvas.rect(bar.left, y + 1, room - 1, BAR - 2, "page", color, radius=radius, thick=1.6, dashed=True)
    else:
        canvas.rect(bar.left, y, room, BAR, color, radius=radius)
    if bar.row is None:
        canvas.text(bar.left + 8, y + 15.5, str(bar.state), SIZE, color if outline else "page", bold=True)
    else:
        foot = y - 4 - ROW * bar.row
        canvas.line(bar.left, foot - FLAG + 2, bar.left, y, color)
        canvas.rect(bar.left + 2, foot - FLAG + 2, bar.flag_end - bar.left - 4, FLAG, "page", radius=2)
        canvas.text(bar.left + 4, foot, str(bar.state), FLAG, color, bold=True)


def _color(group: str, count: Count) -> str:
    if group == "nodes":
        return NODES
    return SERVES if count.ready >= count.wanted else LACKS if count.ready == 0 else "amber"


def _legend(canvas: Canvas, lanes: list[Lane], y: float) -> None:
    present = {state for lane in lanes if lane.group == "workload" for _, state in lane.steps}
    entries = [
        (color, outline, f"{state}: {text}" if state not in text else text)
        for state, (color, outline, text) in STATES.items()
        if state in present
    ]
    if any(lane.group == "server" for lane in lanes):
        entries += [(SERVES, False, "all replicas are ready"), ("amber", False, "some are"), (LACKS, False, "none is")]
    if any(lane.group == "nodes" for lane in lanes):
        entries.append((NODES, False, "nodes"))
    canvas.legend(y, entries)
