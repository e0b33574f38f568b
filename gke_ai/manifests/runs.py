"""All objects of a run, from its section and its nodes."""

from __future__ import annotations

from gke_ai.manifests import finetune, multislice, tpu_batch, training_job
from gke_ai.manifests.job import Object, Place, headless_service
from gke_ai.settings.model import FineTune, Multislice, Run, TpuBatch, TrainingRun
from gke_ai.settings.resolved import Placed


def place_of(placed: Placed[Run]) -> Place:
    """The nodes of a run."""
    each = placed.slice if placed.has_slice else None
    return Place(
        placed.node_selector,
        placed.queued_seconds,
        hosts=each.hosts if each else 1,
        chips_per_host=each.chips_per_host if each else 0,
        only_pools=placed.only_pools,
        pool_of_slice=placed.pool_of_slice,
        fabric=placed.fabric,
    )


def objects_of(run: Run, place: Place) -> list[Object]:
    """The objects of a run in the order of their creation: its Service, if it has its own, and its Job or JobSet."""
    match run:
        case FineTune():
            return [headless_service(run), finetune.job(run, place)]
        case TrainingRun():
            return [training_job.jobset(run, place)]
        case TpuBatch():
            return [*([headless_service(run)] if place.hosts > 1 else []), tpu_batch.job(run, place)]
        case Multislice():
            return [multislice.jobset(run, place)]
