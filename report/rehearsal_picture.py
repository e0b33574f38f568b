"""Draws a forecast as a timeline: runs, servers and pools, by minutes of Google Cloud."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from forecast.model import Forecast, Lane
from report import rehearsal
from report.svg import Canvas, fitted, width, wrapped

# Color of each state of a run, whether it is an outline, and its meaning.
STATES = {
    "waiting": ("amber", True, "waits for quota"),
    "evicted": ("red", True, "evicted, waits to resume"),
    "starting": ("teal", False, "admitted, its pods start"),
    "running": ("blue", False, "runs"),
    "ended": ("muted", True, "ended"),
}
SERVES, LACKS = "green", "red"
NODES = "violet"
TITLES = {"workload": "Runs", "server": "Ready replicas", "nodes": "Ready nodes"}
WIDTH, LEFT, RIGHT = 1120.0, 236.0, 40.0
TOP, LINE, LANE, BAR = 104.0, 22.0, 36.0, 22.0
MAX_LANES = 24


def drawn(forecast: Forecast) -> str:
    """The timeline as SVG."""
    lanes = sorted(forecast.lanes, key=lambda lane: list(TITLES).index(lane.group))
    left_out = len(lanes) - MAX_LANES
    lanes = lanes[:MAX_LANES]
    groups = len({lane.group for lane in lanes})
    headline = wrapped(rehearsal.sentence(forecast), WIDTH - 48, 17, True)
    shift = LINE * (len(headline) - 1)
    top = TOP + shift
    base = top + LANE * len(lanes) + 26 * groups
    canvas = Canvas(WIDTH, base + 78, f"What the change of {forecast.stack} does over time")
    canvas.rect(0, 0, canvas.width, canvas.height, "page", radius=12)
    for number, line in enumerate(headline):
        canvas.text(24, 38 + LINE * number, line, 17, bold=True)
    canvas.text(24, 60 + shift, fitted(" ".join(rehearsal.remarks(forecast)[:2]), WIDTH - 48, 12.5), 12.5, "muted")
    end = max(forecast.seconds, 60)

    def x(second: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * min(second, end) / end

    for minute in _ticks(end):
        canvas.line(x(minute), top - 6, x(minute), base, "line", 0.6)
        canvas.text(x(minute), base + 18, f"{minute // 60} min", 11.5, "muted", anchor="middle")
    canvas.line(x(forecast.applied), top - 10, x(forecast.applied), base, "muted", 1, dashed=True)
    anchor = "end" if x(forecast.applied) > WIDTH - 200 else "middle" if x(forecast.applied) > LEFT + 60 else "start"
    canvas.text(x(forecast.applied), top - 15, "Pulumi has applied the change", 11.5, "muted", anchor=anchor)
    y, group = top, ""
    for lane in lanes:
        if lane.group != group:
            group = lane.group
            canvas.text(24, y + 18, TITLES[group], 12.5, "muted", bold=True)
            y += 26
        canvas.text(34, y + LANE / 2 + 4, fitted(lane.name, LEFT - 46, 12.5), 12.5)
        for state, begin, until in _spans(lane, end):
            _bar(canvas, lane.group, state, x(begin), x(until), y + (LANE - BAR) / 2)
        y += LANE
    if left_out > 0:
        canvas.text(24, base + 18, f"{left_out} more are not shown.", 12, "muted")
    _legend(canvas, lanes, base + 52)
    return canvas.rendered()


def _ticks(end: int) -> Iterator[int]:
    """Whole minutes, at most about ten."""
    step = next(size for size in (1, 2, 5, 10, 15, 30, 60, 120, 240, 1440) if end / (size * 60) <= 11 or size == 1440)
    yield from range(0, end + 1, step * 60)


def _spans(lane: Lane, end: int) -> Iterator[tuple[str, int, int]]:
    for (begin, state), (until, _) in pairwise([*lane.steps, (end, "")]):
        if state not in ("gone", "0 of 0") and until > begin:
            yield state, begin, until


def _bar(canvas: Canvas, group: str, state: str, begin: float, end: float, y: float) -> None:
    room = max(end - begin - 2, 3)
    color, outline = STATES[state][:2] if group == "workload" else (_color(group, state), False)
    if outline:
        canvas.rect(begin + 1, y + 1, room - 1, BAR - 2, "page", color, radius=5, thick=1.6, dashed=True)
    else:
        canvas.rect(begin + 1, y, room, BAR, color, radius=5)
    if width(state, 12) + 14 < room:
        canvas.text(begin + 9, y + 15.5, state, 12, color if outline else "page", bold=True)


def _color(group: str, state: str) -> str:
    """The color of a count such as `2 of 3`."""
    if group == "nodes":
        return NODES
    ready, _, wanted = state.partition(" of ")
    return SERVES if int(ready) >= int(wanted or 0) else LACKS if ready == "0" else "amber"


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
    x = 24.0
    for color, outline, text in entries:
        if x + 27 + width(text, 12) > WIDTH - 24:
            x, y = 24.0, y + 20
        if outline:
            canvas.rect(x, y - 10, 20, 12, "page", color, radius=3, thick=1.6, dashed=True)
        else:
            canvas.rect(x, y - 10, 20, 12, color, radius=3)
        canvas.text(x + 27, y, text, 12, "muted")
        x += 27 + width(text, 12) + 16
