"""Serves the components as the Pulumi package `gke-ai`, to programs in TypeScript, Go, YAML and others.

The package has its own folder because Pulumi runs the `__main__.py` beside PulumiPlugin.yaml, and that of the
repository's root is the program. https://www.pulumi.com/docs/iac/guides/building-extending/packages/source-based-plugin/
"""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pulumi
import pulumi.provider
from pulumi.errors import InputPropertyErrorDetails as Refusal
from pulumi.provider.experimental.analyzer import Analyzer, ComponentDefinition
from pulumi.provider.experimental.schema import generate_schema
from pulumi.provider.server import ComponentInitError

from gke_ai.components import every_component
from gke_ai.components.arguments import Refused
from gke_ai.components.base import Component
from gke_ai.components.plugin.inputs import ComponentInputs, arguments_from, without_nulls
from gke_ai.components.plugin.schema import Types

NAME = "gke-ai"
VERSION = "0.0.0"  # the version of a package from source is its commit


class Package(pulumi.provider.Provider):
    """Pulumi's component host. It reports a refusal as a path and a sentence, without a traceback."""

    def __init__(self, served: list[type[Component]]) -> None:
        self._inputs = {component.__name__: ComponentInputs(component) for component in served}
        self._types = Types(NAME)
        self._definitions = {name: self._definition(inputs) for name, inputs in self._inputs.items()}
        schema = generate_schema(NAME, VERSION, None, self._definitions, self._types.definitions, [])
        super().__init__(VERSION, json.dumps(schema.to_json()))

    def _definition(self, inputs: ComponentInputs) -> ComponentDefinition:
        component = inputs.component
        outputs, output_names = Analyzer(NAME).analyze_type(component, is_component_output=True)
        return ComponentDefinition(
            name=component.__name__,
            inputs=inputs.definitions(self._types),
            inputs_mapping={},
            outputs=outputs,
            outputs_mapping=output_names,
            module=component.__module__,
            description=(inspect.getdoc(component) or "").partition("\n\nExample:")[0],
        )

    def outputs(self) -> dict[str, list[str]]:
        """The outputs of each component."""
        return {name: list(definition.outputs) for name, definition in self._definitions.items()}

    def construct(
        self, name: str, resource_type: str, inputs: pulumi.Inputs, options: pulumi.ResourceOptions | None = None
    ) -> pulumi.provider.ConstructResult:
        component_name = resource_type.rpartition(":")[2]
        definition, component_type = self._definitions[component_name], self._inputs[component_name].component
        create: Any = component_type
        try:
            component = create(name, arguments_from(component_type, name, without_nulls(inputs), options))
        except Refused as refused:
            details: list[Refusal] = [
                {"property_path": problem.path, "reason": f"{problem.cause}. {problem.remedy}"}
                for problem in refused.problems
            ]
            lines = "; ".join(f"{detail['property_path']}: {detail['reason']}" for detail in details)
            raise pulumi.InputPropertiesError(f"{component_name}: {lines}", details) from None
        except pulumi.RunError as refused:
            raise pulumi.InputPropertiesError(str(refused), []) from None
        except Exception as error:  # noqa: BLE001  reported with its traceback
            raise ComponentInitError(error) from None
        outputs = {output: getattr(component, attribute) for output, attribute in definition.outputs_mapping.items()}
        return pulumi.provider.ConstructResult(component.urn, outputs)


if __name__ == "__main__":
    pulumi.provider.main(Package(every_component()), sys.argv[1:])
