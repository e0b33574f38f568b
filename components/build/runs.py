"""Training and batch runs, in the order of their queues."""

from __future__ import annotations

from typing import TypedDict

import pulumi

from components import FinetuneJob, GkeCluster, MultisliceJob, TpuBatchJob, TrainingJob
from components.build.cluster import in_cluster
from components.build.prerequisites import Prerequisites
from components.runs import RunComponent
from settings import Settings, model, plan


def create_runs(
    stack: Settings, cluster: GkeCluster, prerequisites: Prerequisites
) -> list[tuple[model.Run, RunComponent]]:
    """The runs, each after the previous run of its queue, or of its section without a queue."""
    runs = [(run, plan.cluster_queue_of(run, stack)) for run in plan.runs(stack)]
    last_runs = {queue.name: run for run, queue in runs if queue}
    components: list[tuple[model.Run, RunComponent]] = []
    latest: dict[object, RunComponent] = {}
    for run, queue in runs:
        line = queue.name if queue else type(run)
        before: list[pulumi.Input[pulumi.Resource]] = [
            *prerequisites.of(run),
            *([latest[line]] if line in latest else []),
        ]
        last_in_queue = queue is not None and last_runs[queue.name] is run
        latest[line] = create_run(run, stack, cluster, in_cluster(cluster, *before), last_in_queue)
        components.append((run, latest[line]))
    return components


class Placement(TypedDict):
    """Keyword arguments of every run's component: the nodes that it runs on, and its place in its queue."""

    node_selector: dict[str, str]
    queued_seconds: int | None
    kubeconfig: pulumi.Output[str]
    last_in_queue: bool


def create_run(
    run: model.Run, stack: Settings, cluster: GkeCluster, opts: pulumi.ResourceOptions, last_in_queue: bool
) -> RunComponent:
    """The component of a run, with the nodes that it runs on."""
    name = f"{run.namespace}/{run.name}"
    placement: Placement = {
        "node_selector": plan.node_selector(run, stack),
        "queued_seconds": plan.queued_seconds(run, stack),
        "kubeconfig": cluster.kubeconfig,
        "last_in_queue": last_in_queue,
    }
    if isinstance(run, model.FineTune):
        return FinetuneJob(name, run, opts, **placement)
    if isinstance(run, model.TrainingRun):
        return TrainingJob(name, run, opts, **placement)
    tpu_slice, only_pools = plan.workload_slice(run, stack), plan.only_pools(run, stack)
    hosts, chips = tpu_slice.hosts, tpu_slice.chips_per_host
    if isinstance(run, model.TpuBatch):
        return TpuBatchJob(name, run, opts, hosts=hosts, chips_per_host=chips, only_pools=only_pools, **placement)
    pool_of_slice = plan.pool_of_slice(run, stack)
    return MultisliceJob(
        name,
        run,
        opts,
        hosts=hosts,
        chips_per_host=chips,
        only_pools=only_pools,
        pool_of_slice=pool_of_slice,
        **placement,
    )
