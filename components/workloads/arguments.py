"""The arguments that servers and runs share: their namespace, and the nodes that their pods run on."""

from collections.abc import Mapping
from typing import Any, TypeVar

import pulumi

from gke_ai.catalog.nodes.shape import GKE_NODEPOOL
from gke_ai.components.arguments import Input
from gke_ai.components.cluster.connection import InCluster
from gke_ai.components.pools.compute_class import ComputeClass
from gke_ai.components.pools.gpu_pool import GpuNodePool
from gke_ai.components.pools.node_pool import NodePoolComponent
from gke_ai.components.pools.tpu_pool import TpuPoolComponent
from gke_ai.components.queues.namespace import WorkloadNamespace
from gke_ai.components.support.alone import check_alone, stack_of
from gke_ai.settings.model import TokenSecret, Workload
from gke_ai.settings.model.base import DnsLabel
from gke_ai.settings.resolved import Placed

W = TypeVar("W", bound=Workload)


class WorkloadArguments(InCluster):
    """The arguments of every server and run."""

    name: DnsLabel = ""
    """Name of the workload. Default: the component's name."""
    namespace: WorkloadNamespace | DnsLabel
    """Namespace of the workload. A `WorkloadNamespace` brings its token, its queues and its buckets."""
    node_selector: Mapping[str, str] | None = None
    """Labels of the nodes to run on. Default: those of the pool, compute class, accelerator or slice."""
    kubeconfig: Input[str] | None = None
    """Kubeconfig of the cluster, in which an update waits. Default: that of `cluster`, else no wait."""
    placed: Placed[Any] | None = None
    """The nodes as a whole stack decides them. Default: as this component alone decides them."""

    @property
    def space(self) -> WorkloadNamespace | None:
        """The namespace, if it is a component."""
        return self.namespace if isinstance(self.namespace, WorkloadNamespace) else None

    def watched(self) -> pulumi.Input[str] | None:
        """Kubeconfig of the cluster in which an update waits."""
        cluster = self.place()
        return self.kubeconfig or (cluster.kubeconfig if cluster else None)

    def workload(self, kind: type[W], component: str) -> Placed[W]:
        """The section with its nodes, as the component's rules allow them. Raises Refused otherwise."""
        if self.placed is not None:
            return self.placed
        section, cluster, others = self._with_token(self.section(kind)), self.place(), self.components()
        nodes = [other.section for other in others if isinstance(other, NodePoolComponent | ComputeClass)]
        known = cluster.section if cluster else None
        # Labels that the caller states may select any hardware.
        check_alone(component, section, known, nodes, ("accelerator", "tpu") if self.node_selector else ())
        (placed,) = stack_of(section, *nodes, cluster=known).of(kind)
        return placed

    def _with_token(self, section: W) -> W:
        """The section, whose pods read the token of the namespace if the arguments name no other."""
        space, fields = self.space, type(section).model_fields
        if "token_secret" in self.model_fields_set or "token_secret" not in fields:
            return section
        token = space.token_secret if space else None
        return section.model_copy(update={"token_secret": token})

    def selected(self, placed: Placed[W]) -> Mapping[str, str]:
        """Labels of the nodes to run on."""
        if self.node_selector is not None:
            return self.node_selector
        pool = getattr(self, "pool", None)
        if isinstance(pool, str) and self.placed is None:
            return {**placed.node_selector, GKE_NODEPOOL: pool}
        # Beside another pool of the program, only its own label selects the pool.
        own = pool.section.selector if isinstance(pool, NodePoolComponent) else {}
        return {**placed.node_selector, **own}


class WithToken(WorkloadArguments):
    """The arguments of a workload whose pods read the Hugging Face token."""

    token_secret: TokenSecret | None = None
    """Secret with the Hugging Face token. Default: that of a `WorkloadNamespace`, else no token."""


class OnGpus(WithToken):
    """The arguments of a workload on GPUs."""

    pool: GpuNodePool | str | None = None
    """GPU pool that the workload runs on, or its name."""
    compute_class: ComputeClass | str | None = None
    """Compute class that provides the nodes, or its name."""


class OnTpus(WorkloadArguments):
    """The arguments of a workload on one TPU slice."""

    pool: TpuPoolComponent | str | None = None
    """TPU pool that the workload runs on, or its name, beside which `tpu` says the slice."""
