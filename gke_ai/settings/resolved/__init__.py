"""The stack once everything is decided: pools, workloads, queues, routes and tenants, each with what follows for it.

`ResolvedStack` decides each of these once, from the sections of the configuration. Rules, components and readers take
its items.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gke_ai.catalog.engines.dashboards import MonitoredServer
from gke_ai.catalog.machines.zones import node_zones
from gke_ai.settings.calibration import Calibration
from gke_ai.settings.model import (
    AnyServer,
    BucketMount,
    Cluster,
    FineTune,
    GpuServer,
    GpuWorkload,
    JetStream,
    Multislice,
    Pool,
    Queues,
    Run,
    Server,
    Settings,
    TpuBatch,
    TpuRun,
    TpuServer,
    TpuWorkload,
    TrainingRun,
    Unresolved,
    Workload,
)
from gke_ai.settings.resolved.autoscaling import ScaledServer
from gke_ai.settings.resolved.buckets import BucketGrants, granted
from gke_ai.settings.resolved.claims import claims_of, use_nvlink
from gke_ai.settings.resolved.gateway import Routed, routes_of
from gke_ai.settings.resolved.internet import external_hosts
from gke_ai.settings.resolved.model_cache import Download, downloads_of
from gke_ai.settings.resolved.pools import NodePool, with_networks
from gke_ai.settings.resolved.queues import (
    BUILT_IN_PRIORITIES,
    Queue,
    Quota,
    ResourceFlavor,
    flavors_of,
    priority_of,
    queues_of,
)
from gke_ai.settings.resolved.tenants import Space, space_of
from gke_ai.settings.resolved.workloads import Placed

# Every cluster has this namespace.
DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True)
class ResolvedStack:
    """A stack with every decision that follows from its sections, each made once.

    A rule or a component names the items that it takes: sections of the configuration, or items of this class.
    """

    settings: Settings
    """The sections, as written."""
    measured: Calibration = field(default_factory=Calibration)
    """Figures of the calibration file; empty if the configuration names no file."""
    unresolved: Unresolved = field(default_factory=Unresolved)
    """Sections and keys that could not be parsed or resolved. Empty in every stack that `load` returns."""

    @property
    def cluster(self) -> Cluster:
        """The section of the cluster."""
        return self.settings.cluster

    @cached_property
    def queues(self) -> Queues:
        """The section of queues; an empty one if the stack has none."""
        return self.settings.queues or Queues()

    @cached_property
    def pools(self) -> list[Pool]:
        """Sections of all node pools: GPU pools, then TPU pools, with the RDMA network that runs need."""
        return with_networks(self.settings.pools, self.settings.training, self.settings.compute_classes)

    @cached_property
    def node_pools(self) -> list[NodePool]:
        """All node pools with their zones and sizes."""
        return [
            NodePool(pool, pool.zones_in(self.cluster), pool.max_nodes(self.cluster), self.measured)
            for pool in self.pools
        ]

    @cached_property
    def max_nodes(self) -> int:
        """Nodes of the stack with every pool at its maximum, without nodes that GKE creates itself."""
        system = self.cluster.system_pool
        zones = len(system.zones or node_zones(self.cluster.location)) if self.cluster.mode == "standard" else 0
        return system.nodes_per_zone * zones + sum(pool.max_nodes for pool in self.node_pools)

    # ------------------------------------------------------------------------------------------------------- queues
    @cached_property
    def flavors(self) -> list[ResourceFlavor]:
        """The flavors with their pools."""
        return flavors_of(self.queues, {pool.section.name: pool for pool in self.node_pools})

    @cached_property
    def cluster_queues(self) -> list[Queue]:
        """The cluster queues with their quotas."""
        return queues_of(self.queues, self.flavors, self.measured)

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
    def pods_ready_timeout(self) -> int:
        """Seconds in which the pods of any admitted workload must be ready; 0 for no limit."""
        stated = self.settings.queues.pods_ready_timeout_seconds if self.settings.queues else 0
        if stated is not None:
            return stated
        if self.waits_for_flex_start:
            return 0
        queued = (server.ready_timeout_seconds for server in self.settings.serving if server.queue)
        return max([_PODS_READY_SECONDS, *queued])

    @cached_property
    def waits_for_flex_start(self) -> list[str]:
        """Flavors, pools and compute classes whose flex-start nodes may start days after Kueue admits their pods.

        With queued provisioning the nodes exist before Kueue admits the workload.
        """
        found = []
        for flavor in self.flavors:
            if flavor.section.tpu is not None and flavor.section.tpu.capacity == "flexStart":
                found.append(f"flavor {flavor.section.name}")
            found += [f"pool {pool.section.name}" for pool in flavor.pools if pool.section.capacity.mode == "flexStart"]
        for workload in self.placed:
            if workload.section.queue is None:
                continue
            found += [f"pool {pool.name}" for pool in workload.nodes.pools if pool.capacity.mode == "flexStart"]
            own_class = workload.nodes.compute_class
            if own_class and any(priority.capacity.mode == "flexStart" for priority in own_class.priorities):
                found.append(f"compute class {own_class.name}")
        return found

    # ----------------------------------------------------------------------------------------------------- workloads
    @cached_property
    def runs(self) -> list[Run]:
        """All training runs and batch Jobs, in the order in which they are created."""
        return [*self.settings.training, *self.settings.batch]

    @cached_property
    def workloads(self) -> list[Workload]:
        """All servers, training runs and batch Jobs, in the order of the configuration."""
        return [*self.settings.serving, *self.runs]

    @cached_property
    def placed(self) -> list[Placed[Workload]]:
        """All workloads with their nodes, queues and priorities."""
        return [self._place(workload) for workload in self.workloads]

    def _place(self, workload: Workload) -> Placed[Workload]:
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
        )

    def _of(self, kind: Any) -> list[Any]:
        """The workloads of a kind."""
        return [workload for workload in self.placed if isinstance(workload.section, kind)]

    @cached_property
    def servers(self) -> list[Placed[AnyServer]]:
        """The model servers."""
        return self._of(Server)

    @cached_property
    def gpu_workloads(self) -> list[Placed[GpuServer | FineTune | TrainingRun]]:
        """Workloads that run on GPUs."""
        return self._of(GpuWorkload)

    @cached_property
    def tpu_workloads(self) -> list[Placed[TpuWorkload]]:
        """Workloads that run on TPUs."""
        return self._of(TpuWorkload)

    @cached_property
    def tpu_runs(self) -> list[Placed[Multislice | TpuBatch]]:
        """Multislice runs and batch Jobs."""
        return self._of(TpuRun)

    @cached_property
    def multislices(self) -> list[Placed[Multislice]]:
        """Multislice runs, which are JobSets."""
        return self._of(Multislice)

    @cached_property
    def tpu_servers(self) -> list[Placed[TpuServer]]:
        """Servers on TPUs."""
        return self._of(TpuServer)

    @cached_property
    def placed_runs(self) -> list[Placed[Run]]:
        """All runs, in the order in which they are created."""
        return self._of(Run)

    @cached_property
    def training_runs(self) -> list[Placed[Run]]:
        """The training runs, without batch Jobs."""
        return self._of(FineTune | Multislice | TrainingRun)

    @cached_property
    def batch_jobs(self) -> list[Placed[TpuBatch]]:
        """Jobs, each on one TPU slice."""
        return self._of(TpuBatch)

    @cached_property
    def fine_tunes(self) -> list[FineTune]:
        """Sections of the fine-tuning runs."""
        return [run for run in self.settings.training if isinstance(run, FineTune)]

    @cached_property
    def training_jobs(self) -> list[TrainingRun]:
        """Sections of training runs with an image of their own."""
        return [run for run in self.settings.training if isinstance(run, TrainingRun)]

    @cached_property
    def jetstreams(self) -> list[JetStream]:
        """Sections of the JetStream servers."""
        return [server for server in self.settings.serving if isinstance(server, JetStream)]

    @cached_property
    def jobsets(self) -> list[Run]:
        """Sections of the runs that are JobSets."""
        return [run for run in self.runs if run.object_kind == "JobSet"]

    @cached_property
    def bucket_mounts(self) -> list[tuple[Run, BucketMount]]:
        """Runs with each bucket that they mount."""
        return [(run, mount) for run in self.runs for mount in run.bucket_mounts]

    @cached_property
    def token_workloads(self) -> list[Workload]:
        """Workloads whose pods, or whose Job that fills a bucket, read the Hugging Face token."""
        return [
            workload
            for workload in self.workloads
            if workload.token is not None or (isinstance(workload, Server) and workload.hub_token is not None)
        ]

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
    def gateway_servers(self) -> list[AnyServer]:
        """The servers behind the gateway, in the order of the configuration."""
        named = {routed.server for route in self.routes for routed in route.section.servers}
        return [server for server in self.settings.serving if server.name in named]

    @cached_property
    def keyed_servers(self) -> list[AnyServer]:
        """The servers that require an API key from their clients."""
        gateway = self.settings.gateway
        return self.gateway_servers if gateway is not None and gateway.api_key else []

    @cached_property
    def awaited_servers(self) -> list[AnyServer]:
        """Servers that an update waits for: not those that the gateway names, always with weight 0.

        So a rollback from a server that never gets ready ends at once.
        """
        weights: dict[str, list[int]] = {}
        for route in self.routes:
            for routed in route.section.servers:
                weights.setdefault(routed.server, []).append(routed.weight)
        return [server for server in self.settings.serving if server.name not in weights or any(weights[server.name])]

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
    def job_namespaces(self) -> list[str]:
        """Namespaces with Jobs: those of the stack's runs, and those to which others submit."""
        submitted = {local_queue.namespace for local_queue in self.queues.local_queues}
        own = {run.namespace for run in self.runs} | {tenant.name for tenant in self.settings.tenants}
        return [namespace for namespace in self.namespaces if namespace in own | submitted]

    @cached_property
    def claims(self) -> dict[str, tuple[str, ...]]:
        """The templates by which pods claim devices of their nodes, by namespace."""
        return claims_of(self.namespaces, self.placed, self.cluster_queues, self.queues.local_queues)

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

    # ---------------------------------------------------------------------------------------- network and monitoring
    @cached_property
    def internet(self) -> dict[str, str]:
        """External hosts that pods download from, each with the first workload that needs it."""
        managers = ["Kueue"] if self.settings.queues else ["JobSet"] if self.jobsets else []
        prometheus = any(autoscaler.adapter == "prometheus" for autoscaler in self.settings.autoscaling)
        adapters, pickers = ["metrics adapter"] * prometheus, ["endpoint picker"] * bool(self.settings.gateway)
        controllers = [*managers, *adapters, *pickers]
        return external_hosts(controllers, self.workloads, self.downloads, nvlink=use_nvlink(self.claims))

    @cached_property
    def monitored_servers(self) -> list[MonitoredServer]:
        """Deployments of servers that need a ready replica, including existing ones that the stack autoscales."""
        read = {scaled.server.section.name for scaled in self.scaled if scaled.server and scaled.reads_server}
        own = [
            MonitoredServer(
                server.namespace, server.name, server.engine if server.pod_monitoring or server.name in read else None
            )
            for server in self.settings.serving
            if server.replicas
        ]
        targets = [scaled.target for scaled in self.scaled if scaled.section.deployment and scaled.target]
        return [*own, *(MonitoredServer(target.namespace, target.name, target.engine) for target in targets)]

    @property
    def has_accelerators(self) -> bool:
        """Whether the stack has GPUs or TPUs."""
        return bool(self.pools or self.settings.compute_classes or self.workloads)


# Minimum time for pods to be ready, by default: a node needs minutes, a large model longer.
_PODS_READY_SECONDS = 3600
