"""Kueue with its queues, namespaces and tenants."""

from __future__ import annotations

from typing import Any, TypedDict

import pulumi

from catalog.apis import SECRET_MANAGER
from components import (
    GkeCluster,
    KueueStack,
    KueueStackArgs,
    ModelBucket,
    Tenant,
    TenantArgs,
    WorkloadNamespace,
    WorkloadNamespaceArgs,
)
from components.base import arguments
from components.namespace import SecretManagerArgs
from composition.cluster import Apis, in_cluster
from settings import Settings, model, plan, tenancy


def create_kueue(stack: Settings, cluster: GkeCluster) -> KueueStack | None:
    """Kueue and JobSet with all queues, if the stack needs them."""
    if not stack.queues and not plan.jobsets(stack):
        return None
    # The managers of Kueue and JobSet run on the system pool, which is part of the cluster.
    return KueueStack("kueue", queue_arguments(stack, cluster), in_cluster(cluster, cluster))


def queue_arguments(stack: Settings, cluster: GkeCluster) -> KueueStackArgs:
    """Arguments of the `KueueStack`: the queues, with derived quotas and node labels of flavors."""
    queues = stack.queues or model.Queues()
    flavors: list[Any] = [
        {
            "name": flavor.name,
            "node_labels": plan.flavor_labels(flavor, stack),
            "queued_resource": plan.queued_resource(flavor, stack),
        }
        for flavor in queues.flavors
    ]
    args: KueueStackArgs = {
        "kubeconfig": cluster.kubeconfig,
        "namespaces": plan.namespaces(stack),
        "jobset": bool(plan.jobsets(stack) or stack.tenants),  # a tenant may submit JobSets
        "quota_metrics": stack.monitoring is not None,
        "flavors": flavors,
        "cluster_queues": [
            arguments(queue, flavors=[arguments(flavor, quota=plan.quota(flavor, stack)) for flavor in queue.flavors])
            for queue in queues.cluster_queues
        ],
        "priority_classes": [arguments(priority) for priority in queues.priority_classes],
        "manager_replicas": queues.manager_replicas,
        "pods_ready_timeout_seconds": plan.pods_ready_timeout(stack),
    }
    if queues.kueue_version:
        args["kueue_version"] = queues.kueue_version
    if queues.jobset_version:
        args["jobset_version"] = queues.jobset_version
    return args


def create_namespaces(
    stack: Settings,
    project: str,
    token: pulumi.Output[str] | None,
    cluster: GkeCluster,
    apis: Apis,
    kueue: KueueStack | None,
    buckets: dict[str, ModelBucket],
) -> dict[str, WorkloadNamespace]:
    """The namespaces by name. Pulumi deletes them before Kueue, which releases their workloads, and before buckets."""
    token_args = token_arguments(stack, project, token, cluster)
    return {
        name: WorkloadNamespace(
            name,
            namespace_arguments(name, stack, token_args),
            in_cluster(
                cluster,
                *([kueue] if kueue else []),
                *apis.enabled(SECRET_MANAGER),
                *(
                    buckets[bucket.name]
                    for bucket in stack.buckets
                    if any(grant.namespace == name for grant in tenancy.grants(bucket, stack))
                ),
            ),
        )
        for name in plan.namespaces(stack)
    }


class TokenArgs(TypedDict, total=False):
    """The arguments of a `WorkloadNamespace` that provide the token."""

    token: pulumi.Input[str] | None
    token_from: SecretManagerArgs


def token_arguments(stack: Settings, project: str, token: pulumi.Output[str] | None, cluster: GkeCluster) -> TokenArgs:
    """How a namespace gets the token: from this program, or directly from Secret Manager."""
    secret = stack.hf_token_secret
    if secret is None:
        return {"token": token}
    path = secret if "/" in secret else f"projects/{project}/secrets/{secret}"
    return {"token_from": {"secret": path, "project": project, "workload_pool": cluster.workload_pool}}


def namespace_arguments(name: str, stack: Settings, token: TokenArgs) -> WorkloadNamespaceArgs:
    """Arguments of a `WorkloadNamespace`: what its workloads need. `token` is from `token_arguments`."""
    workloads = [workload for workload in plan.workloads(stack) if workload.namespace == name]
    local_queues = stack.queues.local_queues if stack.queues else []
    tenant = tenancy.tenant_of(name, stack)
    # A tenant creates its own.
    existing = {"default", *((tenant.service_account, tenant.deployer) if tenant else ())}
    secrets: list[Any] = [secret.model_dump() for workload in workloads if (secret := workload.token)]
    args: WorkloadNamespaceArgs = {
        "name": name,
        "token_secrets": secrets,
        "service_accounts": sorted({workload.service_account for workload in workloads} - existing),
        "local_queues": [
            {"name": queue.name, "cluster_queue": queue.cluster_queue}
            for queue in local_queues
            if queue.namespace == name
        ],
    }
    if tenant:
        args["labels"] = pod_security(tenant)
    if "token_from" in token:
        args["token_from"] = token["token_from"]
    elif token["token"] is not None:
        args["token"] = token["token"]
    return args


def pod_security(tenant: model.Tenant) -> dict[str, str]:
    """Labels that make the API server refuse pods below the level, and warn about their Jobs and Deployments.

    https://kubernetes.io/docs/concepts/security/pod-security-admission/
    """
    return {f"pod-security.kubernetes.io/{mode}": tenant.pod_security for mode in ("enforce", "warn", "audit")}


def create_tenants(stack: Settings, cluster: GkeCluster, namespaces: dict[str, WorkloadNamespace]) -> dict[str, Tenant]:
    """The tenants by name, which is also the name of their namespace."""
    return {
        tenant.name: Tenant(tenant.name, tenant_arguments(tenant, stack), in_cluster(cluster, namespaces[tenant.name]))
        for tenant in stack.tenants
    }


def tenant_arguments(tenant: model.Tenant, stack: Settings) -> TenantArgs:
    """Arguments of a `Tenant`: its section, and the queues, grants and workloads of its namespace."""
    args: TenantArgs = arguments(
        tenant,
        priority_classes=tenancy.priority_classes(tenant, stack),
        buckets=tenancy.buckets(tenant, stack),
        local_queues=tenancy.queues(tenant, stack),
        service_accounts=tenancy.service_accounts(tenant, stack),
    )
    return args
