"""The inputs of each component of the package: the arguments that have a plain form, in camelCase."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pulumi
from pulumi.provider.experimental.analyzer import PropertyDefinition
from pydantic.alias_generators import to_camel

from gke_ai.components.arguments import Arguments, Part, Refused, read
from gke_ai.components.base import Component, arguments_of
from gke_ai.components.plugin.schema import Input, Types, fields_of
from gke_ai.settings.model import Section
from gke_ai.settings.problems import Problem, nearest


@dataclass(frozen=True)
class ComponentInputs:
    """The inputs of a component."""

    component: type[Component]

    @cached_property
    def section(self) -> type[Section] | None:
        """The section among the arguments, if there is one."""
        every = arguments_of(self.component).__mro__
        first = next(base for base in every if issubclass(base, Section) and not issubclass(base, Part))
        return first if first is not Section else None

    @cached_property
    def fields(self) -> dict[str, Input]:
        """The inputs, by name in Python."""
        return fields_of(arguments_of(self.component))

    def definitions(self, types: Types) -> dict[str, PropertyDefinition]:
        """The inputs for the schema, by name. Adds the types that they use to `types`."""
        fields = {to_camel(name): field for name, field in self.fields.items()}
        return types.properties_of(self.component.__name__, fields)


def arguments_from(
    component: type[Component], name: str, inputs: Mapping[str, Any], opts: pulumi.ResourceOptions | None
) -> Arguments:
    """The arguments with these inputs. Raises Refused with every mistake."""
    kind = arguments_of(component)
    known = {to_camel(field): field for field in fields_of(kind)}
    # In Python, an argument can also be written in snake_case.
    problems = [
        Problem(
            key,
            f"is not an input of {component.__name__}",
            f"Write {kind.renamed_keys[key]}" if key in kind.renamed_keys else nearest(key, known),
        )
        for key in inputs
        if key not in known
    ]
    keywords = {known[key]: value for key, value in inputs.items() if key in known}
    try:
        arguments = read(kind, component.__name__, name, {**keywords, "opts": opts})
    except Refused as refused:
        raise Refused(component.__name__, *problems, *refused.problems) from None
    if problems:
        raise Refused(component.__name__, *problems)
    return arguments


def without_nulls(value: Any) -> Any:
    """The inputs without those that are null, which counts as omitted."""
    if isinstance(value, Mapping):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value
