"""The stack: decides each of its pools, workloads, queues, routes and tenants once, from the sections."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeGuard, TypeVar

from gke_ai.catalog.kueue.cohort_tree import Member
from gke_ai.settings import model
from gke_ai.settings.calibration import Calibration
from gke_ai.settings.resolved.autoscaling import ScaledServer
from gke_ai.settings.resolved.buckets import BucketGrants, Download, downloads_of, granted
from gke_ai.settings.resolved.gateway import Routed, routes_of
from gke_ai.settings.resolved.pools import NodePool, with_networks
from gke_ai.settings.resolved.queues import Queue, ResourceFlavor, flavors_of, priority_of, trees_of
from gke_ai.settings.resolved.tenants import Space, space_of
from gke_ai.settings.resolved.workloads import Placed

AnyWorkload = TypeVar("AnyWorkload", bound=model.Workload)
# Every cluster has this namespace.
DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True)
class ResolvedStack:
    """A stack with every decision that follows from its sections, each made once.

    A rule or a component names the items that it takes: sections of the configuration, or items of this class.
    """

    settings: model.Settings
    """The sections, as written."""
    measured: Calibration = field(default_factory=Calibration)
    """Figures of the calibration file; empty if the configuration names no file."""
    unresolved: model.Unresolved = field(default_factory=model.Unresolved)
    """Sections and keys that could not be parsed or resolved. Empty in every stack that `load` returns."""

    @property
    def cluster(self) -> model.Cluster:
        """The section of the cluster."""
        return self.settings.cluster

    @cached_property
    def queues(self) -> model.Queues:
        """The section of queues; an empty one if the stack has none."""
        return self.settings.queues or model.Queues()

    @cached_property
    def pools(self) -> list[model.Pool]:
        """Sections of all node pools: GPU pools, then TPU pools, with the RDMA network that runs need."""
        return with_networks(self.settings.pools, self.settings.training, self.settings.compute_classes)

    @cached_property
    def node_pools(self) -> list[NodePool]:
        """All node pools with their zones and sizes."""
        return [
            NodePool(pool, pool.zones_in(self.cluster), pool.max_nodes(self.cluster), self.measured)
            for pool in self.pools
        ]

    # ------------------------------------------------------------------------------------------------------- queues
    @cached_property
    def flavors(self) -> list[ResourceFlavor]:
        """The flavors with their pools."""
        return flavors_of(self.queues, {pool.section.name: pool for pool in self.node_pools})

    @cached_property
    def _trees(self) -> tuple[list[Queue], dict[str, Member]]:
        return trees_of(self.queues, self.flavors, self.measured)

    @property
    def cluster_queues(self) -> list[Queue]:
        """The cluster queues with their quotas, in the trees of their cohorts."""
        return self._trees[0]

    @property
    def counted(self) -> set[str]:
        """The resources that have quota."""
        return {name for queue in self.cluster_queues for quota in queue.quotas for name in quota.texts}

    @property
    def cohorts(self) -> dict[str, Member]:
        """The cohorts by name, also those that only a queue or another cohort names."""
        return self._trees[1]

    @cached_property
    def _queue_by_local(self) -> dict[tuple[str, str], Queue]:
        """The cluster queue of each local queue, by namespace and name. The first of two with one name counts."""
        by_name = {queue.section.name: queue for queue in reversed(self.cluster_queues)}
        locals_ = reversed(self.queues.local_queues)
        return {
            (local.namespace, local.name): by_name[local.cluster_queue]
            for local in locals_
            if local.cluster_queue in by_name
        }

    @property
    def held_queues(self) -> list[model.LocalQueue]:
        """Local queues that the ledger holds at times: those with hours, and of tenants with a budget."""
        spaces = {tenant.name for tenant in self.settings.tenants if tenant.budget}
        return [queue for queue in self.queues.local_queues if queue.hours or queue.namespace in spaces]

    # ----------------------------------------------------------------------------------------------------- workloads
    @cached_property
    def runs(self) -> list[model.Run]:
        """All training runs and batch Jobs, in the order in which they are created."""
        return [*self.settings.training, *self.settings.batch]

    @cached_property
    def workloads(self) -> list[model.Workload]:
        """All servers, training runs and batch Jobs, in the order of the configuration."""
        return [*self.settings.serving, *self.runs]

    @cached_property
    def servers(self) -> list[Placed[model.AnyServer]]:
        """The model servers with their nodes, queues and priorities."""
        return [self._place(server) for server in self.settings.serving]

    @cached_property
    def placed_runs(self) -> list[Placed[model.Run]]:
        """All runs with their nodes, queues and priorities."""
        return [self._place(run) for run in self.runs]

    @cached_property
    def placed(self) -> list[Placed[model.Workload]]:
        """All workloads with their nodes, queues and priorities."""
        return [*self.servers, *self.placed_runs]

    @cached_property
    def gpu_workloads(self) -> list[Placed[model.GpuServer | model.FineTune | model.TrainingRun]]:
        """Workloads that run on GPUs."""
        return [workload for workload in self.placed if _on_gpus(workload)]

    @cached_property
    def tpu_workloads(self) -> list[Placed[model.TpuWorkload]]:
        """Workloads that run on TPUs."""
        return [workload for workload in self.placed if _on_tpus(workload)]

    @cached_property
    def tpu_runs(self) -> list[Placed[model.Multislice | model.TpuBatch]]:
        """Multislice runs and batch Jobs."""
        return [*self.of(model.Multislice), *self.of(model.TpuBatch)]

    def of(self, kind: type[AnyWorkload]) -> list[Placed[AnyWorkload]]:
        """The workloads of a kind."""
        return [workload for workload in self.placed if _is_of(workload, kind)]

    def _place(self, workload: AnyWorkload) -> Placed[AnyWorkload]:
        nodes = workload.nodes_among(self.pools, self.settings.compute_classes)
        names = {pool.name for pool in nodes.pools}
        limits = [a.max_replicas for a in self.settings.autoscaling if not workload.ends and a.server == workload.name]
        return Placed(
            workload,
            nodes,
            tuple(pool for pool in self.node_pools if pool.section.name in names and pool.section in nodes.pools),
            self._queue_by_local.get((workload.namespace, workload.queue or "")),
            priority_of(workload, self.queues.priority_classes),
            next(iter(limits), None),
            self.cluster.is_autopilot,
        )

    @cached_property
    def jobsets(self) -> list[model.Run]:
        """Sections of the runs that are JobSets."""
        return [run for run in self.runs if run.object_kind == "JobSet"]

    @cached_property
    def bucket_mounts(self) -> list[tuple[model.Run, model.BucketMount]]:
        """Runs with each bucket that they mount."""
        return [(run, mount) for run in self.runs for mount in run.bucket_mounts]

    @cached_property
    def downloads(self) -> list[Download]:
        """Models that Jobs download into buckets."""
        return downloads_of(self.settings.serving)

    @cached_property
    def scaled(self) -> list[ScaledServer]:
        """The autoscalers with their targets."""
        servers = {server.section.name: server for server in reversed(self.servers)}
        return [
            ScaledServer(autoscaler, servers.get(autoscaler.server or "")) for autoscaler in self.settings.autoscaling
        ]

    # --------------------------------------------------------------------------------- gateway, namespaces and tenants
    @cached_property
    def routes(self) -> list[Routed]:
        """The routes of the gateway with their servers."""
        return routes_of(self.settings.gateway, self.settings.serving)

    @cached_property
    def gateway_servers(self) -> list[model.AnyServer]:
        """The servers behind the gateway, in the order of the configuration."""
        named = {routed.server for route in self.routes for routed in route.section.servers}
        return [server for server in self.settings.serving if server.name in named]

    @cached_property
    def keyed_servers(self) -> list[model.AnyServer]:
        """The servers that require an API key from their clients."""
        gateway = self.settings.gateway
        return self.gateway_servers if gateway is not None and gateway.api_key else []

    @property
    def gateway_namespace(self) -> str | None:
        """The namespace of the Gateway. None without a gateway, or if no server of it exists.

        By default not that of a tenant, whose members could read the key of the certificate: one with its own name.
        """
        gateway = self.settings.gateway
        if gateway is None or gateway.namespace:
            return gateway.namespace if gateway else None
        first = next((route.namespace for route in self.routes if route.namespace), None)
        return gateway.name if any(tenant.name == first for tenant in self.settings.tenants) else first

    @cached_property
    def namespaces(self) -> list[str]:
        """All namespaces of workloads, local queues, tenants and the gateway, in the order of first use."""
        own = list(filter(None, [self.gateway_namespace]))
        used = [workload.namespace for workload in self.workloads]
        used += [queue.namespace for queue in self.queues.local_queues]
        return list(dict.fromkeys([*used, *(tenant.name for tenant in self.settings.tenants), *own]))

    @cached_property
    def own_namespaces(self) -> list[str]:
        """The namespaces that the stack creates: not those that every cluster, or the existing one, has."""
        with_queues = {queue.namespace for queue in self.queues.local_queues if queue.mode == "existing"}
        named = self.cluster.existing_namespaces if self.cluster.mode == "existing" else []
        existing = {DEFAULT_NAMESPACE, *named, *with_queues}
        return [namespace for namespace in self.namespaces if namespace not in existing]

    @cached_property
    def claims(self) -> dict[str, tuple[str, ...]]:
        """The templates by which pods claim devices, by namespace: of its runs, and of nodes of its queues."""
        names: dict[str, set[str]] = {namespace: set() for namespace in self.namespaces}
        for workload in self.placed:
            names[workload.section.namespace].update(workload.fabric.claims)
        by_queue = {queue.section.name: queue.claims for queue in self.cluster_queues}
        for queue in self.queues.local_queues:
            names[queue.namespace] |= by_queue.get(queue.cluster_queue, set())
        return {namespace: tuple(sorted(claims)) for namespace, claims in names.items()}

    @cached_property
    def granted_buckets(self) -> list[BucketGrants]:
        """The buckets with all roles on them."""
        return [granted(bucket, self.settings.tenants, self.settings.serving) for bucket in self.settings.buckets]

    @cached_property
    def spaces(self) -> list[Space]:
        """The tenants with all that they may use."""
        queues, buckets, servers = self.cluster_queues, self.granted_buckets, (self.gateway_servers, self.keyed_servers)
        return [
            space_of(tenant, self.queues, queues, buckets, self.workloads, *servers) for tenant in self.settings.tenants
        ]


def _is_of(placed: Placed[model.Workload], kind: type[AnyWorkload]) -> TypeGuard[Placed[AnyWorkload]]:
    return isinstance(placed.section, kind)


def _on_gpus(placed: Placed[model.Workload]) -> TypeGuard[Placed[model.GpuServer | model.FineTune | model.TrainingRun]]:
    return isinstance(placed.section, model.GpuWorkload)


def _on_tpus(placed: Placed[model.Workload]) -> TypeGuard[Placed[model.TpuWorkload]]:
    return isinstance(placed.section, model.TpuWorkload)
