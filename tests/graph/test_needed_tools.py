"""The tools that are built before a first `make up` are those that the stack will run."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from emulator.machine.paths import ROOT
from gke_ai.catalog.versions import KUEUE_VERSION
from gke_ai.cli.tools import CLUSTER, needed, needed_tools
from gke_ai.forecast.snapshot.format import Snapshot
from tests.support import repository
from tests.support.recorder import configuration, shared_record
from tests.support.repository import CONFIGURATIONS
from tests.support.snapshots import TAKEN


@pytest.mark.parametrize("path", CONFIGURATIONS)
def test_a_stack_needs_the_tools_of_its_controllers(path: str) -> None:
    record = shared_record(configuration(path), True)
    releases = {release.part for release in record.all("Release")}
    needed = {"stack", *releases, *(["helm"] if releases else [])}
    used = str([resource.inputs for resource in record.resources.values()])
    if "prometheus-adapter/prometheus-adapter:" in used:
        needed |= {"prometheus", "prometheus-adapter"}
    if "/gateway-api-inference-extension/epp:" in used:
        needed |= {"endpoint-picker", "model-router"}  # which few gateways need, and which builds in seconds
    assert set(needed_tools(repository.source(path).read_text())) == needed


def test_it_runs_without_a_python_environment() -> None:
    command = [sys.executable, "-I", "-S", "gke_ai/cli/tools.py", "up"]
    options = {"GKE_AI_CONFIG": str(repository.source("Pulumi.dev.yaml"))}
    done = subprocess.run(command, cwd=ROOT, env=options, capture_output=True, text=True, check=True)
    assert done.stdout == "stack,helm,jobset,kueue\n"


@pytest.mark.parametrize(
    ("verb", "options", "tools"),
    [
        ("up", {}, "stack"),
        ("rehearse", {"UPGRADE": "kueue"}, "stack,kueue-0.18.4"),
        ("rehearse", {"UPGRADE": "kueue,jobset"}, "stack,kueue-0.18.4,jobset-0.11.1"),
        ("rehearse", {"UPGRADE": "jobset"}, "stack,jobset-0.11.1"),
        ("rehearse", {"UPGRADE": "pool/a"}, "stack"),
        ("rehearse", {"MANIFESTS": "x"}, "kubernetes,etcd,kwok,helm,kueue,jobset"),
        ("simulate", {}, "stack,helm,kueue-simulation"),
        ("when", {}, "kubernetes,etcd,kwok,helm,kueue,jobset,stack"),
        ("when", {"INTERVAL": "1"}, "kubernetes,etcd,kwok,helm,kueue,jobset,stack,kueue-simulation"),
    ],
)
def test_a_verb_needs_its_tools_without_a_configuration(verb: str, options: dict[str, str], tools: str) -> None:
    stated = {"GKE_AI_STACK": "nowhere", **{f"GKE_AI_{name}": value for name, value in options.items()}}
    assert ",".join(needed(verb, stated)) == tools


@pytest.mark.parametrize(
    ("version", "tools"), [("0.16.2", "kueue-0.16.2"), ("0.18.6", "kueue-0.18.4"), (KUEUE_VERSION, ""), ("0.20.0", "")]
)
def test_an_earlier_release_of_kueue_is_built_if_a_snapshot_or_a_configuration_names_it(
    version: str, tools: str, tmp_path: Path
) -> None:
    named = [tools] if tools else []
    file = tmp_path / "snapshot.json"
    file.write_text(Snapshot(takenAt=TAKEN, stack="prod", kueueVersion=version, objects={}).to_json())
    of_snapshot = {"GKE_AI_STACK": "nowhere", "GKE_AI_SNAPSHOT": str(file)}
    assert needed("rehearse", of_snapshot) == ["stack", *named]
    assert needed("rehearse", {**of_snapshot, "GKE_AI_MANIFESTS": "x"}) == [*CLUSTER, *named]
    assert needed("when", of_snapshot) == [*CLUSTER, "stack", *named]
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump({"config": {"gke-ai:queues": {"kueueVersion": version}}}))
    assert needed("up", {"GKE_AI_CONFIG": str(config)}) == ["stack", "helm", "kueue", *named]
