"""Rules of networks between nodes, of GPUDirect and of RDMA: their pools and clusters, and runs that need one."""

from __future__ import annotations

from collections.abc import Container, Iterator
from ipaddress import IPv4Network

from gke_ai.catalog.fabric.gpudirect import GPUDIRECT, GPUS_PER_POD, cidr
from gke_ai.catalog.fabric.rdma import NICS, RESOURCE
from gke_ai.catalog.fabric.topology import SINCE, is_supported
from gke_ai.catalog.machines.zones import ZONES, is_ai_zone, region_of
from gke_ai.settings.model import Cluster, FineTune, GpuPool, GpuRun, GpuServer, TrainingRun
from gke_ai.settings.problems import Problem
from gke_ai.settings.resolved import NodePool, Placed, ResolvedStack
from gke_ai.settings.rules.common import each_gpu_pool, join_names, needs, of_the_cluster

SLOW = "acceptSlowNetwork: true"


def runs_over_several_nodes(
    stack: ResolvedStack, machines: Container[str]
) -> Iterator[tuple[Placed[GpuServer | FineTune | TrainingRun], GpuRun, str]]:
    """Yields each run over several nodes of these machines, with why it needs their network."""
    for placed in stack.gpu_workloads:
        run = placed.section
        machine = next((machine for machine in placed.machines if machine.name in machines), None)
        if isinstance(run, GpuRun) and machine and run.needs_fabric(machine):
            pods = f"{run.pods} pods of {run.gpus_per_pod} GPUs need several nodes of {machine.name}"
            yield placed, run, f"{pods}, which communicate over {machine.fabric}"


def outside_pools(run: GpuRun, why: str) -> Problem:
    """A problem for a run on nodes that no pool of the stack creates."""
    cause = f"{why}. This program sets it up only in node pools of the stack, and the GPUs would wait for the network"
    return Problem(run.at("pods"), cause, f"Set pool to a pool of gke-ai:gpuPools, or set {SLOW}")


def in_several_zones(pool: NodePool, what: str) -> Problem:
    """A problem for a pool in several zones, with what needs one."""
    cause = f"{what} is in one zone, and the pool is in {join_names(pool.zones)}. GKE would refuse it"
    return Problem(pool.section.at("zones"), cause, f"Set zones to one of them, for example [{pool.zones[0]}]")


@each_gpu_pool
def machines_have_networks(pool: GpuPool) -> Iterator[Problem]:
    """A pool that says `gpuDirect: true` has a machine with NICs for it."""
    if pool.gpu_direct and pool.machine_type not in GPUDIRECT:
        cause = f"{pool.machine_type} has no NICs for GPUDirect-TCPX or TCPXO. The networks would not be used"
        instead = "Write rdma: true instead" if pool.machine_type in NICS else "Remove gpuDirect"
        yield Problem(pool.at("gpuDirect"), cause, f"{instead}, or choose a machine of {join_names(GPUDIRECT)}")


@needs("gke-ai:cluster")
@of_the_cluster
def multi_networking_is_possible(cluster: Cluster) -> Iterator[Problem]:
    """Multi-networking is of a Standard cluster with Dataplane V2."""
    path = cluster.at("multiNetworking")
    if not cluster.multi_networking or cluster.mode == "existing":
        return
    if cluster.is_autopilot:
        cause = "this program creates networks only for node pools, which Autopilot does not have. Nothing would use it"
        yield Problem(path, cause, "Remove multiNetworking, or set mode: standard")
    elif cluster.vpc is None:
        cause = "multi-networking needs Dataplane V2, which a cluster gets only at its creation, and here with its own "
        yield Problem(path, f"{cause}vpc. GKE would refuse the cluster", "Set vpc, or remove multiNetworking")


@needs("gke-ai:cluster", "gke-ai:training")
def gpudirect_networks_are_possible(stack: ResolvedStack) -> Iterator[Problem]:
    """A pool with networks of GPUDirect is in a cluster with multi-networking, whose ranges are not theirs."""
    cluster, vpc = stack.cluster, stack.cluster.vpc
    pools = [(pool, technology) for pool in stack.pools if (technology := pool.fabric.technology)]
    if pools and cluster.mode == "standard" and not cluster.multi_networking:
        pool, technology = pools[0]
        cause = f"{technology.fabric} of pool {pool.name} needs multi-networking. GKE would refuse the pool"
        remedy = f"Set multiNetworking: true, or set gpuDirect: false in the pool and {SLOW} in its runs"
        yield Problem(cluster.at("multiNetworking"), cause, remedy)
    if not pools or vpc is None:
        return
    further = [cidr(number) for number in range(1, max(technology.networks for _, technology in pools) + 1)]
    ranges = {"nodesCidr": vpc.nodes_cidr, "podsCidr": vpc.pods_cidr, "servicesCidr": vpc.services_cidr}
    for key, own in ranges.items():
        taken = [other for other in further if IPv4Network(own).overlaps(IPv4Network(other))]
        if taken:
            cause = f"{own} overlaps with {join_names(taken)} of GPUDirect's networks. Google would refuse the nodes"
            yield Problem(cluster.at(f"vpc.{key}"), cause, "Choose a range outside 192.168.0.0/17")


@needs("gke-ai:cluster", "gke-ai:gpuPools", "gke-ai:computeClasses")
def runs_over_several_nodes_have_networks(stack: ResolvedStack) -> Iterator[Problem]:
    """A run over several nodes of A3 High or A3 Mega is in pools with networks, with whole nodes and no tenant."""
    tenants = {tenant.name for tenant in stack.settings.tenants}
    for placed, run, why in runs_over_several_nodes(stack, GPUDIRECT):
        without = [pool.section for pool in placed.pools if not pool.section.fabric.technology]
        technologies = {used for pool in placed.pools if (used := pool.section.fabric.technology)}
        if run.namespace in tenants:
            cause = f"{why}. Its pods need folders and network rights of their node, which tenant {run.namespace} may "
            cause += "not have. The API server would refuse the pods"
            yield Problem(run.at("namespace"), cause, f"Run it in a namespace that is no tenant's, or set {SLOW}")
        elif not placed.pools:
            yield outside_pools(run, why)
        elif without:
            cause = f"{why}. Pool {without[0].name} has no networks for it, and the GPUs would wait"
            yield Problem(run.at("pods"), cause, f"Set gpuDirect: true in {without[0].at('gpuDirect')}, or set {SLOW}")
        elif len(technologies) > 1:
            names = join_names(pool.section.name for pool in placed.pools)
            cause = f"{why}, and its pools {names} have different networks. Its pods could not communicate"
            yield Problem(run.at("pods"), cause, "Set pool to one of them")
        elif run.gpus_per_pod != GPUS_PER_POD:
            fabric = join_names(technology.fabric for technology in technologies)
            cause = f"the daemon of {fabric} in a pod needs all {GPUS_PER_POD} GPUs of its node, and the pod "
            cause += f"has {run.gpus_per_pod}. The daemon of a second pod would not start"
            yield Problem(run.at("gpusPerPod"), cause, f"Set gpusPerPod: {GPUS_PER_POD}, or set {SLOW}")


@each_gpu_pool
def machines_have_nics(pool: GpuPool) -> Iterator[Problem]:
    """A pool that says `rdma: true` has a machine with NICs for it."""
    if pool.rdma and pool.machine_type not in NICS:
        cause = f"{pool.machine_type} has no RDMA network that this program sets up. GKE would refuse the pool"
        yield Problem(pool.at("rdma"), cause, f"Remove rdma, or choose a machine of {join_names(NICS)}")


@needs("gke-ai:cluster", "gke-ai:training")
def rdma_networks_are_possible(stack: ResolvedStack) -> Iterator[Problem]:
    """A pool with an RDMA network is in one zone, of a cluster with Dataplane V2."""
    for node_pool in (pool for pool in stack.node_pools if pool.section.fabric.nics):
        pool = node_pool.section
        if len(node_pool.zones) > 1:
            yield in_several_zones(node_pool, f"the RDMA network of pool {pool.name}")
        if stack.cluster.mode == "standard" and stack.cluster.vpc is None:
            yield _no_dataplane(stack, f"pool {pool.name}", f"set rdma: false in the pool and {SLOW} in its runs")


@needs("gke-ai:cluster")
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
def runs_over_several_nodes_claim_nics(stack: ResolvedStack) -> Iterator[Problem]:
    """A run over several nodes with such NICs is in pools with the network, and its pods have whole nodes."""
    for placed, run, why in runs_over_several_nodes(stack, NICS):
        without = [pool.section for pool in placed.pools if not pool.section.fabric.nics]
        node = max(placed.machines, key=lambda machine: NICS.get(machine.name, 0), default=None)
        own_class = placed.nodes.compute_class
        if own_class and not own_class.rdma_zone:
            cause = f"{why}. Compute class {own_class.name} has no such network, and the GPUs would wait"
            yield Problem(run.at("pods"), cause, f"Set {own_class.at('rdmaZone')} to a zone, or set {SLOW}")
        elif not placed.pools and not own_class:
            yield outside_pools(run, why)
        elif without:
            cause = f"{why}. Pool {without[0].name} has no such network, and the GPUs would wait"
            yield Problem(run.at("pods"), cause, f"Set rdma: true in {without[0].at('rdma')}, or set {SLOW}")
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
    cause = f"the RDMA network of {nodes} needs Dataplane V2, which a cluster gets only at its creation, and here with "
    cause += "its own vpc. GKE would refuse the nodes"
    remedy = f"Set vpc, which recreates a cluster that exists without it, or {otherwise}"
    return Problem(stack.cluster.at("vpc"), cause, remedy)


def _counted(stack: ResolvedStack, run: GpuRun) -> Iterator[Problem]:
    """The Kueue of a run counts claims."""
    queues = stack.queues
    if run.queue is None or (queues.installed_kueue and is_supported(queues.installed_kueue)):
        return
    mine = f"Kueue {queues.kueue_version}" if queues.installed_kueue else "a Kueue that the stack does not install"
    cause = f"the pods claim NICs, and this program does not set up {mine} to count them. Kueue would never admit the "
    cause += "run"
    remedy = f"Let the stack install Kueue {'.'.join(map(str, SINCE))} or later, or set {SLOW}"
    yield Problem(run.at("queue"), cause, remedy)
