"""Only here: the installed wheels work in a repository of their own, and Pulumi's YAML host runs the components."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT

import pytest

from emulator.machine.paths import CACHE
from emulator.tests import spares
from tests.support.emulator import ROOT, Emulator
from tests.support.repository import copy_to

PROGRAM = ROOT / "examples" / "consumer-yaml"


class Program:
    """The program of `examples/consumer-yaml` with some text replaced, in its own folder."""

    def __init__(self, emulator: Emulator, name: str = "dev", replaced: str = "", by: str = "") -> None:
        self.emulator = emulator
        self.folder = Path(shutil.copytree(PROGRAM, emulator.state / "yaml" / name))
        file = self.folder / "Pulumi.yaml"
        text = file.read_text()
        assert replaced in text
        plugin = str(ROOT / "components" / "plugin")
        file.write_text(text.replace("../../components/plugin", plugin).replace(replaced, by, 1))
        self.pulumi("stack", "init", name)
        self.pulumi("config", "set", "project", "my-project")

    def pulumi(self, *arguments: str, fails: bool = False) -> str:
        return self.emulator.run("pulumi", "-C", str(self.folder), *arguments, "--non-interactive", fails=fails)

    def planned(self) -> Counter[str]:
        """Types of all resources that an update would create."""
        output = self.pulumi("preview", "--json")
        steps = json.loads(output[output.index("{") :])["steps"]
        assert {step["op"] for step in steps} == {"create"}
        return Counter(step["urn"].split("::")[2].rpartition("$")[2] for step in steps)


def test_program_in_yaml_previews_every_object_of_its_components(emulator: Emulator) -> None:
    output = emulator.run("pulumi", "package", "get-schema", "./components/plugin")  # which `package add` reads
    schema = json.loads(output[output.index("{") : output.rindex("}") + 1])
    assert {"gke-ai:index:KueueStack", "gke-ai:index:FlexStartTpuPool"} <= schema["resources"].keys()
    planned = Program(emulator).planned()
    assert planned["gke-ai:index:GkeCluster"] == planned["gke-ai:index:FlexStartTpuPool"] == 1
    assert planned["gcp:container/nodePool:NodePool"] == 2, "the system pool and the slice"
    assert planned["kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue"] == 1
    assert planned["kubernetes:helm.sh/v3:Release"] == 1


@pytest.mark.parametrize(
    ("topology", "message"), [("5x5", "5x5 is not a topology of TPU v6e"), ("${cluster.endpoint}", "property topology")]
)
def test_mistake_of_a_program_in_yaml_is_reported(topology: str, message: str, emulator: Emulator) -> None:
    mistaken = Program(emulator, "mistaken", "topology: 4x4", f"topology: {topology}")
    output = mistaken.pulumi("preview", fails=True)
    assert message in output
    assert "Traceback" not in output
    assert 'File "' not in output


@pytest.mark.nightly
def test_program_in_yaml_deploys_and_is_deleted(emulator: Emulator) -> None:
    program = Program(emulator)
    program.pulumi("up", "--yes", "--skip-preview")
    program.pulumi("preview", "--expect-no-changes")
    program.pulumi("destroy", "--yes", "--skip-preview")
    assert not list((emulator.state / "clusters").glob("*"))


@dataclass(frozen=True)
class OwnRepository:
    """A folder for a repository, with a Python environment in which the wheels are installed and no checkout near."""

    folder: Path
    environment: Path
    wheels: Path

    def run(self, *command: str) -> str:
        """Runs a command of the environment in the repository, and prints how long it took."""
        began = time.monotonic()
        env = without_checkout(self.environment)
        done = subprocess.run(command, cwd=self.folder, env=env, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, text=True)
        print(f"{time.monotonic() - began:.0f} s: {' '.join(command)}")
        assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}"
        return done.stdout

    def pip(self, *words: str) -> str:
        """Installs with the pip of the tests, from no package index."""
        python = str(self.environment / "bin" / "python")
        return self.run(sys.executable, "-P", "-m", "pip", "--python", python, "install", "--no-index", *words)


def without_checkout(environment: Path) -> dict[str, str]:
    """The variables of a shell in which an environment is active, as they were outside emulator/run."""
    ours = ("GKE_AI_", "PULUMI_", "PYTHON", "KUBECONFIG", "SSL_CERT_FILE", "HF_TOKEN", "GATEWAY_API_KEY")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(ours)}
    folders = [Path(folder) for folder in os.get_exec_path()]
    others = [folder for folder in folders if not (folder.is_relative_to(ROOT) or folder.is_relative_to(CACHE))]
    # The last one has the programs of the packages that are not installed again.
    path = [environment / "bin", *others, Path(sys.executable).parent]
    person = {f"GIT_{role}_{what}": "a@example.com" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    return kept | person | {"PATH": os.pathsep.join(map(str, path)), "GKE_AI_CACHE": str(CACHE)}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnRepository]:
    """A new repository by the wheels of a copy of this checkout. Their dependencies are those of the tests."""
    parent = tmp_path_factory.mktemp("own")
    own = OwnRepository(parent / "repository", parent / "venv", parent / "wheels")
    own.folder.mkdir()
    source = copy_to(parent / "source")
    pip = (sys.executable, "-P", "-m", "pip", "wheel", "--no-deps", "--no-index", "--no-build-isolation")
    own.run(*pip, "--wheel-dir", str(own.wheels), str(source), str(source / "emulator"))
    shutil.rmtree(source)
    own.run(sys.executable, "-m", "venv", "--without-pip", str(own.environment))
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(own.environment)}))
    (packages / "of_the_tests.pth").write_text(sysconfig.get_path("purelib"))
    own.pip("--no-compile", *map(str, own.wheels.glob("*.whl")))
    own.run("gke-ai", "init", "--project", "my-project")
    yield own
    Emulator(own.folder / ".local").delete_clusters()


def test_a_repository_of_ones_own_has_a_preview_without_a_checkout(own: OwnRepository) -> None:
    printed = own.run("gke-ai", "preview", "--emulator")
    assert "to create" in printed
    assert "Policy Packs run:" in printed
    assert (own.folder / ".local" / "backend").is_dir()
    assert "Client Version" in own.run("gke-ai-emulator", "kubectl", "version", "--client")


@pytest.mark.nightly
def test_a_repository_of_ones_own_is_deployed_rehearsed_and_deleted(own: OwnRepository) -> None:
    shutil.rmtree(own.wheels)
    own.pip("--requirement", "requirements-emulator.txt")  # from the copies that `init` made
    state = own.folder / ".local"
    spares.give(state)
    own.run("git", "init", "--quiet", "--initial-branch", "main")
    own.run("git", "add", ".")
    assert ".local" not in own.run("git", "status", "--short")
    own.run("git", "commit", "--quiet", "--message", "Begin")
    assert "→ show the status again:  gke-ai status --emulator --stack dev" in own.run("gke-ai", "up", "--emulator")
    assert "unchanged" in own.run("gke-ai", "preview", "--emulator").rpartition("Resources:")[2]
    file = own.folder / "Pulumi.dev.yaml"
    before = file.read_text()
    file.write_text(before.replace("maxNodes: 2", "maxNodes: 1"))
    assert file.read_text() != before
    own.run("gke-ai", "rehearse", "--minutes", "5", "--json", "rehearsal.json")
    assert json.loads((own.folder / "rehearsal.json").read_text())
    assert "dev is deleted." in own.run("gke-ai", "down", "--emulator")
    assert list((state / "clusters").glob("*")) == []
