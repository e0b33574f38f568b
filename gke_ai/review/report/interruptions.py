"""The interruptions that a plan causes, worst first.

Each rule looks at one change. Its text follows from how Kubernetes, Kueue, GKE and the components handle that change.
The rules do not read the running cluster.

Sources: https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#strategy,
https://cloud.google.com/kubernetes-engine/docs/concepts/node-pool-upgrade-strategies,
https://kueue.sigs.k8s.io/docs/concepts/cluster_queue/
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gke_ai.catalog.kueue.namespaces import MODEL_CACHE
from gke_ai.catalog.nodes.shape import RECORDED_NODES
from gke_ai.formats.sentences import join_names
from gke_ai.kube.pods import accelerators
from gke_ai.kube.values import items, mapping
from gke_ai.kube.workloads import is_server
from gke_ai.registered import types
from gke_ai.registered.pools import lost_network, node_bounds, without_network
from gke_ai.review.report.accelerators import pod_of, pools_of
from gke_ai.review.report.changes import CREATE, DELETE, LEAVE, REPLACE, UPDATE, Change, PlannedUpdate, Resource

# Severities, worst first.
OUTAGE, DATA, WORK, SLOWER, NOTE = range(5)


@dataclass(frozen=True, order=True)
class Interruption:
    """An interruption, or a note that there is none; ordered worst first."""

    severity: int
    text: str


def interruptions(plan: PlannedUpdate) -> list[Interruption]:
    """Returns the interruptions of a plan, worst first, without duplicates."""
    return sorted({interruption for change in plan.changes for interruption in of_change(change, plan)})


def of_change(change: Change, plan: PlannedUpdate) -> Iterator[Interruption]:
    """Yields the interruptions of one change."""
    if change.operation == CREATE or change.before is None:
        return
    kind = change.resource.type
    if rule := RULES.get(kind) or RULES_BY_KIND.get(kind.rpartition(":")[2]):
        yield from rule(change, plan)


def of_cluster(change: Change, plan: PlannedUpdate) -> Iterator[Interruption]:
    """Yields the interruptions of a cluster, which include everything in it."""
    inside = workload_names(workloads(plan.before)) or "nothing of this stack"
    if change.operation == REPLACE:
        text = f"Cluster {change.resource.name} is replaced{because(change)}. Everything in it stops and is recreated"
        yield Interruption(OUTAGE, f"{text} ({inside}). The address of its control plane changes.")
    elif change.operation == DELETE:
        yield Interruption(OUTAGE, f"Cluster {change.resource.name} is deleted with everything in it ({inside}).")


def of_pool(change: Change, plan: PlannedUpdate) -> Iterator[Interruption]:
    """Yields the interruptions of a pool and of the workloads on its nodes."""
    name, urn = change.resource.name, change.resource.urn
    users = [item for item in workloads(plan.before) if urn in {pool.urn for pool in pools_of(item, plan.before)}]
    running = f" Workloads on it: {workload_names(users)}." if users else " No server or run of this stack uses it."
    if change.operation == REPLACE:
        yield of_replaced_pool(change, bool(users), running)
    elif change.operation == DELETE:
        yield Interruption(OUTAGE if users else NOTE, f"Node pool {name} is deleted with its nodes.{running}")
    elif change.operation == UPDATE and change.before and change.after:
        for text in changes_of_pool(change, change.before.inputs, change.after.inputs):
            yield Interruption(WORK, f"{text}{running}")


def of_replaced_pool(change: Change, is_used: bool, running: str) -> Interruption:
    """The interruption by a pool that is replaced."""
    text = f"Node pool {change.resource.name} is replaced{because(change)}: Pulumi "
    if key := lost_network(*(side.inputs if side else {} for side in (change.before, change.after))):
        running += f" It loses its network: {without_network(key)}"
    if change.create_before_delete:
        text += "creates the new pool first. Pods move to it as their disruption budgets allow. Runs and servers with "
        text += "one replica restart there. You pay for both pools meanwhile."
        return Interruption(WORK if is_used else NOTE, f"{text}{running}")
    text += "deletes the old pool first. Its pods stop and wait until the new pool has nodes."
    return Interruption(OUTAGE if is_used else NOTE, f"{text}{running}")


def changes_of_pool(change: Change, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Yields the changes of a pool that move pods."""
    name = change.resource.name
    was, now = node_bounds(before).maximum, node_bounds(after).maximum
    if now < was:
        yield f"The maximum size of node pool {name} shrinks from {was} to {now} nodes. Pods move."
    zones, left = before.get("nodeLocations"), after.get("nodeLocations")
    if isinstance(zones, list) and isinstance(left, list) and left and (lost := sorted(set(zones) - set(left))):
        yield f"Node pool {name} leaves {', '.join(lost)}. GKE deletes its nodes there, and pods move."
    paths = [difference.path for difference in change.differences if difference.path.startswith("nodeConfig.")]
    if paths:
        yield f"Node pool {name} changes its nodes ({', '.join(paths)}). GKE may recreate them one by one."


def of_account(change: Change, plan: PlannedUpdate) -> Iterator[Interruption]:
    """Yields the interruption of nodes that GKE created itself and that outlive their account."""
    of_nodes = ":NodeAccount::" in change.resource.parent
    cluster_stays = any(resource.type == types.CLUSTER for resource in plan.after.values())
    before = plan.before.values()
    by_gke = any(resource.type == types.CLUSTER and resource.inputs.get("enableAutopilot") for resource in before)
    by_gke = by_gke or any(resource.type.endswith(":ComputeClass") for resource in before)
    if change.operation in (DELETE, REPLACE) and of_nodes and cluster_stays and by_gke:
        yield Interruption(
            OUTAGE,
            f"Service account {change.resource.inputs.get('accountId')} is deleted. Nodes that GKE created itself keep "
            "running as it, and lose logs, metrics and image pulls. Drain and delete them right after the update.",
        )


def of_bucket(change: Change, _: PlannedUpdate) -> Iterator[Interruption]:
    """Yields the loss of data when a bucket is deleted."""
    name = change.resource.name
    if change.operation == LEAVE or change.resource.retained:
        yield Interruption(NOTE, f"Bucket {name} leaves the stack and keeps its data (onDestroy: keep).")
    elif change.operation in (DELETE, REPLACE):
        replaced = f"is replaced{because(change)} by an empty bucket"
        event = "is deleted with its data" if change.operation == DELETE else replaced
        kept = change.resource.inputs.get("softDeletePolicy") or {}
        days = int(kept.get("retentionDurationSeconds") or 0) // 86400
        rescue = f" Deleted objects can be restored for {days} days." if days else " Its objects cannot be restored."
        yield Interruption(DATA, f"Bucket {name} {event} (onDestroy: delete).{rescue}")


def of_deployment(change: Change, _: PlannedUpdate) -> Iterator[Interruption]:
    """Yields the interruptions of a server, which rolls out when its pods change."""
    name = change.resource.name
    if change.operation == DELETE:
        yield Interruption(OUTAGE, f"Server {name} is deleted.")
        return
    if change.operation == REPLACE or change.before is None or change.after is None:
        text = f"Server {name} is replaced{because(change)}. It does not answer until a replica is ready."
        yield Interruption(OUTAGE, text)
        return
    old, new = change.before.inputs.get("spec") or {}, change.after.inputs.get("spec") or {}
    was, now = old.get("replicas"), new.get("replicas")
    if was != now and was is not None and now is not None:
        severity = OUTAGE if now == 0 else SLOWER if now < was else NOTE
        yield Interruption(severity, f"Server {name} is scaled from {was} to {now} replicas.")
    if not any(difference.path.startswith("spec.template.") for difference in change.differences):
        return
    surge = ((new.get("strategy") or {}).get("rollingUpdate") or {}).get("maxSurge")
    counts = ", ".join(f"{count} {resource}" for resource, count in accelerators(pod_of(new)).items())
    replicas = 1 if now is None else int(now)
    if surge not in (0, "0", "0%"):
        text = f"Server {name} rolls out with one extra pod, which needs {counts or 'room'} free in its queue and on a "
        yield Interruption(NOTE, f"{text}node. No replica stops before the new one is ready.")
    elif replicas > 1 or now is None:
        yield Interruption(SLOWER, f"Server {name} rolls out with one replica fewer meanwhile.")
    else:
        text = f"Server {name} has one replica, and the rollout stops it first. The server does not answer until the "
        yield Interruption(OUTAGE, f"{text}new replica has loaded its model.")


def of_run(change: Change, plan: PlannedUpdate) -> Iterator[Interruption]:
    """Yields the interruption of a run. No newer run deletes it, but its owner does."""
    name = change.resource.name
    if mapping(change.resource.inputs, "metadata").get("namespace") == MODEL_CACHE:
        if change.operation in (DELETE, REPLACE):
            yield Interruption(NOTE, f"Download {name} ends. What it has stored in its bucket stays there.")
        return
    place = change.resource.parent, change.resource.type
    created = [other.resource for other in plan.of(CREATE)]
    newer = [resource.name for resource in created if (resource.parent, resource.type) == place]
    if (change.operation == LEAVE or change.resource.retained) and not ends_with_owner(change.resource, plan):
        text = f"Run {name} leaves the stack and continues to its end in the cluster."
        if newer:
            beside = f"{join_names(newer)} is a new run beside it"
            text = f"Run {name} changed. {beside}, and the old run continues to its end."
        yield Interruption(NOTE, text)
    elif change.operation in (DELETE, REPLACE, LEAVE):
        yield Interruption(WORK, f"Run {name} is deleted. Its work since the last checkpoint is lost.")


def ends_with_owner(run: Resource, plan: PlannedUpdate) -> bool:
    """Whether the update deletes an object with which Kubernetes deletes the run."""
    metadata = mapping(run.inputs, "metadata")
    owners = {(owner.get("kind"), owner.get("name")) for owner in items(metadata, "ownerReferences")}
    gone = [change.resource.inputs for change in plan.of(DELETE)]
    return any(
        (inputs.get("kind"), mapping(inputs, "metadata").get("name")) in owners
        and mapping(inputs, "metadata").get("namespace") == metadata.get("namespace")
        for inputs in gone
    )


def of_record(change: Change, _: PlannedUpdate) -> Iterator[Interruption]:
    """Yields the move of a training job, whose nodes are in its record."""
    sides = [side.inputs if side else {} for side in (change.before, change.after)]
    before, after = (mapping(inputs, "metadata", "annotations") for inputs in sides)
    if change.operation == UPDATE and RECORDED_NODES in before and before != after:
        text = f"Run {change.resource.name} moves to other nodes. Its pods end, and it resumes there from its newest "
        yield Interruption(WORK, f"{text}checkpoint. A run that has ended stays as it is.")


def of_others(change: Change, _: PlannedUpdate) -> Iterator[Interruption]:
    """Yields what an operation on a namespace, a release or a Secret means for others."""
    changed, name = change.resource.type, change.resource.name
    if changed == types.RELEASE:
        name = name.rpartition("/")[2]
    for kind, operations, severity, text in EFFECTS:
        if kind == changed and change.operation in operations:
            yield Interruption(severity, text.format(name))


def of_queue(change: Change, _: PlannedUpdate) -> Iterator[Interruption]:
    """Yields the changes of a queue. Kueue never stops an admitted workload because a quota shrinks."""
    subject = change.resource.title
    if change.operation in (DELETE, REPLACE):
        text = f"{subject} is deleted. Waiting workloads are not admitted. Admitted workloads end first."
        yield Interruption(WORK, text)
    elif any("nominalQuota" in difference.path or "Limit" in difference.path for difference in change.differences):
        text = f"The quota of {subject} changes. It applies to new workloads; running workloads continue."
        yield Interruption(NOTE, text)


GONE = (DELETE, REPLACE)
RESTARTED = (
    "{} restarts. Running workloads continue, and queued workloads stay queued. It admits nothing for some seconds."
)
# What follows from an operation alone, by type. The releases are Kueue and JobSet.
EFFECTS = (
    (types.NAMESPACE, GONE, OUTAGE, "Namespace {} is deleted with all its objects, including those of other users."),
    (types.RELEASE, GONE, OUTAGE, "{} is uninstalled. It no longer queues or starts workloads."),
    (types.RELEASE, (UPDATE,), NOTE, RESTARTED),
    (types.SECRET, (UPDATE, REPLACE), NOTE, "Pods read Secret {} when they start. Running pods keep the old value."),
)
Rule = Callable[[Change, PlannedUpdate], Iterator[Interruption]]
RULES: Mapping[str, Rule] = {
    types.CLUSTER: of_cluster,
    types.NODE_POOL: of_pool,
    types.SERVICE_ACCOUNT: of_account,
    types.BUCKET: of_bucket,
    types.DEPLOYMENT: of_deployment,
    types.JOB: of_run,
    types.CONFIG_MAP: of_record,
    **dict.fromkeys((types.NAMESPACE, types.RELEASE, types.SECRET), of_others),
}
# Of objects of any version.
RULES_BY_KIND: Mapping[str, Rule] = {"JobSet": of_run, "ClusterQueue": of_queue, "LocalQueue": of_queue}


def because(change: Change) -> str:
    """Names the properties that replace a resource."""
    paths = [difference.path for difference in change.differences if difference.replaces]
    return f" (because of {', '.join(paths)})" if paths else ""


def workloads(resources: Mapping[str, Resource]) -> list[Resource]:
    """Returns the servers and runs among resources."""
    found = [resource for resource in resources.values() if is_workload(resource)]
    return sorted(found, key=lambda workload: workload.name)


def is_workload(resource: Resource) -> bool:
    """Whether this is a server or a run. Deployments of adapters and frontends are no servers."""
    if resource.type == types.DEPLOYMENT:
        return is_server(resource.inputs)
    return resource.type == types.JOB or resource.type.endswith(":JobSet")


def workload_names(resources: list[Resource]) -> str:
    """Lists workloads by type and name."""
    titles = {types.DEPLOYMENT: "server"}
    return join_names([f"{titles.get(resource.type, 'run')} {resource.name}" for resource in resources])
