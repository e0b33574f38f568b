"""Names of before the package `gke_ai` and the command `gke-ai`: they work until 0.5.0, with a notice.

`settings.model` is then the module `gke_ai.settings.model` itself, not a copy of it.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import InspectLoader, Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType

# Modules that are elsewhere in `gke_ai` than their former name says.
MOVED = {
    "ops.capacity": "ops.capacity_advice",
    "ops.compare": "forecast.compare",
    "ops.model": "ops.model_shape",
    "ops.snapshot": "forecast.snapshot",
    "rehearse": "forecast.rehearse",
    "rehearse.simulate": "forecast.simulate",
    "rehearse.simulate.when": "forecast.when",
    "report": "registered.report",
}


# Modules that were commands, each with its verb of `gke-ai`: one, or one for each word that was its first argument.
COMMANDS: Mapping[str, str | Mapping[str, str]] = {
    **{f"ops.{verb}": verb for verb in ("capacity", "compare", "crds", "doctor", "down", "logs", "model", "recover")},
    **{f"ops.{verb}": verb for verb in ("smoke", "snapshot", "status", "verify")},
    "ops.emulated": {},
    "ops.runs": {"list": "runs", "remove": "remove-run"},
    "rehearse": "rehearse",
    "rehearse.simulate": {"day": "simulate", "generate": "trace-generate", "import": "trace-import"},
    "rehearse.simulate.when": "when",
    "report": "report",
}


def verb(module: str, arguments: Sequence[str]) -> list[str]:
    """The arguments of `gke-ai` for those of a module that was a command, such as `ops.runs`."""
    named, rest = COMMANDS[module], [*arguments]
    if isinstance(named, Mapping):
        place = next((number for number, word in enumerate(rest) if not word.startswith("-")), None)
        word = rest.pop(place) if place is not None else "--help"
        named = named.get(word, word)
    if named in ("logs", "remove-run"):  # --run was an option
        rest = [word for word in rest if word != "--run"]
    # The deletion had no question.
    return [named, *(["--yes"] if named == "down" else []), *rest]


def run_verb(module: str) -> None:
    """Runs `gke-ai` for a module that was a command. Prints one notice."""
    arguments = verb(module, sys.argv[1:])
    print(f"`python -m {module}` is now `gke-ai {arguments[0]}`. It works until 0.5.0.", file=sys.stderr)
    importlib.import_module("gke_ai.cli").main(arguments)


def current(name: str) -> str:
    """The name of today of a module."""
    parts = name.split(".")
    moved = next((count for count in range(len(parts), 0, -1) if ".".join(parts[:count]) in MOVED), 0)
    return ".".join(["gke_ai", *([MOVED[".".join(parts[:moved])]] if moved else []), *parts[moved:]])


def stand_for(name: str, running_as: str) -> None:
    """Makes a former name mean its module in `gke_ai`, or runs that if `python -m` names it. Prints one notice."""
    if running_as == "__main__":
        run_verb(name)
        return
    if not any(isinstance(finder, _FormerNames) for finder in sys.meta_path):
        print(f"`{name}` is now `{current(name)}`. The former name works until 0.5.0.", file=sys.stderr)
        sys.meta_path.insert(0, _FormerNames())
    sys.modules[name] = importlib.import_module(current(name))


class _FormerNames(MetaPathFinder):
    """Finds the modules of the packages that have a former name."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package = sys.modules.get(fullname.partition(".")[0])
        if "." not in fullname or package is None or package.__name__ != current(fullname.partition(".")[0]):
            return None
        # `python -m ops.doctor` looks for `ops.doctor.__main__`, since that is a package.
        module = fullname.removesuffix(".__main__")
        found = importlib.util.find_spec(current(module if module in COMMANDS else fullname))
        is_package = fullname == module and found is not None and found.submodule_search_locations is not None
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
        module = fullname.removesuffix(".__main__")
        if module in COMMANDS:
            return compile(f"from gke_ai import former_names; former_names.run_verb({module!r})", fullname, "exec")
        assert isinstance(self._current.loader, InspectLoader)
        return self._current.loader.get_code(self._current.name)
