"""Imports go one way: each folder imports only the folders below it, and the program never imports the emulator."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import TopologicalSorter

import pytest

from docs.repository import ROOT, tracked

# What each folder of the root may import, besides itself.
MAY_IMPORT = {
    "catalog": set[str](),
    "settings": {"catalog"},
    "components": {"catalog", "settings"},
    "gke_ai_outputs": set[str](),  # other teams install it alone
    "composition": {"catalog", "components", "gke_ai_outputs", "settings"},
    "__main__": {"composition", "settings"},
    "package": {"catalog", "components", "settings"},
    "resources": {"catalog"},
    "policy": {"catalog", "resources", "settings"},
    # Programs of pods: the standard library only.
    "programs": set[str](),
    "forecast": {"catalog"},
    "ops": {"catalog", "forecast", "resources", "settings"},
    "rehearse": {"catalog", "forecast", "ops", "report", "settings"},
    "report": {"catalog", "forecast", "ops", "resources", "settings"},
    # Programs of users: Python programs that compose components, and a program of another team.
    "examples": {"components", "gke_ai_outputs", "settings"},
    "emulator": {"catalog"},
    # Writes pages and pictures from the product, and runs examples with the recorder of the tests.
    "docs": {
        "catalog",
        "components",
        "forecast",
        "gke_ai_outputs",
        "ops",
        "package",
        "policy",
        "report",
        "settings",
        "tests",
    },
}
# The tests may import everything, and nothing of the product imports them.
FILES = {file: file.relative_to(ROOT).parts[0].removesuffix(".py") for file in tracked("**/*.py")}


def imported(source: str) -> set[str]:
    """The top-level packages that a module imports anywhere."""
    names: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.module, "an import relative to its package"
            names.append(node.module)
    return {name.partition(".")[0] for name in names}


def imports_of(folder: str) -> dict[str, set[str]]:
    """The folders of the project that each file of a folder imports, without the folder itself."""
    return {
        str(file.relative_to(ROOT)): imported(file.read_text()) & {*FILES.values()} - {folder}
        for file, own in FILES.items()
        if own == folder
    }


def test_every_folder_states_what_it_may_import() -> None:
    assert MAY_IMPORT.keys() == {*FILES.values()} - {"tests"}


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_folder_imports_only_what_it_may(folder: str) -> None:
    imports = imports_of(folder)
    assert {file: more for file, names in imports.items() if (more := names - MAY_IMPORT[folder])} == {}
    assert MAY_IMPORT[folder] == set().union(*imports.values()), "remove what no file imports any more"


def test_imports_go_one_way() -> None:
    product = {folder: names - {"tests"} for folder, names in MAY_IMPORT.items()}
    order = list(TopologicalSorter(product).static_order())  # raises CycleError
    assert order.index("catalog") < order.index("settings") < order.index("components") < order.index("composition")


def test_every_form_of_import_is_found() -> None:
    source = "import ops.stack\nfrom report import page\ndef late():\n    from settings.model import Vpc\n"
    assert imported(source) == {"ops", "report", "settings"}


def test_program_builds_only_what_its_configuration_uses() -> None:
    program = (
        "import sys, composition.exports, settings\n"
        "assert not settings.load({}, 'my-project').gpu_pools\n"
        "from settings import model\n"
        "sections = (model.Settings, model.GpuPool, model.Vllm)\n"
        "print('gke_ai_outputs.model' in sys.modules, [s.__name__ for s in sections if s.__pydantic_complete__])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False []\n"
