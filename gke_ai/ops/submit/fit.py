"""Whether the pods of a manifest fit a node that their queue can give them, as far as the stack publishes its nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from gke_ai.catalog import fuse
from gke_ai.catalog.nodes import NVIDIA_GPU, autopilot_machine, node_labels, smallest_machine
from gke_ai.catalog.quantities import readable
from gke_ai.kube.objects import Object, annotation
from gke_ai.kube.pods import amounts, requests
from gke_ai.kube.values import mapping
from gke_ai.settings.published import Published, resolved
from gke_ai.settings.rules.fit import missing
from gke_ai.settings.stack import NodePool, ResolvedStack

Amounts = Mapping[str, Fraction]
NONE = Fraction(0)


@dataclass(frozen=True)
class Fit:
    """The nodes of a local queue."""

    stack: ResolvedStack
    pools: tuple[NodePool, ...]
    gpu_types: tuple[str, ...]
    """GPU types whose machines Google chooses."""

    @classmethod
    def of_queue(cls, published: Published, queue: str) -> Fit | None:
        """Returns the nodes of a queue, or None if some of its flavors take nodes that the stack does not name."""
        stack = resolved(published)
        named = next((item.cluster_queue for item in stack.queues.local_queues if item.name == queue), None)
        quotas = [quota for item in stack.cluster_queues if item.section.name == named for quota in item.quotas]
        flavors = [quota.flavor for quota in quotas if quota.flavor]
        if not flavors or any(not flavor.pools and not flavor.section.accelerator for flavor in flavors):
            return None
        pools = tuple(pool for flavor in flavors for pool in flavor.pools)
        types = tuple(flavor.section.accelerator for flavor in flavors if flavor.section.accelerator)
        return cls(stack, pools, types)

    def pools_for(self, template: Object) -> list[NodePool]:
        """Returns the pools whose nodes a pod of this template selects."""
        selector = mapping(template, "spec", "nodeSelector")
        return [pool for pool in self.pools if not _differs(selector, node_labels(pool.shape))]

    def problem(self, template: Object) -> str:
        """Returns why no node holds a pod of this template, as a sentence; empty if one does."""
        request = _requested(template)
        pools = self.pools_for(template)
        gaps = [(missing(request, pool.room), pool) for pool in pools]
        reasons = [self._without_a_machine(request, gpu) for gpu in self.gpu_types]
        if not (gaps or reasons) or any(not lacking for lacking, _ in gaps) or "" in reasons:
            return ""
        if not gaps:
            return f"{reasons[0]}. The pods would stay pending"
        lacking, pool = min(gaps, key=lambda gap: len(gap[0]))
        resource = lacking[0]
        amount, has = request[resource], pool.room.get(resource, NONE)
        return (
            f"a pod requests {readable(resource, amount)} of {resource}, and a node of pool {pool.section.name} "
            f"({pool.shape.machine_type}) has {readable(resource, has)} for pods. It would stay pending"
        )

    def _without_a_machine(self, request: Amounts, gpu: str) -> str:
        """Why no machine with a GPU type holds a pod; empty if one does."""
        find = autopilot_machine if self.stack.cluster.is_autopilot else smallest_machine
        try:
            find(gpu, int(request.get(NVIDIA_GPU, 0)), request.get("cpu", NONE), request.get("memory", NONE))
        except LookupError as error:
            return str(error)
        return ""


def _requested(template: Object) -> Amounts:
    """What a pod requests on its node, with the FUSE sidecar that the driver adds."""
    total = requests(mapping(template, "spec"))
    meta = {"metadata": mapping(template, "metadata")}
    if annotation(meta, fuse.VOLUMES) == "true":
        defaults = fuse.SIDECAR_DEFAULTS.items()
        sidecar = {name: annotation(meta, f"{fuse.PREFIX}{name}-limit") or default for name, default in defaults}
        total |= {name: total.get(name, NONE) + amount for name, amount in amounts(sidecar).items()}
    return total


def _differs(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return any(labels.get(key, text) != text for key, text in selector.items())
