"""Whether a local queue can ever admit the pods of a manifest, and whether some node holds them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from gke_ai.catalog import fuse
from gke_ai.catalog.nodes import NVIDIA_GPU, autopilot_machine, node_labels, smallest_machine
from gke_ai.catalog.quantities import readable
from gke_ai.catalog.quota import MIN_PARALLELISM
from gke_ai.catalog.selectors import matches
from gke_ai.kube.objects import Object, annotation
from gke_ai.kube.pods import amounts, pod_sets, requests, templates
from gke_ai.kube.values import items, mapping
from gke_ai.manifests.job import DURING_SCHEDULING
from gke_ai.settings.published import Published, resolved
from gke_ai.settings.rules.fit import missing
from gke_ai.settings.stack import NodePool, Queue, ResolvedStack, ResourceFlavor

Amounts = Mapping[str, Fraction]
NONE = Fraction(0)
MOST_TRIES = 10_000  # ways to give flavors to sets of pods. Beyond, Kueue says whether one is possible


@dataclass(frozen=True)
class Fit:
    """The quotas and the nodes of a local queue; those of all queues for a run without one."""

    name: str
    stack: ResolvedStack
    queues: Sequence[Queue]

    @classmethod
    def of_queue(cls, published: Published, queue: str) -> Fit:
        """Returns what a local queue has. A queue that the stack does not publish has nothing."""
        stack = resolved(published)
        named = {item.cluster_queue for item in stack.queues.local_queues if queue in ("", item.name)}
        return cls(queue, stack, [item for item in stack.cluster_queues if item.section.name in named])

    def problems(self, run: Object) -> Iterator[str]:
        """Yields why no quota or no node is enough for a run, a sentence each."""
        if len(self.queues) == 1 and self.name and (never := self.never_admitted(run)):
            yield f"{never}. Kueue would never admit it"
        yield from dict.fromkeys(filter(None, map(self.without_node, templates(run["kind"], run))))

    # ----------------------------------------------------------------------------------------------------------- quota
    def never_admitted(self, run: Object) -> str:
        """Returns why Kueue would never admit a run, as a sentence; empty if it may.

        Kueue gives each set of pods one flavor, whose labels its pods select, and counts the sets before it:
        https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/flavorassigner/flavorassigner.go
        """
        quotas = [(quota.flavor, quota.amounts) for quota in self.queues[0].quotas if quota.flavor]
        sets: list[tuple[Amounts, dict[str, Amounts]]] = []
        for count, template in pod_sets(run):
            fewest = annotation(run, MIN_PARALLELISM)
            pods = min(count, int(fewest)) if fewest.isdigit() else count
            spec = mapping(template, "spec")
            total = {resource: amount * pods for resource, amount in requests(spec).items() if amount * pods}
            if lacking := [resource for resource in total if all(resource not in amounts for _, amounts in quotas)]:
                return f"queue {self.name} has no quota for {' and '.join(lacking)}, which the run requests"
            usable = {
                flavor.section.name: amounts
                for flavor, amounts in quotas
                if _selects(spec, flavor.labels, flavor.labels.keys())
            }
            if not usable:
                return f"the pods select nodes that no flavor of queue {self.name} has{_selected(spec)}"
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
    def _flavors(self, template: Object) -> list[ResourceFlavor]:
        """The flavors that a pod of this template may have, by its node selector and their quotas."""
        spec = mapping(template, "spec")
        wanted = [resource for resource, amount in requests(spec).items() if amount]
        return [
            flavor
            for queue in self.queues
            for quota in queue.quotas
            if (flavor := quota.flavor) and _selects(spec, flavor.labels, flavor.labels.keys())
            if all(quota.amounts.get(resource) for resource in wanted)
        ]

    def pools_for(self, template: Object) -> list[NodePool]:
        """Returns the pools whose nodes a pod of this template selects, by labels that GKE sets."""
        pools = [pool for flavor in self._flavors(template) for pool in flavor.pools]
        labels = {pool.section.name: node_labels(pool.shape) for pool in pools}
        keys = {key for own in labels.values() for key in own}
        return [pool for pool in pools if _selects(mapping(template, "spec"), labels[pool.section.name], keys)]

    def without_node(self, template: Object) -> str:
        """Returns why no node holds a pod of this template, as a sentence; empty if one does, or is not known."""
        request, spec, flavors = _requested(template), mapping(template, "spec"), self._flavors(template)
        if not self.queues or (self.name and not flavors):
            return ""  # the queue admits none
        if any(not flavor.pools and not flavor.section.accelerator for flavor in flavors):
            return ""  # some nodes are not named
        gaps = [(missing(request, pool.room), pool) for pool in self.pools_for(template)]
        types = sorted({flavor.section.accelerator for flavor in flavors if flavor.section.accelerator})
        reasons = [self._without_a_machine(request, gpu) for gpu in types]
        if any(not lacking for lacking, _ in gaps) or "" in reasons:
            return ""
        if gaps:
            lacking, pool = min(gaps, key=lambda gap: len(gap[0]))
            resource = lacking[0]
            amount, has = request[resource], pool.room.get(resource, NONE)
            return (
                f"a pod requests {readable(resource, amount)} of {resource}, and a node of pool {pool.section.name} "
                f"({pool.shape.machine_type}) has {readable(resource, has)} for pods. It would stay pending"
            )
        none = f"the pods select nodes that no flavor of {self.name or 'any queue'} has{_selected(spec)}"
        return f"{(*reasons, none)[0]}. They would stay pending"

    def _without_a_machine(self, request: Amounts, gpu: str) -> str:
        """Why no machine with a GPU type holds a pod; empty if one does."""
        find = autopilot_machine if self.stack.cluster.is_autopilot else smallest_machine
        try:
            find(gpu, int(request.get(NVIDIA_GPU, 0)), request.get("cpu", NONE), request.get("memory", NONE))
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


def _requested(template: Object) -> Amounts:
    """What a pod requests on its node, with the FUSE sidecar that the driver adds."""
    total = requests(mapping(template, "spec"))
    meta = {"metadata": mapping(template, "metadata")}
    if annotation(meta, fuse.VOLUMES) == "true":
        defaults = fuse.SIDECAR_DEFAULTS.items()
        sidecar = {name: annotation(meta, f"{fuse.PREFIX}{name}-limit") or default for name, default in defaults}
        total |= {name: total.get(name, NONE) + amount for name, amount in amounts(sidecar).items()}
    return total


def _selects(spec: Object, labels: Mapping[str, str], keys: Collection[str]) -> bool:
    """Whether a pod selects nodes with these labels. Only these keys count."""
    if any(labels.get(key) != text for key, text in mapping(spec, "nodeSelector").items() if key in keys):
        return False
    terms = items(spec, "affinity", "nodeAffinity", DURING_SCHEDULING, "nodeSelectorTerms")
    counted = [[entry for entry in items(term, "matchExpressions") if entry.get("key") in keys] for term in terms]
    return not counted or any(not entries or matches({"matchExpressions": entries}, labels) for entries in counted)


def _selected(spec: Object) -> str:
    stated = [f"{key}={text}" for key, text in mapping(spec, "nodeSelector").items()]
    return f": {', '.join(stated)}" if stated else ""
