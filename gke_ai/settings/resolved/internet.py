"""External hosts that pods download from."""

from __future__ import annotations

from collections.abc import Sequence

from gke_ai.catalog.engines.model_cache import FILL_IMAGE, HUB
from gke_ai.catalog.fabric.nvlink import IMAGE as NVLINK_IMAGE
from gke_ai.catalog.project.registries import is_googles, registry_of
from gke_ai.settings.model import Workload
from gke_ai.settings.resolved.model_cache import Download


def external_hosts(
    controllers: Sequence[str], workloads: Sequence[Workload], downloads: Sequence[Download], *, nvlink: bool
) -> dict[str, str]:
    """Each host with the first controller, workload or download that needs it.

    Google's registries are not among them: nodes without external IP addresses reach them by Private Google Access.
    """
    hosts = [("registry.k8s.io", controller) for controller in controllers]
    if nvlink:
        hosts.append((registry_of(NVLINK_IMAGE), "NVIDIA's DRA driver"))
    for workload in workloads:
        hosts += [(host, workload.name) for host in map(registry_of, workload.images) if not is_googles(host)]
        if workload.token is not None:
            hosts.append((HUB, workload.name))
    for download in downloads:
        hosts += [(registry_of(FILL_IMAGE), download.name), (HUB, download.name)]
    first_users: dict[str, str] = {}
    for host, user in hosts:
        first_users.setdefault(host, user)
    return first_users
