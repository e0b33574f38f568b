"""The nodes that a stack relies on: of its pools, its compute classes, and those that GKE chooses for its pods."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from catalog.capacity import MODES, Taint
from catalog.machines import MACHINES
from catalog.nodes import (
    COMPUTE_CLASS,
    GKE_ACCELERATOR,
    GKE_NODEPOOL,
    GKE_TPU_ACCELERATOR,
    GKE_TPU_TOPOLOGY,
    INSTANCE_TYPE,
    NVIDIA_GPU,
    ZONE,
    NodeShape,
)
from catalog.quantities import parse_quantity
from ops.stack import Object
from ops.status import condition, ended, label
from resources.pools import node_shape
from resources.stack import Resource, resource_request, selects
from resources.stack import Stack as Recorded
from resources.types import NODE_POOL
from resources.values import items, mapping, value
from resources.workloads import class_choice
from settings.calibration import MEASURED

# The API of node pools writes effects in its own way: https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/NodeConfig#effect
EFFECTS = {"NO_SCHEDULE": "NoSchedule", "PREFER_NO_SCHEDULE": "PreferNoSchedule", "NO_EXECUTE": "NoExecute"}
DRIVERS = {"LATEST": "latest", "INSTALLATION_DISABLED": "disabled"}


@dataclass(frozen=True)
class NodeGroup:
    """Nodes of one origin (a pool, a compute class, GKE's own choice), and the shape that each should have.

    `whole` groups are described by the stack in full; of others only the accelerators are. `shows` brings a node.
    """

    title: str
    nodes: list[Object]
    shape: Callable[[Object], NodeShape | None]
    shows: str
    whole: bool = True
    declared: tuple[Taint, ...] = ()
    choices: tuple[tuple[str, str], ...] = ()

    def shaped(self) -> Iterator[tuple[Object, NodeShape]]:
        """The nodes that are ready and whose machine the catalog knows, each with its shape."""
        for node in self.nodes:
            shape = self.shape(node)
            if shape is not None and is_ready(node):
                yield node, shape

    def unknown(self) -> list[str]:
        """Machine types of nodes that the catalog doesn't know."""
        return sorted({label(node, INSTANCE_TYPE) for node in self.nodes if self.shape(node) is None})


def groups(stack: Recorded, nodes: list[Object]) -> list[NodeGroup]:
    """The stack's pools, its compute classes, and the accelerator nodes that GKE chose by itself."""
    found = [_pool(pool, nodes) for pool in stack.of_type(NODE_POOL)]
    found += [_class(one, nodes) for one in stack.of_kind("ComputeClass")]
    taken = {id(node) for group in found for node in group.nodes}
    wanted = sorted({accelerator for pod in stack.pods if (accelerator := _accelerator(pod.spec))})
    named = {shape.gpu or MACHINES[shape.machine_type].tpu for shape in _recorded_shapes(stack)}
    for accelerator in wanted:
        own = [node for node in nodes if id(node) not in taken and _machine_accelerator(node) == accelerator]
        if own or accelerator not in named:
            shows = "a pod that asks for one, or that its queue admits"
            found.append(NodeGroup(f"nodes with {accelerator}", own, shape_of, shows, whole=False))
    return found


def _pool(pool: Resource, nodes: list[Object]) -> NodeGroup:
    own = [node for node in nodes if label(node, GKE_NODEPOOL) == pool.object_name]
    recorded = node_shape(pool)
    accelerator = next(iter(items(pool.props, "nodeConfig", "guestAccelerators")), {})
    driver = str(value(accelerator, "gpuDriverInstallationConfig", "gpuDriverVersion"))

    def shape(node: Object) -> NodeShape | None:
        if recorded is None:
            return None
        return replace(recorded, zone=label(node, ZONE) or recorded.zone, driver=DRIVERS.get(driver, "default"))

    # GKE gives the taints of accelerators by itself, stated or not.
    declared = [
        Taint(
            str(one.get("key")), str(one.get("value", "")), EFFECTS.get(str(one.get("effect")), str(one.get("effect")))
        )
        for one in items(pool.props, "nodeConfig", "taints")
    ]
    shows = f"a node of the pool: a pod for it, or a minimum above 0 for a while (pool {pool.object_name})"
    return NodeGroup(f"pool {pool.object_name}", own, shape, shows, declared=tuple(declared))


def _class(compute_class: Resource, nodes: list[Object]) -> NodeGroup:
    name = compute_class.object_name
    own = [node for node in nodes if label(node, COMPUTE_CLASS) == name]
    choices = tuple(_node_choice(priority) for priority in items(compute_class.props, "spec", "priorities"))

    def shape(node: Object) -> NodeShape | None:
        found = shape_of(node)
        return replace(found, compute_class=name) if found else None

    shows = f"a pod that selects {COMPUTE_CLASS}={name}"
    return NodeGroup(f"compute class {name}", own, shape, shows, whole=False, choices=choices)


def _node_choice(priority: Mapping[str, Any]) -> tuple[str, str]:
    """Returns machine type and capacity mode of a priority, as far as labels of its nodes show them."""
    machine_type, mode = class_choice(priority)
    return str(machine_type), mode if MODES[mode].labels else "onDemand"


def shape_of(node: Object) -> NodeShape | None:
    """The shape of a node as its own machine type says it; none where the catalog doesn't know the machine."""
    machine = MACHINES.get(label(node, INSTANCE_TYPE))
    if machine is None:
        return None
    gpu, gpus = machine.gpu, machine.gpus
    if gpu is None and (capacity := int(value(node, "status", "capacity", NVIDIA_GPU) or 0)):
        gpu, gpus = label(node, GKE_ACCELERATOR), capacity  # attached to an N1
    modes = [mode for mode in MODES.values() if mode.labels and selects(mode.labels, node["metadata"]["labels"])]
    return NodeShape(
        pool=label(node, GKE_NODEPOOL),
        machine_type=machine.name,
        gpu=gpu,
        gpus=gpus,
        driver="default",
        capacity=modes[0].name if modes else "onDemand",
        zone=label(node, ZONE),
        disk_gb=100,
        labels={},
        workload_identity=True,
        topology=label(node, GKE_TPU_TOPOLOGY) or None,
    )


def is_ready(node: Object) -> bool:
    """Whether pods can run on a node."""
    return bool(condition(node, "Ready").get("status") == "True")


def _accelerator(spec: Mapping[str, Any]) -> str:
    """The accelerator that a pod selects, where it selects one and no compute class."""
    selector = mapping(spec, "nodeSelector")
    named = selector.get(GKE_ACCELERATOR) or selector.get(GKE_TPU_ACCELERATOR)
    return str(named) if named and COMPUTE_CLASS not in selector else ""


def _machine_accelerator(node: Object) -> str:
    machine = MACHINES.get(label(node, INSTANCE_TYPE))
    own = (machine.gpu or machine.tpu) if machine else None
    return own or label(node, GKE_ACCELERATOR)


def _recorded_shapes(stack: Recorded) -> list[NodeShape]:
    return [shape for pool in stack.of_type(NODE_POOL) if (shape := node_shape(pool))]


def amounts(texts: Mapping[str, Any]) -> dict[str, Fraction]:
    """Quantities by resource as numbers."""
    return {resource: parse_quantity(str(text)) for resource, text in texts.items()}


def allocatable_of(node: Object) -> Mapping[str, Any]:
    """What a node reports for pods, DaemonSets included."""
    return mapping(node, "status", "allocatable")


def daemon_requests(node: Object, pods: list[Object]) -> dict[str, Fraction]:
    """What pods of DaemonSets request on a node."""
    total: dict[str, Fraction] = {}
    for pod in pods:
        owners = pod["metadata"].get("ownerReferences") or []
        if pod["spec"].get("nodeName") != node["metadata"]["name"] or ended(pod):
            continue
        if not any(owner["kind"] == "DaemonSet" for owner in owners):
            continue
        sidecars = [one for one in items(pod, "spec", "initContainers") if one.get("restartPolicy") == "Always"]
        for container in [*items(pod, "spec", "containers"), *sidecars]:
            for resource in MEASURED:
                if request := resource_request(container, resource):
                    total[resource] = total.get(resource, Fraction(0)) + parse_quantity(str(request))
    return total


def free_of(node: Object, pods: list[Object]) -> dict[str, Fraction]:
    """What a node has for pods of workloads: what it reports less the requests of DaemonSets."""
    taken = daemon_requests(node, pods)
    return {
        resource: amount - taken.get(resource, Fraction(0))
        for resource, amount in amounts(allocatable_of(node)).items()
    }
