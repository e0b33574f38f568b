"""How a simulated Job comes to an end: its containers run nothing, so whoever tests with it says when they are done."""

from __future__ import annotations

import time

from emulator.cluster.api import MERGE_PATCH, answer, client
from emulator.cluster.folder import Folder

# KWOK's stages pod-succeed and pod-fail look for it.
FINISH = "emulator.gke-ai/finish"
_ENDED = ("Succeeded", "Failed")


class NothingRuns(Exception):
    """The Job has no running pod to finish."""


def finish_job(name: str, namespace: str, job: str, succeeded: bool = True, timeout: float = 30) -> int:
    """End the containers of a Job's running pods in cluster `name`: exit code 0, or 1 if not `succeeded`.

    Returns how many pods have ended, once the last has.

    Raises:
        NoSuchCluster: there is no such cluster.
        NothingRuns: the Job has no running pod: it is queued, finished, or not there.
        TimeoutError: the pods don't end within `timeout` seconds.
    """
    pods_path = f"/api/v1/namespaces/{namespace}/pods"
    with client(Folder(name)) as api:
        selector = {"labelSelector": f"batch.kubernetes.io/job-name={job}"}
        found = answer(api.get(pods_path, params=selector))["items"]
        running = [pod["metadata"]["name"] for pod in found if pod["status"].get("phase") == "Running"]
        if not running:
            raise NothingRuns(f"Job {namespace}/{job} has no running pod: it is queued, finished or not there")
        annotation = {"metadata": {"annotations": {FINISH: "Succeeded" if succeeded else "Failed"}}}
        for pod in running:
            answer(api.patch(f"{pods_path}/{pod}", json=annotation, headers=MERGE_PATCH))
        deadline = time.monotonic() + timeout
        while True:
            now = {
                pod["metadata"]["name"]: pod["status"] for pod in answer(api.get(pods_path, params=selector))["items"]
            }
            unfinished = [pod for pod in running if pod in now and now[pod].get("phase") not in _ENDED]
            if not unfinished:
                return len(running)
            if time.monotonic() > deadline:
                raise TimeoutError(f"Job {namespace}/{job}: {', '.join(unfinished)} still run after {timeout:.0f} s")
            time.sleep(0.05)
