"""Imports go one way: each folder imports only the folders below it, and the program never imports the emulator."""

from __future__ import annotations

import subprocess
import sys
from graphlib import TopologicalSorter

import pytest

from maintain.import_graph import described, graph, imported, imports_of
from tests.repository import ROOT, tracked

# What each folder of the root, and each layer of one, may import besides itself.
MAY_IMPORT = {
    "catalog": set[str](),
    "settings": {"catalog"},
    "manifests": {"catalog", "settings"},
    "components": {"catalog", "kube", "manifests", "settings"},
    "gke_ai_outputs": set[str](),  # other teams install it alone
    "components.program": {"catalog", "components", "gke_ai_outputs", "settings"},
    "__main__": {"components.program", "settings"},
    "components.plugin": {"catalog", "components", "settings"},
    # Programs of pods: the standard library only.
    "components.pods": set[str](),
    "registered": {"catalog", "kube", "settings"},
    "kube": {"catalog", "terminal"},
    # The folder of the Pulumi policy pack.
    "policy": {"registered.policy"},
    "registered.policy": {"catalog", "kube", "registered", "settings"},
    "ops": {"catalog", "console", "emulation", "kube", "manifests", "registered", "settings", "svg", "terminal"},
    "svg": set[str](),
    "console": {"terminal"},
    "terminal": set[str](),
    "emulation": set[str](),
    # The future of a queue. A forecast is plain data; what makes one is above it, and uses commands and the report.
    "forecast": {"catalog", "emulation", "kube", "terminal"},
    "forecast.snapshot": {"catalog", "kube", "ops", "terminal"},
    "forecast.compare": {"catalog", "console", "forecast", "forecast.snapshot", "kube", "ops", "terminal"},
    "forecast.render": {"catalog", "console", "forecast", "kube", "registered", "svg"},
    "registered.report": {
        *("catalog", "forecast", "forecast.render", "kube", "ops", "registered", "settings"),
        "svg",
        "terminal",
    },
    "registered.gitops": {"catalog", "kube", "ops", "registered", "registered.report", "terminal"},
    "forecast.rehearse": {
        *(
            "catalog",
            "emulation",
            "forecast",
            "forecast.render",
            "forecast.snapshot",
            "kube",
            "ops",
            "registered",
            "registered.report",
        ),
        *("console", "settings", "terminal"),
    },
    "forecast.simulate": {
        *("catalog", "components", "components.program", "console", "emulation", "forecast", "forecast.rehearse"),
        *("forecast.render", "forecast.snapshot", "kube", "ops", "registered", "settings", "terminal"),
    },
    "forecast.when": {
        *("catalog", "forecast", "forecast.rehearse", "forecast.render", "forecast.simulate", "forecast.snapshot"),
        *("console", "kube", "ops", "settings", "terminal"),
    },
    "trial": {
        *("catalog", "console", "emulation", "kube", "ops", "registered", "registered.report", "settings", "terminal"),
    },
    # The command, above everything: a verb imports what it runs.
    "cli": {
        *("catalog", "forecast", "forecast.compare", "forecast.rehearse", "forecast.simulate", "forecast.snapshot"),
        *("emulation", "forecast.when", "kube", "ops", "registered", "registered.gitops", "registered.report"),
        *("terminal", "trial"),
    },
    # Programs of users: Python programs that compose components, and a program of another team.
    "examples": {"components", "gke_ai_outputs", "settings"},
    "emulator": {"catalog", "emulation", "kube"},
}


def test_every_folder_states_what_it_may_import() -> None:
    assert MAY_IMPORT.keys() == graph().keys()


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_folder_imports_only_what_it_may(folder: str) -> None:
    imports = imports_of(folder)
    assert {file: more for file, names in imports.items() if (more := names - MAY_IMPORT[folder])} == {}
    assert MAY_IMPORT[folder] == graph()[folder], "remove what no file imports any more"


def test_imports_go_one_way() -> None:
    order = list(TopologicalSorter(MAY_IMPORT).static_order())  # raises CycleError
    layers = ("catalog", "settings", "components", "components.program", "__main__")
    assert [name for name in order if name in layers] == [*layers]


def test_the_root_has_at_most_10_folders() -> None:
    names = {file.relative_to(ROOT).parts[0] for file in tracked("*/**")}
    assert len([name for name in names if not name.startswith(".")]) <= 10


def test_every_folder_says_in_its_first_lines_what_it_is_for() -> None:
    assert [folder for folder in graph() if folder != "examples" and not described(folder)] == []


def test_every_form_of_import_is_found() -> None:
    source = "import a.stack\nfrom b import page\ndef late():\n    from c.model import Vpc\n"
    assert imported(source) == {"a.stack", "b.page", "c.model.Vpc"}


def test_program_builds_only_what_its_configuration_uses() -> None:
    program = (
        "import sys, gke_ai.components.program.outputs\nfrom gke_ai import settings\n"
        "assert not settings.load({}, 'my-project').node_pools\n"
        "from gke_ai.settings import model\n"
        "sections = (model.Settings, model.GpuPool, model.Vllm)\n"
        "print('gke_ai_outputs.model' in sys.modules, [s.__name__ for s in sections if s.__pydantic_complete__])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False []\n"
