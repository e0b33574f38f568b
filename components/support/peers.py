"""Sources that several NetworkPolicies let in."""

import pulumi_kubernetes as k8s

from gke_ai.catalog.kueue.namespaces import KONNECTIVITY, KONNECTIVITY_NAMESPACE, METRICS_COLLECTORS, NAMESPACE_NAME


def namespaces(*names: str) -> "k8s.networking.v1.NetworkPolicyPeerArgsDict":
    """All pods of these namespaces, and the collectors of metrics."""
    expression: k8s.meta.v1.LabelSelectorRequirementArgsDict = {
        "key": NAMESPACE_NAME,
        "operator": "In",
        "values": [*names, *METRICS_COLLECTORS],
    }
    return {"namespace_selector": {"match_expressions": [expression]}}


def api_server() -> "k8s.networking.v1.NetworkPolicyPeerArgsDict":
    """GKE's API server, for users with the permission `services/proxy` or `pods/proxy`, as the smoke check needs it.

    The kubelet carries exec, logs and port-forward, and its connections always pass:
    https://kubernetes.io/docs/concepts/services-networking/network-policies/
    """
    return {
        "namespace_selector": {"match_labels": {NAMESPACE_NAME: KONNECTIVITY_NAMESPACE}},
        "pod_selector": {"match_labels": dict(KONNECTIVITY)},
    }
