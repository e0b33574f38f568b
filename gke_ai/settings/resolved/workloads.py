"""A workload with its nodes, its queue, its priority, and what its pods request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Generic, TypeVar

from gke_ai.catalog.engines import fuse
from gke_ai.catalog.engines.inference_extension import UNKNOWN_REQUESTS
from gke_ai.catalog.fabric.fabrics import DEFAULT_NETWORK, Fabric
from gke_ai.catalog.fabric.gpudirect import DAEMON_REQUESTS
from gke_ai.catalog.machines.disks import STORAGE_CLASSES, volume_type
from gke_ai.catalog.machines.tpus import Slice
from gke_ai.catalog.machines.types import MACHINES, ONLY_IN_POOLS, Machine, machines_with
from gke_ai.catalog.nodes.shape import AUTOPILOT_STORAGE
from gke_ai.catalog.quantities import added, parse_quantities
from gke_ai.settings.model import GpuRun, GpuWorkload, Nodes, Server, TpuWorkload, Workload
from gke_ai.settings.resolved.pools import NodePool
from gke_ai.settings.resolved.queues import Queue

AnyWorkload = TypeVar("AnyWorkload", bound=Workload, covariant=True)


@dataclass(frozen=True)
class Placed(Generic[AnyWorkload]):
    """A workload with what the rest of the stack decides for it."""

    section: AnyWorkload
    nodes: Nodes
    pools: tuple[NodePool, ...]
    """Pools of the stack that the workload can run on."""
    queue: Queue | None
    """The cluster queue of its local queue; None if Kueue does not manage the workload."""
    priority: int
    max_replicas: int | None = None
    """Limit of its autoscaler, if it has one."""
    autopilot: bool = False

    @property
    def slice(self) -> Slice:
        """The TPU slice of the workload, or each of its equal slices. Raises LookupError if it has none."""
        if not isinstance(self.section, TpuWorkload):
            raise LookupError(f"{self.section.name} does not run on TPUs")
        return self.section.slice_on(self.nodes)

    @property
    def has_slice(self) -> bool:
        """Whether the workload names an existing TPU slice."""
        try:
            return bool(self.slice)
        except LookupError:
            return False

    @property
    def node_selector(self) -> dict[str, str]:
        """Node labels that the workload selects: its accelerator, and its pool if several pools have that."""
        return self.section.selector_on(self.nodes)

    @property
    def machines(self) -> list[Machine]:
        """Machine types that the pods may run on, by their pools, compute class, GPU type or slice."""
        section, of_class = self.section, self.nodes.compute_class
        if section.named_class is not None or self.nodes.pools:
            named = [priority.machine_type for priority in of_class.priorities] if of_class else []
            named = [name for name in named if name not in ONLY_IN_POOLS]
            named += [pool.node_machine_type for pool in self.nodes.pools]
            return [MACHINES[name] for name in named if name in MACHINES]
        if isinstance(section, TpuWorkload):
            return [MACHINES[self.slice.machine_type]] if self.has_slice else []
        gpu = section.accelerator if isinstance(section, GpuWorkload) else None
        possible = [machine for machine in machines_with(gpu or "") if machine.name not in ONLY_IN_POOLS]
        return [machine for machine in possible if machine.gpus >= self.accelerators]

    @property
    def running_limit(self) -> int | None:
        """Maximum number of requests that a replica of a server runs at once; None if unknown."""
        try:
            return self.section.running_limit(self.nodes) if isinstance(self.section, Server) else None
        except LookupError:  # other rules report the missing slice
            return None

    @property
    def requests_per_replica(self) -> int:
        """Requests that the gateway sends a replica at once, if it holds those above."""
        return self.running_limit or UNKNOWN_REQUESTS

    @property
    def scratch_disk(self) -> str | None:
        """Type of the scratch disk: that of its StorageClass, else one that all machines of the server attach.

        None without a scratch disk, if the type of its class is unknown, or if the machines have none in common.
        """
        scratch = self.section.scratch if isinstance(self.section, Server) else None
        if scratch is None:
            return None
        if scratch.storage_class is not None:
            return STORAGE_CLASSES.get(scratch.storage_class)
        return volume_type(machine.name for machine in self.machines)

    @property
    def pool_of_slice(self) -> list[str]:
        """The pool of each slice of a Multislice run, if its pools grow. Otherwise JobSet finds free pools."""
        return self.section.pool_of_slice(self.nodes)

    @property
    def only_pools(self) -> list[str]:
        """Names of the pools that a run must be restricted to, as other pools have the same labels."""
        own, others = self.nodes.pools, self.nodes.alike(self.section.hardware_labels(self.nodes))
        return [pool.name for pool in own] if len(own) > 1 and others and not self.pool_of_slice else []

    @property
    def queued_seconds(self) -> int | None:
        """Maximum duration in seconds of a run with queued provisioning; None on other nodes.

        It is the run's own, else the shortest of its pools.
        """
        allowed = [pool.capacity.queued_seconds for pool in self.nodes.pools]
        queued = [seconds for seconds in allowed if seconds is not None]
        if not queued or len(queued) < len(allowed):
            return None
        return self.section.max_seconds or min(queued)

    @property
    def accelerators(self) -> int:
        """Number of accelerators of one pod."""
        return self.section.accelerators_per_pod(self.nodes)

    @property
    def pods_at_once(self) -> int:
        """Pods that must run at the same time: all pods of a Job, one pod of a server."""
        return self.section.pods_at_once(self.nodes)

    @property
    def max_pods(self) -> int:
        """Maximum number of pods: its own, or that of its autoscaler."""
        return self.section.max_pods(self.nodes, self.max_replicas)

    @cached_property
    def pod_request(self) -> Mapping[str, Fraction]:
        """Requests of one pod's containers by resource."""
        request = parse_quantities(self.section.resources.stated)
        further = {name: text for name, text in self.section.further_request.items() if name in request}
        daemon = DAEMON_REQUESTS if self.fabric.technology else {}
        request = added(request, parse_quantities(further), parse_quantities(daemon))
        return {**request, self.section.accelerator_resource: Fraction(self.accelerators)}

    @cached_property
    def node_request(self) -> Mapping[str, Fraction]:
        """Requests of one pod on its node: those of its containers, and of the FUSE sidecar if it mounts a bucket."""
        sidecar = self.section.sidecar
        texts = {**fuse.SIDECAR_DEFAULTS, **sidecar.stated} if sidecar else {}
        return added(self.pod_request, parse_quantities(texts))

    @cached_property
    def fabric(self) -> Fabric:
        """The network over which the pods of a run over several nodes communicate; else the default network."""
        run, of_class = self.section, self.nodes.compute_class
        fabrics = {of_class.fabric} if of_class else {pool.section.fabric for pool in self.pools}
        if not isinstance(run, GpuRun) or len(fabrics) != 1 or not all(map(run.needs_fabric, self.machines)):
            return DEFAULT_NETWORK
        return fabrics.pop()

    @property
    def queued_request(self) -> Mapping[str, Fraction]:
        """Requests of one pod that Kueue counts.

        Kueue sees the pods of a server after the driver's webhook has added the sidecar, and of a Job only the
        template: https://kueue.sigs.k8s.io/docs/tasks/run/plain_pods/
        Autopilot adds ephemeral storage to Jobs and Deployments, but not to the template of a JobSet.
        """
        section = self.section
        request = self.node_request if section.queue_counts_sidecar else self.pod_request
        if self.autopilot and section.object_kind != "JobSet" and section.resources.ephemeral_storage is None:
            request = added(request, {"ephemeral-storage": AUTOPILOT_STORAGE})
        return {**request, **{name: Fraction(count) for name, count in self.fabric.devices.items()}}
