"""Pure functions that plan which nodes GKE's autoscaler and Autopilot would create for waiting pods.

An autoscaled pool grows within its limits. Autopilot and compute classes create the pool that a pod needs. A multi-host
TPU slice is created as a whole. If a pod can't run on a node, or the capacity is unavailable, the pod gets no node and
a reason.

Not simulated: how long Google takes, prices, node recycling, and a compute class's migration to a better priority.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from emulator.cloud.records import ClusterRecord, PoolRecord
from emulator.nodes import fit, node_agents
from emulator.nodes import objects as nodes
from emulator.nodes.candidates import Candidate, candidates
from emulator.nodes.placement import Placement
from emulator.nodes.requests import QUEUED, consumed_by
from gke_ai.catalog.nodes.shape import ZONE
from gke_ai.kube.objects import condition
from gke_ai.kube.pods import ended

Object = dict[str, Any]


class NewNode(NamedTuple):
    """A node to create, and the uid of the pod that it is created for."""

    node: Object
    pod: str


@dataclass
class PlannedNodes:
    """The result of planning for the waiting pods.

    Attributes:
        new_nodes: The nodes to create.
        refused: Why a pod gets no node, by the pod's uid.
        needed: Names of existing nodes that waiting pods will use.
    """

    new_nodes: list[NewNode] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    needed: set[str] = field(default_factory=set)


def is_waiting(pod: Object) -> bool:
    """Whether the scheduler found no node for a pod.

    False for a pod with scheduling gates, such as Kueue's.
    """
    if pod["metadata"].get("deletionTimestamp") or pod["spec"].get("nodeName"):
        return False
    return condition(pod, "PodScheduled").get("reason") == "Unschedulable"


def occupies(pod: Object) -> bool:
    """Whether a pod uses resources of its node."""
    return bool(pod["spec"].get("nodeName")) and not ended(pod)


def plan(
    cluster: ClusterRecord,
    pools: Iterable[PoolRecord],
    present: Iterable[Object],
    pods: Iterable[Object],
    classes: Mapping[str, Object] | None = None,
    out: Collection[str] = (),
) -> PlannedNodes:
    """Places each waiting pod, oldest first: on an existing node, on a planned node, else on a new node.

    Args:
        cluster: The cluster.
        pools: The cluster's node pools.
        present: The existing nodes.
        pods: All pods of the cluster.
        classes: The cluster's ComputeClasses by name.
        out: The capacity modes that are unavailable.
    """
    result = PlannedNodes()
    pools, pods = list(pools), list(pods)
    placement = Placement(node for node in present if not _is_closed(node))
    for pod in filter(occupies, pods):
        if pod["spec"]["nodeName"] in placement.nodes and not node_agents.is_agent(pod):
            placement.place(pod, pod["spec"]["nodeName"])
    others = [pod for pod in pods if not node_agents.is_agent(pod)]
    waiting = sorted(filter(is_waiting, others), key=lambda pod: str(pod["metadata"].get("creationTimestamp")))
    for pod in waiting:
        uid = pod["metadata"]["uid"]
        node_name = placement.find(pod, alone=cluster.mode == "autopilot")
        if node_name is None:
            try:
                if request := consumed_by(pod):
                    raise LookupError(f"only its ProvisioningRequest {request} creates nodes for it")
                pod_candidates = candidates(cluster, pools, classes or {}, pod)
                created = _nodes_of_first(cluster, pod_candidates, placement, pod, out)
            except LookupError as reason:
                result.refused[uid] = str(reason)
                continue
            node_name = created[0]["metadata"]["name"]
            for node in created:
                placement.add(node)
                result.new_nodes.append(NewNode(node, uid))
        placement.place(pod, node_name)
        result.needed.add(node_name)
    return result


def idle(present: Collection[Object], pools: Mapping[str, PoolRecord], unused: Collection[str]) -> list[list[str]]:
    """Names of unused nodes to delete, in groups that must be deleted together.

    These are nodes of pools that GKE created, and nodes of autoscaled pools above their minimum. Nodes of
    pools that the emulated cloud doesn't have stay.
    """
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    sizes: Counter[str] = Counter()
    for node in present:
        name, pool = node["metadata"]["name"], nodes.pool_of(node)
        groups[pool, "" if nodes.slice_size(node) > 1 else name].append(name)
        sizes[pool] += 1
    unused = {*unused} - {node["metadata"]["name"] for node in present if _is_foreign(node)}
    result = []
    for (pool, _), names in groups.items():
        # An unknown pool of a Standard cluster was deleted while one of its nodes was being created.
        record = pools.get(pool)
        surplus = record is None or (record.autoscaled and sizes[pool] - len(names) >= record.floor)
        if surplus and all(name in unused for name in names):
            sizes[pool] -= len(names)
            result.append(names)
    return result


def _is_foreign(node: Object) -> bool:
    return nodes.FOREIGN in node["metadata"].get("annotations", {})


def _is_closed(node: Object) -> bool:
    return bool(node["spec"].get("unschedulable") or node["metadata"].get("deletionTimestamp"))


def _nodes_of_first(
    cluster: ClusterRecord, pod_candidates: Iterable[Candidate], placement: Placement, pod: Object, out: Collection[str]
) -> list[Object]:
    """New nodes of the first candidate that can give the pod a node.

    LookupError has all reasons.
    """
    reasons: list[str] = []
    not_selected: list[str] = []
    for candidate in pod_candidates:
        try:
            return _new_nodes(cluster, candidate.pool, placement, pod, out)
        except LookupError as refusal:
            # A pool that the pod's own node selector rules out is only worth reporting if there is no other reason.
            group = not_selected if isinstance(refusal, _NotSelected) else reasons
            group.append(f"{candidate.title}: {refusal}")
    raise LookupError("; ".join(reasons or not_selected) or "no node pool of the cluster can grow")


def _new_nodes(
    cluster: ClusterRecord, pool: PoolRecord, placement: Placement, pod: Object, out: Collection[str]
) -> list[Object]:
    """New nodes of a pool, one of which the pod fits. Raises LookupError with the reason if it fits none."""
    if refusal := fit.wrong_label(pod, placement.sample(cluster, pool), but=ZONE):
        raise _NotSelected(refusal)
    pool_nodes = placement.nodes_of(pool.name)
    zones = [zone for zone in pool.zones if zone == pod["spec"].get("nodeSelector", {}).get(ZONE, zone)]
    if not zones:
        raise LookupError("it has no nodes in the pod's zone")
    node = nodes.new_nodes(cluster, replace(pool, zones=zones), pool_nodes, 1)[0]
    _check_fits(pod, node)
    if fit.kept_apart(pod, node, placement.placed):
        raise LookupError("the pod's anti-affinity excludes it because of the pods on it")
    if not pool.autoscaled:
        raise LookupError("it has a fixed size and is full")
    if pool.capacity == QUEUED:
        raise LookupError("only a ProvisioningRequest creates its nodes")
    size = nodes.slice_size(node)
    if size > 1 and pool_nodes:
        raise LookupError("its slice exists and is in use")
    if len(pool_nodes) + size > pool.max_nodes:
        raise LookupError(f"max node group size reached ({pool.max_nodes})")
    _check_capacity(pool, out)
    # The autoscaler raises any number of nodes to the whole slice, also for one pod: ComputeExpansionOption in
    # https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/core/scaleup/orchestrator/orchestrator.go
    in_zone = replace(pool, zones=[nodes.label(node, ZONE)])
    return [node, *nodes.new_nodes(cluster, in_zone, [node], size - 1)]


class _NotSelected(LookupError):
    """The nodes of the pool don't have the labels that the pod selects."""


def _check_fits(pod: Object, node: Object) -> None:
    if refusal := fit.refusal(pod, node, fit.room(node)):
        raise LookupError(refusal)


def _check_capacity(pool: PoolRecord, out: Collection[str]) -> None:
    if pool.capacity in out:
        raise LookupError(f"no {pool.capacity} capacity (GCE_STOCKOUT)")
