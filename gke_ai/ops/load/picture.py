"""The picture of a load: how the requests of each rate ended, and how soon answers began."""

from __future__ import annotations

from collections.abc import Sequence

from gke_ai.formats.svg import EDGE, LINE, Canvas, fitted, number
from gke_ai.ops.load.requests import Step

WIDE, ROW, BAR, LEFT, RIGHT = 960.0, 46.0, 20.0, 96.0, 250.0
COLORS = {"200": "green", "429": "amber", "503": "violet"}
OTHER = "red"


def drawn(route: str, steps: Sequence[Step], objective: float, sentences: Sequence[str]) -> str:
    """A bar per rate, divided by the ends of its requests, with the times of its answers beside it, as SVG."""
    height = 96 + ROW * len(steps) + 44
    canvas = Canvas(WIDE, height, " ".join([f"Load on {route}.", *sentences]))
    canvas.page([f"Load on {route}"])
    canvas.text(EDGE, 38 + LINE, fitted(sentences[0], WIDE - 2 * EDGE, 12.5), 12.5, "muted")
    room = WIDE - 2 * EDGE - LEFT - RIGHT
    for place, step in enumerate(steps):
        y, x, total = 96 + ROW * place, EDGE + LEFT, len(step.replies) or 1
        label = "at once" if step.rate == float("inf") else f"{step.rate:g} / s"
        canvas.text(EDGE, y + 15, label, 13, bold=True)
        for found in [*COLORS, *sorted(step.kinds.keys() - COLORS.keys())]:
            part = room * step.kinds.get(found, 0) / total
            if part:
                canvas.rect(x, y, part, BAR, COLORS.get(found, OTHER), radius=0)
                x += part
        median, most = step.first_token(0.5), step.first_token(0.95)
        times = (
            "no answer" if median is None or most is None else f"first token {number(median)} s, p95 {number(most)} s"
        )
        late = most is None or most > objective
        canvas.text(WIDE - EDGE - RIGHT + 14, y + 15, fitted(times, RIGHT - 14, 12.5), 12.5, "red" if late else "ink")
    canvas.legend(height - 24, [(color, False, found) for found, color in [*COLORS.items(), ("other", OTHER)]])
    return canvas.rendered()
