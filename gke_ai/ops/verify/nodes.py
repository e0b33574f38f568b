"""Nodes that a stack relies on: those of its pools and compute classes, and those that GKE chooses for its pods."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from gke_ai.catalog.machines.capacity import MODES, Taint
from gke_ai.catalog.machines.types import MACHINES
from gke_ai.catalog.nodes import shape as labels
from gke_ai.catalog.nodes.shape import NodeShape
from gke_ai.kube.nodes import shape_of
from gke_ai.kube.objects import Object, holds, label
from gke_ai.kube.pods import amounts, ended, requests
from gke_ai.kube.values import items, mapping, value
from gke_ai.registered.pools import node_shape
from gke_ai.registered.registration import RegisteredStack, Resource
from gke_ai.registered.types import NODE_POOL
from gke_ai.registered.workloads import class_choice
from gke_ai.settings.calibration import MEASURED

# Effects of taints in the API of node pools: https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/NodeConfig#effect
EFFECTS = {"NO_SCHEDULE": "NoSchedule", "PREFER_NO_SCHEDULE": "PreferNoSchedule", "NO_EXECUTE": "NoExecute"}
DRIVERS = {"LATEST": "latest", "INSTALLATION_DISABLED": "disabled"}


@dataclass(frozen=True)
class NodeGroup:
    """Nodes of a pool, of a compute class, or of GKE's choice, and the expected shape of each.

    The stack describes the nodes of `whole` groups in full; of other groups it describes only the accelerators.
    `shows` says what creates a node of an empty group.
    """

    title: str
    nodes: list[Object]
    shape: Callable[[Object], NodeShape | None]
    shows: str
    whole: bool = True
    declared: tuple[Taint, ...] = ()
    choices: tuple[tuple[str, str], ...] = ()

    def shaped(self) -> Iterator[tuple[Object, NodeShape]]:
        """Yields the ready nodes whose machine type is in the catalog, each with its expected shape."""
        for node in self.nodes:
            shape = self.shape(node)
            if shape is not None and holds(node, "Ready"):
                yield node, shape

    def unknown(self) -> list[str]:
        """Returns the machine types of nodes that are not in the catalog."""
        return sorted({label(node, labels.INSTANCE_TYPE) for node in self.nodes if self.shape(node) is None})


def groups(stack: RegisteredStack, nodes: list[Object]) -> list[NodeGroup]:
    """Returns the groups of pools, of compute classes, and of accelerator nodes that GKE chose."""
    node_groups = [_pool(pool, nodes) for pool in stack.of_type(NODE_POOL)]
    node_groups += [_class(compute_class, nodes) for compute_class in stack.of_kind("ComputeClass")]
    taken = {id(node) for group in node_groups for node in group.nodes}
    wanted = sorted({accelerator for pod in stack.pods if (accelerator := _accelerator(pod.spec))})
    named = {shape.gpu or MACHINES[shape.machine_type].tpu for shape in _recorded_shapes(stack)}
    for accelerator in wanted:
        own = [node for node in nodes if id(node) not in taken and _machine_accelerator(node) == accelerator]
        if own or accelerator not in named:
            shows = "a pod that requests one, or that its queue admits"
            node_groups.append(NodeGroup(f"nodes with {accelerator}", own, shape_of, shows, whole=False))
    return node_groups


def _pool(pool: Resource, nodes: list[Object]) -> NodeGroup:
    own = [node for node in nodes if label(node, labels.GKE_NODEPOOL) == pool.object_name]
    recorded = node_shape(pool)
    accelerator = next(iter(items(pool.props, "nodeConfig", "guestAccelerators")), {})
    driver = str(value(accelerator, "gpuDriverInstallationConfig", "gpuDriverVersion"))

    def shape(node: Object) -> NodeShape | None:
        if recorded is None:
            return None
        return replace(recorded, zone=label(node, labels.ZONE) or recorded.zone, driver=DRIVERS.get(driver, "default"))

    # GKE always sets the taints of accelerators, also if the pool does not declare them.
    declared = []
    for taint in items(pool.props, "nodeConfig", "taints"):
        effect = str(taint.get("effect"))
        declared.append(Taint(str(taint.get("key")), str(taint.get("value", "")), EFFECTS.get(effect, effect)))
    shows = f"a node of the pool: a pod for it, or a minimum above 0 for a while (pool {pool.object_name})"
    return NodeGroup(f"pool {pool.object_name}", own, shape, shows, declared=tuple(declared))


def _class(compute_class: Resource, nodes: list[Object]) -> NodeGroup:
    name = compute_class.object_name
    own = [node for node in nodes if label(node, labels.COMPUTE_CLASS) == name]
    choices = tuple(_node_choice(priority) for priority in items(compute_class.props, "spec", "priorities"))

    def shape(node: Object) -> NodeShape | None:
        base = shape_of(node)
        return replace(base, compute_class=name) if base else None

    shows = f"a pod that selects {labels.COMPUTE_CLASS}={name}"
    return NodeGroup(f"compute class {name}", own, shape, shows, whole=False, choices=choices)


def _node_choice(priority: Mapping[str, Any]) -> tuple[str, str]:
    """Returns machine type and capacity mode of a priority, as far as labels of its nodes show them."""
    machine_type, mode = class_choice(priority)
    return str(machine_type), mode if MODES[mode].labels else "onDemand"


def _accelerator(spec: Mapping[str, Any]) -> str:
    """Returns the accelerator that a pod selects; an empty text if it selects none, or a compute class."""
    selector = mapping(spec, "nodeSelector")
    named = selector.get(labels.GKE_ACCELERATOR) or selector.get(labels.GKE_TPU_ACCELERATOR)
    return str(named) if named and labels.COMPUTE_CLASS not in selector else ""


def _machine_accelerator(node: Object) -> str:
    machine = MACHINES.get(label(node, labels.INSTANCE_TYPE))
    own = (machine.gpu or machine.tpu) if machine else None
    return own or label(node, labels.GKE_ACCELERATOR)


def _recorded_shapes(stack: RegisteredStack) -> list[NodeShape]:
    return [shape for pool in stack.of_type(NODE_POOL) if (shape := node_shape(pool))]


def allocatable_of(node: Object) -> Mapping[str, Any]:
    """Returns what a node has for pods, including those of DaemonSets."""
    return mapping(node, "status", "allocatable")


def daemon_requests(pods: list[Object]) -> dict[str, dict[str, Fraction]]:
    """Returns the requests of DaemonSet pods, by node and resource."""
    by_node: dict[str, dict[str, Fraction]] = {}
    for pod in pods:
        owners = pod["metadata"].get("ownerReferences") or []
        node_name = pod["spec"].get("nodeName")
        if not node_name or ended(pod) or not any(owner["kind"] == "DaemonSet" for owner in owners):
            continue
        total = by_node.setdefault(node_name, {})
        for resource, amount in requests(pod["spec"]).items():
            if resource in MEASURED:
                total[resource] = total.get(resource, Fraction(0)) + amount
    return by_node


def requests_on(node: Object, requests: Mapping[str, Mapping[str, Fraction]]) -> Mapping[str, Fraction]:
    """Returns the requests on a node, from requests by node and resource."""
    return requests.get(node["metadata"]["name"], {})


def free_of(node: Object, requests: Mapping[str, Mapping[str, Fraction]]) -> dict[str, Fraction]:
    """Returns what a node has for pods of workloads: its allocatable less the requests of DaemonSets."""
    taken, have = requests_on(node, requests), amounts(allocatable_of(node))
    return {resource: amount - taken.get(resource, Fraction(0)) for resource, amount in have.items()}
