"""The example of each component, as a program of the package, registers what the example in Python does."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
import pytest
from pydantic.alias_generators import to_snake

from gke_ai import components
from gke_ai.components import every_component
from gke_ai.components.base import Component
from gke_ai.components.plugin.inputs import arguments_from
from maintain.pages.components_page import PRELUDE, example_of
from maintain.sdks.examples import Program, Reference, Resource, in_pcl, program_of
from tests.support.recorder import PROJECT, Record, record

# What is a child in Python, and a resource of its own in a program of the package.
ELSEWHERE = {
    "InferenceGateway": ("GatewayRoute", "InferencePool", "HTTPRoute"),
    "JetStreamAutoscaling": ("MetricsAdapter",),
    "ServerAutoscaling": ("MetricsAdapter",),
    "WorkloadNamespace": ("BucketIAMMember",),
}


def created(program: Program) -> None:
    """Create the resources of a program as the package does."""
    known: dict[str, Any] = {}

    def value(of: object) -> Any:
        if isinstance(of, Reference):
            return getattr(known[of.resource], to_snake(of.output)) if of.output else pulumi.Output.secret("k")
        if isinstance(of, Mapping):
            return {key: value(item) for key, item in of.items()}
        return [value(item) for item in of] if isinstance(of, Sequence) and not isinstance(of, str) else of

    for resource in program.resources:
        opts = pulumi.ResourceOptions(
            providers=[known[resource.provider]] if resource.provider else None,
            depends_on=[known[other] for other in resource.depends_on],
        )
        if resource.type == "pulumi:providers:kubernetes":
            known[resource.variable] = k8s.Provider(resource.name, **value(resource.inputs))
        else:
            kind = getattr(components, resource.type.rpartition(":")[2])
            args = arguments_from(kind, resource.name, value(resource.inputs), opts)
            known[resource.variable] = kind(resource.name, args)


def of(component: type[Component], record: Record) -> Counter[str]:
    """Types and names of what the components of one class create."""
    own = {resource.urn for resource in record.all(component.__name__)}
    children = [resource for resource in record.resources.values() if resource.parent in own]
    elsewhere = (*ELSEWHERE.get(component.__name__, ()), "pulumi:providers:kubernetes")
    named = [f"{child.type} {child.object_name}" for child in children if not child.type.endswith(elsewhere)]
    # The name of a run ends in a hash of its pods. A namespace in Python owns its runs.
    return Counter(re.sub("-[0-9a-f]{6}$", "", name) for name in named if not name.endswith("-owner"))


@pytest.mark.slow
@pytest.mark.parametrize("component", every_component(), ids=lambda component: component.__name__)
def test_the_program_of_an_example_creates_what_the_example_does(
    component: type[Component], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = program_of(component)
    pulumi.runtime.set_all_config({"gcp:project": PROJECT, "project:kubeconfig": "k", "gke-ai:kubeconfig": "k"})
    in_package = record(lambda: created(program), False, monkeypatch)
    names = {resource.name for resource in program.resources if resource.type.endswith(f":{component.__name__}")}
    assert names
    in_python = record(lambda: exec(f"{PRELUDE}\n{example_of(component)}", {}), False, monkeypatch)
    # Without those of the program that all examples go on from, if the example does not need them.
    theirs = {
        urn: resource
        for urn, resource in in_python.resources.items()
        if resource.name in names or not resource.type.endswith(f":{component.__name__}")
    }
    assert of(component, in_package) == of(component, Record(theirs))


def test_text_of_the_user_is_no_expression() -> None:
    assert in_pcl('${a} %{if} "b"') == '"$${a} %%{if} \\"b\\""'
    assert in_pcl(Reference("cluster", "kubeconfig")) == "cluster.kubeconfig"


def test_a_program_states_secrets_names_and_options() -> None:
    theirs = Resource("theirs", "my-theirs", "gke-ai:index:ClusterConnection", {"kubeconfig": Reference("kubeconfig")})
    queue = Resource("queue", "queue", "gke-ai:index:KueueStack", {}, "inTheirs", ["theirs"])
    program = Program([theirs, queue])
    assert program.pcl() == (
        'config kubeconfig "string" {\n  secret = true\n}\n'
        'resource theirs "gke-ai:index:ClusterConnection" {\n__logicalName = "my-theirs"\nkubeconfig = kubeconfig\n}\n'
        'resource queue "gke-ai:index:KueueStack" {\n__logicalName = "queue"\n'
        "options {\nproviders = [inTheirs]\ndependsOn = [theirs]\n}\n}\n"
    )
    assert "kubeconfig: ${kubeconfig}" in program.yaml("x")
    assert "dependsOn:\n      - ${theirs}" in program.yaml("x")
