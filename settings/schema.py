"""The JSON Schema of a stack's configuration file, made from `settings.model`: for editors, and for CI.

It says what can be read, key by key. What must fit together stands in `settings.rules`, which no schema can say.
"""

from __future__ import annotations

from typing import Any

from settings.model import Settings
from settings.reading import PREFIX

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, Any]:
    """The schema of `Pulumi.STACK.yaml` and of the files in `examples/`.

    Keys of other programs and providers (`gcp:project`) may be anything; one of this program must be known. The token
    may only be there encrypted, as `pulumi config set --secret` writes it.
    """
    sections = plain(Settings.model_json_schema(by_alias=True))
    keys = {f"{PREFIX}{key}": value for key, value in sections["properties"].items()}
    keys[f"{PREFIX}hfToken"] = {
        "description": "Hugging Face token, as `pulumi config set --secret gke-ai:hfToken` writes it",
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
    """Without what pydantic adds for other readers: titles made of names, defaults that are whole sections."""
    if isinstance(node, list):
        return [plain(one) for one in node]
    if not isinstance(node, dict):
        return node
    return {
        key: {name: plain(one) for name, one in value.items()} if key in ("properties", "$defs") else plain(value)
        for key, value in node.items()
        if key not in ("title", "discriminator")
        and not (key == "default" and (value is None or isinstance(value, dict | list)))
    }
