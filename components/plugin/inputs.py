"""The inputs of each component of the package: the arguments that have a plain form, in camelCase."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pulumi.provider.experimental.analyzer import PropertyDefinition
from pydantic.alias_generators import to_camel

from gke_ai.components.arguments import Arguments
from gke_ai.components.base import Component, arguments_of
from gke_ai.components.plugin.schema import Input, Types, fields_of
from gke_ai.settings.model import Section


@dataclass(frozen=True)
class ComponentInputs:
    """The inputs of a component."""

    component: type[Component]

    @cached_property
    def section(self) -> type[Section] | None:
        """The section among the arguments, if there is one."""
        bases = (base for base in arguments_of(self.component).__mro__ if not issubclass(base, Arguments))
        first = next(bases)
        return first if first is not Section else None

    @cached_property
    def fields(self) -> dict[str, Input]:
        """The inputs, by name in Python."""
        return fields_of(arguments_of(self.component))

    @cached_property
    def own(self) -> dict[str, Input]:
        """The inputs that are no keys of the section, or have another type or meaning there."""
        of_section = fields_of(self.section) if self.section else {}
        return {name: field for name, field in self.fields.items() if of_section.get(name) != field}

    def definitions(self, types: Types) -> dict[str, PropertyDefinition]:
        """The inputs for the schema, by name. Adds the types that they use to `types`."""
        fields = {to_camel(name): field for name, field in self.fields.items()}
        return types.properties_of(self.component.__name__, fields)


def without_nulls(value: Any) -> Any:
    """The inputs without those that are null, which counts as omitted."""
    if isinstance(value, Mapping):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value
