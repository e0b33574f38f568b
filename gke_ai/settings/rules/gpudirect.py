"""Rules of GPUDirect-TCPX and TCPXO: their pools and clusters, and runs over several nodes of A3 High and A3 Mega."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network

from gke_ai.catalog.fabric.gpudirect import GPUDIRECT, GPUS_PER_POD, cidr
from gke_ai.catalog.fabric.rdma import NICS
from gke_ai.settings.model import Cluster, GpuPool
from gke_ai.settings.problems import Problem
from gke_ai.settings.resolved import ResolvedStack
from gke_ai.settings.rules.common import each_gpu_pool, join_names, needs, of_the_cluster, rule
from gke_ai.settings.rules.fabric import SLOW, outside_pools, runs_over_several_nodes


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
@rule
def networks_are_possible(stack: ResolvedStack) -> Iterator[Problem]:
    """A pool with networks of GPUDirect is in a cluster with multi-networking, whose ranges are not theirs."""
    cluster, vpc = stack.cluster, stack.cluster.vpc
    pools = [(pool, technology) for pool in stack.pools if (technology := pool.fabric.technology)]
    if pools and cluster.mode == "standard" and not cluster.multi_networking:
        pool, technology = pools[0]
        yield Problem(
            cluster.at("multiNetworking"),
            f"{technology.fabric} of pool {pool.name} needs multi-networking. GKE would refuse the pool",
            f"Set multiNetworking: true, or set gpuDirect: false in the pool and {SLOW} in its runs",
        )
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
@rule
def runs_over_several_nodes_have_networks(stack: ResolvedStack) -> Iterator[Problem]:
    """A run over several nodes of A3 High or A3 Mega is in pools with networks, with whole nodes and no tenant."""
    tenants = {tenant.name for tenant in stack.settings.tenants}
    for placed, run, why in runs_over_several_nodes(stack, GPUDIRECT):
        without = [pool.section for pool in placed.pools if not pool.section.fabric.technology]
        technologies = {used for pool in placed.pools if (used := pool.section.fabric.technology)}
        if run.namespace in tenants:
            yield Problem(
                run.at("namespace"),
                f"{why}. Its pods need folders and network rights of their node, which tenant {run.namespace} may not "
                "have. The API server would refuse the pods",
                f"Run it in a namespace that is no tenant's, or set {SLOW}",
            )
        elif not placed.pools:
            yield outside_pools(run, why)
        elif without:
            yield Problem(
                run.at("pods"),
                f"{why}. Pool {without[0].name} has no networks for it, and the GPUs would wait",
                f"Set gpuDirect: true in {without[0].at('gpuDirect')}, or set {SLOW}",
            )
        elif len(technologies) > 1:
            names = join_names(pool.section.name for pool in placed.pools)
            cause = f"{why}, and its pools {names} have different networks. Its pods could not communicate"
            yield Problem(run.at("pods"), cause, "Set pool to one of them")
        elif run.gpus_per_pod != GPUS_PER_POD:
            fabric = join_names(technology.fabric for technology in technologies)
            cause = f"the daemon of {fabric} in a pod needs all {GPUS_PER_POD} GPUs of its node, and the pod "
            cause += f"has {run.gpus_per_pod}. The daemon of a second pod would not start"
            yield Problem(run.at("gpusPerPod"), cause, f"Set gpusPerPod: {GPUS_PER_POD}, or set {SLOW}")
