"""Gateways of a cluster for the status: their addresses, their routes, and the share of each server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gke_ai.kube.objects import Object
from gke_ai.kube.values import items, mapping

GATEWAY_COLUMNS = ("gateway", "address", "host", "share of requests", "why")


def gateway_rows(gateways: Sequence[Object], routes: Sequence[Object]) -> Iterator[tuple[str, ...]]:
    """Yields a row per route of a gateway: address, host, share of each server, and what does not work."""
    for gateway in gateways:
        metadata, status = gateway["metadata"], mapping(gateway, "status")
        addresses = ", ".join(address["value"] for address in items(status, "addresses")) or "none yet"
        own = [route for route in routes if names(route, gateway)]
        name = f"{metadata['namespace']}/{metadata['name']}"
        why = refusal(status)
        for route in own:
            hosts = ", ".join(route["spec"].get("hostnames") or []) or "all"
            reasons = [why, *map(refusal, items(route, "status", "parents"))]
            yield name, addresses, hosts, shares(route), "; ".join(filter(None, reasons))
        if not own:
            yield name, addresses, "–", "no route", why


def names(route: Object, gateway: Object) -> bool:
    """Whether a route names a gateway."""
    metadata, own = gateway["metadata"], route["metadata"]["namespace"]
    named = [(parent.get("namespace") or own, parent["name"]) for parent in items(route, "spec", "parentRefs")]
    return (metadata["namespace"], metadata["name"]) in named


def shares(route: Object) -> str:
    """Formats the servers of a route with their share of its requests, in percent.

    The first rule has all servers. Others are for adapters that some of them have.
    """
    backends = [backend for rule in items(route, "spec", "rules")[:1] for backend in items(rule, "backendRefs")]
    weights = [(backend["name"], backend.get("weight", 1)) for backend in backends]
    total = sum(weight for _, weight in weights) or 1
    return ", ".join(f"{name} {round(100 * weight / total)} %" for name, weight in weights)


def refusal(status: Object) -> str:
    """Returns the message of the first condition that is not met, or an empty text."""
    for condition in items(status, "conditions"):
        if condition.get("status") == "False":
            return f"{condition['type']}: {condition.get('message') or condition.get('reason')}"
    return ""
