"""Kueue with its queues, namespaces and tenants."""

from __future__ import annotations

from pulumi import ResourceOptions

from catalog.apis import SECRET_MANAGER
from components import (
    GkeCluster,
    KueueStack,
    ModelBucket,
    NamespaceQueue,
    NodeFlavor,
    SecretManager,
    Tenant,
    WorkloadNamespace,
)
from components.build.cluster import Apis, in_cluster
from components.build.configuration import Secrets
from settings import Settings, model, plan, tenancy


def create_kueue(stack: Settings, cluster: GkeCluster) -> KueueStack | None:
    """Kueue and JobSet with all queues, derived quotas and node labels of flavors, if the stack needs them."""
    if not stack.queues and not plan.jobsets(stack):
        return None
    queues = stack.queues or model.Queues()
    return KueueStack(
        "kueue",
        # The managers of Kueue and JobSet run on the system pool, which is part of the cluster.
        in_cluster(cluster, cluster),
        namespaces=plan.namespaces(stack),
        flavors=[
            NodeFlavor(flavor.name, plan.flavor_labels(flavor, stack), plan.queued_resource(flavor, stack))
            for flavor in queues.flavors
        ],
        cluster_queues=[with_quotas(queue, stack) for queue in queues.cluster_queues],
        priority_classes=queues.priority_classes,
        jobset=bool(plan.jobsets(stack) or stack.tenants),  # a tenant may submit JobSets
        kueue_version=queues.kueue_version,
        jobset_version=queues.jobset_version,
        manager_replicas=queues.manager_replicas,
        pods_ready_timeout_seconds=plan.pods_ready_timeout(stack),
        quota_metrics=stack.monitoring is not None,
        kubeconfig=cluster.kubeconfig,
    )


def with_quotas(queue: model.ClusterQueue, stack: Settings) -> model.ClusterQueue:
    """The cluster queue with the amounts of its derived quotas."""
    flavors = [flavor.model_copy(update={"quota": plan.quota(flavor, stack)}) for flavor in queue.flavors]
    return queue.model_copy(update={"flavors": flavors})


def create_namespaces(
    stack: Settings,
    project: str,
    secrets: Secrets,
    cluster: GkeCluster,
    apis: Apis,
    kueue: KueueStack | None,
    buckets: dict[str, ModelBucket],
) -> dict[str, WorkloadNamespace]:
    """The namespaces by name. Pulumi deletes them before Kueue, which releases their workloads, and before buckets."""
    token_from = secret_manager(stack, project, cluster)

    def options(namespace: str) -> ResourceOptions:
        granted = [
            buckets[bucket.name]
            for bucket in stack.buckets
            if any(grant.namespace == namespace for grant in tenancy.grants(bucket, stack))
        ]
        return in_cluster(cluster, *([kueue] if kueue else []), *apis.enabled(SECRET_MANAGER), *granted)

    return {name: create_namespace(name, stack, secrets, token_from, options(name)) for name in plan.namespaces(stack)}


def secret_manager(stack: Settings, project: str, cluster: GkeCluster) -> SecretManager | None:
    """The secret from which GKE copies the token. Without one, this program provides the token."""
    secret = stack.hf_token_secret
    if secret is None:
        return None
    path = secret if "/" in secret else f"projects/{project}/secrets/{secret}"
    return SecretManager(path, project, cluster.workload_pool)


def create_namespace(
    name: str,
    stack: Settings,
    secrets: Secrets,
    token_from: SecretManager | None,
    opts: ResourceOptions,
) -> WorkloadNamespace:
    """A namespace with what its workloads need."""
    workloads = [workload for workload in plan.workloads(stack) if workload.namespace == name]
    local_queues = stack.queues.local_queues if stack.queues else []
    tenant = tenancy.tenant_of(name, stack)
    requires_key = any(plan.requires_api_key(server, stack) for server in stack.serving if server.namespace == name)
    # A tenant creates its own.
    existing = {"default", *((tenant.service_account, tenant.deployer) if tenant else ())}
    return WorkloadNamespace(
        name,
        opts,
        namespace=name,
        labels=pod_security(tenant) if tenant else None,
        token=None if token_from else secrets.token,
        token_from=token_from,
        api_key=secrets.api_key if requires_key else None,
        token_secrets=[workload.token for workload in workloads if workload.token],
        service_accounts=sorted({workload.service_account for workload in workloads} - existing),
        local_queues=[
            NamespaceQueue(queue.name, queue.cluster_queue) for queue in local_queues if queue.namespace == name
        ],
    )


def pod_security(tenant: model.Tenant) -> dict[str, str]:
    """Labels that make the API server refuse pods below the level, and warn about their Jobs and Deployments.

    https://kubernetes.io/docs/concepts/security/pod-security-admission/
    """
    return {f"pod-security.kubernetes.io/{mode}": tenant.pod_security for mode in ("enforce", "warn", "audit")}


def create_tenants(stack: Settings, cluster: GkeCluster, namespaces: dict[str, WorkloadNamespace]) -> dict[str, Tenant]:
    """The tenants by name, which is also the name of their namespace, with all that they may use."""
    return {
        tenant.name: Tenant(
            tenant.name,
            tenant.model_copy(
                update={
                    "priority_classes": tenancy.priority_classes(tenant, stack),
                    "buckets": tenancy.buckets(tenant, stack),
                }
            ),
            in_cluster(cluster, namespaces[tenant.name]),
            local_queues=tenancy.queues(tenant, stack),
            service_accounts=tenancy.service_accounts(tenant, stack),
        )
        for tenant in stack.tenants
    }
