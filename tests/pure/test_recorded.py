"""The recorded configurations and states of earlier versions."""

import base64
import json
import os

import pytest

from emulator.pulumi.kubernetes import kinds, releases
from emulator.pulumi.kubernetes.omitted import without_omitted
from gke_ai.settings import load
from gke_ai.settings.model import FineTune
from tests.support import recorded

RUNS = {"kubernetes:batch/v1:Job", "kubernetes:jobset.x-k8s.io/v1alpha2:JobSet"}
RECORDS = [(version, system) for version in recorded.versions() for system in recorded.systems(version)]


@pytest.mark.parametrize(("version", "system"), RECORDS)
def test_record_is_previewed_in_the_project_that_it_was_deployed_in(version: str, system: str) -> None:
    """In another project, such as the emulator's current default, everything would be replaced."""
    config, resources = recorded.read(version, system, "x")
    kinds = ("gcp:", "pulumi:providers:gcp")
    inputs = [resource.get("inputs", {}) for resource in resources if resource["type"].startswith(kinds)]
    assert {state["project"] for state in inputs if "project" in state} == {config["gcp:project"]}


@pytest.mark.parametrize(("version", "system"), RECORDS)
def test_record_is_what_the_official_kubernetes_plugin_would_have_left(version: str, system: str) -> None:
    """Its differences would otherwise hide among those of the upgrade."""
    for resource in recorded.read(version, system, "x")[1]:
        inputs, outputs = resource.get("inputs", {}), resource.get("outputs", {})
        assert "__internal" not in outputs
        if resource["type"] == recorded.RELEASE:
            assert not {"compat", "resourceNames"} & inputs.keys()
            assert releases.DEFAULTS.keys() | {"timeout"} <= inputs.keys()
            assert json.loads(outputs["__inputs"]["plaintext"]) == inputs
        elif resource["type"] == recorded.SECRETS:
            assert "stringData" not in inputs
            assert inputs["data"] == outputs["data"] == outputs["__inputs"]["data"]
        elif resource["type"].startswith("kubernetes:") and kinds.input_type(resource["type"]):
            assert without_omitted(inputs) == inputs


def test_a_recorded_secret_has_the_token_of_this_emulator() -> None:
    for resource in recorded.read("0.2.0", "dev", "x")[1]:
        if resource["type"] == recorded.SECRETS:
            (value,) = json.loads(resource["inputs"]["data"]["plaintext"]).values()
            assert base64.b64decode(value).decode() == (os.environ.get("HF_TOKEN") or recorded.DUMMY_TOKEN)
            return
    pytest.fail("dev has no token")


def runs_of(version: str, system: str) -> tuple[set[str], set[str]]:
    """Names of the runs in the record's stack, and their names in the current program."""
    config, resources = recorded.read(version, system, "x")
    kept = {resource["inputs"]["metadata"]["name"] for resource in resources if resource["type"] in RUNS}
    sections = {key.removeprefix("gke-ai:"): value for key, value in config.items() if key.startswith("gke-ai:")}
    return kept, {run.object_name for run in load(sections, config["gcp:project"]).runs}


@pytest.mark.parametrize(("version", "system"), RECORDS)
def test_upgrade_starts_no_run(version: str, system: str) -> None:
    kept, named = runs_of(version, system)
    assert named == kept


def test_new_default_starts_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run as a later version would register it: with another image and a new key."""
    for key, default in (("image", "example.com/newer:2"), ("epochs", 3), ("model_path", "/model-data/elsewhere")):
        monkeypatch.setattr(FineTune.model_fields[key], "default", default)
    FineTune.model_rebuild(force=True)
    try:
        assert FineTune.model_validate({"name": "n", "volume": {"bucket": "b"}}).image == "example.com/newer:2"
        for version, system in [record for record in RECORDS if record[1] in ("dev", "prod")]:
            kept, named = runs_of(version, system)
            assert named == kept
    finally:
        monkeypatch.undo()
        FineTune.model_rebuild(force=True)
