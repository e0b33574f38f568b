"""Only here: the component package as an executable does what it does from source, without a checkout."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gke_ai.catalog.versions import PROJECT_VERSION
from tests.support.emulator import ROOT, Emulator, fresh

pytestmark = [pytest.mark.engine, pytest.mark.nightly]
NAME = "pulumi-resource-gke-ai"
EXAMPLE = ROOT / "examples" / "consumer-yaml" / "Pulumi.yaml"
FROM_SOURCE = "packages:\n  gke-ai: ../../components/plugin  # outside"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plugin, built by the packages of the tests and those of requirements/plugin.lock."""
    folder = tmp_path_factory.mktemp("plugin")
    venv.create(folder / "venv")
    own = sysconfig.get_path("purelib", vars={"base": str(folder / "venv")})
    Path(own, "of_the_tests.pth").write_text(sysconfig.get_path("purelib"))
    python = folder / "venv" / "bin" / "python"
    pip = [sys.executable, "-P", "-m", "pip", "--python", str(python), "install", "--quiet"]
    lock = str(ROOT / "requirements" / "plugin.lock")
    subprocess.run([*pip, "--no-deps", "--require-hashes", "--requirement", lock], check=True)
    subprocess.run([python, "-m", "maintain.plugin", str(folder)], cwd=ROOT, check=True)
    subprocess.run(["sha256sum", "--check", *map(str, folder.glob("*.sha256"))], cwd=folder, check=True)
    (file,) = folder.glob("*.tar.gz")
    return file


@pytest.fixture(scope="module")
def installed(archive: Path) -> Iterator[Emulator]:
    """An emulator whose PULUMI_HOME has the plugin."""
    with fresh() as emulator:
        version = f"v{PROJECT_VERSION}"
        emulator.run("pulumi", "plugin", "install", "resource", "gke-ai", version, "--file", str(archive))
        yield emulator


def test_the_archive_has_the_executable_at_its_root_and_no_path_of_its_builder(archive: Path) -> None:
    assert archive.name.startswith(f"{NAME}-v{PROJECT_VERSION}-")
    with tarfile.open(archive) as content:
        members = content.getmembers()
    program = next(member for member in members if member.name == NAME)
    assert program.mode & 0o111
    assert {member.name.partition("/")[0] for member in members} == {NAME, "_internal"}
    assert not [member.name for member in members if member.issym() or "direct_url" in member.name]


def test_its_schema_is_that_of_the_source_and_says_where_to_download_it(installed: Emulator) -> None:
    def schema(package: str) -> dict[str, Any]:
        output = installed.run("pulumi", "package", "get-schema", package)
        content: dict[str, Any] = json.loads(output[output.index("{") : output.rindex("}") + 1])
        return content

    executable = schema(f"gke-ai@{PROJECT_VERSION}")
    assert executable.pop("pluginDownloadURL") == "github://api.github.com/my-organization/gke-ai"
    assert executable == schema("./components/plugin")


def test_a_program_in_yaml_previews_with_it_and_without_a_checkout(installed: Emulator, tmp_path: Path) -> None:
    text = EXAMPLE.read_text()
    assert FROM_SOURCE in text
    before, _, rest = text.partition(FROM_SOURCE)
    (tmp_path / "Pulumi.yaml").write_text(before + rest.partition("\n")[2])

    def pulumi(*arguments: str) -> str:
        command = ("env", "-u", "PYTHONPATH", "pulumi", "-C", str(tmp_path))
        return installed.run(*command, *arguments, "--non-interactive")

    pulumi("stack", "init", "dev")
    pulumi("config", "set", "project", "my-project")
    output = pulumi("preview", "--json")
    steps = json.loads(output[output.index("{") :])["steps"]
    planned = Counter(step["urn"].split("::")[2].rpartition("$")[2] for step in steps)
    assert planned["gke-ai:index:KueueStack"] == planned["gcp:container/cluster:Cluster"] == 1
    assert planned["kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue"] == 1
    shutil.rmtree(installed.state / "pulumi" / "plugins" / f"resource-gke-ai-v{PROJECT_VERSION}")
    refused = installed.run("env", "pulumi", "-C", str(tmp_path), "preview", "--non-interactive", fails=True)
    assert "gke-ai" in refused, "without it nothing is previewed"
