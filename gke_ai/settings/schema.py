"""The JSON Schema of a stack's configuration file, generated from `gke_ai.settings.model`, for editors and CI.

It checks each key by itself. `gke_ai.settings.rules` checks that keys match each other.
"""

from __future__ import annotations

from typing import Any

from gke_ai.catalog.section_files import FILE, PREFIX, WITHOUT_FILE
from gke_ai.settings.model import Settings
from gke_ai.settings.reading import section_types
from gke_ai.settings.secrets import SECRETS

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, Any]:
    """The schema of `Pulumi.STACK.yaml` and of the files in `examples/`.

    Keys of other programs and providers (`gcp:project`) are not checked. Keys of this program must be known. Secrets
    must be encrypted, as `pulumi config set --secret` writes it.
    """
    sections = plain(Settings.model_json_schema(by_alias=True))
    keys = {f"{PREFIX}{key}": value for key, value in sections["properties"].items()}
    file = {"type": "string", "pattern": FILE}
    files = {"type": "array", "items": file, "minItems": 1, "uniqueItems": True}
    # Not `anyOf`, whose errors name no key.
    is_in_file = {"type": "object", "anyOf": [{"required": ["file"]}, {"required": ["files"]}]}
    for section in Settings.model_fields.values():
        if section_types(section.annotation) and section.alias != WITHOUT_FILE:
            form = keys[f"{PREFIX}{section.alias}"]
            names = {"file": file, **({"files": files} if form.get("type") == "array" else {})}
            in_file = {"properties": names, "maxProperties": 1, "additionalProperties": False}
            keys[f"{PREFIX}{section.alias}"] = {"if": is_in_file, "then": in_file, "else": form}
    for secret in SECRETS:
        key = f"{PREFIX}{secret.key}"
        keys[key] = {
            "description": f"{secret.description} Set it with `pulumi config set --secret {key}`.",
            "type": "object",
            "properties": {"secure": {"type": "string"}},
            "required": ["secure"],
            "additionalProperties": False,
        }
    return {
        "$schema": DIALECT,
        "title": "Configuration of a stack",
        "type": "object",
        "properties": {
            "config": {
                "type": "object",
                "properties": keys,
                "propertyNames": {"anyOf": [{"not": {"pattern": f"^{PREFIX}"}}, {"enum": list(keys)}]},
            }
        },
        "$defs": sections["$defs"],
    }


def plain(node: Any) -> Any:
    """Removes pydantic's titles, and defaults that are whole sections."""
    if isinstance(node, list):
        return [plain(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: {name: plain(item) for name, item in value.items()} if key in ("properties", "$defs") else plain(value)
        for key, value in node.items()
        if key not in ("title", "discriminator")
        and not (key == "default" and (value is None or isinstance(value, dict | list)))
    }
