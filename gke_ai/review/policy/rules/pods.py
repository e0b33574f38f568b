"""Pods: requests, images, privileges, and availability during disruptions."""

from __future__ import annotations

from collections.abc import Iterator

from gke_ai.kube.values import is_unset, items, list_at, mapping, value
from gke_ai.kube.workloads import SERVERS
from gke_ai.registered.registration import RegisteredStack, Resource, pods_of, resource_request, selects
from gke_ai.registered.workloads import replica_bounds
from gke_ai.review.policy.base import of_resources, of_stacks

# Tags that registries move to newer images.
MOVING_TAGS = {"latest", "stable", "main", "master", "edge", "nightly", "dev"}
# Capabilities that the Pod Security level baseline allows in addition to the defaults and that grant no node access.
HARMLESS_CAPABILITIES = {"NET_BIND_SERVICE"}


@of_resources(
    "Set resources.requests (or limits) for cpu and memory, and resources.limits for memory (gke-ai: resources)"
)
def resources_are_set(resource: Resource) -> Iterator[str]:
    """Containers request CPU and memory, and limit memory.

    The request defaults to the limit. A CPU limit only throttles, so it is not required.
    """
    for pod in pods_of(resource):
        for container in pod.containers:
            unset = [name for name in ("cpu", "memory") if is_unset(resource_request(container, name))]
            missing = [f"request for {name}" for name in unset]
            if is_unset(value(container, "resources", "limits", "memory")):
                missing.append("limit for memory")
            if missing:
                yield (
                    f"{pod.at(container)} has no {', no '.join(missing)}. The scheduler and the queue count a missing "
                    "request as 0, and without a limit it can use up the memory of the node"
                )


@of_resources("Set a version (IMAGE:1.2.3) or, better, a digest (IMAGE@sha256:…)")
def images_are_pinned(resource: Resource) -> Iterator[str]:
    """Images have a version tag or a digest."""
    for pod in pods_of(resource):
        for container in pod.containers:
            image = container.get("image")
            if not isinstance(image, str) or "@sha256:" in image:
                continue
            _, colon, tag = image.rpartition("/")[2].partition(":")
            if not colon or not tag:
                found = f"image {image} has no tag, so the tag is latest"
            elif tag in MOVING_TAGS:
                found = f"the tag of image {image} can move to another version"
            else:
                continue
            yield f"{pod.at(container)}: {found}. The next pod may run another version, and a rollback cannot undo it"


@of_resources("Remove the setting (TPUs need no privileged container since GKE 1.28), or add a waiver with a reason")
def no_privileged_pods(resource: Resource) -> Iterator[str]:
    """Pods have no privileged access to their node.

    https://kubernetes.io/docs/concepts/security/pod-security-standards/#baseline
    """
    for pod in pods_of(resource):
        found = [f"{key}: true" for key in ("hostNetwork", "hostPID", "hostIPC") if pod.spec.get(key) is True]
        of_node = [volume.get("name") for volume in items(pod.spec, "volumes") if "hostPath" in volume]
        found += [f"volume {name} is a path of the node" for name in of_node]
        for container in pod.containers:
            context = mapping(container, "securityContext")
            if context.get("privileged") is True:
                found.append(f"{pod.at(container)} is privileged")
            added = set(list_at(context, "capabilities", "add")) - HARMLESS_CAPABILITIES
            if added:
                found.append(f"{pod.at(container)} adds {', '.join(sorted(map(str, added)))}")
        if found:
            yield f"{'; '.join(found)}. An attacker in the pod controls the node, its other pods and its identity"


@of_stacks("Add a readinessProbe to the container (gke-ai: probes: true)")
def servers_have_a_readiness_probe(stack: RegisteredStack) -> Iterator[tuple[Resource, str]]:
    """Pods behind a Service have a readiness probe."""
    services = [(service, mapping(service.props, "spec", "selector")) for service in stack.of_kind("Service")]
    for pod in stack.pods:
        if pod.owner.kind not in SERVERS or any("readinessProbe" in container for container in pod.containers):
            continue
        for service, selector in services:
            if service.namespace == pod.owner.namespace and selects(selector, pod.labels):
                cause = f"Service {service.object_name} sends it requests, and no container has a readiness probe"
                yield pod.owner, f"{cause}. Requests fail at each start and rollout until the model is loaded"
                break


@of_stacks("Add a PodDisruptionBudget with maxUnavailable: 1 (gke-ai: disruptionBudget: true)")
def servers_have_a_disruption_budget(stack: RegisteredStack) -> Iterator[tuple[Resource, str]]:
    """Servers lose one replica at a time, and their nodes can be drained.

    https://kubernetes.io/docs/tasks/run-application/configure-pdb/
    """
    budgets = list(stack.of_kind("PodDisruptionBudget"))
    scalers = [scaler.props for scaler in stack.of_kind("HorizontalPodAutoscaler")]
    for pod in stack.pods:
        if pod.owner.kind not in SERVERS:
            continue
        replicas, _ = replica_bounds(pod.owner.props, scalers)
        beside = [budget.props for budget in budgets if budget.namespace == pod.owner.namespace]
        own = any(selects(mapping(props, "spec", "selector", "matchLabels"), pod.labels) for props in beside)
        # A rollout of it deletes all pods first: it has a standby, or can do without any.
        recreated = value(pod.owner.props, "spec", "strategy", "type") == "Recreate"
        if replicas > 1 and not own and not recreated:
            cause = f"it has {replicas} replicas and no disruption budget"
            yield pod.owner, f"{cause}. An upgrade of its pool may evict all of them at once"
    for budget in budgets:
        spec = mapping(budget.props, "spec")
        if spec.get("maxUnavailable") in (0, "0", "0%") or spec.get("minAvailable") == "100%":
            text = "it allows no disruption at all. A node upgrade waits one hour per node, then deletes the pod"
            yield budget, text
