"""What rules of networks between nodes share: runs that need one, and pools that must be in one zone."""

from __future__ import annotations

from collections.abc import Container, Iterator

from gke_ai.settings.model import FineTune, GpuRun, GpuServer, TrainingRun
from gke_ai.settings.problems import Problem
from gke_ai.settings.resolved import NodePool, Placed, ResolvedStack
from gke_ai.settings.rules.common import join_names

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
