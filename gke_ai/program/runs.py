"""Training and batch runs, in the order of their queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

import pulumi

from gke_ai.components import FinetuneJob, GkeCluster, MultisliceJob, TpuBatchJob, TrainingJob
from gke_ai.components.runs.job import RunComponent
from gke_ai.manifests.runs import place_of
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
        owner = prerequisites.namespaces[run.section.namespace].run_owner()
        latest[line] = create_run(run, cluster, in_cluster(cluster, *before), last_in_queue, owner)
        components.append((run.section, latest[line]))
    return components


class OfEveryRun(TypedDict):
    """The arguments that the components of all runs take."""

    node_selector: Mapping[str, str]
    queued_seconds: int | None
    kubeconfig: pulumi.Output[str]
    last_in_queue: bool
    owner: pulumi.Input[Mapping[str, str]]


class OfGpuRun(OfEveryRun):
    """The arguments of a run on GPUs: the network between its nodes."""

    claims_nics: bool
    gpudirect: str | None


class OfTpuRun(OfEveryRun):
    """The arguments of a run on TPUs: its slices."""

    hosts: int
    chips_per_host: int
    only_pools: Sequence[str]


def create_run(
    placed: Placed[model.Run],
    cluster: GkeCluster,
    opts: pulumi.ResourceOptions,
    last_in_queue: bool,
    owner: pulumi.Input[Mapping[str, str]],
) -> RunComponent:
    """The component of a run, with the nodes that it runs on."""
    run, place = placed.section, place_of(placed)
    name, technology = f"{run.namespace}/{run.name}", place.fabric.technology
    shared: OfEveryRun = {
        "node_selector": place.node_selector,
        "queued_seconds": place.queued_seconds,
        "kubeconfig": cluster.kubeconfig,
        "last_in_queue": last_in_queue,
        "owner": owner,
    }
    network = technology.name if technology else None
    gpus: OfGpuRun = {**shared, "claims_nics": bool(place.fabric.nics), "gpudirect": network}
    hosts, chips = place.hosts, place.chips_per_host
    tpus: OfTpuRun = {**shared, "hosts": hosts, "chips_per_host": chips, "only_pools": place.only_pools}
    match run:
        case model.FineTune():
            return FinetuneJob(name, run, opts, **gpus)
        case model.TrainingRun():
            return TrainingJob(name, run, opts, **gpus)
        case model.TpuBatch():
            return TpuBatchJob(name, run, opts, **tpus)
        case model.Multislice():
            return MultisliceJob(name, run, opts, **tpus, pool_of_slice=place.pool_of_slice)
