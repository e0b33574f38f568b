"""Serves the components as the Pulumi package `gke-ai`, to programs in TypeScript, Go, YAML and others.

The package has its own folder because the engine runs the `__main__.py` beside PulumiPlugin.yaml, and that of the
repository's root is the program. https://www.pulumi.com/docs/iac/guides/building-extending/packages/source-based-plugin/
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pulumi
import pulumi.provider
from pulumi.output import Unknown
from pulumi.provider.experimental.analyzer import PropertyDefinition
from pulumi.provider.experimental.component import ComponentProvider
from pulumi.provider.server import ComponentInitError

import components
from catalog.tpus import NoSuchSlice

NAME = "gke-ai"


def every_component() -> list[type[pulumi.ComponentResource]]:
    """All components that `components` exports, with their docstrings unindented."""
    members = (getattr(components, name) for name in components.__all__)
    classes = [
        member for member in members if isinstance(member, type) and issubclass(member, pulumi.ComponentResource)
    ]
    for component in classes:
        component.__doc__ = inspect.getdoc(component)
    return classes


class Package(ComponentProvider):
    """Pulumi's component host. It reports a refusal as a path and a sentence, without a traceback."""

    def construct(
        self,
        name: str,
        resource_type: str,
        inputs: pulumi.Inputs,
        options: pulumi.ResourceOptions | None = None,
    ) -> pulumi.provider.ConstructResult:
        definition = self._component_defs[resource_type.rpartition(":")[2]]
        for key, value in inputs.items():
            for path in self._not_plain(value, definition.inputs.get(key), key):
                raise pulumi.InputPropertyError(
                    path,
                    "this is the output of a resource. The component needs the value before Pulumi creates anything. "
                    "Write the value itself, or read it from the configuration",
                )
        try:
            return super().construct(name, resource_type, inputs, options)
        except ComponentInitError as error:
            if isinstance(error.inner, pulumi.InputPropertiesError):
                raise error.inner from None
            # Components refuse arguments with these errors. Any other error is a bug of the component.
            if isinstance(error.inner, pulumi.RunError | ValueError | NoSuchSlice):
                raise pulumi.InputPropertiesError(str(error.inner), []) from None
            raise

    def _not_plain(self, value: Any, definition: PropertyDefinition | None, path: str) -> Iterator[str]:
        """Paths of outputs in `value` for which the component needs plain values."""
        if definition is None or not (definition.plain or isinstance(value, dict | list)):
            return
        if isinstance(value, pulumi.Output | Unknown):
            yield path
        elif isinstance(value, list):
            for index, item in enumerate(value):
                yield from self._not_plain(item, definition.items, f"{path}[{index}]")
        elif isinstance(value, dict):
            type_definition = self.get_type_definition(definition) if definition.ref else None
            for key, item in value.items():
                inner = type_definition.properties.get(key) if type_definition else definition.additional_properties
                yield from self._not_plain(item, inner, f"{path}.{key}")


if __name__ == "__main__":
    pulumi.provider.main(Package(every_component(), NAME), sys.argv[1:])
