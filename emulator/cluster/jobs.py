"""Ends simulated Jobs: their containers run nothing, so a test decides when they end."""

from __future__ import annotations

from emulator.cloud.api import MERGE_PATCH, answer, client
from emulator.cloud.folder import Folder
from emulator.machine.polling import poll_until

# The annotation that KWOK's stages pod-succeed and pod-fail select.
FINISH = "emulator.gke-ai/finish"
_ENDED = ("Succeeded", "Failed")


class NothingRuns(Exception):
    """The Job has no running pod."""


def finish_job(name: str, namespace: str, job: str, succeeded: bool = True, timeout: float = 30) -> int:
    """Ends a Job's running pods in cluster `name` with exit code 0, or 1 if not `succeeded`.

    Returns the number of pods once all have ended.

    Raises:
        NoSuchCluster: The cluster doesn't exist.
        NothingRuns: The Job has no running pod: it is queued, finished or doesn't exist.
        TimeoutError: The pods don't end within `timeout` seconds.
    """
    pods_path = f"/api/v1/namespaces/{namespace}/pods"
    with client(Folder(name)) as api:
        selector = {"labelSelector": f"batch.kubernetes.io/job-name={job}"}
        pods = answer(api.get(pods_path, params=selector))["items"]
        running = [pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Running"]
        if not running:
            raise NothingRuns(f"Job {namespace}/{job} has no running pod: it is queued, finished or doesn't exist")
        annotation = {"metadata": {"annotations": {FINISH: "Succeeded" if succeeded else "Failed"}}}
        for pod in running:
            answer(api.patch(f"{pods_path}/{pod}", json=annotation, headers=MERGE_PATCH))

        def unfinished() -> list[str]:
            pods = answer(api.get(pods_path, params=selector))["items"]
            phases = {pod["metadata"]["name"]: pod["status"].get("phase") for pod in pods}
            return [pod for pod in running if pod in phases and phases[pod] not in _ENDED]

        if not poll_until(lambda: not unfinished(), timeout):
            raise TimeoutError(f"Job {namespace}/{job}: {', '.join(unfinished())} still run after {timeout:.0f} s")
        return len(running)
