"""The graph of a stack as a picture: its components as boxes, what waits for what as lines, what changes marked."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from report.changes import (
    CREATE,
    DELETE,
    LEAVE,
    OPERATIONS,
    REPLACE,
    STACK,
    UPDATE,
    Plan,
    Resource,
    component_of,
)
from report.svg import Canvas, fitted, width

# Symbol, colour and word of each operation.
MARKS = {
    CREATE: ("+", "green", "created"),
    UPDATE: ("~", "amber", "changed"),
    REPLACE: ("±", "violet", "replaced"),
    DELETE: ("−", "red", "deleted"),
    LEAVE: ("○", "muted", "left alone"),
}
# Colour of a component's edge where nothing is marked: what it is about.
_KINDS = {"Cluster": "blue", "Pool": "blue", "Class": "blue", "Bucket": "teal", "Kueue": "violet", "Queue": "violet"}
_WORK = "green"
_AROUND = "amber"

ROW_GAP, MARGIN = 22, 24
LINE, NAME_LINE, HEAD = 17, 18, 50
# Between columns: less where there are many.
GAP, SMALL_GAP, MANY = 54, 36, 5
MAX_CHILDREN = 4
WIDEST = 1200
# A column is as wide as its longest text, within these.
NARROW, BROAD = 160, 250
NAME_SIZE, TEXT_SIZE = 13.5, 11.5
# Room on the left, without and with a symbol, and on the right.
PLAIN, SIGNED, RIGHT = 14, 30, 12


@dataclass(frozen=True)
class Child:
    """Resources of one kind in a component: one that changes, or how many that don't."""

    text: str
    operation: str | None = None


@dataclass(frozen=True)
class Box:
    """A component, or a resource in none."""

    id: str
    name: str
    kind: str
    namespace: str = ""
    children: tuple[Child, ...] = ()
    operation: str | None = None

    @property
    def subtitle(self) -> str:
        """What it is, and where."""
        return f"{self.kind} in {self.namespace}" if self.namespace else self.kind

    def height(self, wide: float) -> float:
        """How high it is drawn at a width."""
        names = len(name_lines(self, wide))
        return HEAD + NAME_LINE * (names - 1) + LINE * len(self.children) + (8 if self.children else 0)


@dataclass(frozen=True)
class Graph:
    """Boxes, and the edges from what comes first to what waits for it."""

    boxes: Mapping[str, Box]
    edges: frozenset[tuple[str, str]]
    marked: bool = False


def of_plan(plan: Plan) -> Graph:
    """The graph of a plan, with what goes as well as what comes."""
    return graph({**plan.before, **plan.after}.values(), {one.resource.urn: one.operation for one in plan.changes})


def graph(resources: Iterable[Resource], operations: Mapping[str, str] | None = None) -> Graph:
    """The graph of resources, by component; with operations by URN, what changes is marked."""
    # What a default provider needs is no part of the system.
    known = {
        one.urn: one
        for one in resources
        if one.type != STACK and not (one.type.startswith("pulumi:providers:") and "default" in one.logical_name)
    }
    owner = {urn: (component_of(one, known) or one).urn for urn, one in known.items()}
    members: dict[str, list[Resource]] = defaultdict(list)
    for urn, one in sorted(known.items()):
        members[owner[urn]].append(one)
    boxes = {
        urn: box(known[urn], [one for one in found if one.urn != urn], operations or {})
        for urn, found in members.items()
        # A component that made nothing has nobody waiting for it.
        if not (known[urn].is_component and len(found) == 1)
    }
    edges = {
        (owner[first], owner[urn])
        for urn, one in known.items()
        for first in one.dependencies
        if {owner.get(first), owner[urn]} <= boxes.keys() and owner[first] != owner[urn]
    }
    return Graph(boxes, frozenset(reduced(acyclic(edges))), operations is not None)


def box(one: Resource, children: list[Resource], operations: Mapping[str, str]) -> Box:
    """The box of a component: the children that change by name, the others by how many there are of each kind."""
    children = [child for child in children if not child.is_component]
    changed = [child for child in children if child.urn in operations]
    own = [operations[child.urn] for child in [one, *children] if child.urn in operations]
    worst = min(own, key=OPERATIONS.index, default=None)
    # A component is new or gone only where all of it is; gone, and left alone in the cluster, is still left alone.
    if worst in (CREATE, DELETE, LEAVE) and (len(changed) < len(children) or len(set(own)) > 1):
        worst = LEAVE if set(own) == {DELETE, LEAVE} and len(changed) == len(children) else UPDATE
    same = Counter(child.kind for child in children if child.urn not in operations)
    lines = [Child(f"{child.kind} {short(child.name)}", operations[child.urn]) for child in changed]
    kinds = Counter(child.kind for child in children)
    if len(lines) > MAX_CHILDREN:
        by_kind = Counter((operations[child.urn], child.kind) for child in changed)
        ordered = sorted(by_kind.items(), key=lambda item: (OPERATIONS.index(item[0][0]), item[0][1]))
        lines = [Child(counted(kind, count), operation) for (operation, kind), count in ordered]
    if not operations or (worst in (CREATE, DELETE) and lines):
        lines = [Child(counted(kind, count)) for kind, count in sorted(kinds.items())]
    elif same and lines:
        lines.append(Child(f"{sum(same.values())} more as they are"))
    if len(lines) > MAX_CHILDREN:
        rest = len(lines) - MAX_CHILDREN + 1
        lines = [*lines[: MAX_CHILDREN - 1], Child(f"and {rest} kinds more")]
    name = one.logical_name if one.is_component else one.name
    return Box(one.urn, short(name), one.kind, name.rpartition("/")[0], tuple(lines), worst)


def counted(kind: str, count: int) -> str:
    """A kind, and how many there are where it isn't one."""
    return kind if count == 1 else f"{count} × {kind}"


def short(name: str) -> str:
    """A name without its namespace."""
    return name.rpartition("/")[2] or name


def acyclic(edges: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Edges without those that close a circle: two components may each need a part of the other."""
    after = defaultdict(list)
    for first, second in sorted(edges):
        after[first].append(second)
    kept: set[tuple[str, str]] = set()
    done: set[str] = set()

    def visit(one: str, above: frozenset[str]) -> None:
        for other in after[one]:
            if other not in above:
                kept.add((one, other))
                if other not in done:
                    visit(other, above | {other})
        done.add(one)

    for one in sorted(after):
        if one not in done:
            visit(one, frozenset([one]))
    return kept


def reduced(edges: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Edges that don't follow from others."""
    after: dict[str, set[str]] = defaultdict(set)
    for first, second in edges:
        after[first].add(second)

    def reach(one: str) -> set[str]:
        found: set[str] = set()
        open_ends = [*after[one]]
        while open_ends:
            found.add(other := open_ends.pop())
            open_ends += after[other] - found
        return found

    far = {one: reach(one) for one in {end for edge in edges for end in edge}}
    return {
        (first, second)
        for first, second in edges
        if not any(second in far[between] for between in after[first] if between != second)
    }


@dataclass(frozen=True)
class Layout:
    """Where each box is (left, top, width), and the points that each edge goes through."""

    places: Mapping[str, tuple[float, float, float]]
    edges: Mapping[tuple[str, str], tuple[tuple[float, float], ...]]
    width: float
    height: float


def laid_out(drawn: Graph) -> Layout:
    """Layers from left to right, each box behind all that it waits for; ordered so that few lines cross."""
    layer = layers(drawn)
    columns: list[list[str]] = [[] for _ in range(max(layer.values(), default=0) + 1)]
    height: dict[str, float] = {}
    chains: dict[tuple[str, str], list[str]] = {}
    for one in sorted(drawn.boxes, key=lambda urn: (drawn.boxes[urn].kind, urn)):
        columns[layer[one]].append(one)
    for edge in sorted(drawn.edges):
        first, second = edge
        # Where a line passes other layers it takes a place there, so that it goes around their boxes.
        between = [f"{first} → {second} {index}" for index in range(layer[first] + 1, layer[second])]
        for index, one in enumerate(between):
            columns[layer[first] + 1 + index].append(one)
            height[one] = 4
        chains[edge] = [first, *between, second]
    near: dict[str, set[str]] = defaultdict(set)
    for chain in chains.values():
        for one, other in pairwise(chain):
            near[one].add(other)
            near[other].add(one)
    ordered(columns, near)
    widths = column_widths(columns, drawn)
    gap = gap_of(columns)
    lefts = [MARGIN + sum(widths[:index]) + gap * index for index in range(len(columns))]
    height |= {one: found.height(widths[layer[one]]) for one, found in drawn.boxes.items()}
    tops = placed(columns, near, height)
    column_of = {one: index for index, column in enumerate(columns) for one in column}

    def middle(one: str) -> float:
        return tops[one] + height[one] / 2

    edges = {}
    for edge, (first, *passed, last) in chains.items():
        points = [(lefts[layer[first]] + widths[layer[first]], middle(first))]
        for one in passed:
            left = lefts[column_of[one]]
            points += [(left, middle(one)), (left + widths[column_of[one]], middle(one))]
        edges[edge] = (*points, (lefts[layer[last]], middle(last)))
    places = {one: (lefts[layer[one]], tops[one], widths[layer[one]]) for one in drawn.boxes}
    lowest = max((tops[one] + height[one] for one in tops), default=0)
    return Layout(places, edges, MARGIN * 2 + sum(widths) + gap * (len(columns) - 1), lowest + MARGIN)


def column_widths(columns: list[list[str]], drawn: Graph) -> list[float]:
    """The width of each column: that of its longest text, all of them together no wider than a page has room for."""
    wanted = [max((needed(drawn.boxes[one]) for one in column if one in drawn.boxes), default=0) for column in columns]
    room = WIDEST - gap_of(columns) * (len(columns) - 1) - MARGIN * 2
    max_width = float(BROAD)
    while max_width > NARROW and sum(max(NARROW, min(one, max_width)) for one in wanted) > room:
        max_width -= 5
    return [max(NARROW, min(one, max_width)) for one in wanted]


def gap_of(columns: list[list[str]]) -> float:
    """The room between columns."""
    return GAP if len(columns) <= MANY else SMALL_GAP


def needed(one: Box) -> float:
    """How wide a box is with all its text in full."""
    indent = SIGNED if one.operation else PLAIN
    texts = [width(one.name, NAME_SIZE, bold=True), width(one.subtitle, TEXT_SIZE)]
    return indent + RIGHT + max([*texts, *(width(child.text, TEXT_SIZE) for child in one.children)])


def layers(drawn: Graph) -> dict[str, int]:
    """The layer of each box: behind all that it waits for, and what waits for nothing close to what waits for it."""
    before: dict[str, set[str]] = {one: set() for one in drawn.boxes}
    after: dict[str, set[str]] = {one: set() for one in drawn.boxes}
    for first, second in drawn.edges:
        before[second].add(first)
        after[first].add(second)
    layer: dict[str, int] = {}

    def depth(one: str) -> int:
        if one not in layer:
            layer[one] = max((depth(other) + 1 for other in sorted(before[one])), default=0)
        return layer[one]

    for one in sorted(drawn.boxes):
        depth(one)
    for one in sorted(drawn.boxes):
        if not before[one] and after[one]:
            layer[one] = min(layer[other] for other in after[one]) - 1
    return layer


def ordered(columns: list[list[str]], near: Mapping[str, set[str]]) -> None:
    """Orders each column by the middle of its neighbours, forth and back a few times."""
    for sweep in range(8):
        forth = sweep % 2 == 0
        order = range(1, len(columns)) if forth else range(len(columns) - 2, -1, -1)
        for index in order:
            beside = {one: place for place, one in enumerate(columns[index - 1 if forth else index + 1])}
            old = {one: place for place, one in enumerate(columns[index])}

            def centre(one: str, beside: dict[str, int] = beside, old: dict[str, int] = old) -> tuple[float, int]:
                found = [beside[other] for other in near.get(one, ()) if other in beside]
                return (sum(found) / len(found) if found else old[one], old[one])

            columns[index].sort(key=centre)


def placed(columns: list[list[str]], near: Mapping[str, set[str]], height: Mapping[str, float]) -> dict[str, float]:
    """The top of each box: near the middle of its neighbours, in the column's order, without overlap."""
    tops: dict[str, float] = {}
    tallest = max((sum(height[one] + ROW_GAP for one in column) - ROW_GAP for column in columns), default=0)
    for column in columns:
        y = MARGIN + (tallest - sum(height[one] + ROW_GAP for one in column) + ROW_GAP) / 2
        for one in column:
            tops[one] = y
            y += height[one] + ROW_GAP
    joined = [[one for one in column if near.get(one)] for column in columns]
    for _ in range(12):
        for column in joined:
            wanted = {}
            for one in column:
                middles = sorted(tops[other] + height[other] / 2 for other in near[one])
                wanted[one] = sum(middles) / len(middles) - height[one] / 2
            settle(column, wanted, height, tops)
    highest = min((tops[one] for column in joined for one in column), default=0)
    for column, beside in zip(columns, joined, strict=True):
        # What nothing waits for stands below the others.
        y = max((tops[one] + height[one] + ROW_GAP for one in beside), default=highest)
        for one in column:
            if one not in beside:
                tops[one] = y
                y += height[one] + ROW_GAP
    return {one: top - highest + MARGIN for one, top in tops.items()}


def settle(column: list[str], wanted: Mapping[str, float], height: Mapping[str, float], tops: dict[str, float]) -> None:
    """Puts a column as close to where it is wanted as its order and the gaps allow."""
    down: dict[str, float] = {}
    y = float("-inf")
    for one in column:
        down[one] = max(wanted[one], y)
        y = down[one] + height[one] + ROW_GAP
    up: dict[str, float] = {}
    y = float("inf")
    for one in reversed(column):
        up[one] = min(wanted[one], y - height[one])
        y = up[one] - ROW_GAP
    # Halfway between pushing down and pushing up keeps the order and the gaps.
    for one in column:
        tops[one] = (down[one] + up[one]) / 2


def svg(drawn: Graph, title: str) -> str:
    """The picture; with a legend where changes are marked."""
    layout = laid_out(drawn)
    of_boxes = {found.operation for found in drawn.boxes.values()}
    there = of_boxes | {child.operation for found in drawn.boxes.values() for child in found.children}
    operations = [one for one in MARKS if one in there]
    legend = 30 if drawn.marked else 0
    canvas = Canvas(layout.width, layout.height + legend, title)
    canvas.rect(0, 0, canvas.width, canvas.height, "page", radius=12)
    for points in layout.edges.values():
        canvas.arrow(points, "line")
    for one, (x, y, room) in sorted(layout.places.items(), key=lambda item: item[1]):
        draw_box(canvas, drawn.boxes[one], x, y, room, drawn.marked)
    if drawn.marked:
        x = float(MARGIN)
        same = ("no symbol: as it is" if None in of_boxes else "") if operations else "nothing changes"
        for operation in operations:
            symbol, colour, word = MARKS[operation]
            canvas.text(x, layout.height + 10, symbol, 14, colour, bold=True)
            canvas.text(x + 16, layout.height + 10, word, 12, "muted")
            x += 16 + width(word, 12) + 22
        canvas.text(x, layout.height + 10, same, 12, "muted")
    return canvas.rendered()


def draw_box(canvas: Canvas, one: Box, x: float, y: float, wide: float, marked: bool) -> None:
    """A component: its name, its class, and its children folded into lines."""
    symbol, colour, _ = MARKS[one.operation] if one.operation else ("", "line" if marked else colour_of(one), "")
    heavy = 2 if one.operation in (CREATE, UPDATE, REPLACE, DELETE) else 1
    canvas.rect(x, y, wide, one.height(wide), "card", colour, thick=heavy, dashed=one.operation in (DELETE, LEAVE))
    left = x + (SIGNED if one.operation else PLAIN)
    room = x + wide - RIGHT - left
    if symbol:
        canvas.text(x + 12, y + 22, symbol, 16, colour, bold=True)
    elif not marked:
        canvas.rect(x, y + 8, 4, one.height(wide) - 16, colour, radius=2)
    line = y + 22
    for index, text in enumerate(name_lines(one, wide)):
        line = y + 22 + NAME_LINE * index
        canvas.text(left, line, text, NAME_SIZE, bold=True)
    subtitle = one.subtitle if width(one.subtitle, TEXT_SIZE) <= room else one.kind
    canvas.text(left, line + LINE, fitted(subtitle, room, TEXT_SIZE), TEXT_SIZE, "muted")
    for index, child in enumerate(one.children):
        below = line + 36 + LINE * index
        if child.operation:
            mark, tone, _ = MARKS[child.operation]
            canvas.text(x + 13, below, mark, 13, tone, bold=True)
        canvas.text(left, below, fitted(child.text, room, TEXT_SIZE), TEXT_SIZE)


def name_lines(one: Box, wide: float) -> list[str]:
    """The name of a box, broken at a sign where it is too long for its width; two lines at most."""
    room = wide - RIGHT - (SIGNED if one.operation else PLAIN)
    if width(one.name, NAME_SIZE, bold=True) <= room:
        return [one.name]
    breaks = [index + 1 for index, sign in enumerate(one.name[:-1]) if sign in "-._/"]
    fit = [place for place in breaks if width(one.name[:place], NAME_SIZE, bold=True) <= room]
    if not fit:
        return [fitted(one.name, room, NAME_SIZE, bold=True)]
    return [one.name[: fit[-1]], fitted(one.name[fit[-1] :], room, NAME_SIZE, bold=True)]


def colour_of(one: Box) -> str:
    """The colour of a box where nothing is marked."""
    for word, colour in _KINDS.items():
        if word in one.kind:
            return colour
    return _WORK if one.kind.endswith(("Server", "Job")) else _AROUND


def mermaid(drawn: Graph) -> str:
    """The graph in Mermaid's words, which GitHub draws in a comment: components only, what changes marked."""
    ids = {urn: f"c{index}" for index, urn in enumerate(sorted(drawn.boxes))}
    lines = ["graph LR"]
    for urn in sorted(drawn.boxes):
        one = drawn.boxes[urn]
        symbol = f"{MARKS[one.operation][0]} " if one.operation else ""
        text = f"{symbol}{one.name}<br/>{one.kind}".replace('"', "#quot;")
        lines.append(f'  {ids[urn]}["{text}"]{f":::{one.operation}" if one.operation else ""}')
    lines += [f"  {ids[first]} --> {ids[second]}" for first, second in sorted(drawn.edges)]
    strokes = {CREATE: "#2da44e", UPDATE: "#bf8700", REPLACE: "#8250df", DELETE: "#cf222e", LEAVE: "#818b98"}
    used = {one.operation for one in drawn.boxes.values()}
    lines += [f"  classDef {one} stroke:{strokes[one]},stroke-width:3px" for one in MARKS if one in used]
    return "\n".join(lines)
