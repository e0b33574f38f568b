"""Values that a user gives make reach the commands as they are: nothing in them is run, by make or by the shell."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.actions import run_action
from tests.repository import ROOT

MAKEFILE = (ROOT / "Makefile").read_text()
INPUTS = re.search(r"^INPUTS := ((?:.*\\\n)*.*)$", MAKEFILE, re.M)[1].replace("\\\n", " ").split()  # type: ignore[index]
RECIPES = dict(re.findall(r"^([a-z-]+):.*\n((?:(?:\t| *#).*\n)*)", MAKEFILE, re.M))
SPLIT = ("COMPARE", "FILES")  # lists of files
FLAGS = ("WITHOUT_CLUSTER", "PASSING", "INTERVAL", "ALL")
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
case $1 in printenv) echo "$0" ;; gke_ai/ops/*) echo stack ;; esac
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the Makefile, and programs that record their arguments as `emulator/run` and `python3`."""
    folder = tmp_path / "project"
    (folder / "emulator").mkdir(parents=True)
    shutil.copy(ROOT / "Makefile", folder)
    for name in ("emulator/run", "python3"):
        (folder / name).write_text(RUN.format(record=tmp_path / "record"))
        (folder / name).chmod(0o755)
    return folder


def arguments(project: Path, target: str, values: dict[str, str], on_command_line: bool) -> list[str]:
    """The arguments with which a target calls the two programs, all calls together."""
    record = project.parent / "record"
    record.write_text("")
    words = [f"{name}={value}" for name, value in values.items()] if on_command_line else []
    environment = {"PATH": f"{project}{os.pathsep}{os.environ['PATH']}", **({} if on_command_line else values)}
    done = subprocess.run(
        ["make", "--no-print-directory", target, *words],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return record.read_text().split("\0")[:-1]


def used(target: str) -> set[str]:
    """The inputs that a target passes on."""
    text = RECIPES[target]
    for name, value in re.findall(r"^(PICK|NAME|TOOLS|EMULATOR) = (.*)$", MAKEFILE, re.M)[::-1]:
        text = text.replace(f"$({name})", value)
    return {name for name in INPUTS if re.search(rf"\$\$\{{?{name}\b", text)}


# One target of each set of inputs: the others differ only in the command's name.
TARGETS = [*{frozenset(used(target)): target for target in RECIPES if used(target)}.values()]


def test_every_variable_of_a_user_is_an_input() -> None:
    assert len(TARGETS) >= 8
    assert {name for target in TARGETS for name in used(target)} == {*INPUTS} - {*FLAGS}
    documented = set(re.findall(r"\b([A-Z_]{2,})=", "".join(re.findall(r"## .*", MAKEFILE))))
    assert documented <= {*INPUTS}
    for recipe in RECIPES.values():
        plain = re.sub(r"\$\(if \$\((\w+)\),|\$\(filter-out pool/%,\$\(UPGRADE\)\)", "", recipe)
        assert [name for name in INPUTS if f"$({name})" in plain or f"${{{name}}}" in plain] == []


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
        count = words.count(passed)
        alone = len({*values} - {*SPLIT})
        assert count >= alone, f"{target} passes {count} of {alone} values as they are: {words}"


def test_the_defaults_are_those_of_the_pages(project: Path) -> None:
    assert arguments(project, "up", {}, True)[-5:] == ["up", "--stack", "", "--config", ""]
    needed, *rehearsed = arguments(project, "rehearse", {"CONFIG": "examples/my stack.yaml"}, True)[1:]
    assert needed == "examples/my stack.yaml"
    assert rehearsed[:7] == ["--tools", "stack", "python", "-m", "gke_ai.forecast.rehearse", "--stack", "my stack"]
    assert "--minutes" not in rehearsed
    assert arguments(project, "rehearse", {"UPGRADE": "kueue"}, True)[3] == "stack,previous"
    assert arguments(project, "rehearse", {"UPGRADE": "pool/a"}, True)[3] == "stack"
    assert arguments(project, "rehearse", {"MANIFESTS": "x"}, True)[1] == "kubernetes,etcd,kwok,helm,kueue,jobset"
    compared = arguments(project, "simulate", {"COMPARE": "a.yaml b.yaml", "STACK": "prod"}, True)
    assert compared[5:12] == ["day", "--stack", "prod", "--config", "", "--compare", "a.yaml"]
    assert "SEEDS" not in compared


@pytest.mark.parametrize("name", HOSTILE)
def test_no_input_of_the_action_runs_anything(project: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = project.parent / "marker"
    hostile = HOSTILE[name].replace("MARKER", str(marker))
    names = ("manifests", "snapshot", "base", "minutes", "unavailable", "output")
    monkeypatch.setattr("tests.actions.ROOT", project)
    shutil.copytree(ROOT / ".github" / "actions", project / ".github" / "actions")
    (project / "requirements.lock").write_text("")
    for file in ("emulator/a.py", "emulator/tools/a/go.mod"):
        (project / file).parent.mkdir(parents=True, exist_ok=True)
        (project / file).write_text("")
    code, printed = run_action("rehearse", dict.fromkeys(names, hostile), project.parent, project.parent)
    assert code == 0, printed
    assert not marker.exists()
    words = (project.parent / "record").read_text().split("\0")
    assert words[words.index("--unavailable") + 1] == hostile
    assert words[words.index("--base") + 1].rstrip("\n") == f"{project.parent}/{hostile}".rstrip("\n")
