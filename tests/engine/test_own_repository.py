"""The workflows of a repository of one's own: the linters pass, and they do what those of this repository do."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gke_ai.cli.verbs import gke_ai
from gke_ai.ops.repository import template
from tests.support.repository import ROOT

STACKS = ("dev", "prod")
WORKFLOWS = tuple(f".github/workflows/{name}.yml" for name in ("preview", "deploy", "drift"))
ACTION = ".github/actions/set-up/action.yml"
ZIZMOR = ROOT / ".github" / "zizmor.yml"
# Steps that differ: there, the packages are those of its requirements, and the command is on PATH.
DIFFERENT = {
    *("Packages", "Tools", "Tools and Python environment", "Report", "Snapshot", "Rehearse"),
    "Keep one issue",  # it names the configuration in place of the program
}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with the stacks dev and prod."""
    for name, text in template.files(STACKS).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)  # where actionlint looks for the actions
    return tmp_path


def jobs_of(workflow: Any) -> list[Any]:
    """The jobs of a workflow, or the only one of an action."""
    return [*workflow.get("jobs", {"": workflow.get("runs")}).values()]


def same(file: Path) -> Any:
    """A workflow or an action without the steps that differ."""
    content = yaml.safe_load(file.read_text())
    for job in jobs_of(content):
        job["steps"] = [step for step in job["steps"] if step.get("name") not in DIFFERENT]
    return content


@pytest.mark.parametrize(
    "linter",
    [
        ["actionlint", "-shellcheck=", "-pyflakes="],
        ["zizmor", "--offline", "--persona=pedantic", "--no-progress", "--quiet", f"--config={ZIZMOR}", ACTION],
    ],
    ids=["actionlint", "zizmor"],
)
def test_the_linters_pass(linter: list[str], repository: Path) -> None:
    command = [*linter, *WORKFLOWS]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", [*WORKFLOWS, ACTION])
def test_a_workflow_does_what_that_of_this_repository_does(name: str, repository: Path) -> None:
    assert same(repository / name) == same(ROOT / name), f"change {name} in gke_ai/ops/repository/template"


def test_actions_are_those_of_this_repository() -> None:
    """Dependabot changes only the latter."""
    texts = "\n".join(text for name, text in template.files(STACKS).items() if name.endswith(".yml"))
    used = {line.strip().removeprefix("- ") for line in texts.splitlines() if "uses: " in line}
    ours = "".join(file.read_text() for file in (ROOT / ".github").rglob("*.yml"))
    assert len(used) > 5
    assert [line for line in used if line not in ours] == []


def test_the_commands_of_the_steps_exist(repository: Path) -> None:
    workflows = [yaml.safe_load((repository / name).read_text()) for name in (*WORKFLOWS, ACTION)]
    steps = [step for workflow in workflows for job in jobs_of(workflow) for step in job["steps"]]
    scripts = "\n".join(step["run"] for step in steps if "run" in step)
    found = re.findall(r"^gke-ai (\w+)([^|>\n]+)", scripts, re.M)
    assert {verb for verb, _ in found} == {"report", "snapshot", "rehearse"}
    for verb, words in found:
        gke_ai.commands[verb].make_context(verb, words.split())
    for name in re.findall(r"--requirement (\S+)", scripts):
        assert (repository / name).exists()


def test_the_devcontainer_installs_the_emulator() -> None:
    content = json.loads(template.files(STACKS)[".devcontainer/devcontainer.json"])
    assert "requirements-emulator.txt" in content["postCreateCommand"]
