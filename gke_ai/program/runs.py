"""Training and batch runs, in the order of their queues."""

from __future__ import annotations

from typing import Any

import pulumi

from gke_ai.components import FinetuneJob, GkeCluster, MultisliceJob, TpuBatchJob, TrainingJob
from gke_ai.components.runs.job import RunComponent
from gke_ai.program.cluster import after
from gke_ai.program.prerequisites import Prerequisites
from gke_ai.settings import model
from gke_ai.settings.resolved import Placed


def create_runs(
    runs: list[Placed[model.Run]], cluster: GkeCluster, prerequisites: Prerequisites
) -> list[tuple[model.Run, RunComponent[model.Run]]]:
    """The runs, each after the previous run of its queue, or of its section without a queue."""
    last_runs = {run.queue.section.name: run for run in runs if run.queue}
    components: list[tuple[model.Run, RunComponent[model.Run]]] = []
    latest: dict[object, RunComponent[model.Run]] = {}
    for run in runs:
        queue = run.queue.section.name if run.queue else None
        line = queue or type(run.section)
        before: list[pulumi.Input[pulumi.Resource]] = [
            *prerequisites.of(run),
            *([latest[line]] if line in latest else []),
        ]
        latest[line] = KINDS[type(run.section)].of(
            f"{run.section.namespace}/{run.section.name}",
            after(*before),
            section=run.section,
            cluster=cluster,
            namespace=prerequisites.namespaces[run.section.namespace],
            placed=run,
            last_in_queue=queue is not None and last_runs[queue] is run,
        )
        components.append((run.section, latest[line]))
    return components


KINDS: dict[type[model.Run], Any] = {
    model.FineTune: FinetuneJob,
    model.TrainingRun: TrainingJob,
    model.TpuBatch: TpuBatchJob,
    model.Multislice: MultisliceJob,
}
