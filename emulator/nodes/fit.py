"""Decides whether a pod can run on a node, by the scheduler's rules that the product's workloads use.

It considers the node selector, required node affinity, taints, resources, and the anti-affinity by which JobSet keeps
Jobs apart. It ignores volumes (they follow the pod), other affinity between pods, and topology spread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from emulator.nodes import node_agents
from gke_ai.catalog.nodes.shape import COMPUTE_CLASS, NVIDIA_GPU
from gke_ai.catalog.quantities import format_quantity
from gke_ai.catalog.selectors import matches
from gke_ai.kube import pods

Object = dict[str, Any]
Amounts = Mapping[str, Fraction]


def requests(pod: Object) -> dict[str, Fraction]:
    """The resources that a pod requests, and one pod."""
    return pods.requests(pod["spec"]) | {"pods": Fraction(1)}


def refusal(pod: Object, node: Object, free: Amounts) -> str | None:
    """Why a pod can't run on a node with these `free` resources, or None if it can."""
    if reason := wrong_label(pod, node):
        return reason
    labels = node["metadata"].get("labels", {})
    required = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = required.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
    if terms and not any(matches(term, labels) for term in terms):
        return "it doesn't match the pod's node affinity"
    for taint in node["spec"].get("taints", []):
        # A starting node has Kubernetes' own taints until it is Ready.
        temporary = taint["key"].startswith("node.kubernetes.io/")
        if not temporary and taint["effect"] != "PreferNoSchedule" and not tolerates(pod, taint):
            return f"the pod doesn't tolerate its taint {taint['key']}={taint.get('value', '')}:{taint['effect']}"
    return shortage(requests(pod), free)


def wrong_label(pod: Object, node: Object, but: str = "") -> str | None:
    """The first label of the pod's node selector that the node lacks, as a reason, or None. Ignores the label `but`."""
    labels = node["metadata"].get("labels", {})
    for key, value in pod["spec"].get("nodeSelector", {}).items():
        if key != but and labels.get(key) != value:
            return f"it has no label {key}={value}"
    return None


def shortage(requested: Amounts, free: Amounts) -> str | None:
    """The first resource of which too little is free, as a reason, or None."""
    for resource, amount in requested.items():
        available = free.get(resource, Fraction(0))
        if amount > available:
            wanted, left = format_quantity(resource, amount), format_quantity(resource, available)
            return f"too little {resource} ({wanted} requested, {left} free)"
    return None


def tolerates(pod: Object, taint: Mapping[str, str]) -> bool:
    """Whether one of the pod's tolerations covers a taint."""
    for toleration in pod["spec"].get("tolerations", []):
        if any(toleration.get(part) not in (None, "", taint[part]) for part in ("effect", "key")):
            continue
        if toleration.get("operator") == "Exists" or (
            toleration.get("key") and toleration.get("value", "") == taint.get("value", "")
        ):
            return True
    return False


def has_its_gpus(pod: Object, node: Object) -> bool:
    """Whether a node has exactly the GPUs that a pod requests, as in `autopilot.yaml`, or is of a compute class."""
    of_node = pods.amounts(node["status"]["allocatable"]).get(NVIDIA_GPU, 0)
    return COMPUTE_CLASS in node["metadata"]["labels"] or of_node == requests(pod).get(NVIDIA_GPU, 0)


def kept_apart(pod: Object, node: Object, placed: Iterable[tuple[Object, Object]]) -> bool:
    """Whether the pod's required anti-affinity excludes a node.

    `placed` are pods, each with its node.
    """
    affinity = pod["spec"].get("affinity", {}).get("podAntiAffinity", {})
    labels = node["metadata"]["labels"]
    return any(
        on["metadata"]["labels"].get(term["topologyKey"]) == labels.get(term["topologyKey"])
        and matches(term.get("labelSelector", {}), other["metadata"].get("labels", {}))
        for term in affinity.get("requiredDuringSchedulingIgnoredDuringExecution", [])
        for other, on in placed
    )


def room(node: Object) -> dict[str, Fraction]:
    """The resources that a node has for pods other than GKE's own agents, which run on every node."""
    return less(pods.amounts(node["status"]["allocatable"]), node_agents.requests_on(node))


def less(free: Amounts, requested: Amounts) -> dict[str, Fraction]:
    """Subtracts the requested amounts from the free ones."""
    return {key: amount - requested.get(key, Fraction(0)) for key, amount in free.items()}
