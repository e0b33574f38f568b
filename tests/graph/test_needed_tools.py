"""The tools that are built before a first `make up` are those that the stack will run."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from emulator.paths import ROOT
from gke_ai.cli.tools import needed, needed_tools
from tests import repository
from tests.graph.test_outputs import CONFIGURATIONS
from tests.recorder import configuration, shared_record


def images(value: object) -> set[str]:
    """Every container image of an object."""
    if isinstance(value, dict):
        own = {value["image"]} if isinstance(value.get("image"), str) else set()
        return own.union(*map(images, value.values()))
    return set().union(*map(images, value)) if isinstance(value, list) else set()


@pytest.mark.parametrize("path", CONFIGURATIONS)
def test_a_stack_needs_the_tools_of_its_controllers(path: str) -> None:
    record = shared_record(configuration(path), True)
    needed: set[str] = {"stack"}
    for release in record.all("Release"):
        needed |= {"helm", release.name}
    inputs: list[Any] = [resource.inputs for resource in record.resources.values()]
    if any("prometheus-adapter/prometheus-adapter:" in image for image in images(inputs)):
        needed |= {"prometheus", "prometheus-adapter"}
    if any("/gateway-api-inference-extension/epp:" in image for image in images(inputs)):
        needed |= {"endpoint-picker", "model-router"}  # which few gateways need, and which builds in seconds
    assert set(needed_tools(repository.source(path).read_text())) == needed


def test_it_runs_without_a_python_environment() -> None:
    command = [sys.executable, "-I", "-S", "gke_ai/cli/tools.py", "up"]
    options = {"GKE_AI_CONFIG": str(repository.source("Pulumi.dev.yaml"))}
    done = subprocess.run(command, cwd=ROOT, env=options, capture_output=True, text=True, check=True)
    assert done.stdout == "stack,helm,jobset,kueue\n"


def test_a_missing_configuration_needs_the_tools_of_every_stack() -> None:
    assert needed("up", {"GKE_AI_STACK": "nowhere"}) == ["stack"]


@pytest.mark.parametrize(
    ("verb", "options", "tools"),
    [
        ("rehearse", {"UPGRADE": "kueue"}, "stack,previous"),
        ("rehearse", {"UPGRADE": "pool/a"}, "stack"),
        ("rehearse", {"MANIFESTS": "x"}, "kubernetes,etcd,kwok,helm,kueue,jobset"),
        ("simulate", {}, "stack,helm,kueue-simulation"),
        ("when", {}, "kubernetes,etcd,kwok,helm,kueue,jobset,stack"),
        ("when", {"INTERVAL": "1"}, "kubernetes,etcd,kwok,helm,kueue,jobset,stack,kueue-simulation"),
    ],
)
def test_what_runs_on_a_temporary_emulator_names_its_tools(verb: str, options: dict[str, str], tools: str) -> None:
    stated = {"GKE_AI_STACK": "nowhere", **{f"GKE_AI_{name}": value for name, value in options.items()}}
    assert ",".join(needed(verb, stated)) == tools
