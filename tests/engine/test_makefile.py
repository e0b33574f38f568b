"""Values that a user gives make reach the commands as they are: nothing in them is run, by make or by the shell."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gke_ai.cli.verbs import gke_ai
from tests.support.actions import run_action
from tests.support.repository import ROOT

MAKEFILE = (ROOT / "Makefile").read_text()
INPUTS, OTHERS = (
    re.search(rf"^{name} := ((?:.*\\\n)*.*)$", MAKEFILE, re.M)[1].replace("\\\n", " ").split()  # type: ignore[index]
    for name in ("INPUTS", "OTHERS")
)
RECIPES = dict(re.findall(r"^([a-z-]+):.*\n((?:(?:\t| *#).*\n)*)", MAKEFILE, re.M))
# The targets that are verbs of gke-ai.
VERBS = re.search(r"^([a-z -]+):\n\t@\$\(GKE_AI\)$", MAKEFILE, re.M)[1].split()  # type: ignore[index]
SPLIT = ("COMPARE", "FILES")  # lists of files
FLAGS = ("WITHOUT_CLUSTER", "PASSING")
HOSTILE = {
    "double quote": '"; touch MARKER; "',
    "single quote": "'; touch MARKER; '",
    "make function": "$(shell touch MARKER)",
    "make function in braces": "${shell touch MARKER}",
    "escaped make function": "$$(shell touch MARKER)",
    "command": "$(touch MARKER)",
    "escaped command": "$$(touch MARKER)",
    "backticks": "`touch MARKER`",
    "escaped backticks": "\\`touch MARKER\\`",
    "semicolon": "; touch MARKER #",
    "lines": "a\ntouch MARKER\n\ttouch MARKER\n",
    "defined variable": "\nEMULATOR = touch MARKER\n",
    "pipe": "| touch MARKER",
    "backslash": '\\"; touch MARKER; \\"',
    "parameter": "${STACK:-$(touch MARKER)}",
    "make variable": "$(eval X := $(shell touch MARKER))",
    "unbalanced": "$(shell touch MARKER",
    "wildcards and spaces": " * a  b ? ~ {x,y} % ",
}
RUN = """\
#!/bin/sh
printf '%s\\0' "$@" >> '{record}'
env -0 | grep -z ^GKE_AI_ >> '{record}'
case $1 in printenv) echo "$0" ;; gke_ai/cli/*) echo stack ;; esac
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the Makefile. Its `emulator/run` and `python3` record arguments, and the options of gke-ai.

    Its name has a space and an umlaut.
    """
    folder = tmp_path / "w ü"
    (folder / "emulator").mkdir(parents=True)
    shutil.copy(ROOT / "Makefile", folder)
    for name in ("emulator/run", "python3"):
        (folder / name).write_text(RUN.format(record=tmp_path / "record"))
        (folder / name).chmod(0o755)
    return folder


def arguments(project: Path, target: str, values: dict[str, str], on_command_line: bool) -> list[str]:
    """The arguments with which a target calls the two programs, and the variables of gke-ai, all calls together."""
    record = project.parent / "record"
    record.write_text("")
    words = [f"{name}={value}" for name, value in values.items()] if on_command_line else []
    environment = {"PATH": f"{project}{os.pathsep}{os.environ['PATH']}", **({} if on_command_line else values)}
    make = ["make", "--no-print-directory", target, *words]
    done = subprocess.run(make, cwd=project, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return record.read_text().split("\0")[:-1]


def used(target: str) -> set[str]:
    """The inputs that a target passes on."""
    if target in (*VERBS, "doctor"):
        variables = {parameter.envvar for parameter in gke_ai.commands[target].params}
        return {name for name in INPUTS if f"GKE_AI_{name}" in variables}
    return {name for name in OTHERS if re.search(rf"\$\$\{{?{name}\b", RECIPES[target])}


# One target of each set of inputs: the others differ only in the command's name.
TARGETS = [*{frozenset(used(name)): name for name in {**dict.fromkeys(VERBS), **RECIPES} if used(name)}.values()]


def test_every_variable_of_a_user_is_an_input_and_an_option_of_each_verb_that_documents_it() -> None:
    assert len(TARGETS) >= 8
    assert {name for target in TARGETS for name in used(target)} == {*INPUTS, *OTHERS} - {*FLAGS}
    documented = set(re.findall(r"\b([A-Z_]{2,})=", "".join(re.findall(r"## .*", MAKEFILE))))
    assert documented <= {*INPUTS, *OTHERS}
    for recipe in RECIPES.values():
        plain = re.sub(r"\$\(if \$\((\w+)\),", "", recipe)
        assert not re.search(rf"\$[({{](?:{'|'.join((*INPUTS, *OTHERS))})[)}}]", plain), "make would expand it"
    for target, text in re.findall(r"^([a-z-]+):  ## (.*)", MAKEFILE, re.M):
        if target in VERBS:
            assert set(re.findall(r"\b([A-Z_]{2,})=", text)) <= used(target), target


def test_every_verb_for_the_emulator_has_a_target() -> None:
    of_google, of_a_file = (
        {"capacity", "doctor", "prices", "trial"},
        {"compare", "model", "render", "trace-generate", "trace-import"},
    )
    of_a_repository_or_a_kubeconfig = {"cancel", "describe", "init", "submit", "upgrade"}
    assert {*VERBS} == {*gke_ai.commands} - of_google - of_a_file - of_a_repository_or_a_kubeconfig


@pytest.mark.parametrize("on_command_line", [True, False], ids=["command line", "environment"])
@pytest.mark.parametrize("name", HOSTILE)
def test_no_value_of_a_user_runs_anything(project: Path, name: str, on_command_line: bool) -> None:
    marker = project.parent / "marker"
    hostile = HOSTILE[name].replace("MARKER", str(marker))
    for target in TARGETS:
        values = {variable: hostile for variable in INPUTS if variable in used(target)}
        words = arguments(project, target, values, on_command_line)
        assert not marker.exists(), target
        assert not (project / "marker").exists()
        passed = hostile.lstrip() if on_command_line else hostile  # make drops them
        count = sum(word == passed or word.endswith(f"={passed}") for word in words)
        alone = len({*values} - {*SPLIT})
        assert count >= alone, f"{target} passes {count} of {alone} values as they are: {words}"


def test_a_target_is_its_verb_with_the_tools_that_it_needs(project: Path) -> None:
    words = arguments(project, "rehearse", {"CONFIG": "examples/my stack.yaml"}, True)
    assert words[:2] == ["gke_ai/cli/tools.py", "rehearse"]
    assert "GKE_AI_CONFIG=examples/my stack.yaml" in words
    assert "GKE_AI_PURPOSE=stack my stack" in words
    (begin,) = (number for number, word in enumerate(words) if word == "--tools")
    assert words[begin : begin + 4] == ["--tools", "stack", "gke-ai", "rehearse"]


@pytest.mark.parametrize("name", HOSTILE)
def test_no_input_of_the_action_runs_anything(project: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = project.parent / "marker"
    hostile = HOSTILE[name].replace("MARKER", str(marker))
    names = ("manifests", "snapshot", "base", "minutes", "unavailable", "output")
    monkeypatch.setattr("tests.support.actions.ROOT", project)
    shutil.copytree(ROOT / ".github" / "actions", project / ".github" / "actions")
    for file in ("emulator/a.py", "emulator/tools/a/go.mod", "requirements/all.lock"):
        (project / file).parent.mkdir(parents=True, exist_ok=True)
        (project / file).write_text("")
    code, printed = run_action("rehearse", dict.fromkeys(names, hostile), project.parent, project.parent)
    assert code == 0, printed
    assert not marker.exists()
    words = (project.parent / "record").read_text().split("\0")
    assert words[words.index("--unavailable") + 1] == hostile
    assert words[words.index("--base") + 1].rstrip("\n") == f"{project.parent}/{hostile}".rstrip("\n")
