"""GPUs and TPUs: use of queues, quota within capacity, bounds of flex-start."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from gke_ai.catalog.fabric.fabrics import fabric_of_gpu
from gke_ai.catalog.fabric.rdma import DRIVER_LABEL
from gke_ai.catalog.machines.capacity import MAX_RUN_SECONDS, MIN_RUN_SECONDS
from gke_ai.catalog.nodes.quota import QUEUE_LABEL
from gke_ai.catalog.nodes.shape import ACCELERATORS, COMPUTE_CLASS, NodeShape
from gke_ai.catalog.quantities import readable
from gke_ai.kube.queues import quotas_of
from gke_ai.kube.values import Hidden, is_unset, items, mapping, value
from gke_ai.registered.pools import capacity_mode, flavor_pools
from gke_ai.registered.registration import Pod, RegisteredStack, Resource
from gke_ai.registered.types import CLUSTER, NODE_POOL
from gke_ai.review.policy.base import of_resources, of_stacks
from gke_ai.settings import calibration

PROJECT_FOLDER = Path(__file__).resolve().parents[4]


@of_stacks(
    f"Set the label {QUEUE_LABEL} to a LocalQueue of the namespace, or use a compute class or a pool that no "
    "ClusterQueue covers"
)
def accelerators_under_a_queue(stack: RegisteredStack) -> Iterator[tuple[Resource, str]]:
    """Pods that request GPUs or TPUs with quota are submitted to a queue.

    A stack without queues may use its own pools and compute classes, whose bounds limit it.

    In an existing cluster, which others share, the policy always requires a queue. In a namespace that the stack did
    not create, the queue may be of others.
    """
    own = {namespace.object_name for namespace in stack.of_kind("Namespace")}
    queues = {(queue.namespace, queue.object_name) for queue in stack.of_kind("LocalQueue")}
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
                cause = f"its pods request {' and '.join(wanted)} and have no queue"
                effect = "They use nodes that are quota of other workloads, and Kueue cannot preempt them"
                yield pod.owner, f"{cause}. {effect}"
        elif queues and pod.owner.namespace in own and (pod.owner.namespace, label) not in queues:
            text = f"there is no LocalQueue {label} in namespace {pod.owner.namespace}. Kueue never admits its pods"
            yield pod.owner, text


def _queue_of(pod: Pod) -> Any:
    template = mapping(pod.owner.props, "spec", "jobTemplate", "metadata", "labels")  # of a CronJob
    return pod.owner.labels.get(QUEUE_LABEL) or pod.labels.get(QUEUE_LABEL) or template.get(QUEUE_LABEL)


def _rationed(pod: Pod, resource: str, stack: RegisteredStack) -> bool:
    """Whether a ClusterQueue has quota for this resource on nodes that the pod can select."""
    selected = mapping(pod.spec, "nodeSelector")
    flavors = {own.object_name: mapping(own.props, "spec", "nodeLabels") for own in stack.of_kind("ResourceFlavor")}
    return any(
        _may_be_on(selected, flavors.get(flavor, {}))
        for queue in stack.of_kind("ClusterQueue")
        for flavor, covered in quotas_of(queue.props)
        if covered == resource
    )


def _may_be_on(selected: Mapping[str, Any], labels: Mapping[str, Any]) -> bool:
    # GKE taints the nodes of a compute class for its pods, so only a flavor with that label has such nodes.
    if COMPUTE_CLASS in selected and COMPUTE_CLASS not in labels:
        return False
    return all(selected.get(key, wanted) in (wanted, Hidden.UNKNOWN) for key, wanted in labels.items())


@of_stacks("Lower the quota (gke-ai: quota: derive), or raise the maximum size of the pools")
def quota_within_capacity(stack: RegisteredStack) -> Iterator[tuple[Resource, str]]:
    """Quota of queues does not exceed the capacity of their nodes.

    Compares the sum of all nominal quotas with the capacity of the flavor's pools at maximum size.
    """
    granted: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
    for queue in stack.of_kind("ClusterQueue"):
        for key, quota in quotas_of(queue.props).items():
            granted[key] += quota
    measured = _calibration(stack)
    for flavor_resource in stack.of_kind("ResourceFlavor"):
        pools = flavor_pools(flavor_resource, stack)
        if pools is None:
            continue
        for (name, resource), quota in granted.items():
            if name != flavor_resource.object_name:
                continue
            have = Fraction(0)
            for shape, max_nodes in pools:
                have += _room(measured, shape).get(resource, Fraction(0)) * max_nodes
            if quota > have:
                names = ", ".join(sorted({shape.pool for shape, _ in pools}))
                has = f"its pools ({names}) have {readable(resource, have)} for pods at maximum size"
                cause = f"queues have quota for {readable(resource, quota)} {resource} of it, and {has}"
                yield flavor_resource, f"{cause}. Kueue admits pods that stay Pending and hold the quota"


def _room(measured: calibration.Calibration, shape: NodeShape) -> dict[str, Fraction]:
    """Room of a node for pods, with its NICs and channels if pods can claim them."""
    devices = fabric_of_gpu(shape.gpu).devices if DRIVER_LABEL in shape.labels else {}
    return {**measured.room(shape), **{name: Fraction(count) for name, count in devices.items()}}


def _calibration(stack: RegisteredStack) -> calibration.Calibration:
    """Returns the calibration of the stack's cluster; an empty one without a valid file."""
    names = [text for key, text in stack.configuration.items() if key.endswith(":calibration")]
    try:
        return calibration.read(PROJECT_FOLDER / str(names[0])) if names else calibration.Calibration()
    except calibration.BadCalibration:
        return calibration.Calibration()


@of_resources(
    f"On a pool, set maxRunDuration ({MIN_RUN_SECONDS}s to {MAX_RUN_SECONDS}s). On a compute class, set "
    "maxRunDurationSeconds or flexStart.nodeRecycling"
)
def flex_start_is_bounded(resource: Resource) -> Iterator[str]:
    """Flex-start nodes have a maximum run duration.

    https://cloud.google.com/kubernetes-engine/docs/concepts/dws
    """
    if resource.type == NODE_POOL and capacity_mode(resource.props) in ("flexStart", "queuedFlexStart"):
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
