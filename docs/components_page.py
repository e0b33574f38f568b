"""`docs/components.md`: every component with its inputs and outputs, from the schema of the Pulumi package."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from package.__main__ import NAME, Package, every_component

HEAD = """# Components

<!-- Written by `make docs` from components/. -->

Programs that compose their own stack use these components: in Python with `from components import …` and the names
below in snake_case, in other languages through the [package](package.md) `gke-ai`. An input in **bold** is required. An
input marked *output* accepts the output of another resource. All other inputs need values that are known before Pulumi
creates anything.
"""


def page() -> str:
    """The page as Markdown."""
    schema: dict[str, Any] = json.loads(str(Package(every_component(), NAME).schema))
    parts = [_component(token, found) for token, found in sorted(schema["resources"].items())]
    types = [_type_section(token, found) for token, found in sorted(schema["types"].items())]
    return HEAD + "".join(parts) + "\n## Types\n" + "".join(types)


def _component(token: str, found: Mapping[str, Any]) -> str:
    rows = _rows(found["inputProperties"], found.get("requiredInputs", []))
    outputs = ", ".join(f"`{name}`" for name in sorted(found.get("properties", {}))) or "none"
    return f"\n## {_name(token)}\n\n{_summary(found)}\n\n{rows}\nOutputs: {outputs}\n"


def _type_section(token: str, found: Mapping[str, Any]) -> str:
    return f"\n### {_name(token)}\n\n{_summary(found)}\n\n{_rows(found['properties'], found.get('required', []))}"


def _rows(properties: Mapping[str, Any], required: list[str]) -> str:
    lines = ["| input | is a | meaning |", "| --- | --- | --- |"]
    for name in sorted(properties, key=lambda one: (one not in required, one)):
        found = properties[name]
        shown = f"**`{name}`**" if name in required else f"`{name}`"
        meaning = " ".join(str(found.get("description", "")).split())
        lines.append(f"| {shown} | {_type(found)}{'' if found.get('plain') else ', *output*'} | {meaning} |")
    return "\n".join(lines) + "\n"


def _summary(found: Mapping[str, Any]) -> str:
    """The first paragraph of the documentation, on one line."""
    return " ".join(str(found.get("description", "")).partition("\n\n")[0].split())


def _type(found: Mapping[str, Any]) -> str:
    if reference := found.get("$ref"):
        name = _name(str(reference))
        return f"[{name}](#{name.lower()})"
    match found["type"]:
        case "array":
            return f"list of {_type(found['items'])}"
        case "object":
            return f"mapping of names to {_type(found['additionalProperties'])}"
        case json_type:
            names = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}
            return names[json_type]


def _name(token: str) -> str:
    return token.rpartition(":")[2]
