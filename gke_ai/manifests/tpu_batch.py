"""The Job of a batch run on one TPU slice."""

from __future__ import annotations

from gke_ai.manifests.job import (
    Object,
    Place,
    job_of,
    metadata,
    pod_failure_policy,
    queued_annotations,
    restart_policy,
    service_of,
    template_metadata,
    tpu_pod,
)
from gke_ai.settings.model import TpuBatch


def job(run: TpuBatch, place: Place) -> Object:
    """The Job of a TPU batch run: Indexed if its slice has several machines."""
    pod = tpu_pod(run, place)
    spec = {**pod_failure_policy(run, "Ignore"), "template": {**template_metadata(run), "spec": pod}}
    if place.hosts > 1:
        spec |= {"completions": place.hosts, "parallelism": place.hosts, "completionMode": "Indexed"}
        pod |= {"subdomain": service_of(run), "restartPolicy": "Never"}
    else:
        pod["restartPolicy"] = restart_policy(run, "OnFailure")
    if (failures := run.allowed_failures(place.hosts)) is not None:
        spec["backoffLimit"] = failures
    if run.queue is not None:
        spec["suspend"] = True  # Kueue starts it
    return job_of(metadata(run, run.object_name, queued_annotations(place.queued_seconds)), spec)
