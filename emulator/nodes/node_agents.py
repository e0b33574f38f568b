"""GKE's own DaemonSets on simulated nodes: real objects with the requests that the program plans with.

Three DaemonSets replace GKE's dozen: one for all nodes, one for GPU nodes and one for TPU nodes, with one container per
agent. The requests are the same, but a node has one or two more pods instead of ten.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from gke_ai.catalog.nodes.daemonsets import NODE_AGENTS, AgentNodes, NodeAgent, agent_requests
from gke_ai.catalog.nodes.shape import GKE_ACCELERATOR, GKE_TPU_ACCELERATOR

Object = dict[str, Any]

NAMESPACE = "kube-system"
# Names of the DaemonSets, and the labels of their nodes.
_NAMES: Mapping[AgentNodes, str] = {"all": "gke-node-agents", "gpu": "nvidia-gpu-agents", "tpu": "tpu-device-plugin"}
_LABELS: Mapping[AgentNodes, str] = {"gpu": GKE_ACCELERATOR, "tpu": GKE_TPU_ACCELERATOR}
# The TPU plugin's metrics: https://cloud.google.com/kubernetes-engine/docs/how-to/tpus#metrics
_PORTS = {"tpu-device-plugin": 2112}


def daemon_sets() -> list[Object]:
    """The DaemonSets that every cluster has."""
    return [_daemon_set(nodes) for nodes in _NAMES]


def is_agent(pod: Object) -> bool:
    """Whether a pod belongs to one of these DaemonSets."""
    owners = {(owner["kind"], owner["name"]) for owner in pod["metadata"].get("ownerReferences", [])}
    ours = {("DaemonSet", name) for name in _NAMES.values()}
    return pod["metadata"].get("namespace") == NAMESPACE and bool(owners & ours)


def requests_on(node: Object) -> dict[str, Fraction]:
    """The resources that the agents request on a node, even before their pods exist."""
    labels = node["metadata"].get("labels", {})
    return agent_requests(gpu=GKE_ACCELERATOR in labels, tpu=GKE_TPU_ACCELERATOR in labels)


def _daemon_set(nodes: AgentNodes) -> Object:
    name = _NAMES[nodes]
    labels = {"k8s-app": name}
    spec: Object = {
        # As on GKE: if a node is already full, the agents preempt a pod.
        "priorityClassName": "system-node-critical",
        "tolerations": [{"operator": "Exists"}],
        "containers": [_container(agent) for agent in NODE_AGENTS if agent.nodes == nodes],
    }
    if nodes in _LABELS:
        terms = [{"matchExpressions": [{"key": _LABELS[nodes], "operator": "Exists"}]}]
        spec["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }


def _container(agent: NodeAgent) -> Object:
    container: Object = {
        "name": agent.name,
        "image": f"gke.gcr.io/{agent.name}:emulator",
        "resources": {"requests": {"cpu": agent.cpu, "memory": agent.memory}},
    }
    if agent.name in _PORTS:
        container["ports"] = [{"containerPort": _PORTS[agent.name]}]
    return container
