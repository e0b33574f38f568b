"""Rules of servers and runs on GPUs: their pools, GPU types and machines."""

from __future__ import annotations

from collections.abc import Iterator

from gke_ai.catalog.machines.types import GPUS, machine
from gke_ai.catalog.versions import FINE_TUNE_IMAGE
from gke_ai.settings.model import FineTune, GpuServer, TrainingRun
from gke_ai.settings.problems import Problem
from gke_ai.settings.resolved import Placed, ResolvedStack
from gke_ai.settings.rules.common import GPU_POOLS, each, join_names, needs, of_another_engine, rule
from gke_ai.settings.rules.pools import gpu_type_is_supported


@rule
def pools_exist(stack: ResolvedStack) -> Iterator[Problem]:
    """The pool of a workload is in this stack."""
    known = [pool.name for pool in stack.settings.gpu_pools]
    autopilot = stack.cluster.is_autopilot and not stack.unresolved.overlaps("gke-ai:cluster.mode")
    for workload in (placed.section for placed in stack.gpu_workloads):
        if workload.pool is None or workload.pool in known:
            continue
        path = workload.at("pool")
        if problem := of_another_engine(workload, stack.pools, path, workload.pool):
            yield problem
        elif autopilot:
            cause = "the cluster is Autopilot and has no pools. The pods would stay pending"
            yield Problem(path, cause, "Set accelerator instead of pool, for example accelerator: nvidia-l4")
        else:
            yield from GPU_POOLS.unknown(stack, path, workload.pool, "the pods would stay pending")


@rule
def workloads_have_a_pool_or_an_accelerator(stack: ResolvedStack) -> Iterator[Problem]:
    """A GPU workload names a pool of the stack or a GPU type, not both."""
    pools = [pool.name for pool in stack.settings.gpu_pools]
    for workload in (placed.section for placed in stack.gpu_workloads):
        noun = workload.short_noun
        if workload.compute_class is not None:
            continue
        if workload.pool is not None and workload.accelerator is not None:
            cause = f"the {noun} names a pool and an accelerator. The accelerator could contradict that of the pool"
            yield Problem(workload.at("accelerator"), cause, "Remove one of them")
        elif workload.pool is None and workload.accelerator is None:
            cause = f"the {noun} requests GPUs and names no pool or GPU type. It would run on any node"
            names = f"Set pool ({join_names(pools)})" if pools else "Set accelerator, for example nvidia-l4"
            yield Problem(workload.at("pool" if pools else "accelerator"), cause, names)
        elif workload.accelerator is not None:
            path, consequence = workload.at("accelerator"), "The pods would stay pending"
            yield from gpu_type_is_supported(path, workload.accelerator, consequence)


@needs("gke-ai:cluster.mode", "gke-ai:gpuPools")
def accelerators_are_in_a_pool(stack: ResolvedStack) -> Iterator[Problem]:
    """A new Standard cluster has only the GPUs of its pools."""
    for placed in stack.gpu_workloads:
        workload = placed.section
        if stack.cluster.mode != "standard" or workload.pool is not None or workload.accelerator not in GPUS:
            continue
        if not placed.pools:
            accelerators = dict.fromkeys(pool.gpus[0] for pool in stack.settings.gpu_pools)
            have = f"its pools have {join_names(accelerators)}" if accelerators else "it has no GPU pools"
            cause = f"no pool of the cluster has {workload.accelerator}: {have}. The pods would stay pending"
            remedy = f"Add a pool with {workload.accelerator} to gke-ai:gpuPools, or name another GPU type"
            yield Problem(workload.at("accelerator"), cause, remedy)


@each(lambda stack: stack.gpu_workloads)
def pools_can_serve(placed: Placed[GpuServer | FineTune | TrainingRun]) -> Iterator[Problem]:
    """The default image runs on the processors of the workload's pool."""
    workload = placed.section
    for pool in placed.nodes.pools if workload.pool is not None else ():
        pinned = workload.image in (None, FINE_TUNE_IMAGE)
        machine_type = machine(pool.node_machine_type)
        if machine_type.arch == "arm64" and pinned:
            cause = f"{machine_type.name} has Arm processors, and the default image is for amd64. It could not start"
            yield Problem(workload.at("image"), cause, "Choose a pool with another machine type")
