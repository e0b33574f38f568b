"""Kinds of which the scratch cluster has a part of Google's schema. Fields outside that part are kept, and not judged.

The program's own objects, in a stack's rehearsal and an update, are still checked against the part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gke_ai.forecast.rehearse.manifests import KINDS, Manifest
from gke_ai.formats.sentences import join_names
from gke_ai.kube.client import ApiClient, request, send
from gke_ai.terminal import Stop

# emulator/cluster/crds has their schemas, and says what they lack.
REDUCED = ("ComputeClass",)
PATCHED = 200
_ANY = "x-kubernetes-preserve-unknown-fields"


def open_schemas(api: ApiClient) -> None:
    """Lets the cluster accept fields that its schemas of these kinds lack."""
    for kind in REDUCED:
        definition = _definition(api, kind)
        for version in definition["spec"]["versions"]:
            spec = version["schema"]["openAPIV3Schema"]["properties"]
            spec["spec"] = opened(spec["spec"])
        # A patch, because the API server still updates the status of a new kind.
        body = {"spec": {"versions": definition["spec"]["versions"]}}
        answer = send(api, "PATCH", _path(kind), None, body, {"Content-Type": "application/merge-patch+json"})
        if answer.code != PATCHED:
            raise Stop(f"The scratch cluster refuses the schema of {kind}: {answer.body or answer.error}")


def opened(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with unknown fields allowed in every object of it."""
    result = dict(schema)
    if "properties" in schema:
        result["properties"] = {name: opened(part) for name, part in schema["properties"].items()}
        result[_ANY] = True
    if "items" in schema:
        result["items"] = opened(schema["items"])
    return result


def notes(api: ApiClient, manifests: Iterable[Manifest]) -> Iterator[str]:
    """Yields a note for each manifest with fields that the cluster keeps and cannot judge."""
    for manifest in manifests:
        if manifest.kind in REDUCED:
            (version, *_) = _definition(api, manifest.kind)["spec"]["versions"]
            schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
            if fields := sorted(set(undeclared(manifest.content.get("spec"), schema, "spec"))):
                yield f"Not judged, and without effect in the rehearsal: {join_names(fields)} of {manifest.title}."


def undeclared(value: Any, schema: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yields the paths of the fields of a value that a schema lacks."""
    if isinstance(value, list):
        for item in value:
            yield from undeclared(item, schema.get("items", {}), f"{path}[]")
    elif isinstance(value, dict) and "properties" in schema:
        for name, part in value.items():
            if name in schema["properties"]:
                yield from undeclared(part, schema["properties"][name], f"{path}.{name}")
            else:
                yield f"{path}.{name}"


def _path(kind: str) -> str:
    return f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{KINDS[kind].plural}.{KINDS[kind].group}"


def _definition(api: ApiClient, kind: str) -> dict[str, Any]:
    answer = request(api, "GET", _path(kind))
    if answer.error:
        raise Stop(f"The scratch cluster has no kind {kind}: {answer.error}")
    definition: dict[str, Any] = answer.body
    return definition
