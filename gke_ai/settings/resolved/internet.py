"""External hosts that pods download from."""

from __future__ import annotations

from gke_ai.catalog.engines.model_cache import FILL_IMAGE, HUB
from gke_ai.catalog.fabric.nvlink import IMAGE as NVLINK_IMAGE
from gke_ai.catalog.project.registries import is_googles, registry_of
from gke_ai.settings.resolved.claims import use_nvlink
from gke_ai.settings.resolved.stack import ResolvedStack


def external_hosts(stack: ResolvedStack) -> dict[str, str]:
    """Each host with the first controller, workload or download that needs it.

    Google's registries are not among them: nodes without external IP addresses reach them by Private Google Access.
    """
    controllers = ["Kueue"] if stack.settings.queues else ["JobSet"] if stack.jobsets else []
    if any(autoscaler.adapter == "prometheus" for autoscaler in stack.settings.autoscaling):
        controllers.append("metrics adapter")
    if stack.settings.gateway:
        controllers.append("endpoint picker")
    hosts = [("registry.k8s.io", controller) for controller in controllers]
    if use_nvlink(stack.claims):
        hosts.append((registry_of(NVLINK_IMAGE), "NVIDIA's DRA driver"))
    for workload in stack.workloads:
        hosts += [(host, workload.name) for host in map(registry_of, workload.images) if not is_googles(host)]
        if workload.token is not None:
            hosts.append((HUB, workload.name))
    for download in stack.downloads:
        hosts += [(registry_of(FILL_IMAGE), download.name), (HUB, download.name)]
    first_users: dict[str, str] = {}
    for host, user in hosts:
        first_users.setdefault(host, user)
    return first_users
