"""What a plan interrupts, in plain words, worst first.

Each rule looks at one change. What it says follows from how Kubernetes, Kueue and GKE treat such a change, and from
what the components do about it; the running cluster is not read.

Sources: https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#strategy,
https://cloud.google.com/kubernetes-engine/docs/concepts/node-pool-upgrade-strategies,
https://kueue.sigs.k8s.io/docs/concepts/cluster_queue/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from report.capacity import CLUSTER, DEPLOYMENT, JOB, NODE_POOL, node_bounds, pod_of, pools_of, resource_requests
from report.changes import CREATE, DELETE, LEAVE, REPLACE, UPDATE, Change, Plan, Resource

BUCKET = "gcp:storage/bucket:Bucket"
ACCOUNT = "gcp:serviceaccount/account:Account"
NAMESPACE = "kubernetes:core/v1:Namespace"
SECRET = "kubernetes:core/v1:Secret"
RELEASE = "kubernetes:helm.sh/v3:Release"
# How bad it is.
OUTAGE, DATA, WORK, SLOWER, NOTE = range(5)


@dataclass(frozen=True, order=True)
class Interruption:
    """Something that stops, or may be thought to stop; ordered worst first."""

    severity: int
    text: str


def interruptions(plan: Plan) -> list[Interruption]:
    """Everything that a plan interrupts, worst first; each thing once."""
    return sorted({found for change in plan.changes for found in of_change(change, plan)})


def of_change(change: Change, plan: Plan) -> Iterator[Interruption]:
    """What one change interrupts."""
    if change.operation == CREATE or change.before is None:
        return
    resource_type = change.resource.type
    if resource_type == CLUSTER:
        yield from of_cluster(change, plan)
    elif resource_type == NODE_POOL:
        yield from of_pool(change, plan)
    elif resource_type == ACCOUNT:
        yield from of_account(change, plan)
    elif resource_type == BUCKET:
        yield from of_bucket(change)
    elif resource_type == DEPLOYMENT:
        yield from of_deployment(change)
    elif resource_type == JOB or resource_type.endswith(":JobSet"):
        yield from of_run(change, plan)
    elif resource_type == NAMESPACE:
        yield from of_namespace(change)
    elif resource_type == RELEASE:
        yield from of_release(change)
    elif resource_type.endswith((":ClusterQueue", ":LocalQueue")):
        yield from of_queue(change)
    elif resource_type == SECRET and change.operation in (UPDATE, REPLACE):
        text = f"Pods read Secret {change.resource.name} when they start: what runs keeps the old value until then."
        yield Interruption(NOTE, text)


def of_cluster(change: Change, plan: Plan) -> Iterator[Interruption]:
    """A cluster takes along everything that is in it."""
    inside = workload_names(workloads(plan.before)) or "nothing of this stack"
    if change.operation == REPLACE:
        text = f"Cluster {change.resource.name} is replaced{because(change)}: everything in it stops and is made anew"
        yield Interruption(OUTAGE, f"{text} ({inside}), and its address changes.")
    elif change.operation == DELETE:
        yield Interruption(OUTAGE, f"Cluster {change.resource.name} is deleted, and everything in it ({inside}).")


def of_pool(change: Change, plan: Plan) -> Iterator[Interruption]:
    """What runs on a pool's nodes goes with them."""
    name = change.resource.name
    on_it = [
        workload
        for workload in workloads(plan.before)
        if change.resource.urn in {pool.urn for pool in pools_of(workload, plan.before)}
    ]
    running = f" On it: {workload_names(on_it)}." if on_it else " No server or run of this stack is made for it."
    if change.operation == REPLACE and change.create_before_delete:
        text = f"Node pool {name} is replaced{because(change)}, the new one first: pods move to it as their disruption "
        text += "budgets allow, runs and servers of one replica start again there, and for a while both are paid for."
        yield Interruption(WORK if on_it else NOTE, f"{text}{running}")
    elif change.operation == REPLACE:
        text = f"Node pool {name} is replaced{because(change)}, the old one first: its pods stop, and wait until"
        yield Interruption(OUTAGE if on_it else NOTE, f"{text} the new one has nodes.{running}")
    elif change.operation == DELETE:
        yield Interruption(OUTAGE if on_it else NOTE, f"Node pool {name} is deleted with its nodes.{running}")
    elif change.operation == UPDATE and change.before and change.after:
        (_, was), (_, now) = node_bounds(change.before.inputs), node_bounds(change.after.inputs)
        if now < was:
            yield Interruption(WORK, f"Node pool {name} shrinks from {was} to {now} nodes at most: pods move.{running}")
        zones = (side.inputs.get("nodeLocations") for side in (change.before, change.after))
        before, after = (set(names) if isinstance(names, list) else None for names in zones)
        if before and after and (lost := sorted(before - after)):
            yield Interruption(
                WORK, f"Node pool {name} leaves {', '.join(lost)}: its nodes there are deleted, and pods move.{running}"
            )
        nodes = [difference.path for difference in change.differences if difference.path.startswith("nodeConfig.")]
        if nodes:
            text = (
                f"Node pool {name} changes its nodes ({', '.join(nodes)}): GKE may make each of them anew, one by one."
            )
            yield Interruption(WORK, f"{text}{running}")


def of_account(change: Change, plan: Plan) -> Iterator[Interruption]:
    """The account of nodes that GKE created itself: it goes last, and those nodes stay."""
    of_nodes = ":NodeAccount::" in change.resource.parent
    cluster_stays = any(one.type == CLUSTER for one in plan.after.values())
    by_gke = any(
        one.type.endswith(":ComputeClass") or (one.type == CLUSTER and one.inputs.get("enableAutopilot"))
        for one in plan.before.values()
    )
    if change.operation in (DELETE, REPLACE) and of_nodes and cluster_stays and by_gke:
        yield Interruption(
            OUTAGE,
            f"Service account {change.resource.logical_name} is deleted. Nodes that GKE created itself keep running as "
            "it, and lose logs, metrics and image pulls. Drain and delete them right after the update.",
        )


def of_bucket(change: Change) -> Iterator[Interruption]:
    """A bucket may take its data along."""
    name = change.resource.name
    if change.operation == LEAVE or change.resource.retained:
        yield Interruption(NOTE, f"Bucket {name} leaves the stack and stays, with its data (onDestroy: keep).")
    elif change.operation in (DELETE, REPLACE):
        what = "is deleted with its data" if change.operation == DELETE else f"is replaced{because(change)}, empty"
        kept = change.resource.inputs.get("softDeletePolicy") or {}
        days = int(kept.get("retentionDurationSeconds") or 0) // 86400
        rescue = f" Deleted objects can be restored for {days} days." if days else " Nothing of it can be restored."
        yield Interruption(DATA, f"Bucket {name} {what} (onDestroy: delete).{rescue}")


def of_deployment(change: Change) -> Iterator[Interruption]:
    """A server rolls out when its pods change, by a pod more or by a pod less."""
    name = change.resource.name
    if change.operation == DELETE:
        yield Interruption(OUTAGE, f"Server {name} is deleted.")
        return
    if change.operation == REPLACE or change.before is None or change.after is None:
        yield Interruption(
            OUTAGE, f"Server {name} is replaced{because(change)}: it doesn't answer until a replica is ready."
        )
        return
    old, new = change.before.inputs.get("spec") or {}, change.after.inputs.get("spec") or {}
    was, now = old.get("replicas"), new.get("replicas")
    if was != now and was is not None and now is not None:
        if now == 0:
            yield Interruption(OUTAGE, f"Server {name} is scaled from {was} to no replica at all.")
        else:
            yield Interruption(SLOWER if now < was else NOTE, f"Server {name} is scaled from {was} to {now} replicas.")
    if not any(one.path.startswith("spec.template.") for one in change.differences):
        return
    surge = ((new.get("strategy") or {}).get("rollingUpdate") or {}).get("maxSurge")
    counts = ", ".join(f"{count} {resource}" for resource, count in resource_requests(pod_of(new)).items())
    replicas = 1 if now is None else int(now)
    if surge not in (0, "0", "0%"):
        text = f"Server {name} rolls out by a pod more, which needs {counts or 'room'} free in its queue and on a node"
        yield Interruption(NOTE, f"{text}; no replica goes before the new one is ready.")
    elif replicas > 1 or now is None:
        yield Interruption(SLOWER, f"Server {name} rolls out by a pod less: one replica fewer answers meanwhile.")
    else:
        text = f"Server {name} rolls out by a pod less, and has one: it doesn't answer until the new one has its model"
        yield Interruption(OUTAGE, f"{text} loaded.")


def of_run(change: Change, plan: Plan) -> Iterator[Interruption]:
    """A run is never killed by a newer one, unless its namespace is the default one."""
    name = change.resource.name
    newer = [one.resource.name for one in plan.of(CREATE) if one.resource.parent == change.resource.parent]
    if change.operation == LEAVE or change.resource.retained:
        if newer:
            text = (
                f"Run {name} changed: {join_names(newer)} is a new run beside it, and the old one goes on to its end."
            )
        else:
            text = f"Run {name} leaves the stack, and goes on to its end in the cluster."
        yield Interruption(NOTE, text)
    elif change.operation in (DELETE, REPLACE):
        yield Interruption(WORK, f"Run {name} is deleted: what it did since its last checkpoint is lost.")


def of_namespace(change: Change) -> Iterator[Interruption]:
    """A namespace takes along everything in it, whoever put it there."""
    if change.operation in (DELETE, REPLACE):
        text = f"Namespace {change.resource.name} is deleted with all that is in it, also what others submitted."
        yield Interruption(OUTAGE, text)


def of_release(change: Change) -> Iterator[Interruption]:
    """Kueue and JobSet are installed by Helm; their CRDs hold all the queues."""
    name = change.resource.name.rpartition("/")[2]
    if change.operation in (DELETE, REPLACE):
        yield Interruption(OUTAGE, f"{name} is uninstalled: nothing is queued or started by it any more.")
    elif change.operation == UPDATE:
        text = (
            f"{name} restarts: what runs goes on, queued work stays queued, and for some seconds nothing new is let in."
        )
        yield Interruption(NOTE, text)


def of_queue(change: Change) -> Iterator[Interruption]:
    """Kueue never stops what it has admitted because a quota shrank; it admits less from then on."""
    what = f"{change.resource.kind} {change.resource.name}"
    if change.operation in (DELETE, REPLACE):
        yield Interruption(WORK, f"{what} goes: what waits in it isn't admitted, and what it admitted ends first.")
    elif any("nominalQuota" in one.path or "Limit" in one.path for one in change.differences):
        yield Interruption(
            NOTE, f"{what} has another quota: it counts for what is admitted from now on, nothing is stopped."
        )


def because(change: Change) -> str:
    """Which properties replace a resource."""
    paths = [one.path for one in change.differences if one.replaces]
    return f" (by {', '.join(paths)})" if paths else ""


def workloads(resources: Mapping[str, Resource]) -> list[Resource]:
    """Servers and runs among resources."""
    workload_types: tuple[Any, ...] = (DEPLOYMENT, JOB)
    found = (one for one in resources.values() if one.type in workload_types or one.type.endswith(":JobSet"))
    return sorted((one for one in found if not is_controller(one)), key=lambda one: one.name)


def is_controller(workload: Resource) -> bool:
    """Whether it asks for no accelerator: adapters and frontends, which are no work of the users'."""
    return workload.type == DEPLOYMENT and not resource_requests(pod_of(workload.inputs.get("spec") or {}))


def workload_names(resources: list[Resource]) -> str:
    """Workloads by name, each with what it is."""
    return join_names(
        [f"{'server' if resource.type == DEPLOYMENT else 'run'} {resource.name}" for resource in resources]
    )


def join_names(names: list[str]) -> str:
    """Names in a sentence."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
