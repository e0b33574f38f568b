"""Names of before the package `gke_ai` and the command `gke-ai`: they work until 0.5.0, with a notice.

`settings.model` is then the module `gke_ai.settings.model` itself, not a copy of it.
"""

from __future__ import annotations

import importlib
import importlib.util
import runpy
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import InspectLoader, Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType

# Modules that are elsewhere in `gke_ai` than their former name says.
MOVED = {
    "ops.compare": "forecast.compare",
    "ops.snapshot": "forecast.snapshot",
    "rehearse": "forecast.rehearse",
    "rehearse.simulate": "forecast.simulate",
    "rehearse.simulate.when": "forecast.when",
}


# Verbs of `gke-ai` that were modules, with the words that their first argument stood for.
VERBS: Mapping[str, Mapping[str, str]] = {
    "ops.runs": {"list": "runs", "remove": "remove-run"},
    "forecast.simulate": {"day": "simulate", "generate": "trace-generate", "import": "trace-import"},
    "ops.emulated": {},
}


def verb(module: str, arguments: Sequence[str]) -> list[str]:
    """The arguments of `gke-ai` for those of a module that was a command, such as `ops.runs`."""
    if module not in VERBS:
        name, rest = module.rpartition(".")[2], [*arguments]
    else:
        options = next((number for number, word in enumerate(arguments) if not word.startswith("-")), 0)
        rest = [*arguments[:options], *arguments[options + 1 :]]
        word = arguments[options] if arguments else "--help"
        name = VERBS[module].get(word, word)
    if name in ("logs", "remove-run"):  # --run was an option
        rest = [word for word in rest if word != "--run"]
    # The deletion had no question.
    return [*name.split(), *(["--yes"] if name == "down" else []), *rest]


def run_verb(module: str) -> None:
    """Runs `gke-ai` for a module that was a command. Prints one notice."""
    arguments = verb(module, sys.argv[1:])
    print(f"`python -m gke_ai.{module}` is now `gke-ai {arguments[0]}`. It works until 0.5.0.", file=sys.stderr)
    importlib.import_module("gke_ai.cli").main(arguments)


def current(name: str) -> str:
    """The name of today of a module."""
    parts = name.split(".")
    moved = next((count for count in range(len(parts), 0, -1) if ".".join(parts[:count]) in MOVED), 0)
    return ".".join(["gke_ai", *([MOVED[".".join(parts[:moved])]] if moved else []), *parts[moved:]])


def stand_for(name: str, running_as: str) -> None:
    """Makes a former name mean its module in `gke_ai`, or runs that if `python -m` names it. Prints one notice."""
    if not any(isinstance(finder, _FormerNames) for finder in sys.meta_path):
        print(f"`{name}` is now `{current(name)}`. The former name works until 0.5.0.", file=sys.stderr)
        sys.meta_path.insert(0, _FormerNames())
    if running_as == "__main__":
        runpy.run_module(current(name), run_name="__main__", alter_sys=True)
    else:
        sys.modules[name] = importlib.import_module(current(name))


class _FormerNames(MetaPathFinder):
    """Finds the modules of the packages that have a former name."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package = sys.modules.get(fullname.partition(".")[0])
        if "." not in fullname or package is None or package.__name__ != current(fullname.partition(".")[0]):
            return None
        found = importlib.util.find_spec(current(fullname))
        is_package = found is not None and found.submodule_search_locations is not None
        return ModuleSpec(fullname, _Current(found), is_package=is_package) if found else None


class _Current(Loader):
    """Gives the module of today in place of a new one."""

    def __init__(self, current: ModuleSpec) -> None:
        self._current = current

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return importlib.import_module(self._current.name)

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._current  # the import has replaced it

    def get_code(self, fullname: str) -> CodeType | None:
        assert isinstance(self._current.loader, InspectLoader)
        return self._current.loader.get_code(self._current.name)
