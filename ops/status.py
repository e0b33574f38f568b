"""`make status STACK=…`: what runs, what waits and why, and the next thing to try."""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from catalog import nodes as labels
from catalog.quantities import parse_quantity, readable
from catalog.quota import QUEUE_LABEL
from catalog.versions import KUEUE_API
from ops.stack import Object, Stack, Stop, arguments, kubectl, listed

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

KUEUE = f"/apis/{KUEUE_API}"
ACCELERATORS = (labels.NVIDIA_GPU, "google.com/tpu")
LOG_WIDTH = 160  # columns, where there is no terminal to ask


@dataclass
class Snapshot:
    """The objects of a cluster that a status is made of, as the API gives them."""

    nodes: list[Object] = field(default_factory=list)
    pods: list[Object] = field(default_factory=list)
    deployments: list[Object] = field(default_factory=list)
    cluster_queues: list[Object] = field(default_factory=list)
    workloads: list[Object] = field(default_factory=list)


def main() -> None:
    """Prints pools and nodes, queues with quota used, workloads with the reason of each that waits, and servers."""
    show(arguments(main.__doc__ or ""))


def show(stack: Stack) -> None:
    """Prints the status of `stack`."""
    api = stack.api()
    if api is None:
        raise Stop(f"{stack.name} has no cluster yet. Next: {stack.next('up')}")
    console = Console(highlight=False, width=None if sys.stdout.isatty() else LOG_WIDTH)
    for part in report(stack, take(api)):
        console.print()
        console.print(part, soft_wrap=isinstance(part, Text))  # a command that is broken in two can't be copied


def take(api: ApiClient) -> Snapshot:
    """Reads a cluster's objects; a kind that isn't installed counts as none."""
    return Snapshot(
        nodes=listed(api, "/api/v1/nodes"),
        pods=listed(api, "/api/v1/pods"),
        deployments=listed(api, "/apis/apps/v1/deployments"),
        cluster_queues=listed(api, f"{KUEUE}/clusterqueues"),
        workloads=listed(api, f"{KUEUE}/workloads"),
    )


def report(stack: Stack, snapshot: Snapshot) -> list[Table | Text]:
    """The whole status: tables, each only where it has rows, and what to try next."""
    tables = [
        table("Pools", ("pool", "machine", "capacity", "ready", "accelerators used"), pool_rows(snapshot)),
        table("Queues", ("cluster queue", "flavor", "resource", "used", "quota"), quota_rows(snapshot)),
        table("Workloads", ("workload", "queue", "priority", "state", "why"), workload_rows(snapshot)),
        table("Servers", ("server", "ready", "waiting"), server_rows(snapshot)),
        table("Pods that wait", ("pod", "why"), waiting_rows(snapshot)),
    ]
    steps = "".join(f"\n→ {step}" for step in next_steps(stack, snapshot))
    return [*(shown for shown in tables if shown), Text.assemble(("Next", "bold"), steps)]


def table(title: str, columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Table | None:
    """A table, or nothing where it would be empty."""
    shown = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in columns:
        shown.add_column(column, no_wrap=column != "why")  # a name that is cut can't be used; a reason may fold
    for row in rows:
        shown.add_row(*row)
    return shown if shown.row_count else None


def pool_rows(snapshot: Snapshot) -> Iterator[tuple[str, ...]]:
    """One row a pool: its nodes and how many of its accelerators pods have asked for."""
    pools: dict[str, list[Object]] = defaultdict(list)
    for node in snapshot.nodes:
        pools[label(node, labels.GKE_NODEPOOL) or "no pool"].append(node)
    used: Counter[str] = Counter()
    for pod in snapshot.pods:
        if (node_name := pod["spec"].get("nodeName")) and not ended(pod):
            used[node_name] += accelerators_of(pod)
    for name, members in sorted(pools.items()):
        first = members[0]
        ready = sum(1 for node in members if condition(node, "Ready").get("status") == "True")
        total = sum(
            int(node["status"].get("allocatable", {}).get(kind, 0)) for node in members for kind in ACCELERATORS
        )
        taken = sum(used[node["metadata"]["name"]] for node in members)
        yield (
            name,
            label(first, labels.INSTANCE_TYPE),
            label(first, labels.GKE_PROVISIONING),
            f"{ready} of {len(members)}",
            f"{taken} of {total}" if total else "–",
        )


def quota_rows(snapshot: Snapshot) -> Iterator[tuple[str, ...]]:
    """One row a resource of a flavor of a queue: reserved against nominal quota."""
    for queue in snapshot.cluster_queues:
        reserved = {
            (flavor["name"], resource["name"]): resource["total"]
            for flavor in queue.get("status", {}).get("flavorsReservation") or []
            for resource in flavor["resources"]
        }
        for group in queue["spec"].get("resourceGroups") or []:
            for flavor in group["flavors"]:
                for resource in flavor["resources"]:
                    kind = resource["name"]
                    yield (
                        queue["metadata"]["name"],
                        flavor["name"],
                        kind,
                        readable(kind, parse_quantity(str(reserved.get((flavor["name"], kind), 0)))),
                        readable(kind, parse_quantity(str(resource["nominalQuota"]))),
                    )


def workload_rows(snapshot: Snapshot) -> Iterator[tuple[str, ...]]:
    """One row a workload: admitted, waiting, evicted or finished, with Kueue's reason."""
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
    """What Kueue holds of a workload, and why."""
    if (finished := condition(workload, "Finished")).get("status") == "True":
        return "Finished", finished.get("message", "")
    if condition(workload, "Admitted").get("status") == "True":
        return "Admitted", ""
    if (evicted := condition(workload, "Evicted")).get("status") == "True":
        return f"Evicted: {evicted.get('reason', '')}", plainly(evicted.get("message", ""))
    return "Waiting", condition(workload, "QuotaReserved").get("message", "not looked at by Kueue yet")


def plainly(message: str) -> str:
    """Kueue's reason without the identities of objects that it puts in the middle."""
    return re.sub(r" \(UID: [^)]*\)|; preempt(or|ee) path: [^;]*", "", message)


def server_rows(snapshot: Snapshot) -> Iterator[tuple[str, ...]]:
    """One row a Deployment under a queue or on accelerators: replicas ready of those wanted."""
    for deployment in snapshot.deployments:
        template = deployment["spec"]["template"]
        if not label(template, QUEUE_LABEL) and not accelerators_of(template):
            continue
        wanted = deployment["spec"].get("replicas", 1)
        ready = deployment.get("status", {}).get("readyReplicas", 0)
        name = f"{deployment['metadata']['namespace']}/{deployment['metadata']['name']}"
        yield name, f"{ready} of {wanted}", str(wanted - ready) if ready < wanted else "–"


def waiting_rows(snapshot: Snapshot) -> Iterator[tuple[str, ...]]:
    """One row a pod that has no node: gated by its queue, or without a node that fits."""
    for pod in snapshot.pods:
        scheduled = condition(pod, "PodScheduled")
        if ended(pod) or pod["spec"].get("nodeName") or scheduled.get("status") != "False":
            continue
        why = scheduled.get("message", "")
        if scheduled["reason"] == "SchedulingGated":
            why = "its queue has not admitted it; the table Workloads says why"
        yield f"{pod['metadata']['namespace']}/{pod['metadata']['name']}", f"{scheduled['reason']}: {why}"


def next_steps(stack: Stack, snapshot: Snapshot) -> Iterator[str]:
    """What a person would try next, from what is there."""
    states = [state_of(workload)[0] for workload in snapshot.workloads]
    server = next((found for found in snapshot.deployments if label(found["spec"]["template"], QUEUE_LABEL)), None)
    if server:
        metadata = server["metadata"]
        scale = f"{kubectl()} -n {metadata['namespace']} scale deployment/{metadata['name']} --replicas="
        if any(state.startswith("Evicted") for state in states):
            yield f"training gave way to serving; let it resume:  {scale}1"
        elif "Waiting" in states:
            yield f"something waits for quota; free some:  {scale}1"
        elif "Admitted" in states:
            yield f"see serving preempt training:  {scale}{server['spec'].get('replicas', 1) + 1}"
    yield f"look again:    {stack.next('status')}"
    yield f"take it down:  {stack.next('down')}"


def label(item: Object, key: str) -> str:
    """A label's value, or nothing."""
    return str((item["metadata"].get("labels") or {}).get(key, ""))


def condition(item: Object, kind: str) -> Object:
    """A status condition, or an empty one."""
    conditions = item.get("status", {}).get("conditions") or []
    return next((found for found in conditions if found["type"] == kind), {})


def owner(workload: Object) -> str:
    """Whom a workload stands for: `namespace/kind/name`."""
    namespace = workload["metadata"]["namespace"]
    for reference in workload["metadata"].get("ownerReferences") or []:
        return f"{namespace}/{reference['kind'].lower()}/{reference['name']}"
    return f"{namespace}/{workload['metadata']['name']}"


def ended(pod: Object) -> bool:
    """Whether a pod has run to its end."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def accelerators_of(pod: Object) -> int:
    """GPUs or TPU chips that a pod or pod template asks for."""
    limits = (container.get("resources", {}).get("limits") or {} for container in pod["spec"]["containers"])
    return int(sum(Fraction(limit.get(kind, 0)) for limit in limits for kind in ACCELERATORS))


if __name__ == "__main__":
    try:
        main()
    except Stop as stop:
        raise SystemExit(str(stop)) from None
