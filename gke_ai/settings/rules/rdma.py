"""Rules of RDMA networks between nodes: their pools, and runs that use them."""

from __future__ import annotations

from collections.abc import Iterator

from gke_ai.catalog.rdma import NICS
from gke_ai.catalog.topology import SINCE, is_supported
from gke_ai.settings.model import FineTune, GpuPool, TrainingRun
from gke_ai.settings.problems import Problem
from gke_ai.settings.rules.common import each_gpu_pool, join_names, needs, rule
from gke_ai.settings.rules.fabric import SLOW, in_several_zones, outside_pools, runs_over_several_nodes
from gke_ai.settings.stack import ResolvedStack


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
    for node_pool in (pool for pool in stack.node_pools if pool.section.nics):
        pool = node_pool.section
        if len(node_pool.zones) > 1:
            yield in_several_zones(node_pool, f"the RDMA network of pool {pool.name}")
        if stack.cluster.mode == "standard" and stack.cluster.vpc is None:
            yield Problem(
                stack.cluster.at("vpc"),
                f"the RDMA network of pool {pool.name} needs Dataplane V2, which a cluster gets only at its creation, "
                "and here with its own vpc. GKE would refuse the pool",
                "Set vpc, which recreates a cluster that exists without it, or set rdma: false in the pool and "
                f"{SLOW} in its runs",
            )


@needs("gke-ai:cluster", "gke-ai:gpuPools", "gke-ai:queues", "gke-ai:computeClasses")
@rule
def runs_over_several_nodes_claim_nics(stack: ResolvedStack) -> Iterator[Problem]:
    """A run over several nodes of A3 Ultra, A4 or A4X is in pools with the network, and its pods have whole nodes."""
    for placed, run, why in runs_over_several_nodes(stack, NICS):
        without = [pool.section for pool in placed.pools if not pool.section.nics]
        nics = max((NICS.get(machine.name, 0) for machine in placed.machines), default=0)
        if not placed.pools:
            yield outside_pools(run, why)
        elif without:
            yield Problem(
                run.at("pods"),
                f"{why}. Pool {without[0].name} has no such network, and the GPUs would wait",
                f"Set rdma: true in {without[0].at('rdma')}, or set {SLOW}",
            )
        elif run.gpus_per_pod != nics:
            cause = f"a pod claims the {nics} NICs of a whole node, and this one has {run.gpus_per_pod} GPUs. "
            cause += "A second pod of the node would wait forever"
            yield Problem(run.at("gpusPerPod"), cause, f"Set gpusPerPod: {nics}, or set {SLOW}")
        else:
            yield from _counted(stack, run)


def _counted(stack: ResolvedStack, run: FineTune | TrainingRun) -> Iterator[Problem]:
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
