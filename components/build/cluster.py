"""The APIs of the project and the cluster."""

from __future__ import annotations

import pulumi
from pulumi import ResourceOptions

from catalog.apis import OF_CLUSTERS
from components import GkeCluster, ProjectApis
from settings import Settings, plan, tenancy


class Apis:
    """The Google Cloud APIs that the stack enables, if it enables any."""

    def __init__(self, stack: Settings, project: str) -> None:
        self._services: dict[str, pulumi.Resource] = {}
        if stack.enable_apis:
            self._services.update(ProjectApis("apis", project=project, apis=plan.apis(stack)).services)

    def enabled(self, *names: str) -> list[pulumi.Resource]:
        """The resources that enable these APIs. Others wait for them."""
        return [service for name, service in self._services.items() if name in names]


def create_cluster(stack: Settings, project: str, apis: Apis) -> GkeCluster:
    """The cluster with its system pool and its provider, and with the features that other sections need."""
    return GkeCluster(
        stack.cluster.name,
        stack.cluster,
        ResourceOptions(depends_on=apis.enabled(*OF_CLUSTERS)),
        project=project,
        network_policy=plan.network_policy(stack),
        managed_prometheus=stack.monitoring is not None,
        security_group=tenancy.security_group(stack),
        secret_sync=stack.hf_token_secret is not None,
        workload_identity=plan.uses_workload_identity(stack),
        bucket_volumes=bool(plan.bucket_mounts(stack) or plan.downloads(stack)),
        gateway_api=stack.gateway is not None,
        registry_reader=plan.reads_registry(stack, project),
    )


def in_cluster(cluster: GkeCluster, *after: pulumi.Input[pulumi.Resource]) -> ResourceOptions:
    """Options of a component in the cluster that waits for `after`."""
    return ResourceOptions(providers={"kubernetes": cluster.provider}, depends_on=list(after))
