"""Only here: `pulumi new` from the folder of a template, without a network, and a preview of what it writes."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest
import yaml

from gke_ai.ops.repository import configuration
from gke_ai.ops.repository.answers import QUESTIONS, Answers
from tests.support.emulator import ROOT, Emulator

TEMPLATES = ROOT / "examples" / "templates"
NAMES = ("gke-ai-python", "gke-ai-stack", "gke-ai-yaml")
TOKEN = "hf_canary" + "0" * 20
PROJECT = "project-of-template"


@pytest.fixture
def emulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Emulator:
    """An emulator without clusters, whose programs find the packages of the checkout."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return Emulator(tmp_path / "state")


def token(name: str) -> str:
    """The key of the token."""
    return "gke-ai:hfToken" if name == "gke-ai-stack" else "hfToken"


def new(emulator: Emulator, name: str, *options: str) -> Path:
    """What `pulumi new` writes from a template, with answers from options. Its package is that of the checkout."""
    template = shutil.copytree(TEMPLATES / name, emulator.state / name)
    file = template / "Pulumi.yaml"
    local = str(ROOT / "components" / "plugin")
    file.write_text(file.read_text().replace("https://github.com/my-organization/gke-ai.git/components/plugin", local))
    folder = emulator.state / "written" / "chat"
    folder.mkdir(parents=True)
    emulator.run("pulumi", "new", str(template), "--dir", str(folder), "--yes", "--non-interactive", *options)
    return folder


def planned(emulator: Emulator, folder: Path) -> Counter[str]:
    """Types of all resources that an update would create."""
    printed = emulator.run("pulumi", "-C", str(folder), "preview", "--json", "--stack", "dev", "--non-interactive")
    steps = json.loads(printed[printed.index("{") :])["steps"]
    assert {step["op"] for step in steps} == {"create"}
    assert TOKEN not in printed
    return Counter(step["urn"].split("::")[2].rpartition("$")[2] for step in steps)


@pytest.mark.parametrize("name", NAMES)
def test_what_pulumi_new_writes_is_previewed(name: str, emulator: Emulator) -> None:
    folder = new(emulator, name, "--stack", "dev", "--config", f"gcp:project={PROJECT}")
    secret = ["config", "set", "--secret", token(name), TOKEN]  # `pulumi new --config` would write it in plain text
    emulator.run("pulumi", "-C", str(folder), *secret, "--stack", "dev", "--non-interactive")
    written = (folder / "Pulumi.dev.yaml").read_text()
    assert f"gcp:project: {PROJECT}" in written
    assert TOKEN not in written
    project = yaml.safe_load((folder / "Pulumi.yaml").read_text())
    assert project["name"] == ("gke-ai" if name == "gke-ai-stack" else "chat")
    assert "template" not in project
    assert not [file for file in folder.iterdir() if file.is_symlink()]
    plan = planned(emulator, folder)
    assert plan["gcp:container/cluster:Cluster"] == 1
    assert plan["kubernetes:helm.sh/v3:Release"] == (1 if name == "gke-ai-yaml" else 2), "Kueue, and JobSet"
    assert plan["kubernetes:kueue.x-k8s.io/v1beta2:LocalQueue"] == 1


@pytest.mark.parametrize("name", NAMES)
def test_pulumi_new_writes_a_program_without_a_stack(name: str, emulator: Emulator) -> None:
    folder = new(emulator, name, "--generate-only", "--name", "mine")
    assert yaml.safe_load((folder / "Pulumi.yaml").read_text())["name"] == "mine"
    assert "${PROJECT}" not in "".join(file.read_text() for file in folder.iterdir())


@pytest.mark.parametrize("name", NAMES)
def test_a_template_asks_for_the_project_and_the_token(name: str) -> None:
    template = yaml.safe_load((TEMPLATES / name / "Pulumi.yaml").read_text())["template"]
    assert template["config"].keys() == {"gcp:project", token(name)}
    assert template["config"][token(name)]["secret"]
    assert template["quickstart"]
    assert template["description"]


def test_the_programs_are_those_of_the_page_and_of_init() -> None:
    page = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "package.md").read_text(), re.DOTALL)
    assert (TEMPLATES / "gke-ai-python" / "__main__.py").read_text() == page[0]
    answers = Answers(**{question.name: question.default or "my-project" for question in QUESTIONS})
    written = configuration.written(configuration.configuration(answers))
    assert (TEMPLATES / "gke-ai-stack" / "Pulumi.dev.yaml").read_text() == written
    link = TEMPLATES / "gke-ai-stack" / "__main__.py"
    assert os.readlink(link) == "../../../gke_ai/ops/repository/template/__main__.py.template"
