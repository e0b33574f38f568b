"""`gke-ai status`: shows what runs, what waits and why, and suggests next steps."""

from __future__ import annotations

import contextlib
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from gke_ai.catalog.fabric.rdma import DEVICE_API, PROFILE_LABEL
from gke_ai.catalog.machines.capacity import capacity_until, moment
from gke_ai.catalog.nodes import shape as labels
from gke_ai.catalog.nodes.quota import QUEUE_LABEL, TENANT_QUOTA
from gke_ai.catalog.versions import GATEWAY_API, JOBSET_API, KUEUE_API
from gke_ai.formats import blocks_picture
from gke_ai.formats.console import new_console, new_table
from gke_ai.kube.blocks import COLUMNS as BLOCK_COLUMNS
from gke_ai.kube.blocks import block_nodes, block_rows
from gke_ai.kube.client import ApiClient, list_objects
from gke_ai.kube.creation import lacks_pods
from gke_ai.kube.events import AUTOSCALER_EVENTS, NOT_SCALED_UP
from gke_ai.kube.names import WorkloadName
from gke_ai.kube.objects import Object, condition, holds, label
from gke_ai.kube.pods import accelerator_count, accelerators_on, ended
from gke_ai.kube.starts import newest_start
from gke_ai.kube.uncounted import QUOTAS
from gke_ai.kube.values import items
from gke_ai.kube.workloads import is_server
from gke_ai.ops.runs.command import SAVED, Run, further, known_runs, pods_by_run, saved
from gke_ai.ops.status import workloads as in_kueue
from gke_ai.ops.status.autoscalers import autoscaler_rows
from gke_ai.ops.status.budgets import COLUMNS as BUDGET_COLUMNS
from gke_ai.ops.status.budgets import budget_rows, budget_title, ledger_and_queues, with_reasons
from gke_ai.ops.status.claims import nics_of, pending_claims
from gke_ai.ops.status.downloads import cold_starts, download_rows
from gke_ai.ops.status.gateways import GATEWAY_COLUMNS, gateway_rows
from gke_ai.ops.status.queues import UNCOUNTED, UNCOUNTED_COLUMNS, queues_and_workloads, quota_rows, uncounted_rows
from gke_ai.ops.status.silent_workloads import known_workloads
from gke_ai.registered.pools import node_bounds, until
from gke_ai.registered.types import GATEWAY, HORIZONTAL_POD_AUTOSCALER, NODE_POOL
from gke_ai.terminal import Stop, write
from gke_ai.workspace.emulation import COMMAND, on_emulator
from gke_ai.workspace.stack import Stack

KUEUE = f"/apis/{KUEUE_API}"
JOBSET = f"kubernetes:{JOBSET_API}:JobSet"
REFUSED_EVENTS = "reason=FailedCreate"
AUTOSCALERS = "/apis/autoscaling/v2/horizontalpodautoscalers"
WATCH_SECONDS = 2.0  # between two drawings of a watched status, beside the time to read it
# Rows of a table unless more are asked for: with its other tables, the status then fits two or three screens.
ROWS = 20
_NAMESPACED = (
    *("pods", "deployments", "workloads", "jobsets", "autoscalers", "gateways", "routes", "jobs", "quotas"),
    "local_queues",
)


@dataclass
class ClusterObjects:
    """The objects of a cluster that the status shows, and the inputs of the stack's node pools."""

    nodes: Sequence[Object] = field(default_factory=list)
    pods: Sequence[Object] = field(default_factory=list)
    deployments: Sequence[Object] = field(default_factory=list)
    cluster_queues: Sequence[Object] = field(default_factory=list)
    workloads: Sequence[Object] = field(default_factory=list)
    jobsets: Sequence[Object] = field(default_factory=list)
    autoscalers: Sequence[Object] = field(default_factory=list)
    gateways: Sequence[Object] = field(default_factory=list)
    routes: Sequence[Object] = field(default_factory=list)
    events: Sequence[Object] = field(default_factory=list)
    pools: list[Mapping[str, Any]] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    cold_starts: Mapping[str, str] = field(default_factory=dict)
    jobs: Sequence[Object] = field(default_factory=list)
    requests: Sequence[Object] = field(default_factory=list)
    claims: Sequence[Object] = field(default_factory=list)
    slices: Sequence[Object] = field(default_factory=list)
    quotas: Sequence[Object] = field(default_factory=list)
    refused: Sequence[Object] = field(default_factory=list)
    ledgers: Sequence[Object] = field(default_factory=list)
    local_queues: Sequence[Object] = field(default_factory=list)


@dataclass(frozen=True)
class Selection:
    """What the status lists in full: everything, or what is in a namespace or waits in a local queue."""

    everything: bool = False
    namespace: str = ""
    queue: str = ""

    @property
    def rows(self) -> int | None:
        """The maximum length of a table."""
        return None if self.everything or self.namespace or self.queue else ROWS

    def of(self, snapshot: ClusterObjects) -> ClusterObjects:
        """Returns the objects that are selected. Nodes and cluster queues have no namespace, so all of them are."""
        selected: dict[str, Any] = {}
        if self.namespace:
            for name in _NAMESPACED:
                found = getattr(snapshot, name)
                selected[name] = [item for item in found if item["metadata"]["namespace"] == self.namespace]
        if self.queue:
            workloads = selected.get("workloads", snapshot.workloads)
            selected["workloads"] = [item for item in workloads if item["spec"].get("queueName") == self.queue]
        return replace(snapshot, **selected)


SUMMARY = Selection()


def show(stack: Stack, selection: Selection = SUMMARY, blocks: Path | None = None) -> None:
    """Prints the status of `stack`, and draws its blocks to a file."""
    snapshot = take(stack, stack.cluster())
    console = new_console()
    for part in report(stack, snapshot, selection):
        console.print()
        console.print(part, soft_wrap=isinstance(part, Text))  # a wrapped command can't be copied
    if blocks:
        write({blocks: blocks_picture.of_cluster(stack.name, block_nodes(snapshot.nodes, snapshot.pods))})


def watch(stack: Stack, selection: Selection = SUMMARY) -> None:
    """Shows the status of `stack` on one screen, which is redrawn until Ctrl-C. Stops without a terminal."""
    from rich.console import Group
    from rich.live import Live

    console = new_console()
    if not console.is_terminal:
        raise Stop("--watch redraws a screen, and the output is no terminal. Leave --watch out.")
    api = stack.cluster()
    with contextlib.suppress(KeyboardInterrupt), Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(Group(*report(stack, take(stack, api), selection)), refresh=True)
            time.sleep(WATCH_SECONDS)


def take(stack: Stack, api: ApiClient) -> ClusterObjects:
    """Reads the cluster's objects of the kinds that the stack has. A missing kind has no objects."""
    has = {JOBSET, HORIZONTAL_POD_AUTOSCALER, GATEWAY} if stack.is_alone else {item["type"] for item in stack.resources}
    pods = list_objects(api, "/api/v1/pods")
    jobs = list_objects(api, "/apis/batch/v1/jobs")
    jobsets = list_objects(api, f"/apis/{JOBSET_API}/jobsets") if JOBSET in has else []
    runs = {"Job": jobs, "JobSet": jobsets, **(further(stack, api) if stack.is_alone else {})}
    cluster_queues, workloads = queues_and_workloads(api)
    ledgers, local_queues = ledger_and_queues(api)
    workloads = with_reasons(workloads, local_queues)
    checked = any(items(workload, "status", "admissionChecks") for workload in workloads)
    nodes = list_objects(api, "/api/v1/nodes")
    claiming = any(pod["spec"].get("resourceClaims") for pod in pods)
    with_nics = any(label(node, PROFILE_LABEL) for node in nodes)
    return ClusterObjects(
        nodes=nodes,
        pods=pods,
        deployments=list_objects(api, "/apis/apps/v1/deployments"),
        cluster_queues=cluster_queues,
        workloads=known_workloads(api, workloads, {**runs, "Pod": pods}),
        jobsets=jobsets,
        autoscalers=list_objects(api, AUTOSCALERS) if HORIZONTAL_POD_AUTOSCALER in has else [],
        gateways=list_objects(api, f"/apis/{GATEWAY_API}/gateways") if GATEWAY in has else [],
        routes=list_objects(api, f"/apis/{GATEWAY_API}/httproutes") if GATEWAY in has else [],
        events=list_objects(api, "/api/v1/events", fieldSelector=AUTOSCALER_EVENTS) if any(map(waiting, pods)) else [],
        refused=list_objects(api, "/api/v1/events", fieldSelector=REFUSED_EVENTS) if any(map(lacks_pods, jobs)) else [],
        pools=[pool["inputs"] for pool in stack.of_type(NODE_POOL)],
        jobs=jobs,
        cold_starts=cold_starts(stack.recorded_outputs),
        claims=list_objects(api, f"/apis/{DEVICE_API}/resourceclaims") if claiming else [],
        slices=list_objects(api, f"/apis/{DEVICE_API}/resourceslices") if with_nics else [],
        quotas=list_objects(api, QUOTAS, fieldSelector=f"metadata.name={TENANT_QUOTA}"),
        requests=list_objects(api, f"/apis/{in_kueue.REQUEST_API}/provisioningrequests") if checked else [],
        runs=known_runs(stack, runs),
        ledgers=ledgers,
        local_queues=local_queues,
    )


def report(stack: Stack, snapshot: ClusterObjects, selection: Selection = SUMMARY) -> list[Table | Text]:
    """Returns the status: the tables that have rows, and the next steps."""
    whole, snapshot, rows = snapshot, selection.of(snapshot), selection.rows
    parts: list[tuple[str, tuple[str, ...], Iterable[tuple[str, ...]]]] = [
        ("Pools", ("pool", "machine", "capacity", "ready", "accelerators used"), pool_rows(whole)),
        ("Blocks", BLOCK_COLUMNS, block_rows(block_nodes(whole.nodes, whole.pods))),
        ("Queues", ("cluster queue", "flavor", "resource", "used", "quota"), quota_rows(snapshot.cluster_queues)),
        (UNCOUNTED, UNCOUNTED_COLUMNS, uncounted_rows(snapshot.quotas, whole.pods, whole.workloads)),
        (budget_title(whole.ledgers, datetime.now(UTC)), BUDGET_COLUMNS, budget_rows(snapshot.local_queues)),
        workloads_part(snapshot, rows),
        ("Runs", ("run", "pods", "restarts", SAVED, "step", "state"), run_rows(snapshot, rows)),
        ("JobSets", ("jobset", "child Jobs ready", "restarts", "state", "why"), jobset_rows(snapshot)),
        ("Models in buckets", ("download", "folder", "state"), download_rows(snapshot.jobs)),
        ("Servers", ("server", "ready", "waiting", "reads its model in", "last start"), server_rows(snapshot)),
        (
            "Autoscalers",
            ("autoscaler", "scales", "metric", "now / target", "replicas", "bounds", "why"),
            autoscaler_rows(snapshot.autoscalers),
        ),
        ("Gateways", GATEWAY_COLUMNS, gateway_rows(snapshot.gateways, snapshot.routes)),
        ("Refused pods", ("of", "why"), in_kueue.refused_rows(snapshot.deployments, snapshot.jobs, snapshot.refused)),
        ("Pending pods", ("pod", "why"), waiting_rows(snapshot)),
    ]
    listed = [(title, columns, list(part)) for title, columns, part in parts]
    shortened = rows is not None and (len(snapshot.workloads) > rows or any(len(part) > rows for *_, part in listed))
    steps = "".join(f"\n→ {step}" for step in next_steps(stack, whole, shortened))
    cut = f" (the first {rows} of {{}})"
    tables = [
        new_table(columns, part[:rows], title + (cut.format(len(part)) if part[rows or len(part) :] else ""))
        for title, columns, part in listed
        if part
    ]
    return [*tables, Text.assemble(("Next", "bold"), steps)]


def workloads_part(
    snapshot: ClusterObjects, rows: int | None
) -> tuple[str, tuple[str, ...], Iterable[tuple[str, ...]]]:
    """Returns title, columns and rows: a row per workload, or per queue if there are more workloads than rows."""
    requests = held_requests(snapshot)
    if rows is not None and len(snapshot.workloads) > rows:
        columns: tuple[str, ...] = ("queue", "admitted", "waiting", "evicted", "finished", "longest wait", "why")
        return "Workloads by queue", columns, in_kueue.queue_rows(snapshot.workloads, requests, datetime.now(UTC))
    columns = ("workload", "queue", "priority", "state", "why")
    return "Workloads", columns, in_kueue.workload_rows(snapshot.workloads, requests)


def held_requests(snapshot: ClusterObjects) -> Mapping[str, list[Object]]:
    """Returns the ProvisioningRequests by workload, with what the pools of the cluster and the stack say of them."""
    pools = {label(node, labels.GKE_NODEPOOL) for node in snapshot.nodes} | {pool["name"] for pool in snapshot.pools}
    return in_kueue.requests_of(snapshot.requests, pools)


def pool_rows(snapshot: ClusterObjects) -> Iterator[tuple[str, ...]]:
    """Yields a row per pool: its nodes, its maximum size, and the accelerators and NICs that pods use."""
    nics = nics_of(snapshot.slices, snapshot.claims)
    own = {pool["name"]: pool for pool in snapshot.pools}
    pools: dict[str, list[Object]] = defaultdict(list)
    for node in snapshot.nodes:
        pools[label(node, labels.GKE_NODEPOOL) or "no pool"].append(node)
    used: Counter[str] = Counter()
    for pod in snapshot.pods:
        if (node_name := pod["spec"].get("nodeName")) and not ended(pod):
            used[node_name] += accelerator_count(pod["spec"])
    for name in sorted(pools.keys() | own.keys()):
        at_most = f", at most {bound}" if (bound := max_nodes(own.get(name, {}))) else ""
        members = pools.get(name)
        if not members:
            config = own[name].get("nodeConfig", {})
            yield name, config.get("machineType", ""), capacity_of("", config), f"empty{at_most}", "–"
            continue
        first = members[0]
        ready = sum(1 for node in members if holds(node, "Ready"))
        total = sum(map(accelerators_on, members))
        taken = sum(used[node["metadata"]["name"]] for node in members)
        machine, provisioning = label(first, labels.INSTANCE_TYPE), label(first, labels.GKE_PROVISIONING)
        used_of = ", ".join(filter(None, (f"{taken} of {total}", nics.on(members)))) if total else "–"
        capacity, nodes = capacity_of(provisioning, first["metadata"]), f"{ready} of {len(members)}{at_most}"
        yield name, machine, capacity, nodes, used_of


def capacity_of(provisioning: str, item: Mapping[str, Any]) -> str:
    """Returns how Google provides nodes, and until when, from the labels of one of them or of their pool."""
    end, now = capacity_until(item.get("labels") or {}), datetime.now(UTC)
    if end is None:
        return provisioning
    left = f"in {in_kueue.span((end - now).total_seconds())}" if end > now else "ended"
    return f"{provisioning or 'reservation'} until {moment(end)} ({left})"


def max_nodes(pool: Mapping[str, Any]) -> int:
    """Returns the maximum size of an autoscaled pool, from its inputs; 0 without autoscaling."""
    bounds = node_bounds(pool)
    return bounds.maximum if bounds.autoscaled else 0


def run_rows(snapshot: ClusterObjects, rows: int | None = None) -> Iterator[tuple[str, ...]]:
    """Yields a row per run: its pods, its restarts, its newest complete checkpoint, and its state.

    No bucket is read for what follows the first `rows`.
    """
    pods = pods_by_run(snapshot.pods)
    for number, found in enumerate(snapshot.runs):
        own = {**pods[found.namespace, found.name], **pods[found.namespace, found.selector.partition("=")[2]]}
        running = f"{found.running(own.values())} of {found.wanted_pods}"
        newest = saved(found) if rows is None or number < rows else ()
        yield (str(found), running, str(found.restarts), *newest, found.state)


def jobset_rows(snapshot: ClusterObjects) -> Iterator[tuple[str, ...]]:
    """Yields a row per JobSet: ready slices, used restarts, and what it waits for."""
    requests = held_requests(snapshot)
    held = {in_kueue.name_of(workload): in_kueue.state_of(workload, requests) for workload in snapshot.workloads}
    for jobset in snapshot.jobsets:
        metadata, spec, status = jobset["metadata"], jobset["spec"], jobset.get("status", {})
        wanted = sum(job.get("replicas", 1) for job in spec["replicatedJobs"])
        ready = sum(job.get("ready", 0) for job in status.get("replicatedJobsStatus") or [])
        ended = status.get("terminalState", "")
        kueue, why = held.get(str(WorkloadName.of_object("jobset", jobset)), ("Waiting", ""))
        if ended:
            state, why = ended, condition(jobset, ended).get("message", "")
        elif spec.get("suspend"):
            state = kueue
        elif ready == wanted:
            state, why = "Running", ""
        else:
            state, why = "Starting", "not all of its pods run yet; the table Pending pods says why"
        used, most = status.get("restartsCountTowardsMax", 0), spec.get("failurePolicy", {}).get("maxRestarts", 0)
        name = f"{metadata['namespace']}/{metadata['name']}"
        yield name, f"{ready} of {wanted}", f"{used} of {most}", state, why


def server_rows(snapshot: ClusterObjects) -> Iterator[tuple[str, ...]]:
    """Yields a row per Deployment with a queue or accelerators: its replicas, how long one should read its model, and
    what the start of its newest replica took."""
    for deployment in snapshot.deployments:
        if not is_server(deployment):
            continue
        wanted = deployment["spec"].get("replicas", 1)
        ready = deployment.get("status", {}).get("readyReplicas", 0)
        name = f"{deployment['metadata']['namespace']}/{deployment['metadata']['name']}"
        waits, reads = str(max(wanted - ready, 0) or "–"), snapshot.cold_starts.get(name, "–")
        yield name, f"{ready} of {wanted}", waits, reads, start_text(newest_start(deployment, snapshot.pods)[1])


def start_text(parts: Mapping[str, float]) -> str:
    """Formats what a start took."""
    named = ", ".join(f"{part} {seconds:.0f} s" for part, seconds in parts.items())
    return f"{sum(parts.values()):.0f} s: {named}" if parts else "–"


def waiting_rows(snapshot: ClusterObjects) -> Iterator[tuple[str, ...]]:
    """Yields a row per pending pod: gated by its queue, or without a node or a device that fits."""
    nics = nics_of(snapshot.slices, snapshot.claims)
    claims = {(claim["metadata"]["namespace"], claim["metadata"]["name"]): claim for claim in snapshot.claims}
    events = latest_events(snapshot.events)
    for pod in filter(waiting, snapshot.pods):
        scheduled = condition(pod, "PodScheduled")
        why = scheduled.get("message", "")
        if scheduled["reason"] == "SchedulingGated":
            why = "its queue has not admitted it; the table Workloads says why"
        elif pending := "; ".join(pending_claims(pod, claims, nics)):
            why = f"{pending} ({why})"
        elif event := events.get(pod["metadata"].get("uid")):
            why = f"{event['message']} ({why})"
        yield f"{pod['metadata']['namespace']}/{pod['metadata']['name']}", f"{scheduled['reason']}: {why}"


def waiting(pod: Object) -> bool:
    """Whether a pod has no node, and the scheduler has said why."""
    unplaced = not ended(pod) and not pod["spec"].get("nodeName")
    return unplaced and condition(pod, "PodScheduled").get("status") == "False"


def latest_events(events: Iterable[Object]) -> Mapping[str, Object]:
    """Returns the latest event about each object, by its uid."""
    in_order = sorted(events, key=lambda event: event.get("lastTimestamp") or event.get("eventTime") or "")
    return {event["involvedObject"].get("uid"): event for event in in_order}


def next_steps(stack: Stack, snapshot: ClusterObjects, shortened: bool) -> Iterator[str]:
    """Yields suggestions for next steps."""
    if shortened:
        again = stack.next("status")
        every, queue = ("ALL=1", "QUEUE=NAME") if again.startswith("make ") else ("--all", "--queue NAME")
        yield f"list everything, or the workloads of a queue:  {again} {every}  or {queue}"
    states = [in_kueue.state_of(workload, {})[0] for workload in snapshot.workloads]
    queued = (item for item in snapshot.deployments if label(item["spec"]["template"], QUEUE_LABEL))
    if server := next(queued, None):
        metadata = server["metadata"]
        scale = f"{stack.kubectl} -n {metadata['namespace']} scale deployment/{metadata['name']} --replicas="
        replicas = server["spec"].get("replicas", 1)
        waits = "waits for quota; free some" if "Waiting" in states else ""
        if any(state.startswith("Evicted") for state in states):
            waits = "was evicted; free quota, so that it resumes"
        if waits and replicas > 1:  # a server that sleeps wakes by itself, and the last replica serves
            yield f"a workload {waits}:  {scale}{replicas - 1}"
        elif not waits and "Admitted" in states:
            yield f"see serving preempt training:  {scale}{replicas + 1}"
    for name in sorted(pool["name"] for pool in snapshot.pools if (end := until(pool)) and end <= datetime.now(UTC)):
        yield f"the reservation of pool {name} has ended; name another one, or remove the pool:  {stack.next('up')}"
    if any(event["reason"] == NOT_SCALED_UP for event in snapshot.events) and on_emulator():
        yield f"show and change the available capacity:  {COMMAND} capacity"
    if not stack.is_alone and any(not row[1].startswith("0 ") for row in server_rows(snapshot)):
        yield f"send requests to the servers:  {stack.next('smoke')}"
    yield f"show the status again:  {stack.next('status')}"
    if not stack.is_alone:
        yield f"delete the stack:  {stack.next('down')}"
