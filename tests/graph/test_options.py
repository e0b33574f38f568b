"""The options of each component, and two of each: what its children get, and what they are called."""

from collections.abc import Callable, Mapping
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
import pytest
import yaml

from gke_ai import components
from gke_ai.components import every_component
from tests.support.recorder import ROOT, Record, construct, record

FOLDER = ROOT / "tests" / "data" / "expected"
ROWS: dict[str, Any] = yaml.safe_load((FOLDER / "options.yaml").read_text())
BASES: dict[str, Any] = {
    component: inputs
    for file in sorted((FOLDER / "registered").glob("*.yaml"))
    for component, inputs in (yaml.load(file.read_text(), yaml.CSafeLoader).get("bases") or {}).items()
}
# A value of each option that is for one resource alone, and what the engine gets.
OF_ONE_RESOURCE: dict[str, tuple[Any, str, Any]] = {
    "ignore_changes": (["x"], "ignored", "x"),
    "replace_on_changes": (["y"], "replace_on_changes", "y"),
    "delete_before_replace": (False, "delete_before_replace", False),
    "custom_timeouts": (pulumi.CustomTimeouts(create="42m"), "timeouts", "42m"),
    "additional_secret_outputs": (["z"], "secret_outputs", "z"),
    "hide_diffs": (["w"], "hidden", "w"),
    "replacement_trigger": ("t", "replacement_trigger", "t"),
}

Build = Callable[..., Record]
every = pytest.mark.parametrize("name", [component.__name__ for component in every_component()])


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Build:
    """Creates a component with options, and returns what it registers without the component itself."""

    def built(name: str, more: Mapping[str, Any] = {}, **options: Any) -> Record:
        inputs = {**(ROWS[name].get("with") or BASES[name]), **more}

        def program() -> None:
            # Here, because a provider among the options is a resource of the program.
            values = {option: value() if callable(value) else value for option, value in options.items()}
            construct(getattr(components, name), "x", inputs, pulumi.ResourceOptions(**values))

        found = record(program, False, monkeypatch)
        return Record({urn: each for urn, each in found.resources.items() if each.type != f"gke-ai:index:{name}"})

    return built


@every
def test_no_option_of_a_child_goes_before_an_inherited_one(name: str, build: Build) -> None:
    """The SDK passes `protect` to the children, and the engine `retain_on_delete` and `deleted_with`, if unset."""
    children = build(name).resources.values()
    assert {child.type.rpartition(":")[2] for child in children if child.retained} == set(ROWS[name].get("always", ()))
    assert [child.name for child in children if child.protected] == []
    assert [child.name for child in children if child.overrides] == []
    assert all(child.protected for child in build(name, protect=True).resources.values())


@every
@pytest.mark.parametrize("option", OF_ONE_RESOURCE)
def test_what_no_child_inherits_goes_to_the_main_child(option: str, name: str, build: Build) -> None:
    value, field, expected = OF_ONE_RESOURCE[option]
    if option == "delete_before_replace" and name.endswith(("Job", "Download")):  # which state the other one
        value = expected = True
    if (main := ROWS[name].get("main")) is None:
        with pytest.raises(pulumi.RunError, match=rf"{name} x: opts has {option}, which no child would take. Use tran"):
            build(name, **{option: value})
        return

    def has(child: Any) -> bool:
        found = getattr(child, field)
        return expected in found if isinstance(found, tuple) else found == expected

    built, plain = build(name, **{option: value}), build(name)
    changed = [urn for urn, child in built.resources.items() if has(child) and not has(plain.resources[urn])]
    (child,) = (built.resources[urn] for urn in changed)
    assert child.type.rpartition(":")[2].rpartition("/")[2] == main
    if isinstance(kept := getattr(plain.resources[child.urn], field), tuple):
        assert set(kept) <= set(getattr(child, field)), "the component's own stay"


@every
def test_a_provider_of_a_component_is_that_of_its_children(name: str, build: Build) -> None:
    built = build(name, providers=lambda: [k8s.Provider("theirs", kubeconfig="k")])
    children = [child for child in built.resources.values() if child.type.startswith("kubernetes:")]
    assert [child.name for child in children if not any("::theirs" in urn for urn in child.dependencies)] == []


@every
def test_a_program_has_two_of_a_component_side_by_side(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = ROWS[name].get("with") or BASES[name]
    component, place = getattr(components, name), {"us": "us-central1", "eu": "europe-west4"}

    def program() -> None:
        for region, location in place.items():
            construct(component, region, inputs | {"location": location} if "location" in inputs else inputs)

    resources = record(program, False, monkeypatch).resources.values()
    assert {resource.name.partition("/")[0].partition("-")[0] for resource in resources} == set(place)
    for resource in resources:
        assert {urn.rpartition("::")[2][:2] for urn in resource.dependencies} <= {resource.name[:2]}, resource.name


def test_a_cluster_that_exists_refuses_options_for_one_resource(build: Build) -> None:
    with pytest.raises(pulumi.RunError, match="GkeCluster x: opts has ignore_changes, which no child would take"):
        build("GkeCluster", {"mode": "existing"}, ignore_changes=["x"])
