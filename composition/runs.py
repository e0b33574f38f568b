"""Training and batch runs, in the order of their queues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pulumi

from components import FinetuneJob, GkeCluster, MultisliceJob, TpuBatchJob, TrainingJob
from composition.cluster import in_cluster
from composition.prerequisites import Prerequisites
from settings import Settings, model, plan

RunComponent = FinetuneJob | MultisliceJob | TpuBatchJob | TrainingJob

# The component of a run, by its section.
RUNS: dict[type[model.Section], Callable[..., RunComponent]] = {
    model.FineTune: FinetuneJob,
    model.Multislice: MultisliceJob,
    model.TpuBatch: TpuBatchJob,
}


def create_runs(stack: Settings, cluster: GkeCluster, prerequisites: Prerequisites) -> list[RunComponent]:
    """The runs, each after the previous run of its queue, or of its section without a queue."""
    runs: list[RunComponent] = []
    latest: dict[object, RunComponent] = {}
    for run in [*stack.training, *stack.batch]:
        queue = plan.cluster_queue_of(run, stack)
        line = queue.name if queue else type(run)
        before: list[pulumi.Resource] = [*prerequisites.of(run), *([latest[line]] if line in latest else [])]
        name, opts = f"{run.namespace}/{run.name}", in_cluster(cluster, *before)
        if isinstance(run, model.TrainingRun):
            latest[line] = TrainingJob(
                name,
                run,
                opts,
                node_selector=plan.node_selector(run, stack),
                queued_seconds=plan.queued_seconds(run, stack),
                kubeconfig=cluster.kubeconfig,
                last_in_queue=plan.is_last_in_queue(run, stack),
            )
        else:
            latest[line] = RUNS[type(run)](name, run_arguments(run, stack, cluster), opts)
        runs.append(latest[line])
    return runs


def run_arguments(run: model.Run, stack: Settings, cluster: GkeCluster) -> dict[str, Any]:
    """Arguments of a run's component: its section, and the nodes that it runs on."""
    # Omitted keys stay omitted: the name of a run contains a hash of the keys that its configuration sets.
    args: dict[str, Any] = run.model_dump(exclude_unset=True)
    args |= {"node_selector": plan.node_selector(run, stack), "kubeconfig": cluster.kubeconfig}
    if seconds := plan.queued_seconds(run, stack):
        args["queued_seconds"] = seconds
    if plan.is_last_in_queue(run, stack):
        args["last_in_queue"] = True
    if not isinstance(run, model.FineTune):
        tpu_slice = plan.workload_slice(run, stack)
        args |= {"hosts": tpu_slice.hosts, "chips_per_host": tpu_slice.chips_per_host}
        args["only_pools"] = plan.only_pools(run, stack)
    if isinstance(run, model.Multislice):
        args["pool_of_slice"] = plan.pool_of_slice(run, stack)
    return args
