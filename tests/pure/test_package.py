"""The components as a Pulumi package: its schema for other languages, and its refusals."""

import json
import runpy
import shutil
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml
from pulumi.output import UNKNOWN
from pydantic.alias_generators import to_camel

from gke_ai import components
from gke_ai.catalog.versions import PROJECT_VERSION
from gke_ai.components.base import arguments_of
from gke_ai.components.plugin.inputs import ComponentInputs, without_nulls
from gke_ai.settings import model
from tests.support.repository import ROOT

PLUGIN = ROOT / "components" / "plugin" / "__main__.py"
EXPECTED = ROOT / "tests" / "data" / "expected" / "package.yaml"
POOL = {"name": "slice", "project": "my-project", "cluster": "c", "location": "us-east5", "zones": ["us-east5-b"]}
POOL |= {"version": "v6e", "topology": "4x4"}
QUEUES: dict[str, Any] = {
    "namespaces": ["research"],
    "flavors": [{"name": "v6e"}],
    "clusterQueues": [{"name": "tpus", "flavors": [{"flavor": "v6e", "quota": {"google.com/tpu": "16"}}]}],
}


OF_TPUS = ("clusterQueues", 0, "flavors", 0, "quota", "google.com/tpu")


@pytest.fixture(scope="module")
def package() -> Any:
    """The package as its plugin serves it."""
    served = runpy.run_path(str(PLUGIN))
    return served["Package"](served["every_component"]())


@pytest.fixture(scope="module")
def schema(package: Any) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(package.schema)
    return content


def test_package_stays_compatible_with_programs_in_other_languages(schema: dict[str, Any]) -> None:
    """Every listed component exists with all its inputs and outputs, and requires no further input."""
    there = {token.removeprefix("gke-ai:index:"): component for token, component in schema["resources"].items()}
    pinned = yaml.safe_load(EXPECTED.read_text())
    assert schema["name"] == "gke-ai"
    assert there.keys() == pinned.keys(), f"a component is added to {EXPECTED}, and never taken away"
    for name, component in there.items():
        pin = pinned[name]
        assert {*component.get("requiredInputs", ())} <= {*pin["required"]}, f"{name} wants more than it did"
        assert {*pin["required"], *pin["optional"]} <= component["inputProperties"].keys(), name
        assert {*pin["outputs"]} <= component.get("properties", {}).keys(), name


def test_schema_says_what_the_package_is_and_no_one_but_its_owner_owns_it(schema: dict[str, Any]) -> None:
    """Without a namespace, generated packages would be in Pulumi's own scope."""
    assert (schema["namespace"], schema["version"]) == ("my-organization", PROJECT_VERSION)
    assert schema["publisher"] in schema["repository"]
    assert {"displayName", "description", "homepage", "license", "keywords"} <= schema.keys()
    assert "kind/component" in schema["keywords"], "the Registry lists packages of components by it"


def test_clone_of_pulumi_has_its_owner_and_the_version_by_which_pulumi_finds_it(tmp_path: Path) -> None:
    clone = "resource-github.com_acme_gke-ai.git_components_plugin-v0.0.0-x1a2b3c"
    folder = tmp_path / clone / "components" / "plugin"
    folder.mkdir(parents=True)
    served = runpy.run_path(str(shutil.copy(PLUGIN, folder)))
    assert (served["OWNER"], served["VERSION"]) == ("acme", "0.0.0-x1a2b3c")


def test_choices_are_enumerations_with_every_value(schema: dict[str, Any]) -> None:
    """Each key that has several values refers to an enumeration of them, named alike wherever it is."""
    mode = schema["types"]["gke-ai:index:GkeClusterMode"]
    assert mode["type"] == "string"
    assert [(entry["name"], entry["value"]) for entry in mode["enum"]] == [
        ("Standard", "standard"),
        ("Autopilot", "autopilot"),
        ("Existing", "existing"),
    ]
    scope = schema["types"]["gke-ai:index:MaintenanceExclusionScope"]["enum"]
    assert {"name": "NoUpgrades", "value": "NO_UPGRADES"}.items() <= scope[0].items()
    values = [tuple(entry["value"] for entry in kind["enum"]) for kind in schema["types"].values() if "enum" in kind]
    repeated = {value for value in values if values.count(value) > 1}
    assert not repeated, "two enumerations with the same values need a common name in CHOICES"


def test_texts_with_credentials_are_secret_in_every_language(schema: dict[str, Any]) -> None:
    secret = {
        f"{token.rpartition(':')[2]}.{key}"
        for token, component in schema["resources"].items()
        for key, definition in {**component["inputProperties"], **component["properties"]}.items()
        if definition.get("secret")
    }
    assert {"WorkloadNamespace.hfToken", "WorkloadNamespace.apiKey", "ClusterConnection.kubeconfig"} <= secret
    assert {"GkeCluster.kubeconfig", "VllmServer.kubeconfig"} <= secret
    assert "VllmServer.apiKey" not in secret, "a switch"


def test_legacy_engines_are_deprecated_and_name_what_replaces_them(schema: dict[str, Any]) -> None:
    deprecated = {
        token.rpartition(":")[2]: component["deprecationMessage"]
        for token, component in schema["resources"].items()
        if "deprecationMessage" in component
    }
    assert deprecated.keys() == {"TgiServer", "JetStreamServer"}
    assert "Use `vllm` instead" in deprecated["TgiServer"]


def refusal(package: Any, kind: str, inputs: dict[str, Any]) -> pulumi.InputPropertiesError:
    """The refusal of these inputs."""
    pulumi.runtime.set_all_config({})
    pulumi.runtime.set_mocks(NoCloud())
    with pytest.raises(pulumi.InputPropertiesError) as error:
        package.construct("x", f"gke-ai:index:{kind}", inputs)
    return error.value


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
        ("KueueStack", QUEUES, OF_TPUS, 'clusterQueues[0].flavors[0].quota["google.com/tpu"]'),
    ],
)
def test_output_for_a_plain_argument_is_refused_with_its_path(
    package: Any, kind: str, inputs: dict[str, Any], at: tuple[Any, ...], path: str, output: Any
) -> None:
    arguments: Any = json.loads(json.dumps(inputs))
    inside = arguments
    for step in at[:-1]:
        inside = inside[step]
    inside[at[-1]] = output
    refused = refusal(package, kind, arguments)
    assert [detail["property_path"] for detail in refused.errors or ()] == [path]
    assert "is the output of a resource, which is known only during an update" in refused.message
    assert "Pass the component, the value itself, or a value of the configuration" in refused.message


def test_output_for_an_output_argument_is_accepted(package: Any) -> None:
    pulumi.runtime.set_mocks(NoCloud())
    package.construct("x", "gke-ai:index:FlexStartTpuPool", {**POOL, "cluster": pulumi.Output.from_input("c")})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"topology": "5x5"}, "5x5 is not a topology of TPU v6e"),
        ({"capacity": {"mode": "spot"}}, "a FlexStartTpuPool has no capacity of mode spot. Use a TpuNodePool"),
        ({"capacity": {"mode": "sometimes"}}, "capacity"),
    ],
)
def test_component_refuses_with_a_sentence_and_no_traceback(package: Any, change: dict[str, Any], message: str) -> None:
    refused = refusal(package, "FlexStartTpuPool", {**POOL, **change}).message
    assert message in refused
    assert "Traceback" not in refused
    assert 'File "' not in refused


@pytest.mark.parametrize(
    "row", yaml.safe_load(EXPECTED.with_name("refused_inputs.yaml").read_text()), ids=lambda row: row["says"]
)
def test_refused_input_is_reported_with_its_path(package: Any, row: dict[str, Any]) -> None:
    good = {"FlexStartTpuPool": POOL, "KueueStack": QUEUES}.get(row["component"], {})
    inputs = {key: value for key, value in good.items() if key not in row.get("drop", ())} | row.get("put", {})
    assert refusal(package, row["component"], inputs).message.startswith(f"{row['component']}: {row['says']}")


def test_every_refused_input_is_reported_at_once(package: Any) -> None:
    refused = refusal(package, "FlexStartTpuPool", {"name": "p", "zone": "a", "topology": 4})
    assert {detail["property_path"] for detail in refused.errors or ()} == {"zone", "topology", "version", "cluster"}


# --- inputs -----------------------------------------------------------------------------------------------------------
def arguments(kind: str, **inputs: Any) -> Any:
    """The arguments of a component with these inputs."""
    return arguments_of(getattr(components, kind))(**inputs)


def test_omitted_inputs_and_nulls_stay_omitted() -> None:
    """The name of a run contains a hash of the keys that are set."""
    section = arguments("FinetuneJob", name="r", namespace="llm", volume={"bucket": "b"}).section(model.FineTune)
    volume = model.FuseVolume(bucket="b")
    named = model.FineTune(name="r", namespace="llm", volume=volume, token_secret=None)
    assert section.model_fields_set == {"name", "namespace", "token_secret", "volume"}
    assert section.object_name == named.object_name
    assert without_nulls({"a": None, "b": {"c": None, "d": 1}, "e": [{"f": None}]}) == {"b": {"d": 1}, "e": [{}]}


def test_nested_inputs_become_their_type() -> None:
    pool = pulumi.Output.from_input("p.svc.id.goog")
    source = {"secret": "projects/p/secrets/s", "project": "p", "workload_pool": pool}
    secrets = [{"name": "hf", "key": "token"}]
    given = arguments("WorkloadNamespace", name="llm", hfTokenFrom=source, tokenSecrets=secrets)
    assert given.hf_token_from == components.SecretManager("projects/p/secrets/s", "p", pool)
    assert given.token_secrets == [model.TokenSecret(name="hf", key="token")]


def test_keys_that_only_some_capacity_modes_have_are_optional(schema: dict[str, Any]) -> None:
    capacity = schema["types"]["gke-ai:index:Capacity"]
    assert capacity["required"] == ["mode"]
    assert capacity["properties"].keys() == {"mode", "reservation", "until", "maxRunDurationSeconds"}
    assert "Only for flexStart and queuedFlexStart." in capacity["properties"]["maxRunDurationSeconds"]["description"]


def test_each_argument_with_a_plain_form_is_an_input_with_a_description(schema: dict[str, Any]) -> None:
    for token, resource in schema["resources"].items():
        fields = ComponentInputs(getattr(components, token.rpartition(":")[2])).fields
        assert resource["inputProperties"].keys() == {to_camel(name) for name in fields}
        assert not fields.keys() & {"opts", "placed"}, "only Python has them"
        assert all(found.get("description") for found in resource["inputProperties"].values()), token
        indented = [line for line in resource["description"].splitlines() if line.startswith("    ")]
        assert indented == [], "other languages show it as code"


def test_only_outputs_of_resources_are_no_plain_inputs(schema: dict[str, Any]) -> None:
    outputs = {
        (token.rpartition(":")[2], name)
        for token, resource in schema["resources"].items()
        for name, found in resource["inputProperties"].items()
        if not found.get("plain")
    }
    assert {name for _, name in outputs} == {
        *("apiKey", "cluster", "clusterZones", "hfToken", "identifier", "image", "kubeconfig", "network"),
        *("nodeServiceAccount", "owner", "podsRange", "project", "secondaryBootDisk", "serversReady"),
        *("serviceAccount", "servicesRange", "subnetwork", "workloadPolicy", "workloadPool"),
    }
    assert ("GpuNodePool", "cluster") in outputs
    assert ("SystemMonitoring", "cluster") not in outputs
