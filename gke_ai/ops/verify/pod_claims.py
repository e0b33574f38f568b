"""Claims about pods: pulled images, and the time that servers take to load their model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gke_ai.kube.objects import Object
from gke_ai.kube.starts import load_seconds, startup_limit
from gke_ai.kube.values import items, mapping
from gke_ai.ops.verify.checks import FAIL, PASS, UNSEEN, Check, Comparison, judged
from gke_ai.ops.verify.live import images
from gke_ai.registered.registration import Resource, selects
from gke_ai.workspace.stack import kubectl

PULL_ERRORS = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")


@dataclass
class PodClaims(Comparison):
    """Claims about the pods of the stack."""

    def images(self) -> Iterator[Check]:
        """Each image of the stack's pods was pulled; a pinned image has its digest."""
        for image, owner in images(self.stack).items():
            statuses = list(image_statuses(image, self.live.pods))
            waiting = [mapping(status, "state", "waiting") for status in statuses]
            errors = [state for state in waiting if state.get("reason") in PULL_ERRORS]
            pulled = sorted({str(status["imageID"]) for status in statuses if status.get("imageID")})
            ran = pulled or any("waiting" not in (status.get("state") or {"waiting": 1}) for status in statuses)
            digest = image.partition("@")[2]
            if errors:
                found = f"{errors[0].get('reason')}: {errors[0].get('message', '')}".strip(": ")
                yield Check(FAIL, "image", owner, image, found[:300])
            elif not ran:
                yield Check(UNSEEN, "image", owner, image, "–", f"a running pod of {owner}")
            elif digest and pulled and not any(image_id.endswith(digest) for image_id in pulled):
                yield Check(FAIL, "image", owner, image, pulled[0])
            else:
                yield Check(PASS, "image", owner, image, ", ".join(pulled) or "its container runs")

    def servers(self) -> Iterator[Check]:
        """Each server loads its model within the limit of its startup probe."""
        for deployment in self.stack.of_kind("Deployment"):
            for container, seconds in startup_probes(deployment):
                relied_on = f"ready within {seconds} s"
                pods = pods_of(deployment, self.live.pods)
                took = [load_time for pod in pods if (load_time := load_seconds(pod, container)) is not None]
                failing = [
                    status
                    for pod in pods
                    for status in items(pod, "status", "containerStatuses")
                    if status.get("name") == container and status.get("restartCount") and not status.get("ready")
                ]
                slow = max(took, default=0)
                if failing:
                    found = f"not ready after {failing[0]['restartCount']} restarts"
                    step = f"{kubectl()} -n {deployment.namespace} logs deployment/{deployment.object_name} --previous"
                    yield Check(FAIL, "model load", deployment.path, relied_on, found, step)
                elif not took:
                    yield Check(UNSEEN, "model load", deployment.path, relied_on, "–", "a replica that is ready")
                else:
                    yield judged(slow <= seconds, "model load", deployment.path, relied_on, f"{slow:.0f} s")


def image_statuses(image: str, pods: list[Object]) -> Iterator[Mapping[str, Any]]:
    """Yields the statuses of containers that run an image."""
    for pod in pods:
        containers = [*items(pod, "spec", "initContainers"), *items(pod, "spec", "containers")]
        names = {container.get("name") for container in containers if container.get("image") == image}
        statuses = [*items(pod, "status", "initContainerStatuses"), *items(pod, "status", "containerStatuses")]
        yield from (status for status in statuses if status.get("name") in names)


def pods_of(deployment: Resource, pods: list[Object]) -> list[Object]:
    """Returns the pods of a recorded Deployment."""
    selector = mapping(deployment.props, "spec", "selector", "matchLabels")
    beside = (pod for pod in pods if pod["metadata"]["namespace"] == deployment.namespace)
    return [pod for pod in beside if selects(selector, pod["metadata"].get("labels") or {})]


def startup_probes(deployment: Resource) -> Iterator[tuple[str, int]]:
    """Yields the containers of a Deployment with a startup probe, and the limit of each probe in seconds."""
    for container in items(deployment.props, "spec", "template", "spec", "containers"):
        if (limit := startup_limit(container)) is not None:
            yield str(container.get("name")), limit
