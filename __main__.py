"""The program: reads the stack's settings, composes its components, and exports its outputs.

It is the same in every environment. Only the configuration, and the cloud behind the plugins, differ.
"""

from __future__ import annotations

import gc

# The SDKs' classes stay until the end. Looking through them again and again took a quarter of the time to load them.
gc.set_threshold(20_000, 20, 20)

from gke_ai.program.cluster import Apis, create_cluster
from gke_ai.program.configuration import Secrets, load
from gke_ai.program.gateway import create_gateway
from gke_ai.program.ledger import create_ledger
from gke_ai.program.model_cache import create_downloads
from gke_ai.program.outputs import export
from gke_ai.program.pools import create_buckets, create_compute_classes, create_nvlink_driver, create_pools
from gke_ai.program.prerequisites import Prerequisites
from gke_ai.program.queues import create_kueue, create_namespaces, create_tenants
from gke_ai.program.runs import create_runs
from gke_ai.program.servers import create_autoscaling, create_monitoring, create_servers
from gke_ai.settings import ResolvedStack


def build(stack: ResolvedStack, project: str, secrets: Secrets) -> None:
    """Create every component of the stack. Each one waits for those that it gets as arguments."""
    apis = Apis(stack, project)
    cluster = create_cluster(stack, project, apis)

    buckets = create_buckets(stack, project, cluster, apis)
    pools = create_pools(stack, cluster, apis)
    classes = create_compute_classes(stack, cluster)

    kueue = create_kueue(stack, cluster)
    driver = create_nvlink_driver(stack, cluster)
    namespaces = create_namespaces(stack, project, secrets, cluster, apis, kueue, buckets, driver)
    tenants = create_tenants(stack, project, cluster, namespaces)
    create_ledger(stack, cluster, kueue, namespaces)

    downloads = create_downloads(stack, project, secrets.token, cluster, apis, buckets)
    prerequisites = Prerequisites(pools, classes, namespaces, tenants, downloads)
    servers = create_servers(stack, cluster, prerequisites)
    create_autoscaling(stack, cluster, namespaces, servers)
    gateway = create_gateway(stack, cluster, apis, prerequisites, servers)
    monitoring = create_monitoring(stack, cluster, kueue, servers)
    runs = create_runs(stack.placed_runs, cluster, prerequisites)

    export(stack, project, cluster, buckets, namespaces, servers, runs, gateway, monitoring)


build(*load())
