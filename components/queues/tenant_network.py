"""The network policies of a tenant's namespace."""

from collections.abc import Sequence

import pulumi_kubernetes as k8s

from gke_ai.catalog.kueue.namespaces import NAMESPACE_NAME
from gke_ai.catalog.kueue.operators import KUBERAY, RAY_DASHBOARD_PORT, RAY_HEAD
from gke_ai.components.support.peers import api_server
from gke_ai.components.support.peers import namespaces as pods_of

# Private addresses: the VPC network, networks connected to it, and the node itself.
# https://www.iana.org/assignments/iana-ipv4-special-registry/
NOT_INTERNET = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16", "240.0.0.0/4"]
# Address and port of the metadata servers that give pods their Google identity. The second is for Dataplane V2:
# https://cloud.google.com/kubernetes-engine/docs/how-to/network-policy#network-policy-and-workload-identity
METADATA_SERVERS = [("169.254.169.252/32", 988), ("169.254.169.254/32", 80)]


def network_policies(
    ingress_namespaces: list[str], guarded: Sequence[str], further_kinds: Sequence[str]
) -> "dict[str, k8s.networking.v1.NetworkPolicySpecArgsDict]":
    """Specs of the policies, by name. Policies add up."""
    kuberay = ingress_of_kuberay() if {*KUBERAY.kinds} & {*further_kinds} else {}
    return {**ingress(ingress_namespaces, guarded), **kuberay, "egress": egress()}


def ingress(
    namespaces: list[str], guarded: Sequence[str] = ()
) -> "dict[str, k8s.networking.v1.NetworkPolicySpecArgsDict]":
    """Allow the namespace's own pods, those of `namespaces`, metrics collectors and the API server. Probes always pass.

    Policies add up, so pods of `namespaces` have a policy of their own if some servers are guarded from them.
    No member may use the API server's proxy to Services and pods. The smoke check does.
    """
    own: list[k8s.networking.v1.NetworkPolicyPeerArgsDict] = [{"pod_selector": {}}, api_server()]
    if not (guarded and namespaces):
        return {"ingress": ingress_from({}, [*own, pods_of(*namespaces)])}
    others: k8s.meta.v1.LabelSelectorArgsDict = {
        "match_expressions": [{"key": "app", "operator": "NotIn", "values": list(guarded)}]
    }
    return {
        "ingress": ingress_from({}, [*own, pods_of()]),
        "ingress-from": ingress_from(others, [pods_of(*namespaces)]),
    }


def ingress_from(
    selector: "k8s.meta.v1.LabelSelectorArgsDict", sources: "list[k8s.networking.v1.NetworkPolicyPeerArgsDict]"
) -> "k8s.networking.v1.NetworkPolicySpecArgsDict":
    """Allow the sources to connect to the selected pods."""
    return {"pod_selector": selector, "policy_types": ["Ingress"], "ingress": [{"from_": sources}]}


def ingress_of_kuberay() -> "dict[str, k8s.networking.v1.NetworkPolicySpecArgsDict]":
    """Allow KubeRay to ask the heads of Ray clusters about their jobs."""
    kuberay: k8s.networking.v1.NetworkPolicyPeerArgsDict = {
        "namespace_selector": {"match_labels": {NAMESPACE_NAME: KUBERAY.namespace}}
    }
    rule: k8s.networking.v1.NetworkPolicyIngressRuleArgsDict = {
        "from_": [kuberay],
        "ports": [{"protocol": "TCP", "port": RAY_DASHBOARD_PORT}],
    }
    heads: k8s.meta.v1.LabelSelectorArgsDict = {"match_labels": dict(RAY_HEAD)}
    return {"ingress-kuberay": {"pod_selector": heads, "policy_types": ["Ingress"], "ingress": [rule]}}


def egress() -> "k8s.networking.v1.NetworkPolicySpecArgsDict":
    """Allow pods of the cluster (their policies decide), DNS, the metadata servers and the Internet."""
    metadata: list[k8s.networking.v1.NetworkPolicyEgressRuleArgsDict] = [
        {"to": [{"ip_block": {"cidr": address}}], "ports": [{"protocol": "TCP", "port": port}]}
        for address, port in METADATA_SERVERS
    ]
    # Any server: kube-dns in the cluster, or NodeLocal DNSCache or Cloud DNS at an address of the node.
    dns: k8s.networking.v1.NetworkPolicyEgressRuleArgsDict = {
        "ports": [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]
    }
    return {
        "pod_selector": {},
        "policy_types": ["Egress"],
        "egress": [
            {"to": [{"namespace_selector": {}}]},
            dns,
            *metadata,
            {"to": [{"ip_block": {"cidr": "0.0.0.0/0", "except_": NOT_INTERNET}}]},
        ],
    }
