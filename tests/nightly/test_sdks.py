"""Only here: the SDKs compile with an example of each component, and the programs in TypeScript and Go deploy."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gke_ai.components import every_component
from tests.support.emulator import ROOT, Emulator

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]
EXAMPLES = ROOT / "examples"


def run(folder: Path, *command: str, **env: str) -> str:
    """Run a command in a folder. Asserts that it succeeds."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `make sdks` writes."""
    folder = tmp_path_factory.mktemp("sdks")
    run(ROOT, sys.executable, "-m", "maintain.sdks", str(folder))
    return folder


def with_sdk(name: str, sdk: Path, to: Path) -> Path:
    """A copy of an example, with the SDK where `pulumi install` would write it."""
    program = Path(shutil.copytree(EXAMPLES / name, to / name))
    shutil.copytree(sdk, program / "sdks" / "gke-ai")
    file = program / "Pulumi.yaml"
    file.write_text(file.read_text().replace("../../components/plugin", str(ROOT / "components" / "plugin")))
    return program


@pytest.fixture(scope="module")
def in_typescript(written: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program in TypeScript with its packages. Only the script of the SDK runs, which compiles it."""
    program = with_sdk("consumer-typescript", written / "sdk" / "nodejs", tmp_path_factory.mktemp("typescript"))
    run(program, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
    run(program, "npm", "run", "--prefix", "sdks/gke-ai", "postinstall")
    return program


@pytest.fixture(scope="module")
def in_go(written: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program in Go. What an SDK in the folder of a program requires is in the module of the program."""
    program = with_sdk("consumer-go", written / "sdk" / "go" / "gkeai", tmp_path_factory.mktemp("go"))
    module = "github.com/my-organization/gke-ai/sdk/go/gkeai"
    own = (program / "go.mod").read_text()
    needed = re.findall(r"^\s(github.com/(?:blang/semver|pulumi/pulumi/sdk/v3) \S+)", own, re.M)
    lines = "".join(f"require {requirement}\n" for requirement in needed)
    (program / "sdks" / "gke-ai" / "go.mod").write_text(f"module {module}\n\ngo 1.26\n\n{lines}")
    return program


def test_the_sdk_for_node_and_an_example_of_each_component_compile(written: Path, in_typescript: Path) -> None:
    options = json.loads((in_typescript / "tsconfig.json").read_text())["compilerOptions"]
    assert options["strict"]
    assert options["noEmit"]
    paths = {"@my-organization/gke-ai": ["./sdk/nodejs/index.ts"]}
    config = {
        "compilerOptions": {**options, "paths": paths},
        "include": ["sdk/nodejs/**/*.ts", "examples/nodejs/**/*.ts"],
    }
    (written / "tsconfig.json").write_text(json.dumps(config))
    (written / "node_modules").symlink_to(in_typescript / "node_modules")
    run(written, "node_modules/.bin/tsc", "--project", ".")
    run(in_typescript, "node_modules/.bin/tsc", "--project", ".")


def test_the_sdk_for_go_and_an_example_of_each_component_compile(written: Path, in_go: Path) -> None:
    pins = (in_go / "go.mod").read_text().replace("module tpu-research", "module github.com/my-organization/gke-ai")
    ours = "".join(line for line in pins.splitlines(keepends=True) if "gke-ai/sdk" not in line)
    (written / "go.mod").write_text(ours)
    shutil.copy(in_go / "go.sum", written)
    run(written, "go", "vet", "./...", GOWORK="off")
    run(in_go, "go", "vet", "./...", GOWORK="off")


def test_the_sdk_for_python_and_an_example_of_each_component_have_sound_types(written: Path, tmp_path: Path) -> None:
    pip = (sys.executable, "-P", "-m", "pip", "install", "--no-index", "--no-deps", "--no-build-isolation")
    run(written, *pip, "--target", str(tmp_path), "sdk/python")
    run(written, sys.executable, "-c", "import my_organization_gke_ai", PYTHONPATH=str(tmp_path))
    folder = written / "examples" / "python"
    # Pulumi's generator makes secrets of optional inputs in a way that mypy reports.
    silent = ("--follow-imports", "silent", "--explicit-package-bases", "--no-incremental", "--config-file", os.devnull)
    run(folder, "mypy", *silent, ".", MYPYPATH=f"{tmp_path}{os.pathsep}{folder}")


def test_each_language_has_an_example_of_each_component(written: Path) -> None:
    names = {component.__name__ for component in every_component()}
    for language, file in {
        "go": "main.go",
        "nodejs": "index.ts",
        "python": "__main__.py",
        "yaml": "Pulumi.yaml",
    }.items():
        assert {path.parent.name for path in (written / "examples" / language).glob(f"*/{file}")} == names


@pytest.mark.parametrize("language", ["typescript", "go"])
def test_a_program_deploys_has_no_changes_and_is_deleted(
    language: str, emulator_with: Callable[..., Emulator], request: pytest.FixtureRequest
) -> None:
    emulator, program = emulator_with(), request.getfixturevalue(f"in_{language}")

    def pulumi(*arguments: str) -> str:
        return emulator.run("pulumi", "-C", str(program), *arguments, "--non-interactive")

    pulumi("stack", "init", "dev")
    pulumi("config", "set", "project", "my-project")
    assert "15 created" in pulumi("up", "--yes", "--skip-preview")
    pulumi("preview", "--expect-no-changes")
    outputs = json.loads(pulumi("stack", "output", "--json"))
    assert outputs["pool"] == "slice"
    pulumi("destroy", "--yes", "--skip-preview")
    assert not list((emulator.state / "clusters").glob("*"))
