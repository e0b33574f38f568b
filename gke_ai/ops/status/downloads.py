"""Models that Jobs download into buckets, for the status."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gke_ai.catalog.engines.model_cache import MOUNT_PATH
from gke_ai.catalog.kueue.namespaces import MODEL_CACHE
from gke_ai.kube.objects import holds


def download_rows(jobs: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yields a row per Job that fills a bucket: its name, the folder of the model, and the state."""
    for job in jobs:
        if job["metadata"]["namespace"] != MODEL_CACHE:
            continue
        spec = job["spec"]["template"]["spec"]
        variables = {variable["name"]: variable.get("value", "") for variable in spec["containers"][0].get("env", [])}
        buckets = [volume["csi"]["volumeAttributes"]["bucketName"] for volume in spec["volumes"] if "csi" in volume]
        folder = variables.get("MODEL_DIRECTORY", "").removeprefix(MOUNT_PATH)
        yield job["metadata"]["name"], f"gs://{''.join(buckets)}{folder}", state(job)


def cold_starts(outputs: Mapping[str, Any]) -> dict[str, str]:
    """Returns how long a new replica reads its model, by server, from the outputs of a stack."""
    reading = [server for server in outputs.get("servers") or [] if server.get("coldStartSeconds")]
    return {f"{item['namespace']}/{item['name']}": f"about {item['coldStartSeconds']} s" for item in reading}


def state(job: Mapping[str, Any]) -> str:
    """Whether the bucket has the model, and else why not."""
    if holds(job, "Complete"):
        return "complete"
    if holds(job, "Failed"):
        return f"failed: kubectl -n {MODEL_CACHE} logs job/{job['metadata']['name']}; up repeats it"
    return "downloads" if job.get("status", {}).get("active") else "waits"
