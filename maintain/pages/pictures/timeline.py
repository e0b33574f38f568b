"""Draws a recorded run as a timeline: one lane per workload, and below them the GPUs in use and the quota."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from gke_ai.formats.svg import Canvas, width

Recording = Mapping[str, Any]

# Color of each state, whether it is drawn as an outline, and its meaning.
STATES = {
    "pending": ("amber", True, "waits for quota"),
    "admitted": ("teal", False, "admitted, its pods start"),
    "running": ("green", False, "its pods run"),
    "stopping": ("muted", True, "its pods stop"),
    "evicted": ("red", True, "preempted, waits to resume"),
}
WIDTH, LEFT, RIGHT = 1120.0, 168.0, 40.0
TOP, LANE, BAR = 118.0, 40.0, 24.0
CHART = 120.0
GPU_COLOR = "violet"
# Color of running training, to distinguish it from serving.
TRAINING = "blue"


def drawn(recording: Recording) -> str:
    lanes = recording["workloads"]
    base = TOP + LANE * len(lanes) + 46 + CHART
    canvas = Canvas(WIDTH, base + 84, "Serving preempts training, and gives back")
    canvas.rect(0, 0, canvas.width, canvas.height, "page", radius=12)
    canvas.text(24, 38, "Serving preempts training, and gives back", 20, bold=True)
    quota = f"Two GPUs for each replica, two for training, a quota of {recording['quota']}"
    canvas.text(24, 60, f"{quota}: as Kueue and Kubernetes recorded it on the emulator,", 13, "muted")
    text = "where nodes are simulated and models load at once. On GPUs a start takes minutes."
    canvas.text(24, 78, text, 13, "muted")

    def x(second: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * second / float(recording["seconds"])

    for index, lane in enumerate(lanes):
        y = TOP + LANE * index
        if index % 2 == 0:
            canvas.rect(16, y, WIDTH - 32, LANE, "card", radius=6)
        canvas.text(28, y + 25, lane["name"], 13)
    for step in recording["steps"]:
        canvas.line(x(step["at"]), TOP - 10, x(step["at"]), base, "line", 1, dashed=True)
        replicas = step["replicas"]
        text = f"scaled to {replicas} replica{'' if replicas == 1 else 's'}"
        canvas.text(x(step["at"]), TOP - 16, text, 12, bold=True, anchor="middle")
    for index, lane in enumerate(lanes):
        y = TOP + LANE * index + (LANE - BAR) / 2
        for state, start, end in spans(lane["states"], recording["seconds"]):
            bar(canvas, x(start), x(end), y, state, TRAINING if lane["name"] == "training" else None)
    chart(canvas, recording, x, base)
    legend(canvas, recording, base + 62)
    return canvas.rendered()


def spans(states: list[Mapping[str, Any]], end: float) -> Iterator[tuple[str, float, float]]:
    for change, after in pairwise([*states, {"at": end, "state": "gone"}]):
        if change["state"] != "gone" and after["at"] > change["at"]:
            yield change["state"], change["at"], after["at"]


def bar(canvas: Canvas, start: float, end: float, y: float, state: str, other: str | None) -> None:
    """One state of a workload, with its name if there is room.

    `other` is the color of a running workload.
    """
    color, outline, _ = STATES[state]
    color = other if other and state == "running" else color
    room = max(end - start - 2, 3)
    if outline:
        canvas.rect(start + 1, y + 1, room - 1, BAR - 2, "page", color, radius=5, thick=1.6, dashed=True)
    else:
        canvas.rect(start + 1, y, room, BAR, color, radius=5)
    if width(state, 12) + 14 < room:
        canvas.text(start + 10, y + 16.5, state, 12, color if outline else "page", bold=True)


def chart(canvas: Canvas, recording: Recording, x: Any, base: float) -> None:
    quota = int(recording["quota"])

    def y(gpus: float) -> float:
        return base - CHART * gpus / (quota + 1)

    canvas.text(28, y(quota / 2), "GPUs reserved", 13)
    for gpus in range(0, quota + 1, 2):
        canvas.line(LEFT, y(gpus), WIDTH - RIGHT, y(gpus), "line", 0.6 if gpus else 1.2)
        canvas.text(LEFT - 10, y(gpus) + 4, str(gpus), 11.5, "muted", anchor="end")
    steps = [*recording["gpus"], {"at": recording["seconds"], "gpus": recording["gpus"][-1]["gpus"]}]
    outline = f"M{x(steps[0]['at']):.1f} {y(steps[0]['gpus']):.1f}"
    for step, after in pairwise(steps):
        left, top, right = x(step["at"]), y(step["gpus"]), x(after["at"])
        canvas.rect(left, top, right - left, base - top, GPU_COLOR, radius=0, opacity=0.18)
        outline += f"H{x(after['at']):.1f}V{y(after['gpus']):.1f}"
    canvas.path(outline, GPU_COLOR, 2)
    canvas.line(LEFT, y(quota), WIDTH - RIGHT, y(quota), "red", 1.4, dashed=True)
    canvas.text(WIDTH - RIGHT, y(quota) - 7, f"quota: {quota}", 12, "red", bold=True, anchor="end")
    for second in range(0, int(recording["seconds"]) + 1, 2):
        canvas.text(x(second), base + 18, f"{second} s", 11.5, "muted", anchor="middle")


def legend(canvas: Canvas, recording: Recording, y: float) -> None:
    present = {change["state"] for lane in recording["workloads"] for change in lane["states"]}
    x = 28.0
    for state, (color, outline, meaning) in STATES.items():
        if state not in present:
            continue
        if outline:
            canvas.rect(x, y - 10, 20, 12, "page", color, radius=3, thick=1.6, dashed=True)
        else:
            canvas.rect(x, y - 10, 20, 12, color, radius=3)
        text = state if state == meaning else f"{state}: {meaning}"
        canvas.text(x + 27, y, text, 12, "muted")
        x += 27 + width(text, 12) + 16
