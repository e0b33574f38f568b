"""The APIs of the project and the cluster."""

from __future__ import annotations

import pulumi
from pulumi import ResourceOptions

from gke_ai.catalog.project.apis import OF_CLUSTERS
from gke_ai.components import GkeCluster, ProjectApis
from gke_ai.components.cluster.existing_cluster import check_content
from gke_ai.settings import ResolvedStack
from gke_ai.settings.resolved import needs


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
    features = needs.cluster_features(stack)
    cluster = GkeCluster.of(
        stack.cluster.name,
        after(*apis.enabled(*OF_CLUSTERS)),
        section=stack.cluster,
        project=project,
        network_policy=features.network_policy,
        managed_prometheus=features.managed_prometheus,
        security_group=features.security_group,
        secret_sync=features.secret_sync,
        workload_identity=features.workload_identity,
        bucket_volumes=features.bucket_volumes,
        gateway_api=features.gateway_api,
        ray_operator=features.ray_operator,
        rdma=features.rdma,
        gpudirect=features.gpudirect,
        bare_metal=features.bare_metal,
        scale_to_zero=features.scale_to_zero,
        registry_reader=needs.reads_registry(stack, project),
    )
    expected = needs.of_cluster(stack)
    if expected and cluster.kubeconfig_at_once:
        check_content(expected, cluster.kubeconfig_at_once)
    return cluster


def after(*resources: pulumi.Input[pulumi.Resource]) -> ResourceOptions:
    """Options of a component that waits for further resources than its arguments."""
    return ResourceOptions(depends_on=list(resources))
