"""REST bodies of the resources, validated against Google's API descriptions.

`cluster`, `node_pool` and `bucket` write a body from Pulumi inputs, as the provider documents it: a property keeps its
name unless `rest_names.NAMES` has another one. Values that the provider adds itself and that equal the API's defaults
are omitted. `Body.problems` validates a body against the discovery documents in google-api-python-client: unknown
fields, types, enumerated values.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emulator.google.rest_names import DOCUMENTS, LISTS_OF_ONE, NAMES
from emulator.pulumi.plugin import UNKNOWN

Schema = Mapping[str, Any]


@dataclass(frozen=True)
class Api:
    """The types of a Google API. `package` is the prefix of type names in its errors."""

    package: str
    schemas: Mapping[str, Schema]

    def at(self, schema: Schema, key: str) -> tuple[Schema, str]:
        """Follows the reference of a schema. Returns the schema and its key in `NAMES`."""
        while reference := schema.get("$ref"):
            schema, key = self.schemas[reference], reference
        return schema, key

    def child(self, schema: Schema, key: str, name: str) -> tuple[Schema, str]:
        """The schema of a field; an empty schema if the API doesn't have the field."""
        return self.at(schema.get("properties", {}).get(name, {}), f"{key}.{name}")


@functools.cache
def api(document: str) -> Api:
    """Reads the API of a discovery document, such as `container.v1`."""
    return Api(f"google.{document}", json.loads((documents() / f"{document}.json").read_text())["schemas"])


def documents() -> Path:
    """Folder of Google's discovery documents, one file per API version."""
    package = importlib.util.find_spec("googleapiclient")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("google-api-python-client, which has Google's API descriptions, is not installed")
    return Path(package.submodule_search_locations[0], "discovery_cache", "documents")


# ------------------------------------------------------------------------------------------------------------- bodies
@dataclass(frozen=True)
class Body:
    """A REST body.

    `sources` maps its fields to Pulumi properties, for messages to the user.
    """

    api: Api
    type: str
    content: dict[str, Any]
    sources: dict[str, str]

    def problems(self, root: str) -> list[tuple[str, str]]:
        """Validates the body as the API does.

        Returns pairs (Pulumi property, error of the API).
        """
        schema, key = self.api.at({"$ref": self.type}, "")
        return [(self._source(path), text) for path, text in _problems(self.api, schema, key, self.content, root, root)]

    def _source(self, path: str) -> str:
        while path and path not in self.sources:
            path = path.rpartition(".")[0]
        return self.sources.get(path, "")


def cluster(inputs: Mapping[str, Any]) -> Body:
    """The `cluster` of projects.locations.clusters.create."""
    body = _body("container.v1", "Cluster", "cluster", inputs)
    if inputs.get("networkingMode") == "ROUTES":
        body.content["ipAllocationPolicy"] = {"useIpAliases": False, "useRoutes": True}
    elif isinstance(policy := body.content.get("ipAllocationPolicy"), dict):
        policy["useIpAliases"] = True
    if "authenticatorGroupsConfig" in body.content:  # in an update, an empty name disables it
        group = body.content["authenticatorGroupsConfig"].get("securityGroup")
        body.content["authenticatorGroupsConfig"] = {"enabled": True, "securityGroup": group} if group else {}
    private = inputs.get("privateClusterConfig") or {}
    if not body.content.get("privateClusterConfig", True):
        del body.content["privateClusterConfig"]
    if "enablePrivateNodes" in private:
        body.content.setdefault("networkConfig", {})["defaultEnablePrivateNodes"] = private["enablePrivateNodes"]
    if "enablePrivateEndpoint" in private:
        addresses = body.content.setdefault("controlPlaneEndpointsConfig", {}).setdefault("ipEndpointsConfig", {})
        addresses["enablePublicEndpoint"] = not private["enablePrivateEndpoint"]
    if authorized := _at(body.content, "controlPlaneEndpointsConfig", "ipEndpointsConfig", "authorizedNetworksConfig"):
        authorized["enabled"] = True  # without it the API ignores the networks
    _add_exclusions(body, inputs)
    return body


def _add_exclusions(body: Body, inputs: Mapping[str, Any]) -> None:
    """Writes maintenance exclusions, which are a list in the provider and a map by name in the API."""
    exclusions = (inputs.get("maintenancePolicy") or {}).get("maintenanceExclusions")
    if not isinstance(exclusions, list):
        return
    schema, key = body.api.at({"$ref": "TimeWindow"}, "")
    written = {}
    for index, exclusion in enumerate(exclusions):
        name = str(exclusion.get("exclusionName"))
        places = (
            f"cluster.maintenancePolicy.window.maintenanceExclusions.{name}",
            f"maintenancePolicy.maintenanceExclusions[{index}]",
        )
        written[name] = _write(body.api, schema, key, exclusion, places, body.sources)
    body.content["maintenancePolicy"].setdefault("window", {})["maintenanceExclusions"] = written


def node_pool(inputs: Mapping[str, Any]) -> Body:
    """The `nodePool` of projects.locations.clusters.nodePools.create."""
    body = _body("container.v1", "NodePool", "node_pool", inputs)
    if isinstance(autoscaling := body.content.get("autoscaling"), dict):
        # The provider sends all four counts, zeros included.
        counts = dict.fromkeys(("minNodeCount", "maxNodeCount", "totalMinNodeCount", "totalMaxNodeCount"), 0)
        body.content["autoscaling"] = {"enabled": True, **counts, **autoscaling}
    if (placement := body.content.get("placementPolicy", {})).get("type") == "":
        del placement["type"]  # the provider requires it but doesn't send an empty value
    return body


def bucket(inputs: Mapping[str, Any]) -> Body:
    """The bucket of buckets.insert."""
    body = _body("storage.v1", "Bucket", "bucket", inputs)
    configuration = body.content.setdefault("iamConfiguration", {})
    configuration.setdefault("uniformBucketLevelAccess", {"enabled": False})
    for rule in body.content.get("lifecycle", {}).get("rule", []):
        condition = rule.get("condition", {}) if isinstance(rule, dict) else {}
        if "isLive" in condition:
            live = {"LIVE": True, "ARCHIVED": False}.get(condition.pop("isLive"))
            condition |= {} if live is None else {"isLive": live}  # ANY is the absence of the condition
    return body


def compute(type_: str, inputs: Mapping[str, Any]) -> Body:
    """The resource of networks.insert, subnetworks.insert or routers.insert, or a router's entry of a NAT."""
    return _body(DOCUMENTS[type_], type_, snake(type_), inputs)


def account(inputs: Mapping[str, Any]) -> Body:
    """The request of projects.serviceAccounts.create."""
    type_ = "CreateServiceAccountRequest"
    return _body(DOCUMENTS[type_], type_, snake(type_), inputs)


def enabled_service(inputs: Mapping[str, Any]) -> Body:
    """The request of services.batchEnable, with which the provider enables an API."""
    described = api("serviceusage.v1")
    content = {"serviceIds": [inputs["service"]]}
    return Body(described, "BatchEnableServicesRequest", content, {"batch.serviceIds[0]": "service"})


def alert_policy(inputs: Mapping[str, Any]) -> Body:
    """The `alertPolicy` of projects.alertPolicies.create."""
    return _body("monitoring.v3", "AlertPolicy", "alert_policy", inputs)


def _body(document: str, type_: str, root: str, inputs: Mapping[str, Any]) -> Body:
    described = api(document)
    sources: dict[str, str] = {}
    schema, key = described.at({"$ref": type_}, "")
    content = _write(described, schema, key, inputs, (root, ""), sources)
    return Body(described, type_, content, sources)


def _write(
    described: Api, schema: Schema, key: str, value: Any, places: tuple[str, str], sources: dict[str, str]
) -> Any:
    """Translates `value` to the API's names.

    `places` are its paths in the body and in the inputs.
    """
    rest_path, pulumi_path = places
    sources[rest_path] = pulumi_path
    if isinstance(value, list):
        item_schema, item_key = described.at(schema.get("items", {}), key)
        return [
            _write(described, item_schema, item_key, item, (f"{rest_path}[{i}]", f"{pulumi_path}[{i}]"), sources)
            for i, item in enumerate(value)
        ]
    if isinstance(value, Mapping) and "additionalProperties" not in schema:
        written: dict[str, Any] = {}
        for name, item in value.items():
            target = NAMES.get(key, {}).get(name, name)
            if target is None or item is None or name.startswith("__"):
                continue
            if name in LISTS_OF_ONE and isinstance(item, list) and len(item) == 1:
                item = item[0]
            *parents, last = target.split(".")
            within, inner_schema, inner_key, path = written, schema, key, rest_path
            for parent in parents:
                inner_schema, inner_key = described.child(inner_schema, inner_key, parent)
                within, path = within.setdefault(parent, {}), f"{path}.{parent}"
            inner_schema, inner_key = described.child(inner_schema, inner_key, last)
            property_path = f"{pulumi_path}.{name}" if pulumi_path else name
            value_ = _write(described, inner_schema, inner_key, item, (f"{path}.{last}", property_path), sources)
            within[last] = _joined(within.get(last), value_)
        return written
    if schema.get("format") in ("int64", "uint64") and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return dict(value) if isinstance(value, Mapping) else value


def _joined(old: Any, new: Any) -> Any:
    """Merges two values of a field, because two properties may be in the same block of the API."""
    if isinstance(old, dict) and isinstance(new, dict):
        return {name: _joined(old.get(name), new[name]) if name in new else old[name] for name in {**old, **new}}
    return new


def _at(value: Any, *names: str) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


# --------------------------------------------------------------------------------------------------------- validation
_BOUNDS = {
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1),
}
_PYTHON_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}


def _problems(described: Api, schema: Schema, key: str, value: Any, path: str, shown: str) -> Iterator[tuple[str, str]]:
    """Returns pairs (path in the body, error of the API).

    `shown` is the path in the API's errors, in snake case.
    """
    if value is UNKNOWN:
        return
    expected = schema.get("type", "any")
    if expected == "array":
        if not isinstance(value, list):
            yield path, f"Invalid value at '{shown}' (list expected), {_text(value)}"
            return
        item_schema, item_key = described.at(schema["items"], key)
        for index, item in enumerate(value):
            yield from _problems(described, item_schema, item_key, item, f"{path}[{index}]", f"{shown}[{index}]")
    elif expected == "object":
        if not isinstance(value, dict):
            yield path, f"Invalid value at '{shown}' (object expected), {_text(value)}"
            return
        fields = schema.get("properties", {})
        for name, item in value.items():
            field_path, field_shown = f"{path}.{name}", f"{shown}.{snake(name)}"
            if name in fields:
                field, field_key = described.child(schema, key, name)
                if fields[name].get("readOnly") or field.get("readOnly"):
                    yield field_path, f"Field '{field_shown}' is output-only: Google sets it."
                yield from _problems(described, field, field_key, item, field_path, field_shown)
            elif "additionalProperties" in schema:
                field, field_key = described.at(schema["additionalProperties"], key)
                yield from _problems(described, field, field_key, item, field_path, f"{shown}[{name}]")
            else:
                yield (
                    field_path,
                    f"Invalid JSON payload received. Unknown name \"{name}\" at '{shown}': Cannot find field. "
                    f"(If the real provider has it, add it to emulator/google/rest_names.py.)",
                )
    elif (text := _scalar_problem(described, schema, key, value)) is not None:
        yield path, f"Invalid value at '{shown}' {text}"


def _scalar_problem(described: Api, schema: Schema, key: str, value: Any) -> str | None:
    expected, format_ = schema.get("type", "any"), schema.get("format", "")
    types = _PYTHON_TYPES.get(expected)
    if types is None:
        return None
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        return f"(TYPE_{(format_ or expected).upper()}), {_text(value)}"
    text = str(value)
    if "enum" in schema and value not in schema["enum"]:
        type_name = ".".join(part[:1].upper() + part[1:] for part in key.split("."))
        allowed = [item for item in schema["enum"] if not item.endswith("UNSPECIFIED")]
        return f"({described.package}.{type_name}), {_text(value)}; it is one of {', '.join(allowed)}"
    if format_ in _BOUNDS:
        low, high = _BOUNDS[format_]
        if not re.fullmatch(r"-?\d+", text) or not low <= int(text) <= high:
            return f"(TYPE_{format_.upper()}), {_text(value)}"
    if format_ == "google-duration" and not re.fullmatch(r"-?\d+(\.\d{1,9})?s", text):
        return f'(type.googleapis.com/google.protobuf.Duration), {_text(value)}; seconds with an "s", as "3600s"'
    if format_ == "date" and not re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
        return f'(date), {_text(value)}; as "2026-01-31"'
    return None


def snake(name: str) -> str:
    """A name in the form of the API's errors: snake case."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _text(value: Any) -> str:
    return json.dumps(value, default=repr)
