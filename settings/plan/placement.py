"""Placement: the pools, slices and nodes of the stack that a workload can run on."""

from __future__ import annotations

from catalog.tpus import Slice
from settings.model import Pool, Run, Settings, TpuRun, TpuWorkload, Workload


def pools_of(workload: Workload, settings: Settings) -> list[Pool]:
    """Pools of this stack that the workload can run on: those it names, or all with its accelerator."""
    return workload.pools_among(settings.pools)


def workload_slice(workload: TpuWorkload, settings: Settings) -> Slice:
    """The slice of the workload, or each of its equal slices. Raises LookupError if it names none."""
    return workload.slice_among(settings.pools)


def node_selector(workload: Workload, settings: Settings) -> dict[str, str]:
    """Node labels that the workload selects: its accelerator, and its pool if several pools have that."""
    return workload.node_selector(settings.pools)


def only_pools(run: TpuRun, settings: Settings) -> list[str]:
    """Names of the pools that the run must be restricted to, as other pools have the same labels."""
    own, labels = pools_of(run, settings), run.hardware_labels(settings.pools)
    others = [pool for pool in settings.tpu_pools if pool.accelerator_labels == labels and pool not in own]
    return [pool.name for pool in own] if len(own) > 1 and others and not pool_of_slice(run, settings) else []


def pool_of_slice(workload: Workload, settings: Settings) -> list[str]:
    """The pool of each slice of a Multislice run, if its pools grow. Otherwise JobSet finds free pools."""
    return workload.pool_of_slice(settings.pools)


def queued_seconds(run: Run, settings: Settings) -> int | None:
    """Maximum duration in seconds of a run with queued provisioning; None on other nodes.

    It is the run's own, else the shortest of its pools.
    """
    pools = pools_of(run, settings)
    allowed = [pool.capacity.queued_seconds for pool in pools if pool.capacity.queued_seconds is not None]
    if not allowed or len(allowed) < len(pools):
        return None
    return run.max_seconds or min(allowed)
