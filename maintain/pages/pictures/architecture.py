"""Draws the folders of the product, and what each of them imports, as the code has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

from gke_ai.registered.report.drawing import svg
from gke_ai.registered.report.graph import Box, Child, Graph
from gke_ai.svg import wrapped
from maintain import import_graph
from tests.repository import ROOT

# Less than the width of a column, so that no line is cut.
TEXT_WIDTH, TEXT_SIZE = 134, 11.5
# Layers in the box of another one, and one that imports all: the picture stays as wide as a page.
REHEARSE = "forecast.rehearse"
TOGETHER = dict.fromkeys(("forecast.compare", "forecast.simulate", "forecast.when"), REHEARSE)
LEFT_OUT = "cli"


def drawn() -> str:
    """The architecture as SVG."""
    imports = together(import_graph.graph())
    boxes = {name: box(name) for name in imports}
    return svg(
        Graph(boxes, frozenset(edges(imports))), "The folders. Each arrow leads to a folder that imports another"
    )


def together(graph: Mapping[str, Set[str]]) -> dict[str, set[str]]:
    """The graph of what the picture shows."""
    imports: dict[str, set[str]] = {}
    for name, direct in graph.items():
        if name != LEFT_OUT:
            imports.setdefault(TOGETHER.get(name, name), set()).update(TOGETHER.get(other, other) for other in direct)
    return {name: direct - {name, LEFT_OUT} for name, direct in imports.items()}


def box(name: str) -> Box:
    """A folder or layer, with the first sentence of its docstring."""
    place = import_graph.place(name)
    title = f"{place.relative_to(ROOT)}{'/' if place.is_dir() else ''}"
    beside = ". Beside it: compare, simulate, when" if name == REHEARSE else ""
    lines = wrapped(import_graph.described(name).replace("`", "") + beside, TEXT_WIDTH, TEXT_SIZE)
    return Box(name, title, kind="", children=tuple(map(Child, lines)))


def edges(imports: Mapping[str, Set[str]]) -> Iterator[tuple[str, str]]:
    """The imports, without those that another import includes."""
    for name, direct in imports.items():
        indirect = {other for middle in direct for other in reached(middle, imports)}
        for other in direct - indirect:
            yield other, name


def reached(name: str, imports: Mapping[str, Set[str]]) -> set[str]:
    """All that a folder imports, through others too."""
    return set(imports[name]).union(*(reached(other, imports) for other in imports[name]))
