"""Draws the loss of a run that was preempted and resumed: over time, and by step beside an undisturbed run."""

from collections.abc import Callable, Iterable, Mapping
from math import ceil
from typing import Any

from gke_ai.formats.svg import Canvas, width
from maintain.pages.pictures import RECORDINGS

Recording = Mapping[str, Any]
RECORDING = RECORDINGS / "training_resumes.json"

TITLE = "A preempted training run resumes where it stopped"
WIDTH, LEFT, RIGHT = 1120.0, 76.0, 40.0
FIRST, SECOND = (126.0, 220.0), (424.0, 150.0)  # top and height of each chart
COLORS = ("blue", "violet")  # of the pods before and after the preemption
Scale = Callable[[float], float]


def drawn(recording: Recording) -> str:
    canvas = Canvas(WIDTH, SECOND[0] + SECOND[1] + 70, TITLE)
    canvas.rect(0, 0, canvas.width, canvas.height, "page", radius=12)
    canvas.text(24, 38, TITLE, 20, bold=True)
    text = "The loss that examples/training/train_jax.py printed: two real processes on this machine's CPU"
    canvas.text(24, 60, text, 13, "muted")
    canvas.text(24, 78, "in place of the pods, preempted by the real Kueue on the emulator.", 13, "muted")
    over_time(canvas, recording)
    by_step(canvas, recording)
    return canvas.rendered()


def over_time(canvas: Canvas, recording: Recording) -> None:
    """The first chart: the two halves of the run, and the pause between them."""
    top, height = FIRST
    before, after = (attempt["steps"] for attempt in recording["attempts"])
    end = float(after[-1][0])
    x, y = horizontal(end), vertical(recording, top, height)
    stopped, resumed = before[-1], after[0]
    canvas.rect(x(stopped[0]), top, x(resumed[0]) - x(stopped[0]), height, "band", radius=0)
    released = recording["events"][-1]["at"]
    for begin, until, title, text in (
        (stopped[0], released, "serving has the GPUs", "the run waits in its queue"),
        (released, resumed[0], "admitted again", "new pods start"),
    ):
        middle = (x(begin) + x(until)) / 2
        canvas.text(middle, top + height * 0.3, title, 13, "amber", bold=True, anchor="middle")
        canvas.text(middle, top + height * 0.3 + 18, text, 12, "muted", anchor="middle")
    axes(canvas, recording, x, y, FIRST, end, lambda second: f"{second} s")
    for event in recording["events"]:
        replicas = f"{event['replicas']} replica{'' if event['replicas'] == 1 else 's'}"
        canvas.line(x(event["at"]), top - 8, x(event["at"]), top + height, "line", 1, dashed=True)
        canvas.text(x(event["at"]), top - 14, f"server scaled to {replicas}", 12, bold=True, anchor="middle")
    for color, steps in zip(COLORS, (before, after), strict=True):
        curve(canvas, color, [(x(at), y(loss)) for at, _, loss in steps])
    mark(canvas, COLORS[0], x(stopped[0]), y(stopped[2]), f"step {stopped[1]} saved")
    mark(canvas, COLORS[1], x(resumed[0]), y(resumed[2]), f"step {resumed[1]}")


def by_step(canvas: Canvas, recording: Recording) -> None:
    """The second chart: without the pause, and the undisturbed run under it."""
    top, height = SECOND
    steps = [step for attempt in recording["attempts"] for step in attempt["steps"]]
    end = steps[-1][1]
    x, y = horizontal(end), vertical(recording, top, height)
    same = all(loss == recording["undisturbed"][step - 1] for _, step, loss in steps)
    text = "every loss is equal, to the last digit" if same else "the losses differ"
    canvas.text(24, top - 18, f"By step, beside an undisturbed run of the same seed: {text}", 13, bold=True)
    axes(canvas, recording, x, y, SECOND, end, lambda step: f"step {step}")
    undisturbed = [(x(step), y(loss)) for step, loss in enumerate(recording["undisturbed"], 1)]
    canvas.path(outline(undisturbed), "line", 7)
    for color, attempt in zip(COLORS, recording["attempts"], strict=True):
        curve(canvas, color, [(x(step), y(loss)) for _, step, loss in attempt["steps"]])
    legend(canvas, top + height + 46)


def horizontal(end: float) -> Scale:
    return lambda value: LEFT + (WIDTH - LEFT - RIGHT) * value / end


def vertical(recording: Recording, top: float, height: float) -> Scale:
    return lambda loss: top + height * (1 - loss / highest(recording))


def highest(recording: Recording) -> int:
    losses: list[float] = [loss for attempt in recording["attempts"] for _, _, loss in attempt["steps"]]
    return ceil(max(losses))


Chart = tuple[float, float]
Name = Callable[[int], str]


def axes(canvas: Canvas, recording: Recording, x: Scale, y: Scale, chart: Chart, end: float, name: Name) -> None:
    """The axes of a chart, with lines at whole losses and about eight values on the horizontal axis."""
    base = chart[0] + chart[1]
    for loss in range(highest(recording) + 1):
        canvas.line(LEFT, y(loss), WIDTH - RIGHT, y(loss), "line", 0.6 if loss else 1.2)
        canvas.text(LEFT - 10, y(loss) + 4, str(loss), 11.5, "muted", anchor="end")
    canvas.text(24, chart[0] + chart[1] / 2 + 4, "loss", 13)
    distance = next(size for size in (5, 10, 20, 50, 100, 200, 500, 1000) if end / size <= 10)
    for value in range(0, int(end) + 1, distance):
        canvas.text(x(value), base + 18, name(value), 11.5, "muted", anchor="middle")


def curve(canvas: Canvas, color: str, points: Iterable[tuple[float, float]]) -> None:
    canvas.path(outline(points), color, 1.8)


def outline(points: Iterable[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def mark(canvas: Canvas, color: str, x: float, y: float, text: str) -> None:
    """A point of a curve with its name above it."""
    canvas.rect(x - 4, y - 4, 8, 8, color, radius=4)
    canvas.text(x + 8, y - 12, text, 12, color, bold=True)


def legend(canvas: Canvas, y: float) -> None:
    x = LEFT
    for color, thick, text in (
        (COLORS[0], 1.8, "before the preemption"),
        (COLORS[1], 1.8, "after it, by new pods, from the checkpoint"),
        ("line", 7.0, "undisturbed run"),
    ):
        canvas.line(x, y - 4, x + 24, y - 4, color, thick)
        canvas.text(x + 32, y, text, 12, "muted")
        x += 32 + width(text, 12) + 28
