"""Ends the pods of stubs as a kubelet does: a deleted pod exists until its processes have ended.

KWOK ends other deleted pods at once. The order is preStop, SIGTERM, and at the end of the grace period SIGKILL:
https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination-flow
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any

import httpx

from emulator.cloud.api import MERGE_PATCH, Refused, answer

Object = dict[str, Any]
log = logging.getLogger(__name__)

# KWOK's stage pod-terminate leaves pods with this annotation alone: their end is that of processes.
ANNOTATION, STUB = "emulator.gke-ai/local-processes", "stub"
ENDED = ("Succeeded", "Failed")
# Longest preStop hook in seconds: longer ones are cut short, so that tests and `make down` don't wait for them.
PRE_STOP_VARIABLE = "GKE_AI_PRE_STOP_SECONDS"
PRE_STOP_SECONDS = 5.0
# A container whose preStop hook took the whole grace period has this time left: `minimumGracePeriodInSeconds` in
# https://github.com/kubernetes/kubernetes/blob/v1.34.0/pkg/kubelet/kuberuntime/kuberuntime_container.go
MIN_GRACE_SECONDS = 2.0
GONE = (httpx.codes.NOT_FOUND, httpx.codes.CONFLICT)
PAUSE_SECONDS = 0.5


async def after_pre_stop(pre_stop: float, grace: float) -> float:
    """Sleeps for the preStop hook. Returns the seconds between SIGTERM and SIGKILL."""
    if not grace:
        return 0
    longest = float(os.environ.get(PRE_STOP_VARIABLE) or PRE_STOP_SECONDS)
    await asyncio.sleep(min(pre_stop, grace, longest))
    return max(grace - pre_stop, MIN_GRACE_SECONDS)


def is_held(pod: Object) -> bool:
    """Whether a pod ends with its processes."""
    return bool(pod["metadata"].get("annotations", {}).get(ANNOTATION) == STUB)


async def hold(api: httpx.AsyncClient, pod: Object) -> None:
    """Lets KWOK leave the end of a pod alone."""
    await _patch(api, pod, "", {"metadata": {"annotations": {ANNOTATION: STUB}}})


async def release(api: httpx.AsyncClient, pod: Object) -> None:
    """Ends a deleted pod whose processes have ended. KWOK then deletes it."""
    conditions = [
        {**condition, "status": "False", "reason": "PodFailed"}
        if condition["type"] in ("Ready", "ContainersReady")
        else condition
        for condition in pod["status"].get("conditions", [])
    ]
    await _patch(api, pod, "/status", {"status": {"phase": "Failed", "conditions": conditions}})


async def _patch(api: httpx.AsyncClient, pod: Object, subresource: str, patch: Object) -> None:
    """Changes a pod, if it still exists. Tries again while the API server fails."""
    metadata = pod["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}{subresource}"
    # The API server refuses the change of another pod with the same name.
    body = {**patch, "metadata": {**patch.get("metadata", {}), "uid": metadata["uid"]}}
    while True:
        try:
            answer(await api.patch(path, json=body, headers=MERGE_PATCH))
            return
        except (httpx.HTTPError, Refused) as error:
            if isinstance(error, Refused) and error.status in GONE:
                return
            log.warning("%s: %s, trying again", path, error)
            await asyncio.sleep(PAUSE_SECONDS)
