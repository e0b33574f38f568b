"""The folders and layers of the product, and which of them each imports, read from the code."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.repository import ROOT, tracked

# Parts of a folder that stand above or apart from the rest of it.
LAYERS = (
    *("components.program", "components.plugin", "components.pods"),
    *(
        "forecast.compare",
        "forecast.rehearse",
        "forecast.render",
        "forecast.simulate",
        "forecast.snapshot",
        "forecast.when",
    ),
    *("registered.gitops", "registered.policy", "registered.report"),
)
# Files that belong to no folder of a subject.
APART = {"gke_ai/__init__.py"}


@cache
def files() -> dict[str, tuple[str, ...]]:
    """The Python files of the repository, each with the parts of its module's name."""
    paths = (file.relative_to(ROOT) for file in tracked("**/*.py"))
    return {str(path): path.with_suffix("").parts for path in paths if str(path) not in APART}


def layer(parts: Sequence[str]) -> str:
    """The layer that a module belongs to, or else its folder: in `gke_ai`, the folder inside it."""
    first, second, *_ = (*(parts[1:] if parts[0] == "gke_ai" else parts), "", "")
    return f"{first}.{second}" if f"{first}.{second}" in LAYERS else first


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


def imports_of(own: str) -> dict[str, set[str]]:
    """The folders and layers of the project that each file of one imports, without itself."""
    known = {layer(parts) for parts in files().values()}
    return {
        file: {layer(tuple(name.split("."))) for name in imported((ROOT / file).read_text())} & known - {own}
        for file, parts in files().items()
        if layer(parts) == own
    }


@cache
def graph() -> dict[str, frozenset[str]]:
    """What each folder and layer imports. Tests and tools of maintainers import everything, and are not in it."""
    known = {layer(parts) for parts in files().values()} - {"maintain", "tests"}
    return {own: frozenset().union(*imports_of(own).values()) for own in sorted(known)}


def place(own: str) -> Path:
    """The folder or file of a folder or layer, where the links of `gke_ai` lead."""
    bases = [ROOT.joinpath(*folder, *own.split(".")) for folder in (("gke_ai",), ())]
    return next(path.resolve() for base in bases for path in (base, base.with_suffix(".py")) if path.exists())


def described(own: str) -> str:
    """What a folder or layer is for: the first sentence of its docstring."""
    folder = place(own)
    inside = folder.glob("*/__init__.py") if own in LAYERS else ()
    for file in (folder / "__init__.py", folder / "__main__.py", folder.with_suffix(".py"), *inside):
        if file.exists() and (text := ast.get_docstring(ast.parse(file.read_text()))):
            return " ".join(text.partition("\n\n")[0].split()).partition(". ")[0].rstrip(".")
    return ""
