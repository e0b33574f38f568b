"""The status that GKE's Gateway controller writes on Gateways, HTTPRoutes and InferencePools.

Conditions: https://gateway-api.sigs.k8s.io/guides/implementers/ and
https://gateway-api-inference-extension.sigs.k8s.io/reference/spec/#inferencepool
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from emulator.gateway.envoy_config import has_certificate
from emulator.gateway.routes import Key, Object, Objects, attached, key_of, names, pool_of, refers_to, refs_of

CONTROLLER = "networking.gke.io/gateway"
# Of a local address with its port. On GKE the address has no port and the type IPAddress.
ADDRESS_TYPE = "emulator.gke-ai/local"


def gateway_status(gateway: Object, objects: Objects, addresses: Mapping[str, str]) -> Object:
    """The status of a Gateway. `addresses` are those of the listeners that work, by name."""
    generation = gateway["metadata"]["generation"]
    before = gateway.get("status") or {}
    listeners = []
    for listener in gateway["spec"]["listeners"]:
        resolved = has_certificate(gateway, listener, objects)
        programmed = listener["name"] in addresses
        old: Object = next((old for old in before.get("listeners", []) if old["name"] == listener["name"]), {})
        checked = [
            _condition("Accepted", True, "Accepted"),
            _condition("Programmed", programmed, "Programmed" if programmed else "Pending"),
            _condition("ResolvedRefs", resolved, "ResolvedRefs" if resolved else "InvalidCertificateRef"),
        ]
        listeners.append(
            {
                "name": listener["name"],
                "attachedRoutes": len(attached(gateway, listener, objects)),
                "supportedKinds": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute"}],
                "conditions": _conditions(checked, old.get("conditions", []), generation),
            }
        )
    done = len(addresses) == len(gateway["spec"]["listeners"])
    whole = [
        _condition("Accepted", True, "Accepted"),
        _condition("Programmed", done, "Programmed" if done else "Pending"),
    ]
    return {
        "addresses": [{"type": ADDRESS_TYPE, "value": address} for address in addresses.values()],
        "conditions": _conditions(whole, before.get("conditions", []), generation),
        "listeners": listeners,
    }


def route_status(route: Object, gateways: Iterable[Object], objects: Objects) -> Object:
    """The status of an HTTPRoute, with one entry per Gateway that it names."""
    parents = []
    before = (route.get("status") or {}).get("parents", [])
    for gateway in gateways:
        for parent in route["spec"]["parentRefs"]:
            if not names(parent, route, gateway):
                continue
            admitted = refers_to(parent, route, gateway, objects)
            pools = [pool_of(ref, route) for ref in refs_of(route)]
            if None in pools:
                reason = "InvalidKind"
            elif any(pool not in objects.pools for pool in pools):
                reason = "BackendNotFound"
            else:
                reason = "ResolvedRefs"
            checked = [
                _condition("Accepted", admitted, "Accepted" if admitted else "NotAllowedByListeners"),
                _condition("ResolvedRefs", reason == "ResolvedRefs", reason),
            ]
            parents.append(_parent(parent, checked, before, route["metadata"]["generation"]))
    return {"parents": parents}


def pool_status(pool: Object, gateways: Iterable[Object], objects: Objects, services: Iterable[Key]) -> Object:
    """The status of an InferencePool, with one entry per Gateway that routes to it."""
    namespace, picker = pool["metadata"]["namespace"], pool["spec"]["endpointPickerRef"]["name"]
    resolved = (namespace, picker) in services
    checked = [
        _condition("Accepted", True, "Accepted"),
        _condition("ResolvedRefs", resolved, "ResolvedRefs" if resolved else "InvalidExtensionRef"),
    ]
    before = (pool.get("status") or {}).get("parents", [])
    parents = []
    for gateway in gateways:
        routes = {
            key_of(route)
            for listener in gateway["spec"]["listeners"]
            for route in attached(gateway, listener, objects)
            if key_of(pool) in (pool_of(ref, route) for ref in refs_of(route))
        }
        if routes:
            ref = {"group": "gateway.networking.k8s.io", "kind": "Gateway"}
            ref |= dict(zip(("namespace", "name"), key_of(gateway), strict=True))
            parents.append(_parent(ref, checked, before, pool["metadata"]["generation"]))
    return {"parents": parents}


def _parent(ref: Object, checked: list[Object], before: list[Object], generation: int) -> Object:
    old: Object = next((old for old in before if old["parentRef"] == ref), {})
    conditions = _conditions(checked, old.get("conditions", []), generation)
    return {"parentRef": ref, "controllerName": CONTROLLER, "conditions": conditions}


def _condition(kind: str, status: bool, reason: str) -> Object:
    return {"type": kind, "status": str(status), "reason": reason, "message": ""}


def _conditions(checked: list[Object], before: list[Object], generation: int) -> list[Object]:
    """Adds the time of the last change: the earlier one if the status is the same."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    since = {(old["type"], old["status"]): old["lastTransitionTime"] for old in before}
    return [
        condition
        | {
            "lastTransitionTime": since.get((condition["type"], condition["status"]), now),
            "observedGeneration": generation,
        }
        for condition in checked
    ]
