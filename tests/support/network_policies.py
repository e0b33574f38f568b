"""Which traffic the NetworkPolicies of a cluster let in. The emulator enforces none.

Semantics: https://kubernetes.io/docs/concepts/services-networking/network-policies/
"""

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from gke_ai.catalog.kueue.namespaces import NAMESPACE_NAME
from gke_ai.catalog.selectors import matches

Object = dict[str, Any]


class Pod(NamedTuple):
    namespace: str
    labels: Mapping[str, str]


# A pod, or an address outside the cluster.
Source = Pod | str


def allows(policies: Iterable[Object], source: Source, target: Pod, port: int) -> bool:
    """Whether traffic from a source reaches a port of a pod: each policy of the pod adds sources.

    Without a policy for incoming traffic, everything does. `policies` are whole objects.
    """
    own = [
        policy
        for policy in policies
        if policy["metadata"]["namespace"] == target.namespace
        and "Ingress" in policy["spec"]["policyTypes"]
        and matches(policy["spec"]["podSelector"], target.labels)
    ]
    rules = [rule for policy in own for rule in policy["spec"].get("ingress", [])]
    return not own or any(_has_port(rule, port) and _is_source(rule, source, target.namespace) for rule in rules)


def _has_port(rule: Object, port: int) -> bool:
    ports = rule.get("ports", [])
    return not ports or any(allowed["port"] == port for allowed in ports)


def _is_source(rule: Object, source: Source, namespace: str) -> bool:
    peers = rule.get("from", [])
    return not peers or any(_is_peer(peer, source, namespace) for peer in peers)


def _is_peer(peer: Object, source: Source, namespace: str) -> bool:
    if isinstance(source, str):
        address, block = ipaddress.ip_address(source), peer.get("ipBlock")
        if block is None or address not in ipaddress.ip_network(block["cidr"]):
            return False
        return not any(address in ipaddress.ip_network(excluded) for excluded in block.get("except", []))
    if "ipBlock" in peer:
        return False
    selector = peer.get("namespaceSelector")
    is_own = source.namespace == namespace
    is_there = is_own if selector is None else matches(selector, {NAMESPACE_NAME: source.namespace})
    return is_there and matches(peer.get("podSelector", {}), source.labels)
