"""Rules of RDMA networks between nodes: their pools, and runs that use them."""

from __future__ import annotations

from collections.abc import Iterator

from gke_ai.catalog.fabric.rdma import NICS, RESOURCE
from gke_ai.catalog.fabric.topology import SINCE, is_supported
from gke_ai.catalog.machines.zones import ZONES, is_ai_zone, region_of
from gke_ai.settings.model import GpuPool, GpuRun
from gke_ai.settings.problems import Problem
from gke_ai.settings.resolved import ResolvedStack
from gke_ai.settings.rules.common import each_gpu_pool, join_names, needs, rule
from gke_ai.settings.rules.fabric import SLOW, in_several_zones, outside_pools, runs_over_several_nodes


@each_gpu_pool
def machines_have_nics(pool: GpuPool) -> Iterator[Problem]:
    """A pool that says `rdma: true` has a machine with NICs for it."""
    if pool.rdma and pool.machine_type not in NICS:
        cause = f"{pool.machine_type} has no RDMA network that this program sets up. GKE would refuse the pool"
        yield Problem(pool.at("rdma"), cause, f"Remove rdma, or choose a machine of {join_names(NICS)}")


@needs("gke-ai:cluster", "gke-ai:training")
@rule
def networks_are_possible(stack: ResolvedStack) -> Iterator[Problem]:
    """A pool with an RDMA network is in one zone, of a cluster with Dataplane V2."""
    for node_pool in (pool for pool in stack.node_pools if pool.section.fabric.nics):
        pool = node_pool.section
        if len(node_pool.zones) > 1:
            yield in_several_zones(node_pool, f"the RDMA network of pool {pool.name}")
        if stack.cluster.mode == "standard" and stack.cluster.vpc is None:
            yield _no_dataplane(stack, f"pool {pool.name}", f"set rdma: false in the pool and {SLOW} in its runs")


@needs("gke-ai:cluster")
@rule
def networks_of_classes_are_possible(stack: ResolvedStack) -> Iterator[Problem]:
    """A compute class with an RDMA network has machines with NICs, in a zone of a cluster with Dataplane V2."""
    region = region_of(stack.cluster.location)
    for own in (own for own in stack.settings.compute_classes if own.rdma_zone):
        path = own.at("rdmaZone")
        for priority in (priority for priority in own.priorities if priority.machine_type not in NICS):
            cause = f"{priority.machine_type} has no RDMA network that this program sets up. GKE would create no node"
            yield Problem(path, cause, f"Remove it, or choose machines of {join_names(NICS)}")
            break
        zone = str(own.rdma_zone)
        if zone not in ZONES[region] and not (is_ai_zone(zone) and region_of(zone) == region):
            cause = f"{zone} is no zone of {region}, the cluster's region. GKE would create no node"
            yield Problem(path, cause, f"Choose from {join_names(ZONES[region])}")
        if not own.auto_create_pools:
            cause = "GKE gives the network only to pools that it creates, and autoCreatePools is false. Nodes would "
            yield Problem(path, f"{cause}have none", "Remove rdmaZone or autoCreatePools")
        if own.when_unsatisfiable == "ScaleUpAnyway":
            cause = "with ScaleUpAnyway, GKE would create nodes without the network, on which pods wait for NICs"
            yield Problem(own.at("whenUnsatisfiable"), cause, "Set it to DoNotScaleUp, or remove rdmaZone")
        if stack.cluster.mode == "standard" and stack.cluster.vpc is None:
            yield _no_dataplane(stack, f"compute class {own.name}", f"remove {path}, and set {SLOW} in its runs")


@needs("gke-ai:cluster", "gke-ai:gpuPools", "gke-ai:queues", "gke-ai:computeClasses")
@rule
def runs_over_several_nodes_claim_nics(stack: ResolvedStack) -> Iterator[Problem]:
    """A run over several nodes with such NICs is in pools with the network, and its pods have whole nodes."""
    for placed, run, why in runs_over_several_nodes(stack, NICS):
        without = [pool.section for pool in placed.pools if not pool.section.fabric.nics]
        node = max(placed.machines, key=lambda machine: NICS.get(machine.name, 0), default=None)
        own_class = placed.nodes.compute_class
        if own_class and not own_class.rdma_zone:
            yield Problem(
                run.at("pods"),
                f"{why}. Compute class {own_class.name} has no such network, and the GPUs would wait",
                f"Set {own_class.at('rdmaZone')} to a zone, or set {SLOW}",
            )
        elif not placed.pools and not own_class:
            yield outside_pools(run, why)
        elif without:
            yield Problem(
                run.at("pods"),
                f"{why}. Pool {without[0].name} has no such network, and the GPUs would wait",
                f"Set rdma: true in {without[0].at('rdma')}, or set {SLOW}",
            )
        elif node and run.gpus_per_pod != node.gpus:
            cause = f"a pod claims the {NICS[node.name]} NICs of a whole node, and this one has {run.gpus_per_pod} "
            cause += "GPUs. A second pod of the node would wait forever"
            yield Problem(run.at("gpusPerPod"), cause, f"Set gpusPerPod: {node.gpus}, or set {SLOW}")
        else:
            yield from _counted(stack, run)
            queue = placed.queue if own_class else None  # for pools, `fit` compares every resource
            if queue and not any(quota.amounts.get(RESOURCE) for quota in queue.quotas):
                cause = f"cluster queue {queue.section.name} has no quota for {RESOURCE}, which the pods of {run.name} "
                cause += "claim. Kueue would never admit the run"
                yield Problem(queue.section.at("flavors[0].quota"), cause, f"Add {RESOURCE} to the quota")


def _no_dataplane(stack: ResolvedStack, nodes: str, otherwise: str) -> Problem:
    """A problem for nodes with an RDMA network in a new cluster without a VPC of its own."""
    return Problem(
        stack.cluster.at("vpc"),
        f"the RDMA network of {nodes} needs Dataplane V2, which a cluster gets only at its creation, and here with its "
        "own vpc. GKE would refuse the nodes",
        f"Set vpc, which recreates a cluster that exists without it, or {otherwise}",
    )


def _counted(stack: ResolvedStack, run: GpuRun) -> Iterator[Problem]:
    """The Kueue of a run counts claims."""
    queues = stack.queues
    if run.queue is None or (queues.installed_kueue and is_supported(queues.installed_kueue)):
        return
    mine = f"Kueue {queues.kueue_version}" if queues.installed_kueue else "a Kueue that the stack does not install"
    yield Problem(
        run.at("queue"),
        f"the pods claim NICs, and this program does not set up {mine} to count them. Kueue would never admit the run",
        f"Let the stack install Kueue {'.'.join(map(str, SINCE))} or later, or set {SLOW}",
    )
