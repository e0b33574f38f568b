"""Requests of GKE's DaemonSet pods, which reduce what a node has for pods of workloads.

The figures are requests that nodes of GKE show (`kubectl describe node`). GKE changes them from version to version. If
sources differ, the table has the larger value. Sources, by the letter in the table:

- a: https://github.com/cryptnono/cryptnono/issues/34, a node of GKE 1.29; a node of 1.36.3 in a public report of a load
  test (2026-10) shows the same but for gke-metrics-agent, 21m and 145Mi
- b: https://github.com/2i2c-org/infrastructure/blob/main/deployer/commands/generate/resource_allocation/daemonset_requests.yaml
  and, on kube-proxy, https://github.com/2i2c-org/infrastructure/pull/4072
- c: a public list of the CPU requests of all DaemonSets of a cluster with Dataplane V2, without memory
- d: https://github.com/GoogleCloudPlatform/prometheus-engine/blob/main/manifests/operator.yaml
- e: https://github.com/GoogleCloudPlatform/gcs-fuse-csi-driver/blob/main/deploy/base/node/node.yaml
- f: a GPU node of GKE 1.31 in a tutorial of https://github.com/vllm-project/production-stack

The table leaves out agents of features that this program does not enable (Filestore, NodeLocal DNSCache, Istio). It
also leaves out GKE's Deployments (DNS, konnectivity-agent), which do not tolerate the taint of accelerator nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from gke_ai.catalog.fabric.gpudirect import AGENT_REQUESTS
from gke_ai.catalog.machines.metal import AGENT, AGENT_MEMORY
from gke_ai.catalog.quantities import parse_quantity

# Nodes that an agent runs on.
AgentNodes = Literal["all", "gpu", "tpu", "gpudirect", "metal"]


@dataclass(frozen=True)
class NodeAgent:
    """A DaemonSet of GKE or of this program, and the requests of one of its pods, summed over all containers."""

    name: str
    cpu: str
    memory: str
    nodes: AgentNodes = "all"


NODE_AGENTS: tuple[NodeAgent, ...] = (
    # c. Its memory is unproven. Without Dataplane V2, kube-proxy (100m) and netd (8m, 65Mi) run instead. With Calico,
    # calico-node also runs; its request grows with the cluster: about 100m (b), 500m on the node of 1.36.3 (a).
    NodeAgent("anetd", "205m", "400Mi"),
    NodeAgent("fluentbit-gke", "105m", "230Mi"),  # a
    NodeAgent("gke-metadata-server", "100m", "100Mi"),  # a
    NodeAgent("gke-metrics-agent", "21m", "155Mi"),  # a; 155Mi in 1.30
    NodeAgent("ip-masq-agent", "10m", "16Mi"),  # a
    NodeAgent("pdcsi-node", "10m", "20Mi"),  # a
    NodeAgent("collector", "5m", "36M"),  # d, of Managed Service for Prometheus
    NodeAgent("gcsfusecsi-node", "20m", "160Mi"),  # e, an early version; the current one was not checked
    NodeAgent("nvidia-gpu-device-plugin", "150m", "80Mi", "gpu"),  # f, with the driver's installer
    NodeAgent("dcgm-exporter", "100m", "400Mi", "gpu"),  # c; its memory is unproven
    NodeAgent("tpu-device-plugin", "110m", "100Mi", "tpu"),  # c; its memory is unproven
    # Of this program. Those of GPUDirect request no memory.
    NodeAgent("gpudirect-installer", AGENT_REQUESTS["cpu"], "0", "gpudirect"),
    NodeAgent("device-injector", AGENT_REQUESTS["cpu"], "0", "gpudirect"),
    NodeAgent(AGENT, "0", AGENT_MEMORY, "metal"),
)


def node_agents(*, gpu: bool, tpu: bool, gpudirect: bool = False, metal: bool = False) -> tuple[NodeAgent, ...]:
    """Returns the agents of a node with or without GPUs, TPUs and the networks of GPUDirect, on bare metal or not."""
    of_node = {"all": True, "gpu": gpu, "tpu": tpu, "gpudirect": gpudirect, "metal": metal}
    matching = {nodes for nodes, present in of_node.items() if present}
    return tuple(agent for agent in NODE_AGENTS if agent.nodes in matching)


def agent_requests(*, gpu: bool, tpu: bool, gpudirect: bool = False, metal: bool = False) -> dict[str, Fraction]:
    """Returns the sum of the agents' requests on such a node, by resource."""
    agents = node_agents(gpu=gpu, tpu=tpu, gpudirect=gpudirect, metal=metal)
    return {
        "cpu": sum((parse_quantity(agent.cpu) for agent in agents), Fraction(0)),
        "memory": sum((parse_quantity(agent.memory) for agent in agents), Fraction(0)),
    }
