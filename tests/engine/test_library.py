"""Only here: each wheel in an environment of its own. The library needs no extra, and no file is in two wheels."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from gke_ai.catalog.versions import PROJECT_VERSION
from tests.support.installed import REGISTERS
from tests.support.recorder import configuration
from tests.support.repository import copy_to

PIP = (sys.executable, "-P", "-m", "pip")
OUTPUTS = "from gke_ai_outputs import StackOutputs"


@dataclass(frozen=True)
class Environment:
    """A virtual environment without pip, in which the packages of the tests are not."""

    folder: Path

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    def pip(self, *words: str) -> None:
        subprocess.run([*PIP, "--python", self.python, *words, "--quiet"], env=plain(), check=True)

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = plain() | variables
        command = [self.python, "-P", *words]
        return subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)

    def borrow(self, packages: Iterable[str]) -> None:
        """Lets the environment import packages of the tests: no package index is asked."""
        own = Path(sysconfig.get_path("purelib", vars={"base": str(self.folder)}))
        for package in packages:
            distribution = importlib.metadata.distribution(package)
            for name in {file.parts[0] for file in distribution.files or [] if file.parts[0] != ".."}:
                if not (own / name).exists():
                    (own / name).symlink_to(str(distribution.locate_file(name)))


def plain() -> dict[str, str]:
    """The variables of a shell, without those of `emulator/run`."""
    return {name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "PULUMI", "GKE_AI"))}


def needed(requirements: Iterable[str]) -> set[str]:
    """The packages that these requirements need, without extras of ours."""
    waiting, names = [Requirement(text) for text in requirements], set[str]()
    while waiting:
        package = waiting.pop()
        if package.name in names or (package.marker and not package.marker.evaluate({"extra": ""})):
            continue
        names.add(package.name)
        waiting += map(Requirement, importlib.metadata.requires(package.name) or [])
    return names


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The wheels of a copy of the checkout: that of the library, of the emulator and of the typed view."""
    folder = tmp_path_factory.mktemp("wheels")
    source = copy_to(folder / "source")
    quiet = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(folder)]
    subprocess.run(
        [*PIP, "wheel", *quiet, *(str(source / part) for part in ("", "emulator", "gke_ai_outputs"))],
        env=plain(),
        check=True,
    )
    return sorted(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def alone(wheels: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the library and what its wheel requires without extras, to which the last tests add."""
    library, _, _ = wheels
    environment = Environment(tmp_path_factory.mktemp("alone") / "environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment.folder)], check=True)
    environment.pip("install", "--no-deps", "--no-index", "--no-compile", str(library))
    metadata = importlib.metadata.PathDistribution.at(next(environment.folder.rglob("gke_ai-*.dist-info")))
    environment.borrow(needed(metadata.requires or []))
    return environment


def previewed(environment: Environment) -> set[str]:
    """The resources of a preview with a component and the whole program."""
    stack = configuration("examples/mixed-training-inference-autopilot.yaml")
    config = {"gcp:project": "my-project", "gke-ai:hfToken": "hf_test"} | {
        key: value if isinstance(value, str) else json.dumps(value) for key, value in stack.items()
    }
    done = environment.run(
        "-c", f"{REGISTERS}print(json.dumps(registered))", PULUMI_CONFIG=json.dumps(config), HF_TOKEN="hf_test"
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_no_file_is_in_two_wheels(wheels: list[Path]) -> None:
    names = Counter(name for wheel in wheels for name in zipfile.ZipFile(wheel).namelist())
    assert [name for name, times in names.items() if times > 1] == []
    owner = [wheel.name for wheel in wheels if "gke_ai_outputs/__init__.py" in zipfile.ZipFile(wheel).namelist()]
    assert [name.partition("-")[0] for name in owner] == ["gke_ai_outputs"]


def test_the_library_previews_components_and_the_program_without_an_extra(alone: Environment) -> None:
    for package in ("click", "rich", "pulumi_policy", "gke_ai_outputs"):
        assert "ModuleNotFoundError" in alone.run("-c", f"import {package}").stderr, "the environment is not empty"
    assert {"ModelBucket mine", "GkeCluster llm-cluster"} <= previewed(alone)


@pytest.mark.parametrize(
    ("command", "package", "extra"),
    [
        (("-m", "gke_ai", "status"), "click", "command"),
        (("-c", "from gke_ai.review.policy.pack import run"), "pulumi_policy", "policies"),
    ],
)
def test_what_needs_an_extra_names_it_in_one_sentence(
    command: tuple[str, ...], package: str, extra: str, alone: Environment
) -> None:
    done = alone.run(*command)
    sentence = f"{package} is missing: install gke-ai with its extra,  pip install 'WHEEL[{extra}]'\n"
    assert (done.returncode, done.stderr) == (1, sentence)


def test_the_extras_bring_the_command_and_the_policies(alone: Environment) -> None:
    alone.borrow(needed(["click", "rich", "pulumi-policy"]))
    assert PROJECT_VERSION in alone.run("-m", "gke_ai", "--version").stdout
    assert alone.run("-c", "from gke_ai.review.policy.pack import run").stderr == ""


def test_the_typed_view_and_the_library_are_removed_without_each_other(alone: Environment, wheels: list[Path]) -> None:
    outputs = wheels[-1]
    alone.pip("install", "--no-deps", "--no-index", str(outputs))
    assert alone.run("-c", OUTPUTS).stderr == ""
    alone.pip("uninstall", "--yes", "gke-ai")
    assert alone.run("-c", OUTPUTS).stderr == ""
    alone.pip("install", "--no-deps", "--no-index", str(wheels[0]))
    alone.pip("uninstall", "--yes", "gke-ai-outputs")
    assert "GkeCluster llm-cluster" in previewed(alone)
