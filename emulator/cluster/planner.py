"""Which nodes GKE's autoscaler and Autopilot would make: pure functions of what there is and what waits.

An autoscaled pool grows within its bounds; Autopilot and a compute class make the pool that a pod needs. A multi-host
TPU slice comes whole or not at all. No node is made for a pod that could not run on it, nor of capacity that is
declared out: the reason is told.

Not simulated: how long Google takes, prices, node recycling, a compute class's migration to a better priority, and what
Autopilot changes in a pod's requests.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, NamedTuple

from catalog.capacity import MODES
from catalog.machines import MACHINES
from catalog.nodes import (
    COMPUTE_CLASS,
    GKE_ACCELERATOR,
    GKE_GPU_DRIVER_VERSION,
    GKE_TPU_ACCELERATOR,
    GKE_TPU_TOPOLOGY,
    NVIDIA_GPU,
    ZONE,
    autopilot_machine,
)
from catalog.tpus import GOOGLE_TPU, VERSIONS, Slice, slices
from emulator.cluster import fit, node_agents, nodes
from emulator.cluster.records import ClusterRecord, PoolRecord

Object = dict[str, Any]

# https://cloud.google.com/kubernetes-engine/docs/how-to/provisioningrequest
QUEUED = "queuedFlexStart"
QUEUED_CLASS = "queued-provisioning.gke.io"
REQUEST_API = "autoscaling.x-k8s.io/v1"
PROVISIONING_REQUEST = "autoscaling.gke.io/provisioning-request"
_MADE_POOL = "nap-"
_MOST_NODES = 1000


class NewNode(NamedTuple):
    """A node to make, and the uid of the pod that it was first made for."""

    node: Object
    pod: str


@dataclass
class Plan:
    """What is to be done for the pods that wait: nodes to make, why the others get none (by the pod's uid), and the
    names of living nodes that will be needed."""

    make: list[NewNode] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    needed: set[str] = field(default_factory=set)


class Choice(NamedTuple):
    """A pool that a pod may get a node of. `title` is for people; `made` says that GKE makes the pool for the pod."""

    pool: PoolRecord
    title: str
    made: bool


class _Rooms:
    """Nodes that are there or planned, with what is free on each and which pods are on them."""

    def __init__(self, present: Iterable[Object] = ()) -> None:
        self.nodes: dict[str, Object] = {}
        self._free: dict[str, fit.Amounts] = {}
        self._samples: dict[str, Object] = {}
        self.placed: list[tuple[Object, Object]] = []
        for node in present:
            self.add(node)

    def add(self, node: Object) -> None:
        name = node["metadata"]["name"]
        self.nodes[name], self._free[name] = node, fit.room(node)

    def of_pool(self, pool: str) -> list[Object]:
        return [node for node in self.nodes.values() if nodes.pool_of(node) == pool]

    def sample(self, cluster: ClusterRecord, pool: PoolRecord) -> Object:
        """A node as the pool makes it, in any of its zones; made once, as every pod looks at every pool."""
        if pool.name not in self._samples:
            (self._samples[pool.name],) = nodes.new_nodes(cluster, pool, [], 1)
        return self._samples[pool.name]

    def find(self, pod: Object) -> str | None:
        """A node that the pod could run on."""
        for name, node in self.nodes.items():
            if fit.refusal(pod, node, self._free[name]) is None and not fit.kept_apart(pod, node, self.placed):
                return name
        return None

    def place(self, pod: Object, name: str) -> None:
        self._free[name] = fit.less(self._free[name], fit.requests(pod))
        self.placed.append((pod, self.nodes[name]))


def is_waiting(pod: Object) -> bool:
    """Whether the scheduler found no node for a pod. Not so for one with scheduling gates, such as Kueue's."""
    if pod["metadata"].get("deletionTimestamp") or pod["spec"].get("nodeName"):
        return False
    conditions = pod.get("status", {}).get("conditions", [])
    return any(c["type"] == "PodScheduled" and c.get("reason") == "Unschedulable" for c in conditions)


def occupies(pod: Object) -> bool:
    """Whether a pod takes a place on its node."""
    return bool(pod["spec"].get("nodeName")) and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")


def plan(
    cluster: ClusterRecord,
    pools: Iterable[PoolRecord],
    present: Iterable[Object],
    pods: Iterable[Object],
    classes: Mapping[str, Object] | None = None,
    out: Collection[str] = (),
) -> Plan:
    """Find each waiting pod a place, oldest first: on a living node, on one already planned, else on a new one.

    `classes` are the cluster's ComputeClasses by name, `out` the kinds of capacity that are not to be had.
    """
    result = Plan()
    pools, pods = list(pools), list(pods)
    rooms = _Rooms(node for node in present if not _closed(node))
    for pod in filter(occupies, pods):
        if pod["spec"]["nodeName"] in rooms.nodes and not node_agents.is_agent(pod):
            rooms.place(pod, pod["spec"]["nodeName"])
    others = [pod for pod in pods if not node_agents.is_agent(pod)]
    waiting = sorted(filter(is_waiting, others), key=lambda pod: str(pod["metadata"].get("creationTimestamp")))
    for position, pod in enumerate(waiting):
        uid = pod["metadata"]["uid"]
        home = rooms.find(pod)
        if home is None:
            try:
                choices = _choices(cluster, pools, classes or {}, pod)
                made = _first(cluster, choices, rooms, waiting[position:], out)
            except LookupError as none:
                result.refused[uid] = str(none)
                continue
            home = made[0]["metadata"]["name"]
            for node in made:
                rooms.add(node)
                result.make.append(NewNode(node, uid))
        rooms.place(pod, home)
        result.needed.add(home)
    return result


def provision(
    cluster: ClusterRecord,
    pools: Iterable[PoolRecord],
    present: Iterable[Object],
    request: Object,
    templates: Mapping[str, Object],
    out: Collection[str] = (),
) -> list[Object]:
    """All nodes that a ProvisioningRequest asks for, of one pool. Raises LookupError with the reason if there are none.

    `templates` are the PodTemplates of its namespace by name.
    """
    sets = request["spec"]["podSets"]
    pods = [_templated(templates[one["podTemplateRef"]["name"]]) for one in sets for _ in range(one["count"])]
    present, reasons = list(present), []
    for pool in pools:
        if pool.capacity != QUEUED:
            continue
        of_pool = [node for node in present if nodes.pool_of(node) == pool.name]
        try:
            made = _all_at_once(cluster, pool, of_pool, pods, out)
        except LookupError as refusal:
            reasons.append(f"{pool.name}: {refusal}")
            continue
        for node in made:
            node["metadata"]["labels"][PROVISIONING_REQUEST] = request["metadata"]["name"]
        return made
    raise LookupError("; ".join(reasons) or "the cluster has no node pool with queued provisioning")


def idle(present: Iterable[Object], pools: Mapping[str, PoolRecord], unused: Collection[str]) -> list[list[str]]:
    """The nodes (by name) that can go, those together that go together: unused ones of pools that GKE made, and of
    autoscaled pools above their minimum."""
    together: dict[tuple[str, str], list[str]] = defaultdict(list)
    sizes: Counter[str] = Counter()
    for node in present:
        name, pool = node["metadata"]["name"], nodes.pool_of(node)
        together[pool, "" if nodes.slice_size(node) > 1 else name].append(name)
        sizes[pool] += 1
    gone = []
    for (pool, _), names in together.items():
        # A pool of a Standard cluster that isn't known was removed while a node of it was being made.
        known = pools.get(pool)
        surplus = known is None or (known.autoscaled and sizes[pool] - len(names) >= known.floor)
        if surplus and all(name in unused for name in names):
            sizes[pool] -= len(names)
            gone.append(names)
    return gone


def _closed(node: Object) -> bool:
    return bool(node["spec"].get("unschedulable") or node["metadata"].get("deletionTimestamp"))


def _first(
    cluster: ClusterRecord, choices: Iterable[Choice], rooms: _Rooms, waiting: list[Object], out: Collection[str]
) -> list[Object]:
    """The nodes of the first choice that can be had for the first of those that wait; LookupError says why of none."""
    near: list[str] = []
    far: list[str] = []
    for choice in choices:
        try:
            return _grown(cluster, choice, rooms, waiting, out)
        except LookupError as refusal:
            # What the pod's own node selector rules out is only worth telling where nothing else is.
            group = far if isinstance(refusal, _OtherKind) else near
            group.append(f"{choice.title}: {refusal}")
    raise LookupError("; ".join(near or far) or "the cluster has no node pool")


def _grown(
    cluster: ClusterRecord, choice: Choice, rooms: _Rooms, waiting: list[Object], out: Collection[str]
) -> list[Object]:
    """New nodes of a pool, one of which would take the first of those that wait. Raises LookupError with the reason."""
    pool, pod = choice.pool, waiting[0]
    if refusal := fit.wrong_label(pod, rooms.sample(cluster, pool), but=ZONE):
        raise _OtherKind(refusal)
    of_pool = rooms.of_pool(pool.name)
    zones = [zone for zone in pool.zones if zone == pod["spec"].get("nodeSelector", {}).get(ZONE, zone)]
    if not zones:
        raise LookupError("it has no nodes in the pod's zone")
    node = nodes.new_nodes(cluster, replace(pool, zones=zones), of_pool, 1)[0]
    _check_fits(pod, node)
    if fit.kept_apart(pod, node, rooms.placed):
        raise LookupError("the pod's anti-affinity keeps it apart from what runs there")
    if not pool.autoscaled:
        raise LookupError("it is of fixed size and full")
    if pool.capacity == QUEUED:
        raise LookupError("its nodes come by a ProvisioningRequest alone")
    size = nodes.slice_size(node)
    if size > 1 and of_pool:
        raise LookupError("its slice is there, and in use")
    if len(of_pool) + size > pool.max_nodes:
        raise LookupError(f"max node group size reached ({pool.max_nodes})")
    # A pool that a user made gets its slice only for pods that fill it; so the first pod of a Job under JobSet's
    # exclusive placement, whose others follow it, waits for ever. Autopilot provisions for a workload, there being no
    # pool to fill: it brings the slice for the first pod.
    # https://cloud.google.com/kubernetes-engine/docs/concepts/tpus#node_pool
    if size > 1 and not choice.made:
        fitting = sum(fit.refusal(other, node, fit.room(node)) is None for other in waiting)
        if fitting < size:
            raise LookupError(f"its slice comes whole, {size} nodes for {size} pods, and {fitting} wait")
    _check_capacity(pool, out)
    in_zone = replace(pool, zones=[nodes.label(node, ZONE)])
    return [node, *nodes.new_nodes(cluster, in_zone, [node], size - 1)]


class _OtherKind(LookupError):
    """The nodes of the pool don't carry the labels that the pod selects."""


def _check_fits(pod: Object, node: Object) -> None:
    if refusal := fit.refusal(pod, node, fit.room(node)):
        raise LookupError(refusal)


def _check_capacity(pool: PoolRecord, out: Collection[str]) -> None:
    if pool.capacity in out:
        raise LookupError(f"no {pool.capacity} capacity (GCE_STOCKOUT)")


def _choices(
    cluster: ClusterRecord, pools: Iterable[PoolRecord], classes: Mapping[str, Object], pod: Object
) -> Iterable[Choice]:
    """The pools that could give the pod a node, best first. Raises LookupError with the reason if there are none."""
    autopilot = cluster.mode == "autopilot"
    name = pod["spec"].get("nodeSelector", {}).get(COMPUTE_CLASS)
    if name is not None:
        if name not in classes:
            raise LookupError(f"there is no compute class {name}")
        spec = classes[name]["spec"]
        if autopilot or spec.get("nodePoolAutoCreation", {}).get("enabled"):
            return list(_of_class(cluster, name, spec, pod))
    if autopilot:
        pool = _autopilot_pool(cluster, pod)
        return [Choice(pool, pool.name, made=True)]
    return [Choice(pool, pool.name, made=False) for pool in pools]


def _of_class(cluster: ClusterRecord, name: str, spec: Object, pod: Object) -> Iterator[Choice]:
    """https://cloud.google.com/kubernetes-engine/docs/concepts/about-custom-compute-classes"""
    every = [
        _class_pool(cluster, name, number, priority) for number, priority in enumerate(spec.get("priorities", []), 1)
    ]
    for number, pool in enumerate(every, 1):
        title = f"priority {number} of {name} ({pool.capacity} {pool.machine_type})"
        yield Choice(pool, title, made=True)
    if spec.get("whenUnsatisfiable") == "ScaleUpAnyway":
        pool = _autopilot_pool(cluster, pod, gpu=next((pool.gpu for pool in every if pool.gpu), None))
        pool = replace(pool, name=f"{pool.name}-{_hash(name)}", compute_class=name)
        yield Choice(pool, f"any machine for {name} ({pool.machine_type})", made=True)


def _class_pool(cluster: ClusterRecord, name: str, number: int, priority: Object) -> PoolRecord:
    kind = MACHINES.get(priority.get("machineType", ""))
    if kind is None:
        message = f"priority {number} of compute class {name} has no machineType that the emulator knows"
        raise LookupError(message)
    capacity = "onDemand"
    if priority.get("spot"):
        capacity = "spot"
    elif priority.get("flexStart", {}).get("enabled"):
        capacity = "flexStart"
    elif priority.get("reservations", {}).get("affinity") == "Specific":
        capacity = "reservation"
    asked = priority.get("gpu", {})
    gpu, gpus = asked.get("type", kind.gpu), asked.get("count", kind.gpus)
    accelerators = f"-gpu{gpus}" if gpus else ""
    return PoolRecord(
        # As in nap-g2-standard-24-spot-gpu2-1gbdlbxz.
        name=f"{_MADE_POOL}{kind.name}-{MODES[capacity].provisioning}{accelerators}-{_hash(name)}",
        machine_type=kind.name,
        gpu=gpu,
        gpus=gpus,
        driver=asked.get("driverVersion", "default"),
        capacity=capacity,
        zones=cluster.zones,
        max_nodes=_MOST_NODES,
        topology=priority.get("tpu", {}).get("topology"),
        compute_class=name,
    )


def _autopilot_pool(cluster: ClusterRecord, pod: Object, gpu: str | None = None) -> PoolRecord:
    """The pool that Autopilot would make for a pod; `gpu` is the type where the pod doesn't say it.

    Raises LookupError with the reason if there is none.
    """
    selector = pod["spec"].get("nodeSelector", {})
    asked = fit.requests(pod)
    # A mode is asked for by the labels that its nodes carry, such as gke-spot=true.
    chosen = (name for name, mode in MODES.items() if mode.labels and mode.labels.items() <= selector.items())
    capacity = next(chosen, "onDemand")
    if asked.get(GOOGLE_TPU):
        tpu = _slice_of(selector, int(asked[GOOGLE_TPU]))
        kind, topology = MACHINES[tpu.machine_type], tpu.topology
        # One slice, one pool: named after the pod that brings it.
        suffix = f"-{_hash(pod['metadata']['uid'])}" if tpu.multi_host else ""
    else:
        gpus = int(asked.get(NVIDIA_GPU, 0))
        gpu = selector.get(GKE_ACCELERATOR, gpu if gpus else None)
        if gpus and gpu is None:
            raise LookupError(
                f"the pod asks for {NVIDIA_GPU} but has no node selector {GKE_ACCELERATOR} to say of which type"
            )
        cpu, memory = asked.get("cpu", Fraction(0)), asked.get("memory", Fraction(0))
        kind, topology, suffix = autopilot_machine(gpu, gpus, cpu, memory), None, ""
    return PoolRecord(
        name=f"{_MADE_POOL}{kind.name}-{MODES[capacity].provisioning}{suffix}",
        machine_type=kind.name,
        gpu=kind.gpu,
        gpus=kind.gpus,
        driver=selector.get(GKE_GPU_DRIVER_VERSION, "default"),
        capacity=capacity,
        zones=cluster.zones,
        max_nodes=_MOST_NODES,
        topology=topology,
    )


def _slice_of(selector: Mapping[str, str], chips: int) -> Slice:
    """The TPU slice that a pod asks for by node selectors and by the chips of one machine."""
    accelerator, topology = selector.get(GKE_TPU_ACCELERATOR), selector.get(GKE_TPU_TOPOLOGY)
    if accelerator is None or topology is None:
        selectors = f"{GKE_TPU_ACCELERATOR} and {GKE_TPU_TOPOLOGY}"
        raise LookupError(f"the pod asks for {GOOGLE_TPU} but lacks one of the node selectors {selectors}")
    versions = [version.name for version in VERSIONS.values() if version.accelerator == accelerator]
    for one in (one for version in versions for one in slices(version)):
        if (one.topology, one.chips_per_host) == (topology, chips):
            return one
    raise LookupError(f"no {topology} slice of {accelerator} has machines of {chips} chips, which the pod asks for")


def _templated(template: Object) -> Object:
    """A pod of a ProvisioningRequest; GKE itself has such pods tolerate the taint of queued nodes."""
    spec = template["template"]["spec"]
    own = [{"key": taint.key, "operator": "Exists"} for taint in MODES[QUEUED].taints]
    return {"metadata": {}, "spec": spec | {"tolerations": [*spec.get("tolerations", []), *own]}}


def _all_at_once(
    cluster: ClusterRecord, pool: PoolRecord, of_pool: list[Object], pods: list[Object], out: Collection[str]
) -> list[Object]:
    """Nodes of the pool for all the pods. Raises LookupError with the reason if not all can be had."""
    rooms = _Rooms()
    # All in one zone, as one request of Dynamic Workload Scheduler is.
    in_zone = replace(pool, zones=pool.zones[:1])
    for pod in pods:
        home = rooms.find(pod)
        if home is None:
            node = nodes.new_nodes(cluster, in_zone, [], 1)[0]
            _check_fits(pod, node)
            rooms.add(node)
            home = node["metadata"]["name"]
        rooms.place(pod, home)
    made = list(rooms.nodes.values())
    size = nodes.slice_size(made[0])
    if size > 1 and len(made) != size:
        raise LookupError(f"its slice has {size} nodes, and the request fills {len(made)}")
    if len(of_pool) + len(made) > pool.max_nodes:
        raise LookupError(f"it may have {pool.max_nodes} nodes, has {len(of_pool)} and would need {len(made)} more")
    _check_capacity(pool, out)
    return made


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
