"""The layout of a graph: boxes in columns by dependency, and the points of the edges between them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import fsum

from gke_ai.formats.svg import fits, fitted, width
from gke_ai.review.report.graph import Box, Graph

ROW_GAP, MARGIN = 22, 24
LINE, NAME_LINE, HEAD = 17, 18, 50
# Gap between columns; small if there are many columns.
GAP, SMALL_GAP, MANY = 54, 36, 5
WIDEST = 1200
# Minimum and maximum width of a column.
NARROW, BROAD = 160, 250
NAME_SIZE, TEXT_SIZE = 13.5, 11.5
# Padding on the left without and with a symbol, and on the right.
PLAIN, SIGNED, RIGHT = 14, 30, 12


@dataclass(frozen=True)
class Layout:
    """The place of each box (left, top, width), and the points of each edge."""

    places: Mapping[str, tuple[float, float, float]]
    edges: Mapping[tuple[str, str], tuple[tuple[float, float], ...]]
    width: float
    height: float


def laid_out(drawn: Graph) -> Layout:
    """Arranges boxes in columns, each right of its dependencies, with few crossing edges."""
    layer = layers(drawn)
    columns: list[list[str]] = [[] for _ in range(max(layer.values(), default=0) + 1)]
    height: dict[str, float] = {}
    chains: dict[tuple[str, str], list[str]] = {}
    for node in sorted(drawn.boxes, key=lambda urn: (drawn.boxes[urn].kind, urn)):
        columns[layer[node]].append(node)
    for edge in sorted(drawn.edges):
        first, second = edge
        # An edge takes a place in each column that it passes, so that it goes around the boxes there.
        between = [f"{first} → {second} {index}" for index in range(layer[first] + 1, layer[second])]
        for index, node in enumerate(between):
            columns[layer[first] + 1 + index].append(node)
            height[node] = 4
        chains[edge] = [first, *between, second]
    near: dict[str, set[str]] = defaultdict(set)
    for chain in chains.values():
        for node, other in pairwise(chain):
            near[node].add(other)
            near[other].add(node)
    ordered(columns, near)
    widths = column_widths(columns, drawn)
    gap = gap_of(columns)
    lefts = [MARGIN + fsum(widths[:index]) + gap * index for index in range(len(columns))]
    height |= {node: box_height(box, widths[layer[node]]) for node, box in drawn.boxes.items()}
    tops = placed(columns, near, height)
    column_of = {node: index for index, column in enumerate(columns) for node in column}

    def middle(node: str) -> float:
        return tops[node] + height[node] / 2

    edges = {}
    for edge, (first, *passed, last) in chains.items():
        points = [(lefts[layer[first]] + widths[layer[first]], middle(first))]
        for node in passed:
            left = lefts[column_of[node]]
            points += [(left, middle(node)), (left + widths[column_of[node]], middle(node))]
        edges[edge] = (*points, (lefts[layer[last]], middle(last)))
    places = {node: (lefts[layer[node]], tops[node], widths[layer[node]]) for node in drawn.boxes}
    lowest = max((tops[node] + height[node] for node in tops), default=0)
    return Layout(places, edges, MARGIN * 2 + fsum(widths) + gap * (len(columns) - 1), lowest + MARGIN)


def column_widths(columns: list[list[str]], drawn: Graph) -> list[float]:
    """Returns the width of each column: that of its longest text, within the width of the page."""
    wanted = [
        max((full_width(drawn.boxes[node]) for node in column if node in drawn.boxes), default=0) for column in columns
    ]
    room = WIDEST - gap_of(columns) * (len(columns) - 1) - MARGIN * 2
    max_width = float(BROAD)
    while max_width > NARROW and fsum(max(NARROW, min(wide, max_width)) for wide in wanted) > room:
        max_width -= 5
    return [max(NARROW, min(wide, max_width)) for wide in wanted]


def gap_of(columns: list[list[str]]) -> float:
    """Returns the gap between columns."""
    return GAP if len(columns) <= MANY else SMALL_GAP


def full_width(box: Box) -> float:
    """Returns the width that a box needs for its complete text."""
    indent = SIGNED if box.operation else PLAIN
    texts = [width(box.name, NAME_SIZE, bold=True), width(box.subtitle, TEXT_SIZE)]
    return indent + RIGHT + max([*texts, *(width(child.text, TEXT_SIZE) for child in box.children)])


def box_height(box: Box, wide: float) -> float:
    """Returns the height of a box at a width."""
    names = len(name_lines(box, wide))
    return HEAD + NAME_LINE * (names - 1) + LINE * len(box.children) + (8 if box.children else 0)


def layers(drawn: Graph) -> dict[str, int]:
    """Returns the column of each box: right of its dependencies; roots are close to their dependents."""
    before: dict[str, set[str]] = {node: set() for node in drawn.boxes}
    after: dict[str, set[str]] = {node: set() for node in drawn.boxes}
    for first, second in drawn.edges:
        before[second].add(first)
        after[first].add(second)
    layer: dict[str, int] = {}

    def depth(node: str) -> int:
        if node not in layer:
            layer[node] = max((depth(other) + 1 for other in sorted(before[node])), default=0)
        return layer[node]

    for node in sorted(drawn.boxes):
        depth(node)
    for node in sorted(drawn.boxes):
        if not before[node] and after[node]:
            layer[node] = min(layer[other] for other in after[node]) - 1
    return layer


def ordered(columns: list[list[str]], near: Mapping[str, set[str]]) -> None:
    """Orders each column by the middle of its neighbors, in a few sweeps forth and back."""
    for sweep in range(8):
        forth = sweep % 2 == 0
        order = range(1, len(columns)) if forth else range(len(columns) - 2, -1, -1)
        for index in order:
            beside = {node: place for place, node in enumerate(columns[index - 1 if forth else index + 1])}
            old = {node: place for place, node in enumerate(columns[index])}

            def center(node: str, beside: dict[str, int] = beside, old: dict[str, int] = old) -> tuple[float, int]:
                positions = [beside[other] for other in near.get(node, ()) if other in beside]
                return (sum(positions) / len(positions) if positions else old[node], old[node])

            columns[index].sort(key=center)


def placed(columns: list[list[str]], near: Mapping[str, set[str]], height: Mapping[str, float]) -> dict[str, float]:
    """Returns the top of each box: near the middle of its neighbors, in column order, without overlap."""
    tops: dict[str, float] = {}
    tallest = max((fsum(height[node] + ROW_GAP for node in column) - ROW_GAP for column in columns), default=0)
    for column in columns:
        y = MARGIN + (tallest - fsum(height[node] + ROW_GAP for node in column) + ROW_GAP) / 2
        for node in column:
            tops[node] = y
            y += height[node] + ROW_GAP
    joined = [[node for node in column if near.get(node)] for column in columns]
    for _ in range(12):
        for column in joined:
            wanted = {}
            for node in column:
                middles = sorted(tops[other] + height[other] / 2 for other in near[node])
                wanted[node] = fsum(middles) / len(middles) - height[node] / 2
            settle(column, wanted, height, tops)
    highest = min((tops[node] for column in joined for node in column), default=0)
    for column, beside in zip(columns, joined, strict=True):
        # Boxes without edges stand below the others.
        y = max((tops[node] + height[node] + ROW_GAP for node in beside), default=highest)
        for node in column:
            if node not in beside:
                tops[node] = y
                y += height[node] + ROW_GAP
    return {node: top - highest + MARGIN for node, top in tops.items()}


def settle(column: list[str], wanted: Mapping[str, float], height: Mapping[str, float], tops: dict[str, float]) -> None:
    """Moves the boxes of a column as close to their wanted places as order and gaps allow."""
    down: dict[str, float] = {}
    y = float("-inf")
    for node in column:
        down[node] = max(wanted[node], y)
        y = down[node] + height[node] + ROW_GAP
    up: dict[str, float] = {}
    y = float("inf")
    for node in reversed(column):
        up[node] = min(wanted[node], y - height[node])
        y = up[node] - ROW_GAP
    # Halfway between pushing down and pushing up keeps the order and the gaps.
    for node in column:
        tops[node] = (down[node] + up[node]) / 2


def name_lines(box: Box, wide: float) -> list[str]:
    """Breaks the name of a box after separators if it is too long."""
    room = wide - RIGHT - (SIGNED if box.operation else PLAIN)
    lines: list[str] = []
    rest = box.name
    while not fits(rest, room, NAME_SIZE, bold=True):
        breaks = [index + 1 for index, sign in enumerate(rest[:-1]) if sign in "-._/"]
        fit = [place for place in breaks if fits(rest[:place], room, NAME_SIZE, bold=True)]
        if not fit:
            break
        lines.append(rest[: fit[-1]])
        rest = rest[fit[-1] :]
    return [*lines, fitted(rest, room, NAME_SIZE, bold=True)]
