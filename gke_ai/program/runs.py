"""Training and batch runs, in the order of their queues."""

from __future__ import annotations

from typing import TypedDict

import pulumi

from gke_ai.components import FinetuneJob, GkeCluster, MultisliceJob, TpuBatchJob, TrainingJob
from gke_ai.components.runs.job import RunComponent
from gke_ai.program.cluster import in_cluster
from gke_ai.program.prerequisites import Prerequisites
from gke_ai.settings import model
from gke_ai.settings.resolved import Placed


def create_runs(
    runs: list[Placed[model.Run]], cluster: GkeCluster, prerequisites: Prerequisites
) -> list[tuple[model.Run, RunComponent]]:
    """The runs, each after the previous run of its queue, or of its section without a queue."""
    last_runs = {run.queue.section.name: run for run in runs if run.queue}
    components: list[tuple[model.Run, RunComponent]] = []
    latest: dict[object, RunComponent] = {}
    for run in runs:
        queue = run.queue.section.name if run.queue else None
        line = queue or type(run.section)
        before: list[pulumi.Input[pulumi.Resource]] = [
            *prerequisites.of(run),
            *([latest[line]] if line in latest else []),
        ]
        last_in_queue = queue is not None and last_runs[queue] is run
        latest[line] = create_run(run, cluster, in_cluster(cluster, *before), last_in_queue)
        components.append((run.section, latest[line]))
    return components


class Placement(TypedDict):
    """Keyword arguments of every run's component: the nodes that it runs on, and its place in its queue."""

    node_selector: dict[str, str]
    queued_seconds: int | None
    kubeconfig: pulumi.Output[str]
    last_in_queue: bool


def create_run(
    placed: Placed[model.Run], cluster: GkeCluster, opts: pulumi.ResourceOptions, last_in_queue: bool
) -> RunComponent:
    """The component of a run, with the nodes that it runs on."""
    run = placed.section
    name = f"{run.namespace}/{run.name}"
    placement: Placement = {
        "node_selector": placed.node_selector,
        "queued_seconds": placed.queued_seconds,
        "kubeconfig": cluster.kubeconfig,
        "last_in_queue": last_in_queue,
    }
    nics, technology = placed.claims_nics, placed.gpudirect.name if placed.gpudirect else None
    if isinstance(run, model.FineTune):
        return FinetuneJob(name, run, opts, **placement, claims_nics=nics, gpudirect=technology)
    if isinstance(run, model.TrainingRun):
        return TrainingJob(name, run, opts, **placement, claims_nics=nics, gpudirect=technology)
    hosts, chips, only_pools = placed.slice.hosts, placed.slice.chips_per_host, placed.only_pools
    if isinstance(run, model.TpuBatch):
        return TpuBatchJob(name, run, opts, hosts=hosts, chips_per_host=chips, only_pools=only_pools, **placement)
    return MultisliceJob(
        name,
        run,
        opts,
        hosts=hosts,
        chips_per_host=chips,
        only_pools=only_pools,
        pool_of_slice=placed.pool_of_slice,
        **placement,
    )
