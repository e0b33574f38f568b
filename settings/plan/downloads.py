"""Container images and external hosts that pods download from."""

from __future__ import annotations

import re

from catalog.model_cache import FILL_IMAGE, HUB
from catalog.registries import is_googles, registry_of
from settings.model import Settings
from settings.plan.model_cache import downloads as model_downloads
from settings.plan.workload_lists import jobsets, workloads


def internet(settings: Settings) -> dict[str, str]:
    """External hosts that pods download from, each with the first workload that needs it.

    Google's registries are not among them: nodes without external IP addresses reach them by Private Google Access.
    """
    managers = ["Kueue"] if settings.queues else ["JobSet"] if jobsets(settings) else []
    adapters = (
        ["metrics adapter"] if any(autoscaler.adapter == "prometheus" for autoscaler in settings.autoscaling) else []
    )
    pickers = ["endpoint picker"] if settings.gateway else []
    downloads = [("registry.k8s.io", user) for user in (*managers, *adapters, *pickers)]
    for workload in workloads(settings):
        downloads += [(host, workload.name) for host in map(registry_of, workload.images) if not is_googles(host)]
        if workload.token is not None:
            downloads.append((HUB, workload.name))
    for download in model_downloads(settings):
        downloads += [(registry_of(FILL_IMAGE), download.name), (HUB, download.name)]
    first_users: dict[str, str] = {}
    for host, user in downloads:
        first_users.setdefault(host, user)
    return first_users


def reads_registry(settings: Settings, project: str) -> bool:
    """Whether an image of the stack is in the project's own Artifact Registry, which may not be public."""
    # https://cloud.google.com/artifact-registry/docs/docker/names
    own = re.compile(rf"([a-z0-9-]+-docker\.pkg\.dev|([a-z]+\.)?gcr\.io)/{re.escape(project)}/.+")
    return any(own.fullmatch(image) for workload in workloads(settings) for image in workload.images)
