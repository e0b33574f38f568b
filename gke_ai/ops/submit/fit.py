"""Whether a local queue can ever admit the pods of a manifest, and whether some node holds them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from gke_ai.catalog.engines import fuse
from gke_ai.catalog.fabric.topology import ANNOTATIONS
from gke_ai.catalog.machines.capacity import MODES
from gke_ai.catalog.nodes import shape
from gke_ai.catalog.nodes.quota import MIN_PARALLELISM
from gke_ai.catalog.nodes.shape import ACCELERATORS, node_labels, node_taints
from gke_ai.catalog.quantities import added, readable
from gke_ai.catalog.selectors import matches
from gke_ai.kube.objects import Object, annotation
from gke_ai.kube.pods import amounts, pod_sets, requests
from gke_ai.kube.values import items, mapping
from gke_ai.manifests.job import DURING_SCHEDULING
from gke_ai.settings.published import Published, resolved
from gke_ai.settings.resolved import NodePool, Queue, ResolvedStack, ResourceFlavor
from gke_ai.settings.rules.fit import missing

Amounts = Mapping[str, Fraction]
NONE = Fraction(0)
# Labels that no node of a system pool has.
_NOT_OF_SYSTEM = frozenset((shape.GKE_ACCELERATOR, shape.GKE_TPU_ACCELERATOR, shape.GKE_TPU_TOPOLOGY)).union(
    *(mode.labels for mode in MODES.values())
)
_BY_TOPOLOGY = frozenset({*ANNOTATIONS, "kueue.x-k8s.io/podset-unconstrained-topology"})
# https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/apis/kueue/v1beta2/workload_types.go
MOST_SETS = 18
MOST_TRIES = 10_000  # ways to give flavors to sets of pods. Beyond, Kueue says whether one is possible


@dataclass(frozen=True)
class Fit:
    """The quotas and the nodes of a local queue; those of all queues for a run without one."""

    name: str
    stack: ResolvedStack
    queues: Sequence[Queue]

    @classmethod
    def of_queue(cls, published: Published, queue: str) -> Fit:
        """Returns what a local queue has; what all of them have for one that the stack does not publish."""
        stack = resolved(published)
        named = {item.cluster_queue for item in stack.queues.local_queues if item.name == queue}
        found = [item for item in stack.cluster_queues if item.section.name in named]
        return cls(queue if found else "", stack, found or stack.cluster_queues)

    def problems(self, run: Object) -> Iterator[str]:
        """Yields why no quota or no node is enough for a run, a sentence each."""
        if self.name and (never := self.never_admitted(run)):
            yield f"{never}. Kueue would never admit it"
        counted = ((self._counted(run, count, template), template) for count, template in pod_sets(run))
        yield from dict.fromkeys(filter(None, (self.without_nodes(*of_set) for of_set in counted)))

    def _counted(self, run: Object, count: int, template: Object) -> int:
        """How many of the pods Kueue admits: of a Job that may start with fewer, as many as one flavor allows."""
        fewest, each = annotation(run, MIN_PARALLELISM), _total(template, 1)
        if not fewest.isdigit():
            return count
        choices = self._choices(template) if each else ()
        allowed = [int(min(limits.get(key, NONE) // each[key] for key in each)) for _, limits in choices]
        return min(count, max(int(fewest), *allowed)) if allowed else count

    def _choices(self, template: Object) -> list[tuple[ResourceFlavor, Amounts]]:
        """The flavors that Kueue may give pods of this template, with the most that the queue may use of each."""
        spec, stated = mapping(template, "spec"), _BY_TOPOLOGY & {*mapping(template, "metadata", "annotations")}
        return [
            (flavor, quota.amounts)
            for queue in self.queues
            for quota in queue.quotas
            if (flavor := quota.flavor) and _selects(spec, flavor.labels, flavor.labels.keys())
            if flavor.has_topology == bool(stated) or (flavor.has_topology and queue.places_all_by_topology)
        ]

    # ----------------------------------------------------------------------------------------------------------- quota
    def never_admitted(self, run: Object) -> str:
        """Returns why Kueue would never admit a run, as a sentence; empty if it may.

        Kueue gives each set of pods one flavor of a resource group, whose labels they select, and counts sets before:
        https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/flavorassigner/flavorassigner.go
        """
        if (sets := len([*pod_sets(run)])) > MOST_SETS:
            return f"the run has {sets} sets of pods, and Kueue takes at most {MOST_SETS}"
        groups = dict.fromkeys(frozenset(quota.amounts) for quota in self.queues[0].quotas)
        for count, template in pod_sets(run):
            if lacking := [name for name in _total(template, count) if not any(name in group for group in groups)]:
                return f"queue {self.name} has no quota for {' and '.join(lacking)}, which the run requests"
        return next(filter(None, (self._without_quota(run, group) for group in groups)), "")

    def _without_quota(self, run: Object, group: Set[str]) -> str:
        """Why no flavors of a resource group are enough for the pods of a run; empty if some are."""
        sets: list[tuple[Amounts, dict[str, Amounts]]] = []
        for count, template in pod_sets(run):
            pods = self._counted(run, count, template)
            total = {name: amount for name, amount in _total(template, pods).items() if name in group}
            choices = self._choices(template)
            usable = {flavor.section.name: limits for flavor, limits in choices if limits.keys() == group}
            if not total:
                continue
            if not usable:
                where = f"no flavor of queue {self.name} has{_selected(template)}"
                return f"the pods select nodes, or a topology, that {where}"
            sets.append((total, usable))
            if not _are_assignable(sets):
                alone = all(missing(total, limits) for limits in usable.values())
                what = f"the {pods} pods of a set request" if pods > 1 else "a pod requests"
                return self._too_large(what if alone else f"beside the sets before it, {what}", total, usable)
        return ""

    def _too_large(self, what: str, total: Amounts, usable: Mapping[str, Amounts]) -> str:
        def share(resource: str) -> Fraction:
            return max(total[resource] / (limits.get(resource) or Fraction(1, 1000)) for limits in usable.values())

        resource = max(total, key=share)
        has = {name: readable(resource, limits.get(resource, NONE)) for name, limits in usable.items()}
        return (
            f"{what} {readable(resource, total[resource])} of {resource}, and queue {self.name} has "
            f"{', '.join(f'{amount} in flavor {name}' for name, amount in has.items())}. Kueue gives each set of pods "
            "one flavor"
        )

    # ----------------------------------------------------------------------------------------------------------- nodes
    def pools_for(self, template: Object) -> list[NodePool]:
        """Returns the pools whose nodes a pod of this template selects, by labels that GKE sets."""
        pools = [pool for flavor, _ in self._choices(template) for pool in flavor.pools]
        return [pool for pool in pools if self._is_selected(pool, template)]

    @cached_property
    def _labels_of_pools(self) -> Set[str]:
        """The labels that tell nodes of pools apart."""
        return {*_NOT_OF_SYSTEM, *(key for pool in self.stack.node_pools for key in node_labels(pool.shape))}

    def _is_selected(self, pool: NodePool, template: Object) -> bool:
        return _selects(mapping(template, "spec"), node_labels(pool.shape), self._labels_of_pools)

    def without_nodes(self, pods: int, template: Object) -> str:
        """Returns why no flavor has nodes for equal pods, as a sentence; empty if one does, or if it is not known."""
        choices, total = self._choices(template), _total(template, pods)
        if self.name and (not total or len({frozenset(limits) for _, limits in choices}) > 1):
            return ""  # Kueue gives it no flavor, or several at once
        if not self.name and any(self._is_selected(pool, template) for pool in self.stack.node_pools):
            return ""
        able = [flavor for flavor, limits in choices if not missing(total, limits)] if self.name else []
        short = [lacking[0] for _, limits in choices if (lacking := missing(total, limits))]
        reasons = [self._lacks(flavor, pods, template) for flavor in able or [flavor for flavor, _ in choices]]
        if not choices and not self.name:
            reasons.append(f"the pods select nodes that no flavor of any queue has{_selected(template)}")
        if not reasons or not all(reasons):
            return ""
        needed = f"{readable(short[0], total[short[0]])} of {short[0]}" if able and short else ""
        only = f"flavor {able[0].section.name} alone has quota for {needed}, and " if needed else ""
        return f"{only}{reasons[0]}. They would stay pending"

    def _lacks(self, flavor: ResourceFlavor, pods: int, template: Object) -> str:
        """Why the nodes of a flavor hold no such pods; empty if they may."""
        request, spec, name = _requested(template), mapping(template, "spec"), flavor.section.name
        if flavor.section.accelerator:
            return self._without_a_machine(request, flavor.section.accelerator)
        if not flavor.pools:  # any node: what selects those of a pool or of a compute class finds none
            known = self.stack.cluster.mode == "standard" and not self.stack.settings.compute_classes
            if known and not _selects(spec, {}, _NOT_OF_SYSTEM):
                return f"the pods select nodes that flavor {name} has not{_selected(template)}"
            asked = next((key for key in ACCELERATORS if known and request.get(key)), "")
            return f"the pods request {asked}, which the nodes of flavor {name} have not" if asked else ""
        selected = [pool for pool in flavor.pools if self._is_selected(pool, template)]
        if not selected:
            return f"the pods select nodes that no pool of flavor {name} has{_selected(template)}"
        allowed = [pool for pool in selected if _tolerates(spec, request, flavor, pool)]
        if not allowed:
            taint = node_taints(selected[0].shape)[0].key
            return f"the pods request no {taint}, and the taint {taint} keeps others off the nodes of flavor {name}"
        pool = min(allowed, key=lambda pool: len(missing(request, pool.room)))
        if lacking := missing(request, pool.room):
            amount, has = (readable(lacking[0], amounts.get(lacking[0], NONE)) for amounts in (request, pool.room))
            return (
                f"a pod requests {amount} of {lacking[0]}, and a node of pool {pool.section.name} "
                f"({pool.shape.machine_type}) has {has} for pods"
            )
        most = sum(_pods_of(pool, request) for pool in allowed)
        names = " and ".join(pool.section.name for pool in allowed)
        return f"{pods} pods run at once, and pool {names} has nodes for {most}" if pods > most else ""

    def _without_a_machine(self, request: Amounts, gpu: str) -> str:
        """Why no machine with a GPU type holds a pod; empty if one does."""
        find = shape.autopilot_machine if self.stack.cluster.is_autopilot else shape.smallest_machine
        try:
            find(gpu, int(request.get(shape.NVIDIA_GPU, 0)), request.get("cpu", NONE), request.get("memory", NONE))
        except LookupError as error:
            return str(error)
        return ""


def _are_assignable(sets: Sequence[tuple[Amounts, Mapping[str, Amounts]]]) -> bool:
    """Whether each set of pods can have a flavor beside the others. True if that is not known after many tries."""
    tries = 0

    def place(index: int, left: Mapping[str, Amounts]) -> bool:
        nonlocal tries
        tries += 1
        if index == len(sets) or tries > MOST_TRIES:
            return True
        total, usable = sets[index]
        for name in usable:
            if not missing(total, left[name]):
                rest = {resource: amount - total.get(resource, NONE) for resource, amount in left[name].items()}
                if place(index + 1, {**left, name: rest}):
                    return True
        return False

    return place(0, {name: limits for _, usable in sets for name, limits in usable.items()})


def _total(template: Object, pods: int) -> Amounts:
    """What equal pods request together, without the FUSE sidecar, which the driver adds to pods later."""
    return {name: amount * pods for name, amount in requests(mapping(template, "spec")).items() if amount * pods}


def _tolerates(spec: Object, request: Amounts, flavor: ResourceFlavor, pool: NodePool) -> bool:
    """Whether pods may run on the nodes of a pool. GKE tolerates the taint of accelerators that they request."""
    stated = {entry.get("key") for entry in items(spec, "tolerations")}
    # Kueue gives pods the tolerations of such a flavor.
    tolerated = {flavor.queued_resource, *((shape.GPU_TAINT.key,) if flavor.has_topology else ())}
    taints = [taint.key for taint in node_taints(pool.shape) if taint.key in ACCELERATORS]
    return all(request.get(key) or {key, None} & stated or key in tolerated for key in taints)


def _pods_of(pool: NodePool, request: Amounts) -> int:
    """How many such pods the nodes of a pool hold, at its largest size."""
    each = min((pool.room.get(name, NONE) // amount for name, amount in request.items() if amount), default=1)
    return int(each) * pool.max_nodes if not missing(request, pool.room) else 0


def _requested(template: Object) -> Amounts:
    """What a pod requests on its node, with the FUSE sidecar that the driver adds."""
    total = requests(mapping(template, "spec"))
    meta = {"metadata": mapping(template, "metadata")}
    if annotation(meta, fuse.VOLUMES) == "true":
        defaults = fuse.SIDECAR_DEFAULTS.items()
        sidecar = {name: annotation(meta, f"{fuse.PREFIX}{name}-limit") or default for name, default in defaults}
        total = added(total, amounts(sidecar))
    return total


def _selects(spec: Object, labels: Mapping[str, str], keys: Collection[str]) -> bool:
    """Whether a pod selects nodes with these labels. Only these keys count."""
    if any(labels.get(key) != text for key, text in mapping(spec, "nodeSelector").items() if key in keys):
        return False
    terms = items(spec, "affinity", "nodeAffinity", DURING_SCHEDULING, "nodeSelectorTerms")
    counted = [[entry for entry in items(term, "matchExpressions") if entry.get("key") in keys] for term in terms]
    return not counted or any(not entries or matches({"matchExpressions": entries}, labels) for entries in counted)


def _selected(template: Object) -> str:
    stated = [f"{key}={text}" for key, text in mapping(template, "spec", "nodeSelector").items()]
    stated += sorted(_BY_TOPOLOGY & {*mapping(template, "metadata", "annotations")})
    return f": {', '.join(stated)}" if stated else ""
