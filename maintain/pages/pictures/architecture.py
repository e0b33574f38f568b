"""Draws the folders of the product, and what each of them imports, as the code has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

from gke_ai.report.drawing import svg
from gke_ai.report.graph import Box, Child, Graph
from gke_ai.svg import wrapped
from maintain import import_graph
from tests.repository import ROOT

# Less than the width of a column, so that no line is cut.
TEXT_WIDTH, TEXT_SIZE = 134, 11.5


def drawn() -> str:
    """The architecture as SVG."""
    imports = import_graph.graph()
    boxes = {name: box(name) for name in imports}
    return svg(
        Graph(boxes, frozenset(edges(imports))), "The folders. Each arrow leads to a folder that imports another"
    )


def box(name: str) -> Box:
    """A folder or layer, with the first sentence of its docstring."""
    place = import_graph.place(name)
    title = f"{place.relative_to(ROOT)}{'/' if place.is_dir() else ''}"
    lines = wrapped(import_graph.described(name).replace("`", ""), TEXT_WIDTH, TEXT_SIZE)
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
