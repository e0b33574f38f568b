"""Imports go one way: between the folders of the house, and between the rooms of every folder."""

import subprocess
import sys

import pytest

from gke_ai.forecast.rehearse import prepared
from maintain.import_graph import ABOVE, circle, described, imported, imports, inside, mermaid, modules, rooms
from tests.support.repository import ROOT, tracked

# What each folder may import besides itself, from the ground to the top.
MAY_IMPORT: dict[str, set[str]] = {
    "terminal": set(),
    "catalog": set(),
    "pods": set(),
    "gke_ai_outputs": set(),
    "settings": {"catalog"},
    "kube": {"catalog", "terminal"},
    "formats": {"kube", "terminal"},
    "manifests": {"catalog", "settings"},
    "components": {"catalog", "kube", "manifests", "settings"},
    "registered": {"catalog", "kube"},
    "workspace": {"catalog", "kube", "registered", "settings", "terminal"},
    "program": {"catalog", "components", "settings", "workspace"},
    "__main__": {"program", "settings"},
    "ops": {"catalog", "formats", "kube", "manifests", "registered", "settings", "terminal", "workspace"},
    "forecast": {"catalog", "formats", "kube", "manifests", "ops", "settings", "terminal", "workspace"},
    "review": {"catalog", "forecast", "formats", "kube", "registered", "settings", "terminal", "workspace"},
    "policy": {"review"},
    "trial": {"catalog", "formats", "kube", "ops", "registered", "review", "settings", "terminal", "workspace"},
    "cli": {"catalog", "forecast", "kube", "ops", "review", "terminal", "trial", "workspace"},
    "examples": {"components", "gke_ai_outputs", "settings"},
    "emulator": {"catalog", "kube", "workspace"},
}
FOLDERS = sorted({parts[:depth] for parts in modules() for depth in range(len(parts))})


def test_every_folder_states_what_it_may_import() -> None:
    assert {name: others for name, others in rooms().items() if name not in ABOVE} == MAY_IMPORT


def test_the_table_lists_each_folder_after_all_that_it_imports() -> None:
    order = list(MAY_IMPORT)
    above = {name: [other for other in MAY_IMPORT[name] if order.index(other) > order.index(name)] for name in order}
    assert {name: others for name, others in above.items() if others} == {}


@pytest.mark.parametrize("folder", FOLDERS, ids="/".join)
def test_no_folder_has_a_circle_of_imports(folder: tuple[str, ...]) -> None:
    assert circle(inside(folder)) == []


def test_the_program_never_imports_the_emulator() -> None:
    product = {own: others for own, others in imports().items() if own[0] in ("__main__", "gke_ai", "gke_ai_outputs")}
    assert [own for own, others in product.items() if any(other[0] == "emulator" for other in others)] == []


def test_tests_share_their_support_alone_with_the_tools_of_maintainers_and_never_import_them() -> None:
    tools = {own for own in imports() if own[0] == "maintain"}
    of_tests = {other for own in tools for other in imports()[own] if other[0] == "tests"}
    assert {other[1] for other in of_tests} == {"support"}
    assert [own for own, others in imports().items() if own[0] == "tests" and others & tools] == []


def test_no_test_module_is_imported() -> None:
    shared = {own: [other for other in others if other[-1].startswith("test_")] for own, others in imports().items()}
    assert {own: others for own, others in shared.items() if others} == {}


def test_the_picture_of_the_folders_is_that_of_the_imports() -> None:
    assert mermaid(MAY_IMPORT) in (ROOT / "CONTRIBUTING.md").read_text(), "print it: python -m maintain.import_graph"


def test_a_kept_base_belongs_to_all_that_its_program_imports_and_its_pods_run() -> None:
    needed = set[str]()
    folders = ["__main__"]
    while folders:
        new = MAY_IMPORT[folders.pop()] - needed
        needed |= new
        folders += new
    sources = {source.removeprefix("gke_ai/").removesuffix(".py") for source in prepared.SOURCES}
    assert {name.partition(".")[0] for name in needed} <= sources


def test_the_root_has_at_most_10_folders() -> None:
    names = {file.relative_to(ROOT).parts[0] for file in tracked("*/**")}
    assert len([name for name in names if not name.startswith(".")]) <= 10


def test_every_folder_says_in_its_first_lines_what_it_is_for() -> None:
    assert [name for name in rooms() if name not in ("examples", "gke_ai", "pods") and not described(name)] == []


def test_every_form_of_import_is_found() -> None:
    source = "import a.stack\nfrom b import page\ndef late():\n    from c.model import Vpc\n"
    assert imported(source) == {"a.stack", "b.page", "c.model.Vpc"}


def test_a_circle_is_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}}) != []
    assert circle({"a": {"b", "c"}, "b": {"c"}}) == []


def test_program_builds_only_what_its_configuration_uses() -> None:
    program = (
        "import sys, gke_ai.program.outputs\nfrom gke_ai import settings\n"
        "assert not settings.load({}, 'my-project').node_pools\n"
        "from gke_ai.settings import model\n"
        "sections = (model.Settings, model.GpuPool, model.Vllm)\n"
        "print('gke_ai_outputs.model' in sys.modules, [s.__name__ for s in sections if s.__pydantic_complete__])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False []\n"
