"""What follows from the settings of a stack alone: which pool serves a workload, which labels and quotas that gives.

Pure functions over validated settings; components turn their results into resources.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from fractions import Fraction

from catalog import quota as quotas
from catalog.machines import machine
from catalog.nodes import GKE_ACCELERATOR, GKE_NODEPOOL, NVIDIA_GPU, NodeShape
from catalog.quantities import parse_quantity
from catalog.zones import node_zones
from settings.model import Cluster, ClusterQueue, FineTune, Flavor, FlavorQuota, GpuPool, Server, Settings, Workload


def is_autopilot(cluster: Cluster) -> bool:
    """Whether GKE manages the nodes: a new Autopilot cluster, or an existing one that is said to be Autopilot."""
    return cluster.mode == "autopilot" or (cluster.mode == "existing" and cluster.existing_mode == "autopilot")


def workloads(settings: Settings) -> list[Server | FineTune]:
    """Servers, then Jobs, in the order of the configuration."""
    return [*settings.serving, *settings.training]


def namespaces(settings: Settings) -> list[str]:
    """Every namespace that a workload or a local queue lives in, by first use."""
    queues = settings.queues.local_queues if settings.queues else []
    used = [*workloads(settings), *queues]
    return list(dict.fromkeys(one.namespace for one in used))


def gpus(pool: GpuPool) -> tuple[str, int]:
    """GPU type and GPUs of one node: those that the pool states, else those that its machine type has.

    Raises ValueError where neither says so; `settings.rules` refuses such a pool.
    """
    kind = machine(pool.machine_type)
    accelerator, count = pool.accelerator or kind.gpu, pool.gpus_per_node or kind.gpus
    if accelerator is None or not count:
        raise ValueError(f"pool {pool.name} has no GPU")
    return accelerator, count


def pool_zones(pool: GpuPool, cluster: Cluster) -> tuple[str, ...]:
    """Zones of the pool: its own, else those of the cluster's nodes."""
    return tuple(pool.zones or cluster.system_pool.zones or node_zones(cluster.location))


def shape(pool: GpuPool, zone: str) -> NodeShape:
    """A node of the pool in that zone, as the catalogue describes nodes."""
    accelerator, count = gpus(pool)
    return NodeShape(
        pool=pool.name,
        machine_type=pool.machine_type,
        gpu=accelerator,
        gpus=count,
        driver=pool.driver,
        capacity=pool.capacity.mode,
        zone=zone,
        disk_gb=pool.disk_size_gb,
        labels=pool.labels,
        workload_identity=True,
    )


def largest(pool: GpuPool, cluster: Cluster) -> int:
    """Nodes of the pool at its largest, all zones together."""
    if pool.autoscaling is not None:
        return pool.autoscaling.max_nodes
    return (pool.nodes_per_zone or 0) * len(pool_zones(pool, cluster))


def pools_of(workload: Workload, settings: Settings) -> list[GpuPool]:
    """Pools of this stack that the workload can run on: the one it names, or all with the GPU type it names."""
    if workload.pool is not None:
        return [pool for pool in settings.gpu_pools if pool.name == workload.pool]
    return [pool for pool in settings.gpu_pools if gpus(pool)[0] == workload.accelerator]


def node_selector(workload: Workload, settings: Settings) -> dict[str, str]:
    """Labels of the nodes that the workload wants: the GPU type, and the pool's name where several pools have it."""
    if workload.pool is None:
        return {GKE_ACCELERATOR: workload.accelerator} if workload.accelerator else {}
    (pool,) = pools_of(workload, settings)
    accelerator = gpus(pool)[0]
    selector = {GKE_ACCELERATOR: accelerator}
    if sum(gpus(other)[0] == accelerator for other in settings.gpu_pools) > 1:
        selector[GKE_NODEPOOL] = pool.name
    return selector


def flavor_pools(flavor: Flavor, settings: Settings) -> list[GpuPool]:
    """The pools whose nodes the flavor is, in the order of the flavor."""
    by_name = {pool.name: pool for pool in settings.gpu_pools}
    return [by_name[name] for name in flavor.pools if name in by_name]


def flavor_labels(flavor: Flavor, settings: Settings) -> dict[str, str]:
    """Node labels of the flavor: none (any node), the pool's name (one pool) or the GPU type (several of a kind)."""
    pools = flavor_pools(flavor, settings)
    if len(pools) == 1:
        return {GKE_NODEPOOL: pools[0].name}
    return {GKE_ACCELERATOR: gpus(pools[0])[0]} if pools else {}


def quota(flavor_quota: FlavorQuota, settings: Settings) -> dict[str, str]:
    """Nominal quota by resource: as stated, or derived from the flavor's pools at their largest."""
    if not isinstance(flavor_quota.quota, str):
        return dict(flavor_quota.quota)
    flavors = settings.queues.flavors if settings.queues else []
    pools = [p for flavor in flavors if flavor.name == flavor_quota.flavor for p in flavor_pools(flavor, settings)]
    # Zones differ in a label alone, so one shape stands for the whole pool.
    return quotas.derive(
        (shape(pool, pool_zones(pool, settings.cluster)[0]), largest(pool, settings.cluster)) for pool in pools
    )


def cluster_queue_of(workload: Workload, settings: Settings) -> ClusterQueue | None:
    """The cluster queue behind the workload's local queue; none if it is not under Kueue."""
    if workload.queue is None or settings.queues is None:
        return None
    for local in settings.queues.local_queues:
        if (local.name, local.namespace) == (workload.queue, workload.namespace):
            for cluster_queue in settings.queues.cluster_queues:
                if cluster_queue.name == local.cluster_queue:
                    return cluster_queue
    return None


# Classes that every cluster has: https://kubernetes.io/docs/tasks/administer-cluster/guaranteed-scheduling-critical-addon-pods/
BUILT_IN_PRIORITIES = {"system-cluster-critical": 2000000000, "system-node-critical": 2000001000}


def priority(workload: Workload, settings: Settings) -> int:
    """The priority of the workload's pods: its class's, else the global default's, else 0 as in Kubernetes."""
    if workload.priority_class in BUILT_IN_PRIORITIES:
        return BUILT_IN_PRIORITIES[workload.priority_class]
    for one in settings.queues.priority_classes if settings.queues else []:
        if one.name == workload.priority_class or (workload.priority_class is None and one.global_default):
            return one.value
    return 0


def service_name(workload: Server | FineTune) -> str:
    """The Service of the workload: the one it names, else its own name."""
    return workload.service or workload.name


def run_name(finetune: FineTune) -> str:
    """The Job's name: `name`, followed by six digits of the run's content unless the name is fixed.

    The same run always has the same name; any change of what it would do gives another, so that it runs beside the old.
    """
    if finetune.fixed_name:
        return finetune.name
    # What is not set is left out: a setting added in a later release must not make every run a new one.
    content = finetune.model_dump(mode="json", exclude_none=True, exclude={"name", "fixed_name"})
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return f"{finetune.name}-{digest[:6]}"


# What the webhook of the FUSE driver gives its sidecar unless told:
# https://cloud.google.com/kubernetes-engine/docs/how-to/cloud-storage-fuse-csi-driver-sidecar
SIDECAR_DEFAULTS = {"cpu": "250m", "memory": "256Mi", "ephemeral-storage": "5Gi"}


def pod_request(workload: Server | FineTune) -> dict[str, Fraction]:
    """What one pod of the workload asks Kueue for, by resource: its container's requests."""
    stated = {
        "cpu": workload.resources.cpu,
        "memory": workload.resources.memory,
        "ephemeral-storage": workload.resources.ephemeral_storage,
    }
    request = {resource: parse_quantity(text) for resource, text in stated.items() if text is not None}
    request[NVIDIA_GPU] = Fraction(workload.gpus if isinstance(workload, Server) else workload.gpus_per_pod)
    return request


def node_request(workload: Server | FineTune) -> dict[str, Fraction]:
    """What one pod takes of its node: its container's requests and, in a Job, those of the FUSE sidecar."""
    request = pod_request(workload)
    if isinstance(workload, FineTune):
        sidecar = dict(SIDECAR_DEFAULTS)
        sidecar["cpu"] = workload.volume.sidecar_cpu or sidecar["cpu"]
        sidecar["memory"] = workload.volume.sidecar_memory_limit or sidecar["memory"]
        for resource, text in sidecar.items():
            request[resource] = request.get(resource, Fraction(0)) + parse_quantity(text)
    return request


def pods_at_once(workload: Server | FineTune) -> int:
    """Pods that must run at the same time for the workload to do anything: all of a Job, one of a server."""
    return workload.pods if isinstance(workload, FineTune) else min(workload.replicas, 1)


def limits(cluster_queue: ClusterQueue, settings: Settings) -> Iterator[tuple[str, dict[str, Fraction]]]:
    """For each flavor of the queue the most that it may ever use: its quota, and what its cohort could lend."""
    queues = settings.queues.cluster_queues if settings.queues else []
    lenders = [one for one in queues if one is cluster_queue or (one.cohort and one.cohort == cluster_queue.cohort)]
    for own in cluster_queue.flavors:
        total = dict.fromkeys(quota(own, settings), Fraction(0))
        for lent in (each for queue in lenders for each in queue.flavors if each.flavor == own.flavor):
            for resource, text in quota(lent, settings).items():
                if resource in total:
                    total[resource] += parse_quantity(text)
        yield own.flavor, total
