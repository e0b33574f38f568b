"""Reads nodes: their pool, capacity mode, accelerator and shape, by the labels that GKE and this program set."""

from __future__ import annotations

from dataclasses import replace

from gke_ai.catalog.machines.capacity import MODES, UNTIL
from gke_ai.catalog.machines.types import MACHINES
from gke_ai.catalog.nodes import shape
from gke_ai.catalog.nodes.shape import NodeShape, bare_shape
from gke_ai.kube.objects import Object, label
from gke_ai.kube.values import mapping, value


def pool_of(node: Object) -> str:
    """Returns the name of a node's pool: the stable one of this program, else GKE's."""
    return label(node, shape.POOL) or label(node, shape.GKE_NODEPOOL)


def capacity_mode(node: Object) -> str:
    """Returns the capacity mode of a node; GKE's word for one that is not in the catalog."""
    if label(node, shape.RESERVATION_NAME) or label(node, UNTIL):
        return "reservation"
    labels = mapping(node, "metadata", "labels")
    shown = (name for name, mode in MODES.items() if mode.labels and mode.labels.items() <= labels.items())
    provisioning = label(node, shape.GKE_PROVISIONING)
    return next(shown, "onDemand" if provisioning in ("", "standard") else provisioning)


def accelerator_type(node: Object) -> str:
    """Returns GKE's name of a node's accelerator, or an empty text."""
    return label(node, shape.GKE_ACCELERATOR) or label(node, shape.GKE_TPU_ACCELERATOR)


def shape_of(node: Object) -> NodeShape | None:
    """Returns the shape of a node by its machine type; None if the machine type is not in the catalog.

    Its capacity mode is one that labels show: of a reservation's nodes, that on demand.
    """
    machine = MACHINES.get(label(node, shape.INSTANCE_TYPE))
    if machine is None:
        return None
    mode = capacity_mode(node)
    node_shape = replace(
        bare_shape(machine),
        pool=label(node, shape.GKE_NODEPOOL),
        capacity=mode if mode in MODES and MODES[mode].labels else "onDemand",
        zone=label(node, shape.ZONE),
        topology=label(node, shape.GKE_TPU_TOPOLOGY) or None,
    )
    if machine.gpu is None and (attached := int(value(node, "status", "capacity", shape.NVIDIA_GPU) or 0)):
        return replace(node_shape, gpu=label(node, shape.GKE_ACCELERATOR), gpus=attached)  # to an N1
    return node_shape
