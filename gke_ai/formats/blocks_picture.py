"""Draws the blocks of the network: sub-blocks, nodes, and which run has which GPUs, before and after a change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from string import ascii_lowercase, ascii_uppercase

from gke_ai.formats.svg import EDGE, LINE, Canvas, fitted, width, wrapped
from gke_ai.kube.blocks import BlockNode, pods_by_run
from gke_ai.terminal import Stop

# A letter identifies a run, also where colors repeat or look alike. Runs without a letter share the last sign.
COLORS = ("blue", "amber", "violet", "teal", "red", "green")
LETTERS = f"{ascii_uppercase}{ascii_lowercase}+"
GAP = 32.0
# A node: its width and height, the GPUs in it, and the height of its name below. A row has the height of all.
CELL, BOX, BAR, ROW = 120.0, 30.0, 18.0, 52.0
HEADER, SUBBLOCK, BELOW = 34.0, 18.0, 14.0
PER_ROW = 4
SIDE = PER_ROW * (CELL + 8) + 16
MAX_NODES = 256
SIZE, SMALL = 12.0, 11.0
# GPUs that would be narrower, such as shares of one in time, are one rectangle.
MIN_SQUARE = 4.0

# Block, sub-block, host, and the place among the nodes of a host: where a node is, also if another one replaces it.
Place = tuple[str, str, str, int]
Nodes = Mapping[Place, BlockNode]
Sides = Mapping[str, Nodes]
# Letter and color of each run.
Runs = Mapping[str, tuple[str, str]]


def of_cluster(name: str, nodes: Sequence[BlockNode]) -> str:
    """The blocks of a cluster now. Stops if no node has a block."""
    if not nodes:
        raise Stop(f"No node of {name} has a label of its block, so there is nothing to draw: docs/topology.md.")
    used, total = sum(node.used for node in nodes), sum(node.accelerators for node in nodes)
    return drawn(f"{name}: {used} of {total} GPUs in blocks are used", {"": nodes})


def drawn(headline: str, placements: Mapping[str, Sequence[BlockNode]]) -> str:
    """The nodes of each side as SVG: the sides are beside each other, each block at one height."""
    sides = {title: _places(nodes) for title, nodes in placements.items()}
    places = sorted({place for side in sides.values() for place in side})
    shown = _shown(places, sides)
    runs = _runs([{place: side[place] for place in shown if place in side} for side in sides.values()])
    wide = 2 * EDGE + SIDE * len(sides) + GAP * (len(sides) - 1)
    lines = wrapped(headline, wide - 2 * EDGE, 17, True)
    explained = wrapped(_explanation(sides), wide - 2 * EDGE, SIZE)
    top = 38 + LINE * (len(lines) - 1) + 16 * len(explained) + (42 if len(sides) > 1 else 18)
    base = top + sum(_height(block) for block in _by(shown, 1))
    listed = [*runs][: len(LETTERS) - 1]
    more = len(runs) - len(listed)
    notes = [f"{LETTERS[-1]} is {'another run' if more == 1 else f'{more} other runs'}."] if more else []
    if hidden := len({place[0] for place in places}) - len({place[0] for place in shown}):
        notes.append(f"{hidden} more block{'s are' if hidden > 1 else ' is'} not shown.")
    canvas = Canvas(wide, base + LINE * (len(listed) + len(notes)) + 20, _alternative(headline, listed, sides))
    canvas.page(lines)
    for number, line in enumerate(explained):
        canvas.text(EDGE, 38 + LINE * (len(lines) - 1) + 22 + 16 * number, line, SIZE, "muted")
    first = next(iter(sides.values()))
    for number, (title, side) in enumerate(sides.items()):
        left = EDGE + number * (SIDE + GAP)
        if len(sides) > 1:
            canvas.text(left, top - 10, title, 14, bold=True)
        _side(canvas, left, top, shown, side, first, runs)
    y = base + 8
    for run in listed:
        _legend(canvas, y, run, runs[run], sides)
        y += LINE
    for note in notes:
        canvas.text(EDGE, y + 4, note, SIZE, "muted")
        y += LINE
    return canvas.rendered()


def _places(nodes: Sequence[BlockNode]) -> dict[Place, BlockNode]:
    seen: Counter[tuple[str, str, str]] = Counter()
    result = {}
    for node in sorted(nodes):
        on_host = (node.block, node.subblock, node.host or node.name)
        result[*on_host, seen[on_host]] = node
        seen[on_host] += 1
    return result


def _shown(places: Sequence[Place], sides: Sides) -> list[Place]:
    """The places of the blocks that the picture has: of many, those in which something changes, then the first."""
    by_block = {block[0][0]: block for block in _by(places, 1)}

    def is_same(block: str) -> bool:
        uses = [[side[place].uses if place in side else None for place in by_block[block]] for side in sides.values()]
        return all(other == uses[0] for other in uses)

    shown: list[Place] = []
    for block in sorted(by_block, key=lambda block: (is_same(block), block)):
        if not shown or len(shown) + len(by_block[block]) <= MAX_NODES:
            shown += by_block[block]
    return sorted(shown)


def _by(places: Sequence[Place], labels: int) -> Iterator[list[Place]]:
    for _, group in groupby(places, lambda place: place[:labels]):
        yield [*group]


def _runs(sides: Sequence[Nodes]) -> Runs:
    """Letter and color of each run: those that are elsewhere afterwards come first."""
    states = [pods_by_run(side.values()) for side in sides]
    names = {name for state in states for name in state}
    ordered = sorted(names, key=lambda name: (all(state.get(name) == states[0].get(name) for state in states), name))
    return {
        name: (LETTERS[min(number, len(LETTERS) - 1)], COLORS[number % len(COLORS)])
        for number, name in enumerate(ordered)
    }


def _height(block: Sequence[Place]) -> float:
    return HEADER + sum(SUBBLOCK + ROW * _rows(subblock) for subblock in _by(block, 2)) + BELOW


def _rows(subblock: Sequence[Place]) -> int:
    return -(-len(subblock) // PER_ROW)


def _side(
    canvas: Canvas, left: float, top: float, places: Sequence[Place], side: Nodes, first: Nodes, runs: Runs
) -> None:
    """All blocks of a side, downwards."""
    y = top
    for block in _by(places, 1):
        nodes = [side[place] for place in block if place in side]
        canvas.rect(left, y, SIDE, _height(block) - BELOW, "card", "line")
        used, total = sum(node.used for node in nodes), sum(node.accelerators for node in nodes)
        count = f"{used} of {total} used" if nodes else "no nodes"
        canvas.text(left + SIDE - 12, y + 21, count, SIZE, "muted", anchor="end")
        room = SIDE - 36 - width(count, SIZE)
        canvas.text(left + 12, y + 21, fitted(f"Block {block[0][0]}", room, 13, True), 13, bold=True)
        row = y + HEADER
        for subblock in _by(block, 2):
            name = f"Sub-block {subblock[0][1]}" if subblock[0][1] else "no sub-block"
            canvas.text(left + 12, row + 8, fitted(name, SIDE - 24, SMALL), SMALL, "muted")
            row += SUBBLOCK
            for number, place in enumerate(subblock):
                x = left + 12 + number % PER_ROW * (CELL + 8)
                _node(canvas, x, row + number // PER_ROW * ROW, side.get(place), first.get(place), runs)
            row += ROW * _rows(subblock)
        y += _height(block)


def _node(canvas: Canvas, x: float, y: float, node: BlockNode | None, first: BlockNode | None, runs: Runs) -> None:
    """A node with its GPUs, from left to right by run, and its name. A heavy outline marks a change."""
    changed = (node and (node.name, node.uses, node.closed)) != (first and (first.name, first.uses, first.closed))
    outline, thick = ("ink", 2) if changed else ("line", 1)
    canvas.rect(x, y, CELL, BOX, "page", outline, radius=4, thick=thick, dashed=node is None)
    if node is None:
        canvas.text(x + CELL / 2, y + BOX / 2 + 4, "no node", SMALL, "muted", anchor="middle")
        return
    number = max(node.accelerators, node.used)
    unit = (CELL - 12) / max(number, 1)
    at = x + 6
    for use in node.uses:
        letter, color = runs[use.run]
        room = unit * use.accelerators
        canvas.rect(at + 0.5, y + 6, room - 1, BAR, color, radius=2)
        canvas.text(at + room / 2, y + 6 + BAR - 5, letter, SIZE, "page", bold=True, anchor="middle")
        at += room
    free = 0 if node.closed else number - node.used
    squares = free if unit > MIN_SQUARE else min(free, 1)
    for place in range(squares):
        square = unit * free / squares
        canvas.rect(at + square * place + 1, y + 6.5, square - 2, BAR - 1, "page", "line", radius=2)
    name = f"{node.name}, closed" if node.closed else node.name
    canvas.text(x + CELL / 2, y + BOX + 12, _ending(name, CELL), SMALL, "muted", anchor="middle")


def _ending(name: str, room: float) -> str:
    """A name without its beginning if it does not fit: names of nodes differ at the end."""
    return fitted(name[::-1], room, SMALL)[::-1]


def _legend(canvas: Canvas, y: float, run: str, mark: tuple[str, str], sides: Sides) -> None:
    """A row per run: its letter, its name, and how many pods it has in which block."""
    letter, color = mark
    canvas.rect(EDGE, y - 8, 20, 16, color, radius=3)
    canvas.text(EDGE + 10, y + 4, letter, SIZE, "page", bold=True, anchor="middle")
    name = fitted(run, (canvas.width - 2 * EDGE) / 2, 13, True)
    canvas.text(EDGE + 30, y + 4, name, 13, bold=True)
    x = EDGE + 42 + width(name, 13, True)
    canvas.text(x, y + 4, fitted(_where(run, sides), canvas.width - EDGE - x, SIZE), SIZE, "muted")


def _where(run: str, sides: Sides) -> str:
    """Where a run has its pods, on each side."""
    texts = []
    for side in sides.values():
        blocks = pods_by_run(side.values()).get(run, Counter[str]())
        pods = [f"{count} {'pod' if count == 1 else 'pods'} in {block}" for block, count in blocks.items()]
        texts.append(", ".join(pods) or "no pods")
    return " → ".join(dict.fromkeys(texts))


def _explanation(sides: Sides) -> str:
    texts = ["A box is a node. Each letter is a run that has GPUs of it, and each empty square a free GPU."]
    if any(node.closed for side in sides.values() for node in side.values()):
        texts.append("A closed node is cordoned, or not Ready.")
    if len(sides) > 1:
        texts.append("A heavy outline marks what differs from the left side.")
    return " ".join(texts)


def _alternative(headline: str, runs: Iterable[str], sides: Sides) -> str:
    """The picture in words, for screen readers."""
    return " ".join([headline, *(f"{run}: {_where(run, sides)}." for run in runs)])
