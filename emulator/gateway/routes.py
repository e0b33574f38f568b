"""Which HTTPRoutes belong to a Gateway, and what they send where, by the rules of the Gateway API.

Objects are as the API server returns them, so all defaults of the CRDs are set. Source of the rules:
https://gateway-api.sigs.k8s.io/reference/spec/
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gke_ai.catalog.selectors import matches

Object = dict[str, Any]
Key = tuple[str, str]

CLASSES = ("gke-l7-rilb", "gke-l7-regional-external-managed")
GATEWAY_API = "gateway.networking.k8s.io/v1"
POOL_GROUP = "inference.networking.k8s.io"
POOL_API = f"{POOL_GROUP}/v1"
POLICY_API = "networking.gke.io/v1"
# A request may take this many seconds, its answer included, unless a GCPBackendPolicy sets another timeout:
# https://cloud.google.com/kubernetes-engine/docs/how-to/configure-gateway-resources#configure_backend_service_timeout
BACKEND_TIMEOUT_SECONDS = 30


@dataclass(frozen=True)
class Objects:
    """The objects of a cluster that decide how Gateways route, each by (namespace, name).

    `certificates` are the Secrets of type kubernetes.io/tls, `policies` the GCPBackendPolicies, `extensions` the
    GCPRoutingExtensions. A key of `namespaces` is ("", name).
    """

    gateways: Mapping[Key, Object]
    routes: Mapping[Key, Object]
    pools: Mapping[Key, Object]
    policies: Mapping[Key, Object]
    certificates: Mapping[Key, Object]
    namespaces: Mapping[Key, Object]
    extensions: Mapping[Key, Object] = field(default_factory=dict)


def key_of(item: Object) -> Key:
    """Namespace and name of an object."""
    return item["metadata"]["namespace"], item["metadata"]["name"]


def ours(gateways: Iterable[Object]) -> list[Object]:
    """The Gateways whose class is one of GKE's, in a stable order."""
    return sorted((g for g in gateways if g["spec"]["gatewayClassName"] in CLASSES and not _deleted(g)), key=key_of)


def attached(gateway: Object, listener: Object, objects: Objects) -> list[Object]:
    """The HTTPRoutes of one listener of a Gateway, in a stable order."""
    result = [
        route
        for route in objects.routes.values()
        if not _deleted(route)
        and any(_refers(parent, route, gateway, listener, objects) for parent in route["spec"]["parentRefs"])
    ]
    return sorted(result, key=key_of)


def refers_to(parent: Object, route: Object, gateway: Object, objects: Objects) -> bool:
    """Whether a parent reference of a route names this Gateway and one of its listeners admits the route."""
    return any(_refers(parent, route, gateway, listener, objects) for listener in gateway["spec"]["listeners"])


def names(parent: Object, route: Object, gateway: Object) -> bool:
    """Whether a parent reference of a route names this Gateway, admitted or not."""
    return (parent.get("namespace", route["metadata"]["namespace"]), parent["name"]) == key_of(gateway)


def _refers(parent: Object, route: Object, gateway: Object, listener: Object, objects: Objects) -> bool:
    if not names(parent, route, gateway) or parent.get("sectionName", listener["name"]) != listener["name"]:
        return False
    allowed = (listener.get("allowedRoutes") or {}).get("namespaces") or {}
    namespace = route["metadata"]["namespace"]
    match allowed.get("from", "Same"):
        case "All":
            return True
        case "Same":
            return bool(namespace == gateway["metadata"]["namespace"])
        case "Selector":
            labels = objects.namespaces.get(("", namespace), {}).get("metadata", {}).get("labels", {})
            return matches(allowed["selector"], labels)
    return False


def extension_of(gateway: Object, objects: Objects) -> Object | None:
    """The GCPRoutingExtension of a Gateway, which changes requests before their route is chosen.

    https://cloud.google.com/kubernetes-engine/docs/how-to/configure-gke-service-extensions
    """
    namespace, name = key_of(gateway)
    target = {"group": GATEWAY_API.partition("/")[0], "kind": "Gateway", "name": name}
    own = (extension for key, extension in sorted(objects.extensions.items()) if key[0] == namespace)
    return next((extension for extension in own if target in extension["spec"]["targetRefs"]), None)


def callout_of(extension: Object) -> tuple[Key, int]:
    """The Service that a GCPRoutingExtension calls, and its port."""
    ref = extension["spec"]["extensionChains"][0]["extensions"][0]["backendRef"]
    return (extension["metadata"]["namespace"], ref["name"]), ref["port"]


def refs_of(route: Object) -> list[Object]:
    """The backend references of a route, with and without weight."""
    return [ref for rule in route["spec"]["rules"] for ref in rule.get("backendRefs") or []]


def pool_of(ref: Object, route: Object) -> Key | None:
    """The InferencePool of a backend reference.

    None if the reference names another kind or, without a ReferenceGrant, another namespace.
    """
    namespace = route["metadata"]["namespace"]
    if (ref.get("group", ""), ref.get("kind", "Service")) != (POOL_GROUP, "InferencePool"):
        return None
    return (namespace, ref["name"]) if ref.get("namespace", namespace) == namespace else None


def timeout_seconds(pool: Key, policies: Iterable[Object]) -> int:
    """Seconds that a request to a pool may take."""
    for policy in policies:
        target = policy["spec"]["targetRef"]
        named = (target.get("group", ""), target["kind"], policy["metadata"]["namespace"], target["name"])
        if named == (POOL_GROUP, "InferencePool", *pool):
            return int(policy["spec"].get("default", {}).get("timeoutSec") or BACKEND_TIMEOUT_SECONDS)
    return BACKEND_TIMEOUT_SECONDS


def precedence(match: Object) -> tuple[int, int, int]:
    """Sort key of a match: exact paths first, then the longest prefix, then the most headers.

    https://gateway-api.sigs.k8s.io/reference/spec/#httproutematch
    """
    path = match["path"]
    exact = 0 if path["type"] == "Exact" else 1
    return exact, -len(path["value"]), -len(match.get("headers", []))


def _deleted(item: Object) -> bool:
    return "deletionTimestamp" in item["metadata"]
