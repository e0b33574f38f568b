"""The program reads the sections that are in files of their own, and registers the same as without them."""

import json
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml

from gke_ai.catalog.section_files import FOLDER, PREFIX
from tests.support.recorder import configuration, run_program, shared_record


def in_files(path: str, folder: Path) -> dict[str, Any]:
    """A configuration of this project with each section but the waivers in a file."""
    config = configuration(path)
    for key, value in config.items():
        if isinstance(value, list | dict) and key != f"{PREFIX}waivers":
            name = f"{key.removeprefix(PREFIX)}.yaml"
            (folder / name).write_text(yaml.safe_dump(value))
            config[key] = {"file": name}
    return config


@pytest.mark.parametrize("is_stated", [True, False])
def test_a_stack_in_files_registers_the_same(is_stated: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`gke-ai` states the folder. With `pulumi up`, it is that of the project."""
    (monkeypatch.setenv if is_stated else lambda *_: monkeypatch.chdir(tmp_path))(FOLDER, str(tmp_path))
    config = in_files("Pulumi.dev.yaml", tmp_path)
    assert len([value for value in config.values() if isinstance(value, dict)]) > 3
    record = run_program(config, preview=False, monkeypatch=monkeypatch)
    same = shared_record(json.loads(json.dumps(configuration("Pulumi.dev.yaml"), sort_keys=True)))  # as Pulumi does
    inputs, expected = ({urn: one.inputs for urn, one in each.resources.items()} for each in (record, same))
    assert inputs == expected


def test_the_program_names_the_file_of_a_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    config = in_files("Pulumi.dev.yaml", tmp_path)
    servers = yaml.safe_load((tmp_path / "serving.yaml").read_text())
    (tmp_path / "serving.yaml").write_text(yaml.safe_dump([{**servers[0], "gpus": "many"}]))
    with pytest.raises(pulumi.RunError, match=r"- serving\.yaml: \[0\]\.gpus: "):
        run_program(config, preview=True, monkeypatch=monkeypatch)
