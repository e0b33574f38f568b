"""Only here: every verb on the emulator with a configuration whose values are in Pulumi ESC, and the same ones in it.

The values are opened before, as `gke-ai VERB --emulator` opens them: tests/pure/test_esc.py.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gke_ai.workspace import configuration_file
from tests.support import esc
from tests.support.emulator import ROOT, Emulator, clean

TOKEN = "hf_thisIsTheSecretToken"
BY_FILE = ("gke-ai:cluster", "gcp:region")
RUN: dict[str, object] = {"name": "asked", "kind": "job", "namespace": "llm", "queue": "team", "image": "python:3.12"}
RUN |= {"accelerator": "nvidia-l4", "pods": 1, "gpusPerPod": 1, "resources": {"cpu": "2", "memory": "8Gi"}}


@pytest.fixture
def inline(emulator: Emulator) -> Path:
    """A configuration with all its values."""
    return emulator.configure("Pulumi.dev.yaml")


@pytest.fixture
def file(inline: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A configuration that has little, and whose environment has been opened."""
    whole = yaml.safe_load(inline.read_text())["config"]
    environment = {key: value for key, value in whole.items() if key not in BY_FILE}
    with tempfile.TemporaryDirectory(dir=ROOT / ".local") as folder, monkeypatch.context() as outside:
        path = Path(folder) / "Pulumi.test.yaml"
        config = {key: whole[key] for key in BY_FILE}
        path.write_text(yaml.safe_dump({"environment": ["dev"], "config": config}))
        outside.delenv("GKE_AI_STATE", raising=False)
        for name, value in esc.install(tmp_path, {"dev": environment | {"hfToken": {esc.SECRET: TOKEN}}}).items():
            outside.setenv(name, value)
        configuration_file.read_keys(path)
        (opened,) = [name for name in os.environ if name.startswith("GKE_AI_OPENED_")]
        try:
            yield path
        finally:
            del os.environ[opened]


def previewed(printed: str) -> Any:
    """Operations and inputs of a preview. Their order varies."""
    return {step["urn"]: (step["op"], step["newState"].get("inputs")) for step in json.loads(printed)["steps"]}


@pytest.mark.nightly
def test_every_verb_on_the_emulator_works_as_with_the_values_in_the_file(
    inline: Path, file: Path, emulator: Emulator
) -> None:
    folder = emulator.state
    (folder / "run.yaml").write_text(yaml.safe_dump({"training": [RUN]}))
    assert previewed(emulator.make("preview-json", file)) == previewed(emulator.make("preview-json", inline))
    printed = [emulator.make(verb, file) for verb in ("policies", "preview", "up")]
    assert " to update" not in emulator.make("preview", inline)
    for config in (file, inline):
        named = ("--stack", "test", "--config", str(config))
        for words in (("render", str(folder / config.stem), "--for", "argocd"), ("trace-generate",)):
            printed.append(emulator.run("gke-ai", *words, *named))
    assert printed[-1] == printed[-3]
    printed.append(emulator.run("gke-ai", "simulate", "--stack", "test", "--config", str(file), "--jobs", "5"))
    for verb in ("report", "status", "runs", "snapshot", "verify", "smoke", "recover"):
        printed.append(emulator.make(verb, file))
    rehearsal = ("gke-ai", "rehearse", "--stack", "test", "--base", str(inline), "--config", str(file))
    printed.append(emulator.run(*rehearsal))
    snapshot = emulator.snapshot()
    printed.append(
        emulator.run("gke-ai", "when", str(folder / "run.yaml"), "--config", str(file), "--snapshot", str(snapshot))
    )
    printed.append(emulator.make("down", file))
    assert TOKEN not in "".join(printed)
    clean(emulator)
