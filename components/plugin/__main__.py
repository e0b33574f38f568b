"""Serves the components as the Pulumi package `gke-ai`, to programs in TypeScript, Go, YAML and others.

The package has its own folder because Pulumi runs the `__main__.py` beside PulumiPlugin.yaml, and that of the
repository's root is the program. https://www.pulumi.com/docs/iac/guides/building-extending/packages/source-based-plugin/
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import pulumi
import pulumi.provider
from pulumi.errors import InputPropertyErrorDetails as Refusal
from pulumi.provider.experimental.analyzer import Analyzer, ComponentDefinition
from pulumi.provider.experimental.schema import generate_schema
from pulumi.provider.server import ComponentInitError

from gke_ai.catalog.versions import PROJECT_VERSION
from gke_ai.components import every_component
from gke_ai.components.arguments import Refused
from gke_ai.components.base import Component
from gke_ai.components.plugin.inputs import ComponentInputs, arguments_from, without_nulls
from gke_ai.components.plugin.schema import Types
from gke_ai.settings.model.serving import legacy

NAME = "gke-ai"
# Pulumi clones a package into resource-github.com_OWNER_REPOSITORY.git_PATH-vVERSION, and looks for this version of it
# when a program runs. That of a commit is 0.0.0-x and the commit. Elsewhere, the owner is not known.
CLONE = re.match(r"resource-[^_]+_([^_]+)_.+-v(\d+\.\d+\.\d+\S*)$", ROOT.name)
OWNER, VERSION = CLONE.groups() if CLONE else ("my-organization", PROJECT_VERSION)
REPOSITORY = f"https://github.com/{OWNER}/{NAME}"
# https://www.pulumi.com/docs/iac/guides/building-extending/packages/schema/
ABOUT: dict[str, Any] = {
    "displayName": "AI on GKE",
    "description": "Clusters, accelerator pools, queues, model servers and training runs on Google Kubernetes Engine.",
    "publisher": OWNER,
    "homepage": REPOSITORY,
    "repository": REPOSITORY,
    "license": "Apache-2.0",
    "keywords": ["category/infrastructure", "kind/component", "ai", "gke", "gpu", "kubernetes", "kueue", "tpu"],
}
if getattr(sys, "frozen", False):  # in the executable, which Pulumi downloads. It builds the other from source.
    ABOUT["pluginDownloadURL"] = f"github://api.github.com/{OWNER}/{NAME}"
LANGUAGES: dict[str, dict[str, Any]] = {
    "go": {
        "importBasePath": f"github.com/{OWNER}/{NAME}/sdk/go/gkeai",
        "rootPackageName": "gkeai",
        # Types that only lists hold are else not there for arguments.
        "generateExtraInputTypes": True,
    },
    "java": {"basePackage": f"com.{OWNER.replace('-', '')}"},
    "python": {"pyproject": {"enabled": True}},
}
# Inputs that are secrets if they are texts. A switch of the same name is none.
SECRETS = ("apiKey", "hfToken", "kubeconfig")
# What an engine's servers are replaced by.
DEPRECATED = {"JetStreamServer": legacy("jetstream"), "TgiServer": legacy("tgi")}


class Package(pulumi.provider.Provider):
    """Pulumi's component host. It reports a refusal as a path and a sentence, without a traceback."""

    def __init__(self, served: list[type[Component]]) -> None:
        self._inputs = {component.__name__: ComponentInputs(component) for component in served}
        self._types = Types(NAME)
        self._definitions = {name: self._definition(inputs) for name, inputs in self._inputs.items()}
        super().__init__(VERSION, json.dumps(self._described()))

    def _described(self) -> dict[str, Any]:
        """The schema, with what Pulumi's analyzer of components has no words for."""
        schema = generate_schema(NAME, VERSION, OWNER, self._definitions, self._types.definitions, []).to_json()
        for language, options in LANGUAGES.items():
            schema["language"][language] |= options
        for name in self._definitions:
            resource = schema["resources"][f"{NAME}:index:{name}"]
            for key, definition in {**resource["inputProperties"], **resource["properties"]}.items():
                if key in SECRETS and definition["type"] == "string":
                    definition["secret"] = True
            if name in DEPRECATED:
                resource["deprecationMessage"] = DEPRECATED[name]
        return {**schema, **ABOUT}

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
