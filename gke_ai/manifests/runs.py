"""All objects of a run, from its section and its nodes."""

from __future__ import annotations

from gke_ai.manifests import finetune, multislice, tpu_batch, training_job
from gke_ai.manifests.job import Object, Place, headless_service
from gke_ai.settings.model import FineTune, Run, TpuBatch, TrainingRun
from gke_ai.settings.resolved import Placed


def place_of(placed: Placed[Run]) -> Place:
    """The nodes of a run."""
    on_gpus = isinstance(placed.section, FineTune | TrainingRun)
    return Place(
        placed.node_selector,
        placed.queued_seconds,
        hosts=1 if on_gpus else placed.slice.hosts,
        chips_per_host=0 if on_gpus else placed.slice.chips_per_host,
        only_pools=() if on_gpus else placed.only_pools,
        pool_of_slice=placed.pool_of_slice,
        claims_nics=placed.claims_nics,
        gpudirect=placed.gpudirect,
    )


def objects_of(run: Run, place: Place) -> list[Object]:
    """The objects of a run in the order of their creation: its Service, if it has its own, and its Job or JobSet."""
    if isinstance(run, FineTune):
        return [headless_service(run), finetune.job(run, place)]
    if isinstance(run, TpuBatch):
        return [*([headless_service(run)] if place.hosts > 1 else []), tpu_batch.job(run, place)]
    return [training_job.jobset(run, place) if isinstance(run, TrainingRun) else multislice.jobset(run, place)]
