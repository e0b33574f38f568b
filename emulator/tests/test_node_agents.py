"""GKE's DaemonSets on simulated nodes request the resources that the program's planning deducts."""

from collections import Counter
from fractions import Fraction
from typing import Any

import pytest

from emulator.cluster import ClusterRecord
from emulator.nodes import fit, node_agents
from emulator.nodes.objects import node_object
from gke_ai.catalog.machines.types import machine
from gke_ai.catalog.nodes.shape import NodeShape, free
from gke_ai.catalog.quantities import parse_quantity

CLUSTER = ClusterRecord("c", "p", "us-central1", "standard", ["us-central1-a"], "1.36.1-gke.1")
MACHINES = ["e2-standard-4", "g2-standard-24", "a3-highgpu-8g", "ct5lp-hightpu-4t"]


def shape_of(machine_type: str) -> NodeShape:
    spec = machine(machine_type)
    topology = "2x2" if spec.tpu else None
    place = ("latest", "onDemand", "us-central1-a", 200)
    return NodeShape("p", machine_type, spec.gpu, spec.gpus, *place, {}, True, topology)


def placed_on(node: dict[str, Any]) -> Counter[str]:
    """The requests of the DaemonSets that run on a node, from the objects themselves."""
    total: Counter[str] = Counter()
    for daemon_set in node_agents.daemon_sets():
        pod = {"metadata": {"namespace": "kube-system"}, "spec": daemon_set["spec"]["template"]["spec"]}
        plenty = dict.fromkeys(("cpu", "memory", "pods"), Fraction(10**15))
        if fit.refusal(pod, node, plenty) is None:
            total.update({key: amount for key, amount in fit.requests(pod).items() if key != "pods"})
    return total


@pytest.mark.parametrize("machine_type", MACHINES)
def test_daemonsets_leave_the_resources_that_the_program_and_the_autoscaler_plan_with(machine_type: str) -> None:
    shape = shape_of(machine_type)
    node = node_object(CLUSTER, shape, "n")
    taken = placed_on(node)
    for resource in ("cpu", "memory"):
        left = parse_quantity(node["status"]["allocatable"][resource]) - taken[resource]
        assert 0 <= left - free(shape)[resource] < 1024
        assert fit.room(node)[resource] == left


def test_pods_of_the_daemonsets_are_recognized_by_their_owner() -> None:
    def is_agent(namespace: str, owner: str) -> bool:
        owners = [{"kind": "DaemonSet", "name": owner}]
        return node_agents.is_agent({"metadata": {"namespace": namespace, "ownerReferences": owners}})

    assert all(is_agent("kube-system", item["metadata"]["name"]) for item in node_agents.daemon_sets())
    assert not is_agent("llm", "gke-node-agents")
    assert not is_agent("kube-system", "node-exporter")
