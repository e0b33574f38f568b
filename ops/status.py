"""`make status STACK=…`: shows what runs, what waits and why, and suggests next steps."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from catalog import nodes as labels
from catalog.objects import condition, holds, label
from catalog.quantities import parse_quantity, readable
from catalog.quota import QUEUE_LABEL
from catalog.versions import GATEWAY_API, JOBSET_API, KUEUE_API
from ops.downloads import cold_starts, download_rows
from ops.gateways import gateway_rows
from ops.queues import queues_and_workloads, quota_rows
from ops.runs import SAVED, Run, runs_of, saved
from ops.stack import Object, Stack, arguments, kubectl, list_objects, on_emulator, run
from ops.terminal import new_console
from registered.pools import node_bounds
from registered.types import GATEWAY, HORIZONTAL_POD_AUTOSCALER, NODE_POOL
from registered.workloads import ACCELERATORS, accelerator_requests

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

KUEUE = f"/apis/{KUEUE_API}"
JOBSET = f"kubernetes:{JOBSET_API}:JobSet"
# Events of GKE's autoscaler about pending pods: https://cloud.google.com/kubernetes-engine/docs/how-to/cluster-autoscaler-visibility
AUTOSCALER_EVENTS = "involvedObject.kind=Pod,source=cluster-autoscaler"
NOT_SCALED_UP = "NotTriggerScaleUp"
AUTOSCALERS = "/apis/autoscaling/v2/horizontalpodautoscalers"


@dataclass
class ClusterObjects:
    """The objects of a cluster that the status shows, and the inputs of the stack's node pools."""

    nodes: list[Object] = field(default_factory=list)
    pods: list[Object] = field(default_factory=list)
    deployments: list[Object] = field(default_factory=list)
    cluster_queues: list[Object] = field(default_factory=list)
    workloads: list[Object] = field(default_factory=list)
    jobsets: list[Object] = field(default_factory=list)
    autoscalers: list[Object] = field(default_factory=list)
    gateways: list[Object] = field(default_factory=list)
    routes: list[Object] = field(default_factory=list)
    events: list[Object] = field(default_factory=list)
    pools: list[Mapping[str, Any]] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    cold_starts: Mapping[str, str] = field(default_factory=dict)
    jobs: list[Object] = field(default_factory=list)


def main() -> None:
    """Prints pools and nodes, queues with used quota, workloads, runs, servers and autoscalers, and why each waits."""
    show(arguments(main.__doc__ or ""))


def show(stack: Stack) -> None:
    """Prints the status of `stack`."""
    api = stack.cluster()
    console = new_console()
    for part in report(stack, take(stack, api)):
        console.print()
        console.print(part, soft_wrap=isinstance(part, Text))  # a wrapped command can't be copied


def take(stack: Stack, api: ApiClient) -> ClusterObjects:
    """Reads the cluster's objects of the kinds that the stack has. A missing kind has no objects."""
    has = {resource["type"] for resource in stack.resources}
    pods = list_objects(api, "/api/v1/pods")
    jobs = list_objects(api, "/apis/batch/v1/jobs")
    jobsets = list_objects(api, f"/apis/{JOBSET_API}/jobsets") if JOBSET in has else []
    cluster_queues, workloads = queues_and_workloads(api)
    return ClusterObjects(
        nodes=list_objects(api, "/api/v1/nodes"),
        pods=pods,
        deployments=list_objects(api, "/apis/apps/v1/deployments"),
        cluster_queues=cluster_queues,
        workloads=workloads,
        jobsets=jobsets,
        autoscalers=list_objects(api, AUTOSCALERS) if HORIZONTAL_POD_AUTOSCALER in has else [],
        gateways=list_objects(api, f"/apis/{GATEWAY_API}/gateways") if GATEWAY in has else [],
        routes=list_objects(api, f"/apis/{GATEWAY_API}/httproutes") if GATEWAY in has else [],
        events=list_objects(api, "/api/v1/events", fieldSelector=AUTOSCALER_EVENTS) if any(map(waiting, pods)) else [],
        pools=[pool["inputs"] for pool in stack.of_type(NODE_POOL)],
        jobs=jobs,
        cold_starts=cold_starts(stack.recorded_outputs),
        runs=runs_of(stack.recorded_outputs, {"Job": jobs, "JobSet": jobsets}),
    )


def report(stack: Stack, snapshot: ClusterObjects) -> list[Table | Text]:
    """Returns the status: the tables that have rows, and the next steps."""
    tables = [
        table("Pools", ("pool", "machine", "capacity", "ready", "accelerators used"), pool_rows(snapshot)),
        table("Queues", ("cluster queue", "flavor", "resource", "used", "quota"), quota_rows(snapshot.cluster_queues)),
        table("Workloads", ("workload", "queue", "priority", "state", "why"), workload_rows(snapshot)),
        table("Runs", ("run", "pods", "restarts", SAVED, "step", "state"), run_rows(snapshot)),
        table("JobSets", ("jobset", "child Jobs ready", "restarts", "state", "why"), jobset_rows(snapshot)),
        table("Models in buckets", ("download", "folder", "state"), download_rows(snapshot.jobs)),
        table("Servers", ("server", "ready", "waiting", "reads its model in"), server_rows(snapshot)),
        table(
            "Autoscalers",
            ("autoscaler", "scales", "metric", "now / target", "replicas", "bounds", "why"),
            autoscaler_rows(snapshot),
        ),
        table(
            "Gateways",
            ("gateway", "address", "host", "share of requests", "why"),
            gateway_rows(snapshot.gateways, snapshot.routes),
        ),
        table("Pending pods", ("pod", "why"), waiting_rows(snapshot)),
    ]
    steps = "".join(f"\n→ {step}" for step in next_steps(stack, snapshot))
    return [*(shown for shown in tables if shown), Text.assemble(("Next", "bold"), steps)]


def table(title: str, columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Table | None:
    """Returns a table, or None if it has no rows."""
    shown = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in columns:
        shown.add_column(column, no_wrap=column not in ("why", SAVED))  # names must not wrap; reasons may
    for row in rows:
        shown.add_row(*row)
    return shown if shown.row_count else None


def pool_rows(snapshot: ClusterObjects) -> Iterator[tuple[str, ...]]:
    """Yields a row per pool: its nodes, its maximum size, and the accelerators that pods use."""
    own = {pool["name"]: pool for pool in snapshot.pools}
    pools: dict[str, list[Object]] = defaultdict(list)
    for node in snapshot.nodes:
        pools[label(node, labels.GKE_NODEPOOL) or "no pool"].append(node)
    used: Counter[str] = Counter()
    for pod in snapshot.pods:
        if (node_name := pod["spec"].get("nodeName")) and not ended(pod):
            used[node_name] += accelerators_of(pod)
    for name in sorted(pools.keys() | own.keys()):
        at_most = f", at most {bound}" if (bound := max_nodes(own.get(name, {}))) else ""
        members = pools.get(name)
        if not members:
            machine = own[name].get("nodeConfig", {}).get("machineType", "")
            yield name, machine, "", f"empty{at_most}", "–"
            continue
        first = members[0]
        ready = sum(1 for node in members if holds(node, "Ready"))
        total = sum(
            int(node["status"].get("allocatable", {}).get(resource, 0)) for node in members for resource in ACCELERATORS
        )
        taken = sum(used[node["metadata"]["name"]] for node in members)
        yield (
            name,
            label(first, labels.INSTANCE_TYPE),
            label(first, labels.GKE_PROVISIONING),
            f"{ready} of {len(members)}{at_most}",
            f"{taken} of {total}" if total else "–",
        )


def max_nodes(pool: Mapping[str, Any]) -> int:
    """Returns the maximum size of an autoscaled pool, from its inputs; 0 without autoscaling."""
    bounds = node_bounds(pool)
    return bounds.maximum if bounds.autoscaled else 0


def workload_rows(snapshot: ClusterObjects) -> Iterator[tuple[str, ...]]:
    """Yields a row per workload: admitted, waiting, evicted or finished, with Kueue's reason."""
    for workload in sorted(snapshot.workloads, key=lambda w: (w["metadata"]["namespace"], owner(w))):
        state, why = state_of(workload)
        yield (
            owner(workload),
            workload["spec"].get("queueName", ""),
            str(workload["spec"].get("priority", 0)),
            state,
            why,
        )


def state_of(workload: Object) -> tuple[str, str]:
    """Returns the state of a workload in Kueue, and the reason."""
    if (finished := condition(workload, "Finished")).get("status") == "True":
        return "Finished", finished.get("message", "")
    if holds(workload, "Admitted"):
        return "Admitted", ""
    if (evicted := condition(workload, "Evicted")).get("status") == "True":
        return f"Evicted: {evicted.get('reason', '')}", plainly(evicted.get("message", ""))
    return "Waiting", condition(workload, "QuotaReserved").get("message", "Kueue has not processed it yet")


def plainly(message: str) -> str:
    """Removes the UIDs of objects from Kueue's reason."""
    return re.sub(r" \(UID: [^)]*\)|; preempt(or|ee) path: [^;]*", "", message)


def run_rows(snapshot: ClusterObjects) -> Iterator[tuple[str, ...]]:
    """Yields a row per run: its pods, its restarts, its newest complete checkpoint, and its state."""
    for found in snapshot.runs:
        running = f"{found.running(snapshot.pods)} of {found.wanted_pods}"
        yield (str(found), running, str(found.restarts), *saved(found), found.state)


def jobset_rows(snapshot: ClusterObjects) -> Iterator[tuple[str, ...]]:
    """Yields a row per JobSet: ready slices, used restarts, and what it waits for."""
    held = {owner(workload): state_of(workload) for workload in snapshot.workloads}
    for jobset in snapshot.jobsets:
        metadata, spec, status = jobset["metadata"], jobset["spec"], jobset.get("status", {})
        wanted = sum(job.get("replicas", 1) for job in spec["replicatedJobs"])
        ready = sum(job.get("ready", 0) for job in status.get("replicatedJobsStatus") or [])
        ended = status.get("terminalState", "")
        kueue, why = held.get(f"{metadata['namespace']}/jobset/{metadata['name']}", ("Waiting", ""))
        if ended:
            state, why = ended, condition(jobset, ended).get("message", "")
        elif spec.get("suspend"):
            state = kueue
        elif ready == wanted:
            state, why = "Running", ""
        else:
            state, why = "Starting", "not all of its pods run yet; the table Pending pods says why"
        yield (
            f"{metadata['namespace']}/{metadata['name']}",
            f"{ready} of {wanted}",
            f"{status.get('restartsCountTowardsMax', 0)} of {spec.get('failurePolicy', {}).get('maxRestarts', 0)}",
            state,
            why,
        )


def autoscaler_rows(snapshot: ClusterObjects) -> Iterator[tuple[str, ...]]:
    """Yields a row per metric of an autoscaler: value, target, and why it does not scale."""
    for autoscaler in snapshot.autoscalers:
        metadata, spec, status = autoscaler["metadata"], autoscaler["spec"], autoscaler.get("status", {})
        values = {metric_of(metric)[0]: metric_of(metric)[1] for metric in status.get("currentMetrics") or []}
        scaled = spec["scaleTargetRef"]["name"]
        replicas, wanted = status.get("currentReplicas", 0), status.get("desiredReplicas", 0)
        for metric in spec["metrics"]:
            name, target = metric_of(metric)
            yield (
                f"{metadata['namespace']}/{metadata['name']}",
                scaled,
                name,
                f"{values.get(name, 'unknown')} / {target}",
                str(replicas) if replicas == wanted else f"{replicas} → {wanted}",
                f"{spec.get('minReplicas', 1)} to {spec['maxReplicas']}",
                hindrance(autoscaler),
            )


def metric_of(metric: Object) -> tuple[str, str]:
    """Returns the name of an autoscaler's metric, and its target or (in a status) its value."""
    source = metric.get(metric["type"][:1].lower() + metric["type"][1:]) or {}
    amount = source.get("target") or source.get("current") or {}
    for form in ("averageValue", "value"):
        if form in amount:
            return named(source), figure(amount[form])
    percent = amount.get("averageUtilization")
    return named(source), "unknown" if percent is None else f"{percent} %"


def named(source: Object) -> str:
    """Returns the name of a metric: its own, or for cpu and memory that of the resource."""
    return str(source.get("metric", {}).get("name") or source.get("name", ""))


def figure(quantity: str) -> str:
    """Formats the value of a metric."""
    value = parse_quantity(quantity)
    return readable("memory", value) if value >= 2**20 else f"{float(value):.4g}"


def hindrance(autoscaler: Object) -> str:
    """Returns why an autoscaler cannot scale as its metrics require, or an empty text."""
    for condition_type, hinders in (("AbleToScale", "False"), ("ScalingActive", "False"), ("ScalingLimited", "True")):
        status_condition = condition(autoscaler, condition_type)
        if status_condition.get("status") == hinders:
            return f"{status_condition.get('reason', '')}: {status_condition.get('message', '')}"
    return ""


def server_rows(snapshot: ClusterObjects) -> Iterator[tuple[str, ...]]:
    """Yields a row per Deployment with a queue or accelerators: its replicas, and how long one reads its model."""
    for deployment in snapshot.deployments:
        template = deployment["spec"]["template"]
        if not label(template, QUEUE_LABEL) and not accelerators_of(template):
            continue
        wanted = deployment["spec"].get("replicas", 1)
        ready = deployment.get("status", {}).get("readyReplicas", 0)
        name = f"{deployment['metadata']['namespace']}/{deployment['metadata']['name']}"
        yield name, f"{ready} of {wanted}", str(max(wanted - ready, 0) or "–"), snapshot.cold_starts.get(name, "–")


def waiting_rows(snapshot: ClusterObjects) -> Iterator[tuple[str, ...]]:
    """Yields a row per pending pod: gated by its queue, or without a node that fits."""
    for pod in filter(waiting, snapshot.pods):
        scheduled = condition(pod, "PodScheduled")
        why = scheduled.get("message", "")
        if scheduled["reason"] == "SchedulingGated":
            why = "its queue has not admitted it; the table Workloads says why"
        elif event := latest_event(pod, snapshot.events):
            why = f"{event['message']} ({why})"
        yield f"{pod['metadata']['namespace']}/{pod['metadata']['name']}", f"{scheduled['reason']}: {why}"


def waiting(pod: Object) -> bool:
    """Whether a pod has no node, and the scheduler has said why."""
    return (
        not ended(pod) and not pod["spec"].get("nodeName") and condition(pod, "PodScheduled").get("status") == "False"
    )


def latest_event(pod: Object, events: list[Object]) -> Object | None:
    """Returns the latest event about a pod."""
    own = [event for event in events if event["involvedObject"].get("uid") == pod["metadata"].get("uid")]
    return max(own, key=lambda event: event.get("lastTimestamp") or event.get("eventTime") or "", default=None)


def next_steps(stack: Stack, snapshot: ClusterObjects) -> Iterator[str]:
    """Yields suggestions for next steps."""
    states = [state_of(workload)[0] for workload in snapshot.workloads]
    server = next(
        (deployment for deployment in snapshot.deployments if label(deployment["spec"]["template"], QUEUE_LABEL)), None
    )
    if server:
        metadata = server["metadata"]
        scale = f"{kubectl()} -n {metadata['namespace']} scale deployment/{metadata['name']} --replicas="
        replicas = server["spec"].get("replicas", 1)
        if any(state.startswith("Evicted") for state in states):
            yield f"a workload was evicted; free quota, so that it resumes:  {scale}{max(replicas - 1, 1)}"
        elif "Waiting" in states:
            yield f"a workload waits for quota; free some:  {scale}{max(replicas - 1, 1)}"
        elif "Admitted" in states:
            yield f"see serving preempt training:  {scale}{replicas + 1}"
    if any(event["reason"] == NOT_SCALED_UP for event in snapshot.events) and on_emulator():
        yield "show and change the available capacity:  emulator/run capacity"
    if any(not row[1].startswith("0 ") for row in server_rows(snapshot)):
        yield f"send requests to the servers:  {stack.next('smoke')}"
    yield f"show the status again:  {stack.next('status')}"
    yield f"delete the stack:  {stack.next('down')}"


def owner(workload: Object) -> str:
    """Returns the owner of a workload as `namespace/kind/name`."""
    namespace = workload["metadata"]["namespace"]
    for reference in workload["metadata"].get("ownerReferences") or []:
        return f"{namespace}/{reference['kind'].lower()}/{reference['name']}"
    return f"{namespace}/{workload['metadata']['name']}"


def ended(pod: Object) -> bool:
    """Whether a pod has run to its end."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def accelerators_of(pod: Object) -> int:
    """Returns the GPUs or TPU chips that a pod or pod template requests."""
    return sum(accelerator_requests(pod["spec"]).values())


if __name__ == "__main__":
    run(main)
