"""The folders of the repository, and which of them each imports: `python -m maintain.import_graph` draws them."""

import ast
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tests.support.repository import ROOT, tracked

Parts = tuple[str, ...]
Graph = Mapping[str, Set[str]]
# Tests and tools of maintainers import everything.
ABOVE = ("tests", "maintain")


@cache
def modules() -> dict[Parts, Path]:
    """The Python files, by the parts of the names by which they are imported."""
    return {parts(file): file for file in tracked("**/*.py")}


def parts(file: Path) -> Parts:
    """The name of a module. The components are imported by a link in `gke_ai`."""
    names = file.relative_to(ROOT).with_suffix("").parts
    return ("gke_ai", *names) if names[0] == "components" else names


def imported(source: str) -> set[str]:
    """The modules, and the names from modules, that a module imports anywhere."""
    names: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.module, "an import relative to its package"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return {*names}


def module(name: str) -> Parts | None:
    """The module of the repository that an imported name is, or belongs to."""
    names = tuple(name.split("."))
    candidates = (candidate for end in (names, names[:-1]) for candidate in (end, (*end, "__init__")))
    return next((candidate for candidate in candidates if candidate in modules()), None)


@cache
def imports() -> dict[Parts, frozenset[Parts]]:
    """The modules of the repository that each module imports."""
    return {
        own: frozenset({found for name in imported(file.read_text()) if (found := module(name))} - {own})
        for own, file in modules().items()
    }


def inside(folder: Sequence[str]) -> Graph:
    """The folders and files of a folder, and which of them each imports."""
    graph: dict[str, set[str]] = defaultdict(set)
    depth = len(folder)
    for own, others in imports().items():
        if own[:depth] == (*folder,):
            room = graph[own[depth]]
            room |= {other[depth] for other in others if other[:depth] == (*folder,)} - {own[depth]}
    return dict(graph)


def rooms() -> Graph:
    """The folders of the root and those of `gke_ai`, and which of them each imports. Files beside these count."""
    graph: dict[str, set[str]] = defaultdict(set)
    for own, others in imports().items():
        graph[room(own)] |= {room(other) for other in others} - {room(own)}
    del graph["__init__"]  # gke_ai/__init__.py imports nothing
    return {name: others - {"__init__"} for name, others in graph.items()}


def room(names: Parts) -> str:
    """The folder of the root, or else of `gke_ai`, that a module is in. `gke_ai/__main__.py` is of the command."""
    if names[0] != "gke_ai":
        return names[0]
    return "cli" if names[1] == "__main__" else names[1]


def circle(graph: Graph) -> list[str]:
    """Rooms that import each other in a circle, or none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def described(name: str) -> str:
    """What a room is for: the first sentence of its docstring."""
    bases = [base / name for base in (ROOT / "gke_ai", ROOT)]
    files = (file for base in bases for file in (base / "__init__.py", base / "__main__.py", base.with_suffix(".py")))
    for file in files:
        if file.exists() and (text := ast.get_docstring(ast.parse(file.read_text()))):
            return " ".join(text.partition("\n\n")[0].split()).partition(". ")[0].rstrip(".")
    return ""


def mermaid(graph: Graph) -> str:
    """The rooms as a graph in Mermaid: each arrow leads to a room that is imported, if none between them is."""
    lines = ["graph TD"]
    for name, direct in sorted(graph.items()):
        if others := sorted(direct - {other for middle in direct for other in reached(middle, graph)}):
            lines.append(f"    {name} --> {' & '.join(others)}")
    return "\n".join(lines)


def reached(name: str, graph: Graph) -> set[str]:
    """All that a room imports, through others too."""
    return set(graph[name]).union(*(reached(other, graph) for other in graph[name]))


if __name__ == "__main__":
    print(mermaid({name: others for name, others in rooms().items() if name not in ABOVE}))
