"""Manifests of others are not refused for fields that the emulator's part of Google's schema lacks."""

import json
from typing import Any

import jsonschema
import pytest
import yaml

from emulator.cluster.kwok import HERE
from gke_ai.forecast.rehearse import reduced
from gke_ai.forecast.rehearse.manifests import KINDS, parse
from gke_ai.kube.client import Answer

# Fields of Google's own schema that the emulator does not model:
# https://github.com/GoogleCloudPlatform/compute-class-api
G2 = {"machineType": "g2-standard-24", "maxPodsPerNode": 32, "storage": {"bootDiskSize": 200}}
CLASS: dict[str, Any] = {
    "apiVersion": "cloud.google.com/v1",
    "kind": "ComputeClass",
    "metadata": {"name": "pairs"},
    "spec": {
        "nodePoolConfig": {"imageStreaming": {"enabled": True}, "serviceAccount": "a"},
        "priorities": [G2, {"podFamily": "general-purpose"}, {"machineFamily": "n4", "maxPodsPerNode": 64}],
    },
}
OF_PRIORITIES = [f"spec.priorities[].{field}" for field in ("maxPodsPerNode", "podFamily", "storage")]
FIELDS = ["spec.nodePoolConfig.imageStreaming", *OF_PRIORITIES]


def definitions() -> dict[str, dict[str, Any]]:
    items = [item for file in (HERE / "crds").glob("*.yaml") for item in yaml.safe_load_all(file.read_text())]
    return {item["spec"]["names"]["kind"]: item for item in items if item["kind"] == "CustomResourceDefinition"}


class Server:
    """An API server with the definition of a ComputeClass."""

    def __init__(self) -> None:
        self.definition = definitions()["ComputeClass"]

    def __call__(self, _: object, method: str, path: str, query: None = None, body: Any = None, *__: object) -> Answer:
        assert path.endswith("/computeclasses.cloud.google.com")
        if method == "PATCH":
            assert body.keys() == {"spec"}
            self.definition["spec"] |= json.loads(json.dumps(body["spec"]))
        return Answer(200, json.loads(json.dumps(self.definition)))

    @property
    def schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = self.definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        return schema


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    result = Server()
    monkeypatch.setattr(reduced, "request", result)
    monkeypatch.setattr(reduced, "send", result)
    return result


def is_open(schema: Any) -> bool:
    if "properties" in schema:
        inner = all(map(is_open, schema["properties"].values()))
        return bool(schema.get("x-kubernetes-preserve-unknown-fields")) and inner
    return is_open(schema["items"]) if "items" in schema else True


def test_an_opened_schema_accepts_more_fields_and_checks_the_ones_it_has(server: Server) -> None:
    assert not is_open(server.schema["properties"]["spec"])
    reduced.open_schemas(None)  # type: ignore[arg-type]
    opened = server.schema["properties"]["spec"]
    assert is_open(opened)
    jsonschema.validate(CLASS["spec"], opened)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"priorities": [{"spot": "yes"}]}, opened)


@pytest.mark.usefixtures("server")
def test_a_note_names_the_fields_that_are_not_judged() -> None:
    manifests = parse(json.dumps(CLASS), "class.yaml")
    expected = "Not judged, and without effect in the rehearsal: "
    for _ in ("before", "after"):
        (note,) = reduced.notes(None, manifests)  # type: ignore[arg-type]
        assert note.startswith(expected)
        assert note.endswith(" of ComputeClass pairs.")
        assert all(field in note for field in FIELDS), note
        assert "serviceAccount" not in note
        reduced.open_schemas(None)  # type: ignore[arg-type]
    plain = CLASS | {"spec": {"priorities": [{"spot": True}]}}
    assert list(reduced.notes(None, parse(json.dumps(plain), "class.yaml"))) == []  # type: ignore[arg-type]


def test_every_rehearsed_kind_of_a_part_of_a_schema_is_opened() -> None:
    assert definitions().keys() & KINDS.keys() == set(reduced.REDUCED)
