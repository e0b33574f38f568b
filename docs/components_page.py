"""`docs/components.md`: every component with its inputs and outputs, from the schema of the Pulumi package."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from package.__main__ import Package, every_component

HEAD = """# Components

<!-- Written by `make docs` from components/. -->

Programs that compose their own stack use these components: in Python with `from components import …` and the names
below in snake_case, in other languages through the [package](package.md) `gke-ai`. An input in **bold** is required. An
input marked *output* accepts the output of another resource. All other inputs need values that are known before Pulumi
creates anything.
"""


def page() -> str:
    """The page as Markdown."""
    schema: dict[str, Any] = json.loads(str(Package(every_component()).schema))
    parts = [_component(token, resource) for token, resource in sorted(schema["resources"].items())]
    types = [_type_section(token, type_) for token, type_ in sorted(schema["types"].items())]
    return HEAD + "".join(parts) + "\n## Types\n" + "".join(types)


def _component(token: str, resource: Mapping[str, Any]) -> str:
    rows = _rows(resource["inputProperties"], resource.get("requiredInputs", []))
    outputs = ", ".join(f"`{name}`" for name in sorted(resource.get("properties", {}))) or "none"
    return f"\n## {_name(token)}\n\n{_summary(resource)}\n\n{rows}\nOutputs: {outputs}\n"


def _type_section(token: str, type_: Mapping[str, Any]) -> str:
    return f"\n### {_name(token)}\n\n{_summary(type_)}\n\n{_rows(type_['properties'], type_.get('required', []))}"


def _rows(properties: Mapping[str, Any], required: list[str]) -> str:
    lines = ["| input | is a | meaning |", "| --- | --- | --- |"]
    for name in sorted(properties, key=lambda key: (key not in required, key)):
        schema = properties[name]
        shown = f"**`{name}`**" if name in required else f"`{name}`"
        meaning = " ".join(str(schema.get("description", "")).split())
        lines.append(f"| {shown} | {_type(schema)}{'' if schema.get('plain') else ', *output*'} | {meaning} |")
    return "\n".join(lines) + "\n"


def _summary(schema: Mapping[str, Any]) -> str:
    """The first paragraph of the documentation, on one line."""
    return " ".join(str(schema.get("description", "")).partition("\n\n")[0].split())


def _type(schema: Mapping[str, Any]) -> str:
    if reference := schema.get("$ref"):
        name = _name(str(reference))
        return f"[{name}](#{name.lower()})"
    match schema["type"]:
        case "array":
            return f"list of {_type(schema['items'])}"
        case "object":
            return f"mapping of names to {_type(schema['additionalProperties'])}"
        case json_type:
            names = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}
            return names[json_type]


def _name(token: str) -> str:
    return token.rpartition(":")[2]
