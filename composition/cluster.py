"""The APIs of the project and the cluster."""

from __future__ import annotations

import pulumi
from pulumi import ResourceOptions

from catalog.apis import OF_CLUSTERS
from components import GkeCluster, GkeClusterArgs, ProjectApis
from components.base import arguments
from settings import Settings, plan, tenancy


class Apis:
    """The Google Cloud APIs that the stack enables, if it enables any."""

    def __init__(self, stack: Settings, project: str) -> None:
        self._services: dict[str, pulumi.Resource] = {}
        if stack.enable_apis:
            self._services.update(ProjectApis("apis", {"project": project, "apis": plan.apis(stack)}).services)

    def enabled(self, *names: str) -> list[pulumi.Resource]:
        """The resources that enable these APIs. Others wait for them."""
        return [service for name, service in self._services.items() if name in names]


def create_cluster(stack: Settings, project: str, apis: Apis) -> GkeCluster:
    """The cluster with its system pool and its provider."""
    opts = ResourceOptions(depends_on=apis.enabled(*OF_CLUSTERS))
    return GkeCluster(stack.cluster.name, cluster_arguments(stack, project), opts)


def cluster_arguments(stack: Settings, project: str) -> GkeClusterArgs:
    """Arguments of the `GkeCluster`: its section, and features that other sections need."""
    args: GkeClusterArgs = arguments(stack.cluster, project=project)
    if policy := plan.network_policy(stack):
        args["network_policy"] = policy
    if plan.reads_registry(stack, project):
        args["registry_reader"] = True
    if group := tenancy.security_group(stack):
        args["security_group"] = group
    if stack.hf_token_secret is not None:
        args["secret_sync"] = True
    if stack.monitoring is not None:
        args["managed_prometheus"] = True
    if plan.uses_workload_identity(stack):
        args["workload_identity"] = True
    if plan.bucket_mounts(stack):
        args["bucket_volumes"] = True
    return args


def in_cluster(cluster: GkeCluster, *after: pulumi.Resource) -> ResourceOptions:
    """Options of a component in the cluster that waits for `after`."""
    return ResourceOptions(providers={"kubernetes": cluster.provider}, depends_on=list(after))
