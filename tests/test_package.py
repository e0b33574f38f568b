"""The components as a Pulumi package: its schema for other languages, and its refusals."""

from __future__ import annotations

import json
import runpy
from collections.abc import Mapping
from typing import Any

import pulumi
import pytest
import yaml
from pulumi.output import UNKNOWN

from docs.repository import ROOT

EXPECTED = ROOT / "tests" / "expected" / "package.yaml"
POOL = {
    "name": "slice",
    "project": "my-project",
    "cluster": "c",
    "location": "us-east5",
    "zones": ["us-east5-b"],
    "version": "v6e",
    "topology": "4x4",
}
QUEUES: dict[str, Any] = {
    "namespaces": ["research"],
    "flavors": [{"name": "v6e"}],
    "clusterQueues": [{"name": "tpus", "flavors": [{"flavor": "v6e", "quota": {"google.com/tpu": "16"}}]}],
}


@pytest.fixture(scope="module")
def package() -> Any:
    """The package as its plugin serves it."""
    served = runpy.run_path(str(ROOT / "package" / "__main__.py"))
    return served["Package"](served["every_component"]())


@pytest.fixture(scope="module")
def schema(package: Any) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(package.schema)
    return content


def resources(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Each component with its required inputs, optional inputs and outputs."""
    return {
        token.rpartition(":")[2]: {
            "required": sorted(definition.get("requiredInputs", [])),
            "optional": sorted(definition["inputProperties"].keys() - set(definition.get("requiredInputs", []))),
            "outputs": sorted(definition.get("properties", {})),
        }
        for token, definition in schema["resources"].items()
    }


def test_package_stays_compatible_with_programs_in_other_languages(schema: dict[str, Any]) -> None:
    """Every listed component exists with all its inputs and outputs, and requires no further input."""
    there = resources(schema)
    pinned = yaml.safe_load(EXPECTED.read_text())
    assert there.keys() == pinned.keys(), "a component is added to tests/expected/package.yaml, and never taken away"
    for name, component in there.items():
        pin = pinned[name]
        assert set(component["required"]) <= set(pin["required"]), f"{name} wants more than it did"
        assert {*pin["required"], *pin["optional"]} <= {*component["required"], *component["optional"]}, name
        assert set(pin["outputs"]) <= set(component["outputs"]), name


def test_package_name_matches_the_type_tokens(schema: dict[str, Any]) -> None:
    assert schema["name"] == "gke-ai"
    assert all(token.startswith("gke-ai:index:") for token in schema["resources"])


def test_documentation_reaches_other_languages_without_indentation(schema: dict[str, Any]) -> None:
    for token, component in schema["resources"].items():
        text = component["description"]
        assert not [line for line in text.splitlines() if line.startswith("    ")], token


def refusal(package: Any, kind: str, inputs: dict[str, Any]) -> tuple[str, str]:
    """Path and text of the refusal of these inputs."""
    pulumi.runtime.set_mocks(NoCloud())
    with pytest.raises((pulumi.InputPropertyError, pulumi.InputPropertiesError)) as error:
        package.construct("x", f"gke-ai:index:{kind}", inputs)
    if isinstance(error.value, pulumi.InputPropertyError):
        return error.value.property_path, error.value.reason
    return "", str(getattr(error.value, "message", ""))


class NoCloud(pulumi.runtime.Mocks):
    """A cloud in which nothing is created."""

    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        return f"{args.name}-id", dict(args.inputs)

    def call(self, args: pulumi.runtime.MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]] | None]:
        raise AssertionError(f"unexpected call of {args.token}")


@pytest.mark.parametrize("output", [UNKNOWN, pulumi.Output.from_input("4x4")], ids=["unknown", "known later"])
@pytest.mark.parametrize(
    ("kind", "inputs", "at", "path"),
    [
        ("FlexStartTpuPool", POOL, ("topology",), "topology"),
        ("FlexStartTpuPool", POOL, ("zones", 0), "zones[0]"),
        ("KueueStack", QUEUES, ("namespaces", 0), "namespaces[0]"),
        (
            "KueueStack",
            QUEUES,
            ("clusterQueues", 0, "flavors", 0, "quota", "google.com/tpu"),
            "clusterQueues[0].flavors[0].quota.google.com/tpu",
        ),
    ],
)
def test_output_for_a_plain_argument_is_refused_with_its_path(
    package: Any, kind: str, inputs: dict[str, Any], at: tuple[str | int, ...], path: str, output: Any
) -> None:
    arguments: Any = json.loads(json.dumps(inputs))
    inside = arguments
    for step in at[:-1]:
        inside = inside[step]
    inside[at[-1]] = output
    where, why = refusal(package, kind, arguments)
    assert where == path
    assert "needs the value before Pulumi creates anything" in why
    assert "Write the value itself, or read it from the configuration" in why


def test_output_for_an_output_argument_is_accepted(package: Any) -> None:
    pulumi.runtime.set_mocks(NoCloud())
    package.construct("x", "gke-ai:index:FlexStartTpuPool", {**POOL, "cluster": pulumi.Output.from_input("c")})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"topology": "5x5"}, "5x5 is not a topology of TPU v6e"),
        ({"capacity": {"mode": "spot"}}, "a FlexStartTpuPool has no spot capacity. Use a TpuNodePool"),
        ({"capacity": {"mode": "sometimes"}}, "capacity"),
    ],
)
def test_refusal_of_a_component_is_a_sentence_without_traceback(
    package: Any, change: dict[str, Any], message: str
) -> None:
    refused = refusal(package, "FlexStartTpuPool", {**POOL, **change})[1]
    assert message in refused
    assert "Traceback" not in refused
    assert 'File "' not in refused
