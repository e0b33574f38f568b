"""The REST bodies behind the resources, and Google's own word on what a body may hold.

`cluster`, `node_pool` and `bucket` write a body from Pulumi inputs, as the provider documents it: a property goes under
its own name unless `NAMES` says otherwise. What the provider adds on its own at the API's defaults is left out.
`Body.problems` checks one against the discovery documents that google-api-python-client ships: unknown fields, types,
listed values.
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

from emulator.plugin import UNKNOWN

Schema = Mapping[str, Any]

# Where a property of the provider stands in the API, by the API's type: a dotted field, or None for what stays with the
# provider or goes into the URL. Source: the reference of each resource beside that of its REST type:
# https://www.pulumi.com/registry/packages/gcp/api-docs/container/cluster/ (nodepool, storage/bucket),
# https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/projects.locations.clusters,
# https://cloud.google.com/storage/docs/json_api/v1/buckets
NAMES: Mapping[str, Mapping[str, str | None]] = {
    "Cluster": {
        "allowNetAdmin": "autopilot.workloadPolicyConfig.allowNetAdmin",
        "clusterAutoscaling": "autoscaling",
        "datapathProvider": "networkConfig.datapathProvider",
        "defaultMaxPodsPerNode": "defaultMaxPodsConstraint.maxPodsPerNode",
        "deletionPolicy": None,
        "deletionProtection": None,
        "dnsConfig": "networkConfig.dnsConfig",
        "enableAutopilot": "autopilot.enabled",
        "enableIntranodeVisibility": "networkConfig.enableIntraNodeVisibility",
        "enableL4IlbSubsetting": "networkConfig.enableL4ilbSubsetting",
        "enableLegacyAbac": "legacyAbac.enabled",
        "enableMultiNetworking": "networkConfig.enableMultiNetworking",
        "enableShieldedNodes": "shieldedNodes.enabled",
        "gatewayApiConfig": "networkConfig.gatewayApiConfig",
        "location": None,
        "masterAuthorizedNetworksConfig": "controlPlaneEndpointsConfig.ipEndpointsConfig.authorizedNetworksConfig",
        "minMasterVersion": "initialClusterVersion",
        "networkingMode": None,
        "nodeLocations": "locations",
        "nodeVersion": None,
        "project": None,
        "removeDefaultNodePool": None,
        "skipNodePoolRefresh": None,
    },
    # Most of it is deprecated in the API: `cluster` writes what took its place.
    "PrivateClusterConfig": {"enablePrivateEndpoint": None, "enablePrivateNodes": None},
    "AddonsConfig": {"cloudrunConfig": "cloudRunConfig"},
    "ClusterAutoscaling": {
        "autoProvisioningDefaults": "autoprovisioningNodePoolDefaults",
        "autoProvisioningLocations": "autoprovisioningLocations",
        "defaultComputeClassEnabled": "defaultComputeClassConfig.enabled",
        "enabled": "enableNodeAutoprovisioning",
    },
    "AutoprovisioningNodePoolDefaults": {"diskSize": "diskSizeGb"},
    "LoggingConfig": {"enableComponents": "componentConfig.enableComponents"},
    "MaintenancePolicy": {
        "dailyMaintenanceWindow": "window.dailyMaintenanceWindow",
        "maintenanceExclusions": None,  # a list here, a map by name in the API: `cluster` writes it
        "recurringWindow": "window.recurringWindow",
    },
    "MonitoringConfig": {
        "enableComponents": "componentConfig.enableComponents",
        "managedPrometheus": "managedPrometheusConfig",
    },
    "NodePool": {
        "cluster": None,
        "deletionPolicy": None,
        "location": None,
        "maxPodsPerNode": "maxPodsConstraint.maxPodsPerNode",
        "nodeConfig": "config",
        "nodeCount": "initialNodeCount",
        "nodeLocations": "locations",
        "project": None,
    },
    "NodeConfig": {
        "guestAccelerators": "accelerators",
        "loggingVariant": "loggingConfig.variantConfig.variant",
        "resourceManagerTags": "resourceManagerTags.tags",
    },
    "RecurringTimeWindow": {"endTime": "window.endTime", "startTime": "window.startTime"},
    "TimeWindow": {"exclusionName": None, "exclusionOptions": "maintenanceExclusionOptions"},
    "AcceleratorConfig": {"count": "acceleratorCount", "type": "acceleratorType"},
    "AlertPolicy": {"deletionPolicy": None, "project": None},
    "Bucket": {
        "deletionPolicy": None,
        "enableObjectRetention": None,  # a parameter of the URL
        "forceDestroy": None,
        "lifecycleRules": "lifecycle.rule",
        "project": None,
        "publicAccessPrevention": "iamConfiguration.publicAccessPrevention",
        "requesterPays": "billing.requesterPays",
        "uniformBucketLevelAccess": "iamConfiguration.uniformBucketLevelAccess.enabled",
    },
    "Bucket.cors": {"methods": "method", "origins": "origin", "responseHeaders": "responseHeader"},
    "Bucket.lifecycle.rule.condition": {
        "matchesPrefixes": "matchesPrefix",
        "matchesStorageClasses": "matchesStorageClass",
        "matchesSuffixes": "matchesSuffix",
        "withState": "isLive",
    },
    # https://cloud.google.com/compute/docs/reference/rest/v1/networks (subnetworks, routers)
    "Network": {
        "bgpAlwaysCompareMed": "routingConfig.bgpAlwaysCompareMed",
        "bgpBestPathSelectionMode": "routingConfig.bgpBestPathSelectionMode",
        "bgpInterRegionCost": "routingConfig.bgpInterRegionCost",
        "deleteBgpAlwaysCompareMed": None,
        "deleteDefaultRoutesOnCreate": None,
        "deletionPolicy": None,
        "project": None,
        "routingMode": "routingConfig.routingMode",
    },
    "Subnetwork": {"deletionPolicy": None, "project": None, "region": None, "sendSecondaryIpRangeIfEmpty": None},
    "Router": {"deletionPolicy": None, "project": None, "region": None},
    "RouterNat": {"deletionPolicy": None, "initialNatIps": None, "project": None, "region": None, "router": None},
    # https://cloud.google.com/iam/docs/reference/rest/v1/projects.serviceAccounts/create
    "CreateServiceAccountRequest": {
        "createIgnoreAlreadyExists": None,
        "deletionPolicy": None,
        "description": "serviceAccount.description",
        "disabled": None,  # a call of its own
        "displayName": "serviceAccount.displayName",
        "project": None,
    },
}
# The API of a type, where it isn't GKE's.
DOCUMENTS: Mapping[str, str] = {
    "AlertPolicy": "monitoring.v3",
    "Bucket": "storage.v1",
    "CreateServiceAccountRequest": "iam.v1",
    **dict.fromkeys(("Network", "Router", "RouterNat", "Subnetwork"), "compute.v1"),
}


@dataclass(frozen=True)
class Api:
    """The types of one of Google's APIs; `package` names them in its errors."""

    package: str
    schemas: Mapping[str, Schema]

    def at(self, schema: Schema, key: str) -> tuple[Schema, str]:
        """A schema with its reference followed, and the key under which `NAMES` has it."""
        while reference := schema.get("$ref"):
            schema, key = self.schemas[reference], reference
        return schema, key

    def child(self, schema: Schema, key: str, name: str) -> tuple[Schema, str]:
        """The schema of a field; an empty one for a field that the API doesn't have."""
        return self.at(schema.get("properties", {}).get(name, {}), f"{key}.{name}")


@functools.cache
def api(document: str) -> Api:
    """The API of a discovery document, `container.v1` or `storage.v1`; only that one file is read."""
    return Api(f"google.{document}", json.loads((documents() / f"{document}.json").read_text())["schemas"])


def documents() -> Path:
    """The folder of Google's descriptions, one a version of an API."""
    package = importlib.util.find_spec("googleapiclient")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("google-api-python-client is not installed: it has Google's API description")
    return Path(package.submodule_search_locations[0], "discovery_cache", "documents")


# ------------------------------------------------------------------------------------------------------------- bodies
@dataclass(frozen=True)
class Body:
    """A REST body; `sources` has the Pulumi property behind each field, to name it to the user."""

    api: Api
    type: str
    content: dict[str, Any]
    sources: dict[str, str]

    def problems(self, root: str) -> list[tuple[str, str]]:
        """What the API would refuse as malformed: (Pulumi property, the API's words) each."""
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
    if "authenticatorGroupsConfig" in body.content:  # an empty name turns it off
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
        authorized["enabled"] = True  # there is none without
    _add_exclusions(body, inputs)
    return body


def _add_exclusions(body: Body, inputs: Mapping[str, Any]) -> None:
    """Writes maintenance exclusions: a list in the provider, in the API a map by name."""
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
        del placement["type"]  # required by the provider, which doesn't send an empty one
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
    """The request of services.batchEnable, by which the provider enables an API."""
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
    """`value` in the API's names; `places` are where it stands in the body and in the inputs."""
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


def _joined(one: Any, other: Any) -> Any:
    """Two properties may be written into one block of the API."""
    if isinstance(one, dict) and isinstance(other, dict):
        return {name: _joined(one.get(name), other[name]) if name in other else one[name] for name in {**one, **other}}
    return other


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
    """(path in the body, the API's words); `shown` is the path as the API writes it, in snake case."""
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
            place, told = f"{path}.{name}", f"{shown}.{snake(name)}"
            if name in fields:
                field, field_key = described.child(schema, key, name)
                if fields[name].get("readOnly") or field.get("readOnly"):
                    yield place, f"Field '{told}' is set by Google alone and can't be given."
                yield from _problems(described, field, field_key, item, place, told)
            elif "additionalProperties" in schema:
                field, field_key = described.at(schema["additionalProperties"], key)
                yield from _problems(described, field, field_key, item, place, f"{shown}[{name}]")
            else:
                yield (
                    place,
                    f"Invalid JSON payload received. Unknown name \"{name}\" at '{shown}': Cannot find field. "
                    f"(Where the real provider knows it: emulator/gcp_plugin/rest.py has no rule for it.)",
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
    """A name as the API's errors write it."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _text(value: Any) -> str:
    return json.dumps(value, default=repr)
