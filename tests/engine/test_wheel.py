"""The wheel has the whole package under names that leave `components` and `settings` to a program of its user."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from gke_ai.catalog.versions import PROJECT_VERSION
from tests.support.installed import REGISTERS
from tests.support.recorder import TOKEN, configuration
from tests.support.repository import ROOT, copy_to, tracked

# A user's program with modules of its own. It creates a component, then a whole stack, and prints what it registered.
PROGRAM = f"""
import components, settings, gke_ai
{REGISTERS}
print(json.dumps([components.OWN, settings.OWN, gke_ai.__file__, registered]))
"""
EVERYTHING = """
import importlib, pkgutil, gke_ai
modules = [module.name for module in pkgutil.walk_packages(gke_ai.__path__, "gke_ai.")]
for name in modules:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(*modules)
"""


def without_checkout(*path: Path) -> dict[str, str]:
    """The environment of a program that imports from these folders, and not from the checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PULUMI"))}
    return kept | {"PYTHONPATH": os.pathsep.join(map(str, path)), "HF_TOKEN": TOKEN}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which only the wheel is installed, built from a copy of the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    source, target = copy_to(folder / "source"), folder / "installed"
    pip = [sys.executable, "-P", "-m", "pip"]
    quiet = ["--quiet", "--no-deps", "--no-index"]
    for command in (
        ["wheel", *quiet, "--no-build-isolation", "--wheel-dir", str(folder), str(source)],
        ["install", *quiet, "--target", str(target), str(folder / f"gke_ai-{PROJECT_VERSION}-py3-none-any.whl")],
    ):
        subprocess.run([*pip, *command], cwd=folder, env=without_checkout(), check=True)
    return target


def run(program: str, folder: Path, *path: Path, **variables: str) -> str:
    """Runs a program in a folder, with modules of other folders."""
    command, environment = [sys.executable, "-P", "-c", program], without_checkout(*path) | variables
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_has_each_file_of_the_package_and_no_other_name(installed: Path) -> None:
    (wheel,) = installed.parent.glob("*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    expected = {"gke_ai/program/__main__.py"}
    for folder, name in {"gke_ai": "gke_ai", "components": "gke_ai/components"}.items():
        for file in (file for ending in ("py", "yaml", "json") for file in tracked(f"{folder}/**/*.{ending}")):
            expected.add(f"{name}/{file.relative_to(ROOT / folder)}")
    expected |= {str(file.relative_to(ROOT)) for file in tracked("gke_ai/**/*.template")}
    assert names == expected
    assert "gke_ai/ops/repository/template/.github/workflows/preview.yml.template" in names


def test_the_emulator_is_a_package_beside_it(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    source = copy_to(tmp_path / "source") / "emulator"
    subprocess.run([*command, "--wheel-dir", str(tmp_path), str(source)], env=without_checkout(), check=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name == f"gke_ai_emulator-{PROJECT_VERSION}-py3-none-any.whl"
    content = zipfile.ZipFile(wheel)
    names = {name for name in content.namelist() if ".dist-info/" not in name}
    files = [file.relative_to(ROOT) for file in tracked("emulator/**")]
    left_out = {f"emulator/{name}" for name in ("README.md", "pyproject.toml", "requirements.txt")}
    lock = "emulator/requirements.lock"
    assert names == {str(file) for file in files if file.parts[1] != "tests"} - left_out | {lock}
    assert content.read(lock) == (ROOT / "requirements/all.lock").read_bytes()
    programs = {str(file) for file in files if os.access(ROOT / file, os.X_OK)}
    assert "emulator/run" in programs
    assert {info.filename for info in content.infolist() if info.external_attr >> 16 & 0o100} == programs


def test_a_program_with_components_and_settings_of_its_own_uses_the_wheel(installed: Path, tmp_path: Path) -> None:
    for name in ("components", "settings"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"OWN = '{name} of mine'\n")
    stack = configuration("examples/mixed-training-inference.yaml")
    config = {key: value if isinstance(value, str) else json.dumps(value) for key, value in stack.items()}
    variable = json.dumps({"gcp:project": "my-project", **config})
    printed = run(PROGRAM, tmp_path, tmp_path, installed, PULUMI_CONFIG=variable)
    components, settings, package, registered = json.loads(printed)
    assert (components, settings) == ("components of mine", "settings of mine")
    assert package == str(installed / "gke_ai" / "__init__.py")
    assert {"ModelBucket mine", "GkeCluster llm-cluster"} <= {*registered}


def test_the_installed_command_needs_neither_a_checkout_nor_pulumi(installed: Path, tmp_path: Path) -> None:
    environment = without_checkout(installed) | {"PATH": "/nowhere", "KUBECONFIG": str(tmp_path / "kubeconfig")}
    for name in ("GKE_AI_STATE", "GKE_AI_ROOT"):
        environment.pop(name, None)

    def gke_ai(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-P", str(installed / "bin" / "gke-ai"), *words]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    assert PROJECT_VERSION in gke_ai("--version").stdout
    assert "Look at a stack or a cluster:" in gke_ai("--help").stdout
    context, stack = "The kubeconfig has no usable context team", "pulumi is not on PATH"
    for option, cause in (("--context=team", context), ("--stack=prod", stack)):
        refused = gke_ai("status", option)
        assert (refused.returncode, "Traceback" in refused.stderr, cause in refused.stderr) == (1, False, True)
    pulumi = tmp_path / "bin" / "pulumi"
    pulumi.parent.mkdir()
    pulumi.write_text('#!/bin/sh\necho "{\\"deployment\\": {}}"; pwd > folder\n')
    pulumi.chmod(0o755)
    environment["PATH"] = str(pulumi.parent)
    assert "prod has no cluster yet. Next: gke-ai up --stack prod" in gke_ai("status", "--stack", "prod").stderr
    assert (tmp_path / "folder").read_text() == f"{tmp_path}\n"
    refused = gke_ai("up", "--emulator")
    wheel = f"wheels/gke_ai_emulator-{PROJECT_VERSION}-py3-none-any.whl"
    missing = f"The emulator of gke-ai {PROJECT_VERSION} is not installed."
    remedy = f"Install it from its wheel:  pip install {wheel}"
    assert (refused.returncode, refused.stderr) == (1, f"{missing} {remedy}\n")


def test_every_module_of_the_wheel_can_be_imported(installed: Path, tmp_path: Path) -> None:
    modules = run(EVERYTHING, tmp_path, installed).split()
    assert {"gke_ai.program.queues", "gke_ai.forecast.snapshot.fields", "gke_ai.forecast.simulate.run"} <= {*modules}
