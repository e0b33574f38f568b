"""GPUs and TPUs: use of queues, quota within capacity, bounds of flex-start."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from catalog.capacity import MAX_RUN_SECONDS, MIN_RUN_SECONDS, mode_of
from catalog.machines import MACHINES
from catalog.nodes import COMPUTE_CLASS, NVIDIA_GPU, NodeShape, node_labels
from catalog.quantities import parse_quantity, readable
from catalog.quota import QUEUE_LABEL
from catalog.tpus import GOOGLE_TPU, slice_on
from catalog.zones import ZONES, is_zone, node_zones
from policy.base import Policy, of_resources, of_stacks
from policy.resources import (
    CLUSTER,
    NODE_POOL,
    Hidden,
    Pod,
    Resource,
    Stack,
    is_unset,
    items,
    list_at,
    mapping,
    number,
    value,
)
from settings import calibration

ACCELERATORS = (NVIDIA_GPU, GOOGLE_TPU)
PROJECT_FOLDER = Path(__file__).resolve().parent.parent.parent


@of_stacks(
    "accelerators-under-a-queue",
    "Pods that request GPUs or TPUs with quota are submitted to a queue",
    f"Set the label {QUEUE_LABEL} to a LocalQueue of the namespace, or use a compute class or a pool that no "
    "ClusterQueue covers",
)
def accelerators_under_a_queue(stack: Stack) -> Iterator[tuple[Resource, str]]:
    """A stack without queues may use its own pools and compute classes, whose bounds limit it.

    In an existing cluster, which others share, the policy always requires a queue.
    """
    queues = {(one.namespace, one.object_name) for one in stack.of_kind("LocalQueue")}
    guest = not any(stack.of_type(CLUSTER, NODE_POOL)) and not any(stack.of_kind("ComputeClass"))
    for pod in stack.pods:
        wanted = [resource for resource in ACCELERATORS if pod.wants(resource)]
        if not wanted:
            continue
        label = _queue_of(pod)
        if isinstance(label, Hidden):
            continue
        if is_unset(label):
            if guest or any(_rationed(pod, resource, stack) for resource in wanted):
                yield (
                    pod.owner,
                    f"its pods request {' and '.join(wanted)} and have no queue. They use nodes that are quota of "
                    "other workloads, and Kueue cannot preempt them",
                )
        elif queues and (pod.owner.namespace, label) not in queues:
            yield (
                pod.owner,
                f"there is no LocalQueue {label} in namespace {pod.owner.namespace}. Kueue never admits its pods",
            )


def _queue_of(pod: Pod) -> Any:
    template = mapping(pod.owner.props, "spec", "jobTemplate", "metadata", "labels")  # of a CronJob
    return pod.owner.labels.get(QUEUE_LABEL) or pod.labels.get(QUEUE_LABEL) or template.get(QUEUE_LABEL)


def _rationed(pod: Pod, resource: str, stack: Stack) -> bool:
    """Whether a ClusterQueue has quota for this resource on nodes that the pod can select."""
    selected = mapping(pod.spec, "nodeSelector")
    flavors = {one.object_name: mapping(one.props, "spec", "nodeLabels") for one in stack.of_kind("ResourceFlavor")}
    return any(
        _may_be_on(selected, flavors.get(str(flavor.get("name")), {}))
        for queue in stack.of_kind("ClusterQueue")
        for group in items(queue.props, "spec", "resourceGroups")
        if resource in list_at(group, "coveredResources")
        for flavor in items(group, "flavors")
    )


def _may_be_on(selected: Mapping[str, Any], labels: Mapping[str, Any]) -> bool:
    # GKE taints the nodes of a compute class for its pods, so only a flavor with that label has such nodes.
    if COMPUTE_CLASS in selected and COMPUTE_CLASS not in labels:
        return False
    return all(selected.get(key, wanted) in (wanted, Hidden.UNKNOWN) for key, wanted in labels.items())


@of_stacks(
    "quota-within-capacity",
    "Quota of queues does not exceed the capacity of their nodes",
    "Lower the quota (gke-ai: quota: derive), or raise the maximum size of the pools",
)
def quota_within_capacity(stack: Stack) -> Iterator[tuple[Resource, str]]:
    """Compares the sum of all nominal quotas with the capacity of the flavor's pools at maximum size."""
    granted: dict[tuple[str, str], Fraction] = {}
    for queue in stack.of_kind("ClusterQueue"):
        for group in items(queue.props, "spec", "resourceGroups"):
            for flavor in items(group, "flavors"):
                for one in items(flavor, "resources"):
                    key = (str(flavor.get("name")), str(one.get("name")))
                    granted[key] = granted.get(key, Fraction(0)) + _amount(one.get("nominalQuota"))
    measured = _calibration(stack)
    for flavor_resource in stack.of_kind("ResourceFlavor"):
        pools = flavor_pools(flavor_resource, stack)
        if pools is None:
            continue
        for (name, resource), quota in granted.items():
            if name != flavor_resource.object_name:
                continue
            have = sum(
                (_amount(measured.room(shape).get(resource, "0")) * max_nodes for shape, max_nodes in pools),
                Fraction(0),
            )
            if quota > have:
                names = ", ".join(sorted({shape.pool for shape, _ in pools}))
                yield (
                    flavor_resource,
                    f"queues have quota for {readable(resource, quota)} {resource} of it, and its pools ({names}) have "
                    f"{readable(resource, have)} for pods at maximum size. Kueue admits pods that stay Pending and "
                    "hold the quota",
                )


def _calibration(stack: Stack) -> calibration.Calibration:
    """Returns the calibration of the stack's cluster; an empty one without a valid file."""
    names = [text for key, text in stack.configuration.items() if key.endswith(":calibration")]
    try:
        return calibration.read(PROJECT_FOLDER / str(names[0])) if names else calibration.Calibration()
    except calibration.BadCalibration:
        return calibration.Calibration()


def flavor_pools(flavor: Resource, stack: Stack) -> list[tuple[NodeShape, int]] | None:
    """The pools whose nodes a flavor is, with their largest sizes; None where the stack doesn't show them all."""
    labels = mapping(flavor.props, "spec", "nodeLabels")
    if not labels:
        # Any node: all pools of a cluster that makes none by itself.
        clusters = list(stack.of_type(CLUSTER))
        makes_nodes = any(
            value(one.props, "enableAutopilot") is True or value(one.props, "clusterAutoscaling", "enabled") is True
            for one in clusters
        )
        if not clusters or makes_nodes or any(stack.of_kind("ComputeClass")):
            return None
    found = []
    for pool in stack.of_type(NODE_POOL):
        described = node_and_max_nodes(pool)
        if described is None:
            return None
        if labels.items() <= node_labels(described[0]).items():
            found.append(described)
    return found or None


def node_and_max_nodes(pool: Resource) -> tuple[NodeShape, int] | None:
    """A node of the pool and the maximum number of nodes; None where the pool doesn't show them."""
    config = mapping(pool.props, "nodeConfig")
    location, machine_type = value(pool.props, "location"), value(config, "machineType")
    zones = [zone for zone in list_at(pool.props, "nodeLocations") if isinstance(zone, str)]
    if not isinstance(location, str) or machine_type not in MACHINES:
        return None
    zones = zones or list(node_zones(location)) if is_zone(location) or location in ZONES else zones
    if not zones:
        return None
    machine = MACHINES[machine_type]
    gpus = next(iter(items(config, "guestAccelerators")), {})
    autoscaling = mapping(pool.props, "autoscaling")
    whole, each = number(autoscaling.get("totalMaxNodeCount")), number(autoscaling.get("maxNodeCount"))
    fixed = number(value(pool.props, "nodeCount")) or number(value(pool.props, "initialNodeCount"))
    max_nodes = whole or (each or fixed or 0) * len(zones)
    shape = NodeShape(
        pool=pool.object_name,
        machine_type=machine.name,
        gpu=gpus.get("type") or machine.gpu,
        gpus=number(gpus.get("count")) or machine.gpus,
        driver="default",
        capacity=_capacity(pool),
        zone=zones[0],
        disk_gb=number(config.get("diskSizeGb")) or 100,
        labels={key: text for key, text in mapping(config, "labels").items() if isinstance(text, str)},
        workload_identity=value(config, "workloadMetadataConfig", "mode") == "GKE_METADATA",
        topology=value(pool.props, "placementPolicy", "tpuTopology")
        or (slice_on(machine.name).topology if machine.tpu else None),
    )
    return shape, max_nodes


def _capacity(pool: Resource) -> str:
    affinity = value(pool.props, "nodeConfig", "reservationAffinity", "consumeReservationType")
    return mode_of(
        queued=value(pool.props, "queuedProvisioning", "enabled"),
        flex_start=value(pool.props, "nodeConfig", "flexStart"),
        spot=value(pool.props, "nodeConfig", "spot"),
        reservation=affinity == "SPECIFIC_RESERVATION",
    )


def _amount(text: object) -> Fraction:
    try:
        return parse_quantity(str(number(text) if isinstance(text, float) else text))
    except ValueError:
        return Fraction(0)


@of_resources(
    "flex-start-is-bounded",
    "Flex-start nodes have a maximum run duration",
    f"On a pool, set maxRunDuration ({MIN_RUN_SECONDS}s to {MAX_RUN_SECONDS}s). On a compute class, set "
    "maxRunDurationSeconds or flexStart.nodeRecycling",
)
def flex_start_is_bounded(resource: Resource) -> Iterator[str]:
    """https://cloud.google.com/kubernetes-engine/docs/concepts/dws"""
    if resource.type == NODE_POOL and _capacity(resource) in ("flexStart", "queuedFlexStart"):
        duration = value(resource.props, "nodeConfig", "maxRunDuration")
        if isinstance(duration, Hidden):
            return
        stated = re.fullmatch(r"([0-9]+)s", str(duration or ""))
        if not stated:
            yield "its flex-start nodes have no maximum run duration. You pay for them for up to seven days"
        elif not MIN_RUN_SECONDS <= int(stated[1]) <= MAX_RUN_SECONDS:
            yield f"maxRunDuration {duration} is outside the range of flex-start. Google Cloud refuses the pool"
    if resource.is_kubernetes and resource.kind == "ComputeClass":
        for index, priority in enumerate(items(resource.props, "spec", "priorities")):
            flex = mapping(priority, "flexStart")
            bounded = not is_unset(priority.get("maxRunDurationSeconds")) or not is_unset(flex.get("nodeRecycling"))
            if flex.get("enabled") is True and not bounded:
                yield (
                    f"priority {index} is flex-start without a maximum run duration or node recycling. After seven "
                    "days GKE deletes the node and its pods"
                )


POLICIES: tuple[Policy, ...] = (accelerators_under_a_queue, quota_within_capacity, flex_start_is_bounded)
