"""The example of each component as a program of the package, from the one in Python in its documentation.

The example runs, and its components are recorded with their arguments. A program of the package has no components as
arguments. What one brings is stated instead:

- a cluster: its name and location for a pool, else a Kubernetes provider, `dependsOn`, and the kubeconfig for waits;
- a pool: its name, and the accelerator or the slice;
- a server that is scaled: its Deployment;
- a namespace, a bucket, networks: the name, and `dependsOn`;
- the pools of a cluster queue: flavors with their labels, and quotas in amounts;
- the buckets of a namespace: grants of the buckets;
- the routes of a gateway and the adapter of an autoscaler: nothing. They are resources of their own there, a
  `GatewayRoute` and a `MetricsAdapter`.

A namespace in Python also owns its runs. In a program of the package, each run has a ConfigMap as its owner.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, Union
from unittest import mock

import pulumi
import pytest
import yaml
from pydantic.alias_generators import to_camel

from gke_ai.components import ClusterConnection, GkeCluster, KueueStack, ModelBucket, WorkloadNamespace
from gke_ai.components.arguments import Arguments, components_in
from gke_ai.components.base import Component, arguments_of
from gke_ai.components.cluster.connection import AnyCluster, InCluster
from gke_ai.components.plugin.inputs import ComponentInputs
from gke_ai.components.plugin.schema import fields_of, takes_outputs, upper_first
from gke_ai.components.pools.gpu_pool import GpuNodePool, GpuNodePoolArguments, networks_of
from gke_ai.components.pools.tpu_pool import TpuPoolComponent
from gke_ai.components.queues.kueue import node_flavors, queues_with_quotas
from gke_ai.components.serving.server_autoscaling import ServerAutoscalingArguments
from gke_ai.settings.model import GpuPool, Section, TpuPool
from maintain.pages.components_page import PRELUDE, example_of
from tests.support.recorder import PROJECT, record


@dataclass(frozen=True)
class Reference:
    """The output of a resource or, without one, a secret of the configuration."""

    resource: str
    output: str = ""


Value: TypeAlias = Union[bool, int, float, str, Reference, "Sequence[Value]", "Mapping[str, Value]", None]


@dataclass
class Resource:
    """A resource of a program: its variable, its name, and what it is declared with."""

    variable: str
    name: str
    type: str
    inputs: dict[str, Value]
    provider: str = ""
    depends_on: list[str] = field(default_factory=list)

    def needs(self) -> set[str]:
        """Variables that the declaration names."""
        return {*self.depends_on, *filter(None, [self.provider]), *(it.resource for it in references(self.inputs))}


@dataclass
class Program:
    """Resources, each after those that it needs."""

    resources: list[Resource]

    def secrets(self) -> list[str]:
        """Names of the secrets of the configuration."""
        return sorted(
            {it.resource for resource in self.resources for it in references(resource.inputs) if not it.output}
        )

    def pcl(self) -> str:
        """The program in the language that Pulumi's generators read.

        https://github.com/pulumi/pulumi/blob/v3.250.0/pkg/codegen/programs.md
        """
        blocks = [f'config {name} "string" {{\n  secret = true\n}}' for name in self.secrets()]
        for resource in self.resources:
            lines = [f"{key} = {in_pcl(value)}" for key, value in resource.inputs.items()]
            options = [f"providers = [{resource.provider}]"] if resource.provider else []
            options += [f"dependsOn = [{', '.join(resource.depends_on)}]"] if resource.depends_on else []
            lines += ["options {", *options, "}"] if options else []
            head = f'resource {resource.variable} "{resource.type}"'
            blocks.append("\n".join([f"{head} {{", f"__logicalName = {json.dumps(resource.name)}", *lines, "}"]))
        return "\n".join(blocks) + "\n"

    def yaml(self, name: str) -> str:
        """The program in YAML."""
        resources = {}
        for resource in self.resources:
            options = {"providers": [f"${{{resource.provider}}}"]} if resource.provider else {}
            options |= {"dependsOn": [f"${{{it}}}" for it in resource.depends_on]} if resource.depends_on else {}
            resources[resource.variable] = {
                "type": resource.type,
                **({"name": resource.name} if resource.name != resource.variable else {}),
                **({"properties": in_yaml(resource.inputs)} if resource.inputs else {}),
                **({"options": options} if options else {}),
            }
        secrets = {"config": {key: {"type": "string", "secret": True} for key in self.secrets()}}
        content = {"name": name, "runtime": "yaml", **(secrets if self.secrets() else {}), "resources": resources}
        return yaml.safe_dump(content, sort_keys=False)


def references(value: Value) -> Iterator[Reference]:
    """The references in a value."""
    if isinstance(value, Reference):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from references(item)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            yield from references(item)


def in_pcl(value: Value) -> str:
    """The value as an expression."""
    if isinstance(value, Reference):
        return f"{value.resource}.{value.output}" if value.output else value.resource
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{json.dumps(key)} = {in_pcl(item)}' for key, item in value.items())}}}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(in_pcl, value))}]"
    return json.dumps(value).replace("${", "$${").replace("%{", "%%{")


def in_yaml(value: Value) -> object:
    """The value with references as Pulumi's YAML has them."""
    if isinstance(value, Reference):
        return f"${{{in_pcl(value)}}}"
    if isinstance(value, Mapping):
        return {key: in_yaml(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [in_yaml(item) for item in value]
    return value


def programs(components: Sequence[type[Component]]) -> dict[str, Program]:
    """The example of each component, by the name of the component."""
    return {component.__name__: program_of(component) for component in components}


def program_of(component: type[Component]) -> Program:
    """The example of a component with what it needs of the program that all examples go on from."""
    made, first = recorded(example_of(component))
    every = {resource.variable: resource for resource in made.resources()}
    needed = {variable for variable in made.variables.values() if variable not in first}
    while more := {other for variable in needed for other in every[variable].needs() if other in every} - needed:
        needed |= more
    return Program([resource for variable, resource in every.items() if variable in needed])


def recorded(example: str) -> tuple[Made, set[str]]:
    """The components of an example with their arguments, and the variables of what comes before the example."""
    made, known, first = Made(), dict[str, object](), set[str]()
    build = Component.__init__

    def built(it: Component, name: str, args: Arguments, further: pulumi.ResourceOptions | None = None) -> None:
        build(it, name, args, further)
        if args.opts is None:  # not a child of another one
            made.components.append((it, name, args))

    def run() -> None:
        exec(PRELUDE, known)
        made.name(known)
        first.update(made.variables.values())
        exec(example, known)
        made.name(known)

    pulumi.runtime.set_all_config({"gcp:project": PROJECT, "project:kubeconfig": "k", "gke-ai:kubeconfig": "k"})
    with pytest.MonkeyPatch.context() as patches, mock.patch.object(Component, "__init__", built):
        record(run, False, patches)
    return made, first


class Made:
    """The components of a program, in order, with their names, arguments and variables."""

    def __init__(self) -> None:
        self.components: list[tuple[Component, str, Arguments]] = []
        self.variables: dict[int, str] = {}

    def name(self, known: Mapping[str, object]) -> None:
        """Name the components: by the variables of the program, else by their own names."""
        held = {id(value): key for key, value in known.items() if isinstance(value, Component)}
        for component, name, _ in self.components:
            if id(component) not in self.variables:
                variable = camel(held.get(id(component), name))
                taken = variable in self.variables.values()
                self.variables[id(component)] = f"{variable}{type(component).__name__}" if taken else variable

    def resources(self) -> Iterator[Resource]:
        """The declarations. A provider follows its cluster."""
        for component, name, args in self.components:
            yield self._resource(component, name, args)
            if isinstance(component, AnyCluster):
                kubeconfig = Reference(self.variables[id(component)], "kubeconfig")
                provider = self._provider(component)
                yield Resource(provider, provider, "pulumi:providers:kubernetes", {"kubeconfig": kubeconfig})

    def _provider(self, cluster: AnyCluster) -> str:
        variable = self.variables[id(cluster)]
        return f"in{upper_first(variable)}"

    def _resource(self, component: Component, name: str, args: Arguments) -> Resource:
        inputs = {to_camel(key): value for key, value in self._inputs(component, name, args).items()}
        resource = Resource(self.variables[id(component)], name, f"gke-ai:index:{type(component).__name__}", inputs)
        cluster = args.place() if isinstance(args, InCluster) else None
        if cluster is not None:
            resource.provider = self._provider(cluster)
        after = [*args.components(), *([cluster] if cluster is not None else [])]
        resource.depends_on = [
            self.variables[it] for it in dict.fromkeys(map(id, after)) if it in self.variables and it != id(component)
        ]
        return resource

    def _inputs(self, component: Component, name: str, args: Arguments) -> dict[str, Value]:
        """The arguments that the package has, and what the components among the others bring."""
        fields = ComponentInputs(type(component)).fields
        stated = {
            key: getattr(args, key)
            for key in arguments_of(type(component)).model_fields
            if key in args.model_fields_set
        }
        inputs: dict[str, Value] = {}
        for key, value in stated.items():
            if key in fields and not (key == "name" and value == name):
                inputs[key] = self._plain(value, key, takes_outputs(fields[key].annotation))
        for other in components_in(list(stated.values())):
            inputs |= {key: value for key, value in brings(other) if key in fields and key not in inputs}
        cluster = args.place() if isinstance(args, InCluster) else None
        if cluster is not None and "kubeconfig" in fields:
            inputs["kubeconfig"] = Reference(self.variables[id(cluster)], "kubeconfig")
        if isinstance(component, KueueStack):
            inputs |= {
                "flavors": self._plain(node_flavors(component.resolved)),
                "cluster_queues": self._plain(queues_with_quotas(component.resolved)),
            }
        if isinstance(args, ServerAutoscalingArguments):
            inputs.pop("server", None)
            inputs["deployment"], inputs["cluster"] = self._plain(args.scaled(name).target), args.cluster_name(name)
        if isinstance(args, GpuNodePoolArguments) and args.networks:
            inputs["networks"] = self._plain(networks_of(args.section(GpuPool), args.networks))
        if isinstance(component, ModelBucket):
            inputs["name"] = component.called
            if spaces := self._granted(component):
                inputs["grants"] = [{"namespace": space.called} for space in spaces]
                inputs["workload_pool"] = Reference(self.variables[id(spaces[0].cluster)], "workloadPool")
        return inputs

    def _granted(self, bucket: ModelBucket) -> list[WorkloadNamespace]:
        """The namespaces whose pods may use a bucket."""
        spaces = [component for component, _, _ in self.components if isinstance(component, WorkloadNamespace)]
        return [space for space in spaces if space.may_use(bucket)]

    def _plain(self, value: object, key: str = "", outputs: bool = False) -> Value:
        """A value without components, sections and outputs."""
        if isinstance(value, Component):
            if outputs and isinstance(value, GkeCluster | ClusterConnection):
                return Reference(self.variables[id(value)], "clusterName")
            return value.called
        if isinstance(value, pulumi.Output):
            return self._output(value) or Reference(key)
        if isinstance(value, Section):
            kept = {name: getattr(value, name) for name in fields_of(type(value)) if name in value.model_fields_set}
            return {to_camel(name): self._plain(item, name) for name, item in kept.items()}
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            of = {it.name: getattr(value, it.name) for it in dataclasses.fields(value)}
            return {to_camel(name): self._plain(item) for name, item in of.items() if item}
        if isinstance(value, Mapping):
            return {str(name): self._plain(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._plain(item) for item in value]
        assert value is None or isinstance(value, bool | int | float | str), value
        return value

    def _output(self, value: pulumi.Output[object]) -> Reference | None:
        for component, _, _ in self.components:
            for attribute, output in vars(component).items():
                if output is value:
                    return Reference(self.variables[id(component)], to_camel(attribute))
        return None


def camel(name: str) -> str:
    """A name as a variable."""
    first, *others = name.replace("-", "_").split("_")
    return "".join([first, *map(upper_first, others)])


def brings(component: pulumi.Resource) -> Iterator[tuple[str, Value]]:
    """What a component among the arguments decides, by the name of the argument."""
    if isinstance(component, GkeCluster):
        yield "location", component.section.location
        yield "region", component.section.location
    if isinstance(component, GpuNodePool):
        yield "accelerator", component.section.accelerator_type
    if isinstance(component, TpuPoolComponent) and isinstance(component.section, TpuPool):
        yield "tpu", {"version": component.section.version, "topology": component.section.topology}
