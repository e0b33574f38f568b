"""The Job of a batch run on one TPU slice."""

from __future__ import annotations

from gke_ai.manifests import job as jobs
from gke_ai.settings.model import TpuBatch


def job(run: TpuBatch, place: jobs.Place) -> jobs.Object:
    """The Job of a TPU batch run: Indexed if its slice has several machines."""
    pod = jobs.tpu_pod(run, place)
    spec = {**jobs.pod_failure_policy(run, "Ignore"), "template": {**jobs.template_metadata(run), "spec": pod}}
    if place.hosts > 1:
        spec |= {"completions": place.hosts, "parallelism": place.hosts, "completionMode": "Indexed"}
        pod |= {"subdomain": jobs.service_of(run), "restartPolicy": "Never"}
    else:
        pod["restartPolicy"] = jobs.restart_policy(run, "OnFailure")
    if (failures := run.allowed_failures(place.hosts)) is not None:
        spec["backoffLimit"] = failures
    if run.queue is not None:
        spec["suspend"] = True  # Kueue starts it
    return jobs.job_of(jobs.metadata(run, run.object_name, jobs.queued_annotations(place.queued_seconds)), spec)
