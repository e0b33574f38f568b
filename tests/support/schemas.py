"""Schemas of kinds of Kubernetes, Kueue, JobSet and GKE, for tests.

A schema is a mapping from field to schema for an object, `{"*": schema}` for a map, `[schema]` for a list, else the
name of a type.
"""

import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client

from gke_ai.forecast.snapshot.fields import kinds
from tests.support.repository import ROOT

CRDS = ROOT / "emulator" / "cluster" / "crds"


def schema_of(kind: str) -> Any:
    """The schema of a kind of a snapshot; a name alone if it comes with a chart that is not here."""
    group, _, version = kinds()[kind].api.rpartition("/")
    definition = _definition(kind, group) if "." in group else None
    if definition:
        return _of_definition(definition, version)
    model = f"{version.capitalize()}{kind}"
    # The client puts the group before a name that two groups have.
    return _of_model(model if hasattr(client, model) else f"{group.partition('.')[0].capitalize()}{model}")


@cache
def _definition(kind: str, group: str) -> Any:
    """The CustomResourceDefinition of a kind, of the emulator or of its charts."""
    charts = os.environ.get("GKE_AI_CHARTS")
    for folder in (CRDS, *([Path(charts)] if charts else [])):
        for file in folder.rglob("*.yaml"):
            text = file.read_text()
            if f"kind: {kind}\n" in text and f"group: {group}\n" in text:
                # The templates of a chart are plain YAML but for what the template language adds.
                items = yaml.load_all(re.sub(r"(?s)\{\{.*?\}\}", "", text), Loader=yaml.CSafeLoader)
                return next(item for item in items if item["spec"].get("names", {}).get("kind") == kind)
    return None


def _of_definition(definition: Any, version: str) -> Any:
    found = next(entry for entry in definition["spec"]["versions"] if entry["name"] == version)
    return {**_of_openapi(found["schema"]["openAPIV3Schema"]), "metadata": _of_model("V1ObjectMeta")}


def _of_openapi(schema: Any) -> Any:
    if "properties" in schema:
        return {name: _of_openapi(part) for name, part in schema["properties"].items()}
    if isinstance(schema.get("additionalProperties"), Mapping):
        return {"*": _of_openapi(schema["additionalProperties"])}
    if "items" in schema:
        return [_of_openapi(schema["items"])]
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return {"conditions": [_of_model("V1Condition")]}
    return schema.get("type", "string")


@cache
def _of_model(name: str) -> Any:
    """The schema of a class of the Kubernetes client; the name of a type that is no such class."""
    if match := re.fullmatch(r"[Ll]ist\[(.*)\]", name):
        return [_of_model(match[1])]
    if match := re.fullmatch(r"[Dd]ict[(\[]str, (.*)[)\]]", name):
        return {"*": _of_model(match[1])}
    model = getattr(client, name, None)
    if model is None:
        return name
    return {model.attribute_map[key]: _of_model(part) for key, part in model.openapi_types.items()}
