"""The graph of a stack as an SVG picture."""

from __future__ import annotations

from gke_ai.formats.svg import Canvas, fits, fitted, width
from gke_ai.review.report.changes import CREATE, DELETE, LEAVE, REPLACE, UPDATE
from gke_ai.review.report.graph import MARKS, Box, Graph
from gke_ai.review.report.layout import (
    LINE,
    MARGIN,
    NAME_LINE,
    NAME_SIZE,
    PLAIN,
    RIGHT,
    SIGNED,
    TEXT_SIZE,
    box_height,
    laid_out,
    name_lines,
)

# Color of a component's edge if nothing is marked, by its subject.
_COLORS = {"Cluster": "blue", "Pool": "blue", "Class": "blue", "Bucket": "teal", "Kueue": "violet", "Queue": "violet"}
_WORKLOAD_COLOR = "green"
_OTHER_COLOR = "amber"


def svg(drawn: Graph, title: str) -> str:
    """Returns the picture, with a legend if changes are marked."""
    layout = laid_out(drawn)
    of_boxes = {box.operation for box in drawn.boxes.values()}
    used = of_boxes | {child.operation for box in drawn.boxes.values() for child in box.children}
    operations = [operation for operation in MARKS if operation in used]
    legend = 30 if drawn.marked else 0
    canvas = Canvas(layout.width, layout.height + legend, title)
    canvas.rect(0, 0, canvas.width, canvas.height, "page", radius=12)
    for points in layout.edges.values():
        canvas.arrow(points, "line")
    for urn, (x, y, room) in sorted(layout.places.items(), key=lambda item: item[1]):
        draw_box(canvas, drawn.boxes[urn], x, y, room, drawn.marked)
    if drawn.marked:
        x = float(MARGIN)
        same = ("no symbol: unchanged" if None in of_boxes else "") if operations else "nothing changes"
        for operation in operations:
            symbol, color, word = MARKS[operation]
            canvas.text(x, layout.height + 10, symbol, 14, color, bold=True)
            canvas.text(x + 16, layout.height + 10, word, 12, "muted")
            x += 16 + width(word, 12) + 22
        canvas.text(x, layout.height + 10, same, 12, "muted")
    return canvas.rendered()


def draw_box(canvas: Canvas, box: Box, x: float, y: float, wide: float, marked: bool) -> None:
    """Draws a component: its name, its class, and its children as lines."""
    symbol, color, _ = MARKS[box.operation] if box.operation else ("", "line" if marked else color_of(box), "")
    heavy = 2 if box.operation in (CREATE, UPDATE, REPLACE, DELETE) else 1
    canvas.rect(x, y, wide, box_height(box, wide), "card", color, thick=heavy, dashed=box.operation in (DELETE, LEAVE))
    left = x + (SIGNED if box.operation else PLAIN)
    room = x + wide - RIGHT - left
    if symbol:
        canvas.text(x + 12, y + 22, symbol, 16, color, bold=True)
    elif not marked:
        canvas.rect(x, y + 8, 4, box_height(box, wide) - 16, color, radius=2)
    line = y + 22
    for index, text in enumerate(name_lines(box, wide)):
        line = y + 22 + NAME_LINE * index
        canvas.text(left, line, text, NAME_SIZE, bold=True)
    subtitle = box.subtitle if fits(box.subtitle, room, TEXT_SIZE) else box.kind
    canvas.text(left, line + LINE, fitted(subtitle, room, TEXT_SIZE), TEXT_SIZE, "muted")
    for index, child in enumerate(box.children):
        below = line + 36 + LINE * index
        if child.operation:
            mark, tone, _ = MARKS[child.operation]
            canvas.text(x + 13, below, mark, 13, tone, bold=True)
        canvas.text(left, below, fitted(child.text, room, TEXT_SIZE), TEXT_SIZE)


def color_of(box: Box) -> str:
    """Returns the color of a box without a mark."""
    for word, color in _COLORS.items():
        if word in box.kind:
            return color
    return _WORKLOAD_COLOR if box.kind.endswith(("Server", "Job")) else _OTHER_COLOR
