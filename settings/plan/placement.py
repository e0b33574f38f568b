"""Placement: the pools, slices and nodes that a workload can run on."""

from __future__ import annotations

from catalog.capacity import MODES
from catalog.nodes import COMPUTE_CLASS, GKE_ACCELERATOR, GKE_TPU_ACCELERATOR, GKE_TPU_TOPOLOGY
from catalog.tpus import Slice
from settings.model import (
    GpuPool,
    GpuWorkload,
    JetStream,
    Multislice,
    QueuedFlexStart,
    Run,
    Settings,
    TpuBatch,
    TpuPool,
    Workload,
)
from settings.plan.node_pools import gpus, grows, of_pool, pool_slice


def pools_of(workload: Workload, settings: Settings) -> list[GpuPool | TpuPool]:
    """Pools of this stack that the workload can run on: those it names, or all with its accelerator."""
    if isinstance(workload, Multislice) and workload.pools:
        return [pool for pool in settings.tpu_pools if pool.name in workload.pools]
    if isinstance(workload, GpuWorkload):
        if workload.pool is not None:
            return [pool for pool in settings.gpu_pools if pool.name == workload.pool]
        return [pool for pool in settings.gpu_pools if gpus(pool)[0] == workload.accelerator]
    if isinstance(workload, JetStream | TpuBatch) and workload.pool is not None:
        return [pool for pool in settings.tpu_pools if pool.name == workload.pool]
    if isinstance(workload, JetStream | TpuBatch | Multislice) and workload.tpu is not None:
        wanted = pool_slice(workload.tpu)
        return [pool for pool in settings.tpu_pools if pool_slice(pool) == wanted]
    return []


def workload_slice(workload: JetStream | TpuBatch | Multislice, settings: Settings) -> Slice:
    """The slice of the workload, or each of its equal slices. Raises LookupError if it names none."""
    if workload.tpu is not None:
        return pool_slice(workload.tpu)
    for pool in pools_of(workload, settings):
        assert isinstance(pool, TpuPool)
        return pool_slice(pool)
    raise LookupError(f"{workload.name} names no TPU slice")


def node_selector(workload: Workload, settings: Settings) -> dict[str, str]:
    """Node labels that the workload selects: its accelerator, and its pool if several pools have that."""
    if isinstance(workload, JetStream | TpuBatch | Multislice):
        return _tpu_selector(workload, settings)
    assert isinstance(workload, GpuWorkload)
    if workload.compute_class is not None:
        return {COMPUTE_CLASS: workload.compute_class}
    if workload.pool is None:
        return {GKE_ACCELERATOR: workload.accelerator} if workload.accelerator else {}
    (pool,) = pools_of(workload, settings)
    assert isinstance(pool, GpuPool)
    accelerator = gpus(pool)[0]
    selector = {GKE_ACCELERATOR: accelerator}
    if sum(gpus(other)[0] == accelerator for other in settings.gpu_pools) > 1:
        selector |= of_pool(pool)
    return selector


def _tpu_selector(workload: JetStream | TpuBatch | Multislice, settings: Settings) -> dict[str, str]:
    tpu_slice = workload_slice(workload, settings)
    own = pools_of(workload, settings)
    modes = {pool.capacity.mode for pool in own} or ({workload.tpu.capacity} if workload.tpu else set())
    selector = {GKE_TPU_ACCELERATOR: tpu_slice.accelerator, GKE_TPU_TOPOLOGY: tpu_slice.topology}
    for mode in modes if len(modes) == 1 else ():
        selector |= MODES[mode].labels
    if len(own) == 1 and _alike(tpu_slice, settings) != own:
        selector |= of_pool(own[0])
    return selector


def _alike(tpu_slice: Slice, settings: Settings) -> list[TpuPool]:
    """Pools whose nodes have the same accelerator and topology labels; their machine types may differ."""
    return [
        pool
        for pool in settings.tpu_pools
        if (pool_slice(pool).accelerator, pool.topology) == (tpu_slice.accelerator, tpu_slice.topology)
    ]


def only_pools(workload: TpuBatch | Multislice, settings: Settings) -> list[str]:
    """Names of the pools that the workload must be restricted to, as other pools have the same labels."""
    own = pools_of(workload, settings)
    others = [pool for pool in _alike(workload_slice(workload, settings), settings) if pool not in own]
    named = isinstance(workload, Multislice) and pool_of_slice(workload, settings)
    return [pool.name for pool in own] if len(own) > 1 and others and not named else []


def pool_of_slice(run: Multislice, settings: Settings) -> list[str]:
    """The pool of each slice of a run, if its pools grow. Otherwise JobSet finds free pools."""
    own = [pool for pool in pools_of(run, settings) if isinstance(pool, TpuPool)]
    return [pool.name for pool in own[: run.slices]] if any(grows(pool) for pool in own) else []


def queued_seconds(run: Run, settings: Settings) -> int | None:
    """Maximum duration in seconds of a run with queued provisioning; None on other nodes.

    It is the run's own, else the shortest of its pools.
    """
    modes = [pool.capacity for pool in pools_of(run, settings)]
    allowed = [mode.max_run_duration_seconds for mode in modes if isinstance(mode, QueuedFlexStart)]
    if not allowed or len(allowed) < len(modes):
        return None
    stated = run.max_run_duration_seconds if isinstance(run, TpuBatch) else None
    return stated or min(allowed)
