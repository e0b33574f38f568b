"""Only here: what Pulumi's engine passes to a program, how large it may be, and a preview of a stack in files."""

import json
from bisect import bisect_left
from pathlib import Path
from typing import Any

import pytest
import yaml

from emulator.tests.harness import Project
from gke_ai.catalog.section_files import LIMIT, PREFIX, folder_of, oversize
from tests.support.emulator import Emulator
from tests.support.scale import sections

EMPTY = "tests/data/empty.yaml"


def in_files(emulator: Emulator, stack: dict[str, Any]) -> Path:
    """A configuration with each section in a file, and the servers in two."""
    for key, value in {**stack, "first": stack["serving"][:1], "more": stack["serving"][1:]}.items():
        (emulator.state / f"{key}.yaml").write_text(yaml.safe_dump(value, sort_keys=False))
    named = {key: {"file": f"{key}.yaml"} for key in stack}
    return emulator.configure(EMPTY, **{**named, "serving": {"files": ["first.yaml", "more.yaml"]}})


def registered(preview: str) -> dict[str, Any]:
    """The inputs of every resource of a preview."""
    return {step["urn"]: step["newState"].get("inputs") for step in json.loads(preview)["steps"]}


def test_a_stack_in_files_is_previewed_as_one_in_a_single_file(tmp_path: Path) -> None:
    emulator = Emulator(tmp_path / "state")  # without clusters
    stack = sections(1)
    one = emulator.make("preview-json", emulator.configure(EMPTY, **stack))
    assert registered(emulator.make("preview-json", in_files(emulator, stack))) == registered(one)


def test_a_stack_above_the_limit_is_refused_in_one_file_and_previewed_in_files(tmp_path: Path) -> None:
    emulator, stack = Emulator(tmp_path / "state"), sections(1)
    for server in stack["serving"]:
        server["arguments"] = [f"--served-model-name=name-{number}-{'x' * 1000}" for number in range(34)]
    content = yaml.safe_load(emulator.configure(EMPTY, **stack).read_text())["config"]
    assert oversize(content)
    assert LIMIT < len(json.dumps(content)) < LIMIT * 1.1
    refusal = emulator.make("preview", emulator.configure(EMPTY, **stack), fails=True)
    assert f"Move this section to a file: {PREFIX}serving: {{file: serving.yaml}}" in refusal
    assert "Previewing update" not in refusal
    previewed = registered(emulator.make("preview-json", in_files(emulator, stack)))
    arguments = [str(inputs) for urn, inputs in previewed.items() if ":Deployment::" in urn]
    assert sum("name-33-xxx" in text for text in arguments) == len(stack["serving"])


@pytest.mark.parametrize("text", ["x", "<&>", 'é"\\'])
def test_the_size_of_a_configuration_is_what_pulumi_passes(text: str, tmp_path: Path) -> None:
    """Above the limit, the program does not start."""
    project = Project.create(tmp_path / "sample", tmp_path / "state")
    project.write("__main__.py", "import os\nprint('size', len(os.environb[b'PULUMI_CONFIG']))\n")
    file = project.folder / "Pulumi.dev.yaml"
    content = yaml.safe_load(file.read_text())

    def config(times: int) -> dict[str, Any]:
        return {"sample:list": [text * times], "sample:text": "x"}

    too_many = bisect_left(range(LIMIT), True, key=lambda times: bool(oversize(config(times))))
    for times, starts in ((too_many - 1, True), (too_many, False)):
        file.write_text(yaml.safe_dump({**content, "config": config(times)}, allow_unicode=True))
        status, output = project.pulumi("preview", "--color=never")
        assert (status == 0) == starts, output
        assert ("Argument list too long" in output) != starts, output
    assert folder_of(file) == project.folder
