"""The arguments that servers and runs share: their namespace, and the nodes that their pods run on."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pulumi

from gke_ai.catalog.nodes.shape import GKE_NODEPOOL
from gke_ai.components.arguments import Input, Part, Refused
from gke_ai.components.bucket import ModelBucket
from gke_ai.components.cluster.connection import InCluster, kubeconfig_in
from gke_ai.components.pools.compute_class import ComputeClass
from gke_ai.components.pools.gpu_pool import GpuNodePool
from gke_ai.components.pools.node_pool import NodePoolComponent
from gke_ai.components.pools.tpu_pool import TpuPoolComponent
from gke_ai.components.queues.namespace import WorkloadNamespace
from gke_ai.components.support.alone import check_alone, stack_of
from gke_ai.settings.model import LocalQueue, Section, TokenSecret, Workload
from gke_ai.settings.model.base import DnsLabel
from gke_ai.settings.problems import Problem, nearest
from gke_ai.settings.resolved import Placed

W = TypeVar("W", bound=Workload)


@dataclass(frozen=True)
class SecretKey:
    """A key of a Secret in the namespace of the workload."""

    secret: str
    """Name of the Secret."""
    key: str
    """Key in the Secret."""


class PodParts(Part):
    """Further parts of the pods of a server or a run, each as Kubernetes has it in a manifest."""

    tolerations: Sequence[Mapping[str, Any]] = ()
    """Tolerations, beside those of the nodes that the workload runs on."""
    affinity: Mapping[str, Any] | None = None
    """Affinity. Not for a run that is restricted to some of several pools, which has its own."""
    volumes: Sequence[Mapping[str, Any]] = ()
    """Volumes."""
    volume_mounts: Sequence[Mapping[str, Any]] = ()
    """Mounts of these volumes in the container with the model or the program."""
    secret_env: Mapping[str, SecretKey] = {}
    """Environment variables of this container, each with the key of a Secret that provides its value."""
    sidecars: Sequence[Mapping[str, Any]] = ()
    """Further containers. In a run, one without `restartPolicy: Always` must end for the run to end: such a container
    goes among the init containers, which Kubernetes then keeps running."""

    @property
    def content(self) -> str:
        """What the parts are, as text. Empty for none."""
        stated = self.model_dump(mode="json", exclude_unset=True)
        return json.dumps(stated, sort_keys=True) if stated else ""

    def added_to(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """The spec of a pod with these parts."""
        first, *others = spec["containers"]
        mounts = "volume_mounts" if "volume_mounts" in first else "volumeMounts"
        variables = [
            {"name": name, "valueFrom": {"secretKeyRef": {"name": of.secret, "key": of.key}}}
            for name, of in self.secret_env.items()
        ]
        first = {
            **first,
            **({"env": [*first.get("env", ()), *variables]} if variables else {}),
            **({mounts: [*first.get(mounts, ()), *self.volume_mounts]} if self.volume_mounts else {}),
        }
        running = [container for container in self.sidecars if container.get("restartPolicy") == "Always"]
        beside = [container for container in self.sidecars if container not in running]
        initial = "init_containers" if mounts == "volume_mounts" else "initContainers"
        lists = {"tolerations": self.tolerations, "volumes": self.volumes, initial: running}
        return {
            **spec,
            "containers": [first, *others, *beside],
            **{key: [*spec.get(key, ()), *further] for key, further in lists.items() if further},
            **({"affinity": self.affinity} if self.affinity else {}),
        }


class WorkloadArguments(InCluster):
    """The arguments of every server and run."""

    name: DnsLabel = ""
    """Name of the workload. Default: the component's name."""
    namespace: WorkloadNamespace | DnsLabel
    """Namespace of the workload. A `WorkloadNamespace` brings its token, its queues and its buckets."""
    env: Mapping[str, Input[str]] = {}
    labels: Mapping[str, Input[str]] = {}
    service_account: Input[DnsLabel] = "default"
    node_selector: Mapping[str, str] | None = None
    """Labels of the nodes to run on. Default: those of the pool, compute class, accelerator or slice."""
    kubeconfig: Input[str] | None = None
    """Kubeconfig of the cluster, in which an update waits. Default: that of `cluster`, else no wait."""
    pod: PodParts = PodParts()
    """Further parts of the pods: volumes, sidecars, tolerations, variables from Secrets."""
    placed: Placed[Any] | None = None
    """The nodes as a whole stack decides them. Default: as this component alone decides them."""

    @property
    def space(self) -> WorkloadNamespace | None:
        """The namespace, if it is a component."""
        return self.namespace if isinstance(self.namespace, WorkloadNamespace) else None

    def watched(self) -> pulumi.Input[str] | None:
        """Kubeconfig of the cluster in which an update waits."""
        return kubeconfig_in(self.kubeconfig, self.place())

    def workload(self, kind: type[W], component: str) -> Placed[W]:
        """The section with its nodes, as the component's rules allow them. Raises Refused otherwise."""
        if self.placed is not None:
            return self.placed
        section, cluster, others = self._with_token(self._by_hardware(kind)), self.place(), self.components()
        if self.space is not None and (mistakes := [*without_access(section, self.space, others)]):
            raise Refused(component, *mistakes)
        section._further = self.pod.content
        nodes = [other.section for other in others if isinstance(other, NodePoolComponent | ComputeClass)]
        known = cluster.section if cluster else None
        # Labels that the caller states may select any hardware.
        check_alone(component, section, known, nodes, ("accelerator", "tpu") if self.node_selector else ())
        if self.space is not None and (mistakes := [*without_quota(section, self.space, nodes)]):
            raise Refused(component, *(replace(it, path=own_path(it.path, component)) for it in mistakes))
        (placed,) = stack_of(section, *nodes, cluster=known).of(kind)
        return placed

    def _by_hardware(self, kind: type[W]) -> W:
        """The section without pools that are only names: what is beside them says which nodes they have."""
        section, named = self.section(kind), dict[str, object]()
        if isinstance(getattr(self, "pool", None), str):
            named["pool"] = None
        if any(isinstance(pool, str) for pool in getattr(self, "pools", ())):
            named["pools"] = []
        return section.model_copy(update=named)

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


def without_access(section: Workload, space: WorkloadNamespace, others: Sequence[pulumi.Resource]) -> Iterator[Problem]:
    """A problem for each thing that the workload names and its namespace does not have."""
    if section.queue is not None and space.queues and section.queue not in space.queues:
        cause = f"namespace {space.called} has no local queue {section.queue}. Kueue would never admit the workload"
        yield Problem("queue", cause, nearest(section.queue, space.queues))
    for bucket in others:
        if isinstance(bucket, ModelBucket) and not space.may_use(bucket):
            cause = f"namespace {space.called} has no role on bucket {bucket.called}. The pods could not mount it"
            yield Problem("volume", cause, "Pass the bucket among the buckets of the WorkloadNamespace")


def without_quota(section: Workload, space: WorkloadNamespace, nodes: Sequence[Section]) -> Iterator[Problem]:
    """A problem for each resource of which the cluster queue never has enough, if it is one over node pools."""
    from gke_ai.settings.rules import fit

    resolved, queue = space.kueue.resolved if space.kueue else None, section.queue or ""
    queues = resolved.settings.queues if resolved else None
    if resolved is None or queues is None or space.queues.get(queue) not in [it.name for it in queues.cluster_queues]:
        return
    local = LocalQueue(name=queue, namespace=space.called, cluster_queue=space.queues[queue])
    pools = [*resolved.pools, *(section for section in nodes if section not in resolved.pools)]
    reached = queues.model_copy(update={"local_queues": [local]})
    yield from fit.queues_hold_what_must_run_at_once.problems(
        stack_of(section, reached, *pools, cluster=resolved.cluster)
    )


def own_path(path: str, component: str) -> str:
    """The argument of a component that a path means, in which a queue's quota is its queue."""
    return path.removeprefix(f"{component}.") if path.startswith(component) else "queue"


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
