"""Only here: Pulumi's YAML language host reads the package's schema and runs its components."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests.cluster.emulator import ROOT, Emulator

PROGRAM = ROOT / "examples" / "consumer-yaml"


class Program:
    """The program of `examples/consumer-yaml` with some text replaced, in its own folder."""

    def __init__(self, emulator: Emulator, name: str = "dev", replaced: str = "", by: str = "") -> None:
        self.emulator = emulator
        self.folder = Path(shutil.copytree(PROGRAM, emulator.state / "yaml" / name))
        file = self.folder / "Pulumi.yaml"
        text = file.read_text()
        assert replaced in text
        file.write_text(
            text.replace("../../components/plugin", str(ROOT / "components" / "plugin")).replace(replaced, by, 1)
        )
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


def test_schema_is_the_one_that_package_add_reads(emulator: Emulator) -> None:
    output = emulator.run("pulumi", "package", "get-schema", "./components/plugin")
    schema = json.loads(output[output.index("{") : output.rindex("}") + 1])
    assert {"gke-ai:index:KueueStack", "gke-ai:index:FlexStartTpuPool"} <= schema["resources"].keys()


def test_program_in_yaml_previews_every_object_of_its_components(emulator: Emulator) -> None:
    planned = Program(emulator).planned()
    assert planned["gke-ai:index:GkeCluster"] == planned["gke-ai:index:FlexStartTpuPool"] == 1
    assert planned["gcp:container/nodePool:NodePool"] == 2, "the system pool and the slice"
    assert planned["kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue"] == 1
    assert planned["kubernetes:helm.sh/v3:Release"] == 1


@pytest.mark.parametrize(
    ("replaced", "by", "message"),
    [
        ("topology: 4x4", "topology: 5x5", "5x5 is not a topology of TPU v6e"),
        ("topology: 4x4", "topology: ${cluster.endpoint}", "property topology"),
    ],
)
def test_mistake_of_a_program_in_yaml_is_reported_without_a_traceback(
    replaced: str, by: str, message: str, emulator: Emulator
) -> None:
    output = Program(emulator, "mistaken", replaced, by).pulumi("preview", fails=True)
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
