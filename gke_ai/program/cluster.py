"""The APIs of the project and the cluster."""

from __future__ import annotations

import pulumi
from pulumi import ResourceOptions

from gke_ai.catalog.project.apis import OF_CLUSTERS
from gke_ai.components import GkeCluster, ProjectApis
from gke_ai.components.cluster.existing_content import check_content
from gke_ai.settings import ResolvedStack
from gke_ai.settings.resolved import needs
from gke_ai.settings.resolved.tenants import security_group


class Apis:
    """The Google Cloud APIs that the stack enables, if it enables any."""

    def __init__(self, stack: ResolvedStack, project: str) -> None:
        self._services: dict[str, pulumi.Resource] = {}
        if stack.settings.enable_apis:
            self._services.update(ProjectApis("apis", project=project, apis=needs.apis(stack)).services)

    def enabled(self, *names: str) -> list[pulumi.Resource]:
        """The resources that enable these APIs. Others wait for them."""
        return [service for name, service in self._services.items() if name in names]


def create_cluster(stack: ResolvedStack, project: str, apis: Apis) -> GkeCluster:
    """The cluster with its system pool and its provider, and with what other sections need of it."""
    cluster = GkeCluster(
        stack.cluster.name,
        stack.cluster,
        ResourceOptions(depends_on=apis.enabled(*OF_CLUSTERS)),
        project=project,
        network_policy=needs.network_policy(stack),
        managed_prometheus=stack.settings.monitoring is not None,
        security_group=security_group(stack.settings.tenants),
        secret_sync=stack.settings.hf_token_secret is not None,
        workload_identity=needs.uses_workload_identity(stack),
        bucket_volumes=bool(stack.bucket_mounts or stack.downloads),
        gateway_api=stack.settings.gateway is not None,
        ray_operator=stack.queues.ray == "addon",
        rdma=needs.has_rdma(stack),
        gpudirect=any(pool.fabric.technology for pool in stack.pools),
        bare_metal=needs.has_bare_metal(stack),
        registry_reader=needs.reads_registry(stack, project),
    )
    expected = needs.of_cluster(stack)
    if expected and cluster.kubeconfig_at_once:
        check_content(expected, cluster.kubeconfig_at_once)
    return cluster


def in_cluster(cluster: GkeCluster, *after: pulumi.Input[pulumi.Resource]) -> ResourceOptions:
    """Options of a component in the cluster that waits for `after`."""
    return ResourceOptions(providers={"kubernetes": cluster.provider}, depends_on=list(after))
