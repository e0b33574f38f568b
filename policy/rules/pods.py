"""Pods: what they ask for, what they run, and how they bear a node that goes."""

from __future__ import annotations

from collections.abc import Iterator

from policy.base import Policy, of_resources, of_stacks
from policy.resources import (
    Hidden,
    Resource,
    Stack,
    is_unset,
    items,
    list_at,
    mapping,
    number,
    pods_of,
    resource_request,
    selects,
    value,
)

# Tags that are meant to move.
MOVING_TAGS = {"latest", "stable", "main", "master", "edge", "nightly", "dev"}
# What a container may have on top of the default without being more than a container.
HARMLESS_CAPABILITIES = {"NET_BIND_SERVICE"}
SERVERS = ("Deployment", "StatefulSet")


@of_resources(
    "resources-are-set",
    "Containers say what CPU and memory they need, and at most how much memory",
    "Set resources.requests (or limits) for cpu and memory, and resources.limits for memory (gke-ai: resources)",
)
def resources_are_set(resource: Resource) -> Iterator[str]:
    """A limit is also the request where none is stated; a CPU limit only slows down, so none is demanded."""
    for pod in pods_of(resource):
        for container in pod.containers:
            missing = [
                f"request for {name}" for name in ("cpu", "memory") if is_unset(resource_request(container, name))
            ]
            if is_unset(value(container, "resources", "limits", "memory")):
                missing.append("limit for memory")
            if missing:
                yield (
                    f"{pod.at(container)} has no {', no '.join(missing)} — the scheduler and the queue count it as "
                    "nothing, and it can take the node's memory from the others"
                )


@of_resources(
    "images-are-pinned",
    "Images are named by a version or a digest",
    "Name the version (IMAGE:1.2.3) or, better, the digest (IMAGE@sha256:…)",
)
def images_are_pinned(resource: Resource) -> Iterator[str]:
    for pod in pods_of(resource):
        for container in pod.containers:
            image = container.get("image")
            if not isinstance(image, str) or "@sha256:" in image:
                continue
            _, colon, tag = image.rpartition("/")[2].partition(":")
            if not colon or not tag:
                found = f"image {image} has no tag, which means latest"
            elif tag in MOVING_TAGS:
                found = f"the tag of image {image} moves"
            else:
                continue
            yield f"{pod.at(container)}: {found} — the next pod may run another version, and no rollback helps"


@of_resources(
    "no-privileged-pods",
    "Pods stay inside their container",
    "Leave it out (TPUs need no privileged container since GKE 1.28), or waive it with a reason",
)
def no_privileged_pods(resource: Resource) -> Iterator[str]:
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/#baseline"""
    for pod in pods_of(resource):
        found = [f"{key}: true" for key in ("hostNetwork", "hostPID", "hostIPC") if pod.spec.get(key) is True]
        found += [
            f"volume {one.get('name')} of the node's disk" for one in items(pod.spec, "volumes") if "hostPath" in one
        ]
        for container in pod.containers:
            context = mapping(container, "securityContext")
            if context.get("privileged") is True:
                found.append(f"{pod.at(container)} is privileged")
            added = set(list_at(context, "capabilities", "add")) - HARMLESS_CAPABILITIES
            if added:
                found.append(f"{pod.at(container)} has {', '.join(sorted(map(str, added)))}")
        if found:
            yield f"{'; '.join(found)} — who breaks into it has the node, its other pods and its identity"


@of_stacks(
    "servers-have-a-readiness-probe",
    "Pods behind a Service say when they are ready",
    "Give the container a readinessProbe (gke-ai: probes: true)",
)
def servers_have_a_readiness_probe(stack: Stack) -> Iterator[tuple[Resource, str]]:
    services = [(one, mapping(one.props, "spec", "selector")) for one in stack.of_kind("Service")]
    for pod in stack.pods:
        if pod.owner.kind not in SERVERS or any("readinessProbe" in one for one in pod.containers):
            continue
        for service, selector in services:
            if service.namespace == pod.owner.namespace and selects(selector, pod.labels):
                yield (
                    pod.owner,
                    f"Service {service.object_name} sends it requests and no container has a readiness probe — they "
                    "fail while the model is being loaded, at each start and each rollout",
                )
                break


@of_stacks(
    "servers-have-a-disruption-budget",
    "Servers of several replicas lose one at a time, and any server can be moved",
    "Add a PodDisruptionBudget with maxUnavailable: 1 (gke-ai: disruptionBudget: true)",
)
def servers_have_a_disruption_budget(stack: Stack) -> Iterator[tuple[Resource, str]]:
    """https://kubernetes.io/docs/tasks/run-application/configure-pdb/"""
    budgets = list(stack.of_kind("PodDisruptionBudget"))
    for pod in stack.pods:
        if pod.owner.kind not in SERVERS:
            continue
        replicas = _replicas(pod.owner, stack)
        own = [
            one
            for one in budgets
            if one.namespace == pod.owner.namespace
            and selects(mapping(one.props, "spec", "selector", "matchLabels"), pod.labels)
        ]
        if replicas > 1 and not own:
            yield (
                pod.owner,
                f"it has {replicas} replicas and no disruption budget — an upgrade of its pool may take all at once",
            )
    for budget in budgets:
        max_unavailable, min_available = (
            value(budget.props, "spec", "maxUnavailable"),
            value(budget.props, "spec", "minAvailable"),
        )
        if max_unavailable in (0, "0", "0%") or min_available == "100%":
            yield (
                budget,
                "it allows no disruption at all — an upgrade waits an hour for each node, then kills the pod",
            )


def _replicas(server: Resource, stack: Stack) -> int:
    """Replicas of a server at least: its own number, or the least that an autoscaler keeps."""
    for scaler in stack.of_kind("HorizontalPodAutoscaler"):
        target = mapping(scaler.props, "spec", "scaleTargetRef")
        if scaler.namespace == server.namespace and (target.get("kind"), target.get("name")) == (
            server.kind,
            server.object_name,
        ):
            return number(value(scaler.props, "spec", "minReplicas")) or 1
    stated = value(server.props, "spec", "replicas")
    return 1 if stated is None or isinstance(stated, Hidden) else number(stated) or 0


POLICIES: tuple[Policy, ...] = (
    resources_are_set,
    images_are_pinned,
    no_privileged_pods,
    servers_have_a_readiness_probe,
    servers_have_a_disruption_budget,
)
