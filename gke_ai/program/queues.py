"""Kueue with its queues, namespaces and tenants."""

from __future__ import annotations

import pulumi
from pulumi import ResourceOptions

from gke_ai import components
from gke_ai.catalog.engines.gateways import tenant_api_key
from gke_ai.catalog.fabric.nvlink import DOMAIN
from gke_ai.catalog.project.apis import SECRET_MANAGER
from gke_ai.components.queues.kueue import node_flavors, queues_with_quotas
from gke_ai.components.queues.tenant_policy import GRACE_SECONDS
from gke_ai.program.cluster import Apis, after
from gke_ai.program.configuration import Secrets
from gke_ai.settings import ResolvedStack
from gke_ai.settings.published import publish
from gke_ai.settings.resolved import needs


def create_kueue(stack: ResolvedStack, cluster: components.GkeCluster) -> components.KueueStack | None:
    """Kueue and JobSet with all queues, derived quotas and node labels of flavors, if the stack needs them."""
    if not stack.settings.queues and not stack.jobsets:
        return None
    queues = stack.queues
    return components.KueueStack(
        "kueue",
        cluster=cluster,
        namespaces=stack.namespaces,
        flavors=node_flavors(stack),
        cluster_queues=queues_with_quotas(stack),
        cohorts=queues.cohorts,
        fair_sharing=queues.fair_sharing,
        admission_fair_sharing=queues.admission_fair_sharing,
        priority_classes=[priority for priority in queues.priority_classes if priority.mode == "create"],
        install=queues.kueue == "install",
        jobset=needs.jobset(stack),
        trainer=queues.trainer,
        ray=queues.ray,
        kueue_version=queues.kueue_version,
        jobset_version=queues.jobset_version,
        manager_replicas=queues.manager_replicas,
        pods_ready_timeout_seconds=needs.pods_ready_timeout(stack),
        quota_metrics=stack.settings.monitoring is not None,
        reclaim_ended_pods=not stack.spaces,
    )


def create_namespaces(
    stack: ResolvedStack,
    project: str,
    secrets: Secrets,
    cluster: components.GkeCluster,
    apis: Apis,
    kueue: components.KueueStack | None,
    buckets: dict[str, components.ModelBucket],
    driver: components.NvlinkDriver | None,
) -> dict[str, components.WorkloadNamespace]:
    """The namespaces by name. Pulumi deletes them before Kueue, which releases their workloads, and before buckets."""
    token_from = secret_manager(stack.settings.hf_token_secret, project, cluster)

    def options(namespace: str) -> ResourceOptions:
        granted = [
            buckets[bucket.section.name]
            for bucket in stack.granted_buckets
            if any(grant.namespace == namespace for grant in bucket.grants)
        ]
        drivers = [driver] if driver and DOMAIN in stack.claims[namespace] else []
        return after(*drivers, *apis.enabled(SECRET_MANAGER), *granted)

    return {
        name: create_namespace(name, stack, secrets, token_from, cluster, kueue, options(name))
        for name in stack.namespaces
    }


def secret_manager(secret: str | None, project: str, cluster: components.GkeCluster) -> components.SecretManager | None:
    """The secret from which GKE copies the token. Without one, this program provides the token."""
    if secret is None:
        return None
    path = secret if "/" in secret else f"projects/{project}/secrets/{secret}"
    return components.SecretManager(path, project, cluster.workload_pool)


def create_namespace(
    name: str,
    stack: ResolvedStack,
    secrets: Secrets,
    token_from: components.SecretManager | None,
    cluster: components.GkeCluster,
    kueue: components.KueueStack | None,
    opts: ResourceOptions,
) -> components.WorkloadNamespace:
    """A namespace with what its workloads need."""
    workloads = [workload for workload in stack.workloads if workload.namespace == name]
    tenant = next((tenant for tenant in stack.settings.tenants if tenant.name == name), None)
    # A tenant creates its own.
    existing = {"default", *((tenant.service_account, tenant.deployer) if tenant else ())}
    return components.WorkloadNamespace(
        name,
        opts=opts,
        cluster=cluster,
        kueue=kueue,
        existing=name not in stack.own_namespaces,
        pod_security=tenant.pod_security if tenant else None,
        hf_token=None if token_from else secrets.token,
        hf_token_from=token_from,
        api_key=api_key(name, stack, secrets),
        token_secrets=[workload.token for workload in workloads if workload.token],
        service_accounts=sorted({workload.service_account for workload in workloads} - existing),
        queues={
            queue.name: queue.cluster_queue
            for queue in stack.queues.local_queues
            if queue.namespace == name and queue.mode == "create"
        },
        weights={
            queue.name: queue.fair_sharing
            for queue in stack.queues.local_queues
            if queue.namespace == name and queue.mode == "create" and queue.fair_sharing
        },
        claims=list(stack.claims[name]),
    )


def api_key(namespace: str, stack: ResolvedStack, secrets: Secrets) -> pulumi.Output[str] | None:
    """The API key of the namespace's servers, if they require one. A tenant, who can read it, has one of its own."""
    if secrets.api_key is None or not any(server.namespace == namespace for server in stack.keyed_servers):
        return None
    if all(tenant.name != namespace for tenant in stack.settings.tenants):
        return secrets.api_key
    return secrets.api_key.apply(lambda key: tenant_api_key(key, namespace))


def create_tenants(
    stack: ResolvedStack,
    project: str,
    cluster: components.GkeCluster,
    namespaces: dict[str, components.WorkloadNamespace],
) -> dict[str, components.Tenant]:
    """The tenants by name, which is also the name of their namespace, with all that they may use."""
    return {
        space.section.name: components.Tenant.of(
            space.section.name,
            after(namespaces[space.section.name]),
            section=space.section.model_copy(
                update={"priority_classes": list(space.priority_classes), "buckets": list(space.buckets)}
            ),
            cluster=cluster,
            local_queues=list(space.queues),
            service_accounts=list(space.service_accounts),
            accelerators=space.accelerators,
            claims=list(stack.claims[space.section.name]),
            pickers=space.pickers,
            guarded=space.guarded,
            grace_seconds=max(GRACE_SECONDS, space.grace_seconds),
            runs_jobsets=any(run.namespace == space.section.name for run in stack.jobsets),
            further_kinds=stack.queues.further_kinds,
            published=publish(stack, space, project),
        )
        for space in stack.spaces
    }
