"""The arguments of each component: its section of the settings, and what follows from other sections.

Pure, except that values from the cloud pass through.
"""

from typing import Any

import pulumi

from components.base import arguments
from settings import Settings, monitoring_targets, plan, scaling, tenancy
from settings.model import (
    Autoscaler,
    ComputeClass,
    FineTune,
    GpuPool,
    Multislice,
    Queues,
    Server,
    Tenant,
    TpuBatch,
    TpuPool,
    TpuWorkload,
)


def cluster_arguments(stack: Settings, project: str) -> Any:
    """Arguments of the `GkeCluster`: its section, and features that other sections need."""
    further: dict[str, object] = {"project": project}
    if policy := plan.network_policy(stack):
        further["network_policy"] = policy
    if plan.reads_registry(stack, project):
        further["registry_reader"] = True
    if group := tenancy.security_group(stack):
        further["security_group"] = group
    if stack.hf_token_secret is not None:
        further["secret_sync"] = True
    if stack.monitoring is not None:
        further["managed_prometheus"] = True
    if plan.uses_workload_identity(stack):
        further["workload_identity"] = True
    if plan.bucket_runs(stack):
        further["bucket_volumes"] = True
    return arguments(stack.cluster, **further)


def pool_arguments(
    pool: GpuPool | TpuPool,
    stack: Settings,
    project: str,
    cluster: pulumi.Output[str],
    account: str | None,
    kubeconfig: pulumi.Output[str],
    cluster_zones: pulumi.Output[list[str]],
) -> Any:
    """Arguments of a pool's component: its section, and the cluster's settings for all nodes."""
    further: dict[str, object] = {"project": project, "cluster": cluster, "location": stack.cluster.location}
    if account is not None:
        further["node_service_account"] = account
    if stack.cluster.private_nodes:
        further["private_nodes"] = True
    if isinstance(pool, GpuPool) and pool.create_before_delete:
        further["kubeconfig"] = kubeconfig
    zones = pool.zones or stack.cluster.system_pool.zones
    if not zones:
        further["cluster_zones"] = cluster_zones
    return arguments(pool, **further, zones=zones)


def class_arguments(compute_class: ComputeClass, stack: Settings, account: str | None) -> Any:
    """Arguments of a `ComputeClass`: its section, and the nodes' account unless the cluster sets it."""
    cluster_sets_account = account is None or plan.is_autopilot(stack.cluster)
    return arguments(compute_class) if cluster_sets_account else arguments(compute_class, node_service_account=account)


def server_arguments(server: Server, stack: Settings, kubeconfig: pulumi.Output[str]) -> Any:
    """Arguments of a server's component: its section, and what follows from other sections."""
    chips: dict[str, int] = {"chips": plan.accelerators(server, stack)[1]} if isinstance(server, TpuWorkload) else {}
    return arguments(
        server,
        node_selector=plan.node_selector(server, stack),
        kubeconfig=kubeconfig,
        autoscaled=plan.autoscaler_of(server, stack) is not None,
        **chips,
    )


def run_arguments(run: FineTune | Multislice | TpuBatch, stack: Settings, kubeconfig: pulumi.Output[str]) -> Any:
    """Arguments of a run's component: its section, and the nodes that it runs on."""
    further: dict[str, object] = {"node_selector": plan.node_selector(run, stack), "kubeconfig": kubeconfig}
    if seconds := plan.queued_seconds(run, stack):
        further["queued_seconds"] = seconds
    if plan.is_last_in_queue(run, stack):
        further["last_in_queue"] = True
    if not isinstance(run, FineTune):
        tpu_slice = plan.workload_slice(run, stack)
        further |= {"hosts": tpu_slice.hosts, "chips_per_host": tpu_slice.chips_per_host}
        further["only_pools"] = plan.only_pools(run, stack)
    if isinstance(run, Multislice):
        further["pool_of_slice"] = plan.pool_of_slice(run, stack)
    # Omitted keys stay omitted: the name of a run contains a hash of the keys that its configuration sets.
    return {**run.model_dump(exclude_unset=True), **further}


def adapter_arguments(stack: Settings, project: str, workload_pool: pulumi.Output[str]) -> Any:
    """Arguments of the cluster's only `MetricsAdapter`, which all autoscalers share."""
    return {
        "adapter": stack.autoscaling[0].adapter,
        "project": project,
        "cluster": stack.cluster.name,
        "workload_pool": workload_pool,
        "tpu_metrics": scaling.reads_tpu_metrics(stack),
    }


def autoscaler_arguments(autoscaler: Autoscaler, stack: Settings) -> Any:
    """Arguments of a `JetStreamAutoscaling`: its section, and the Deployment of the server that it names."""
    server, deployment = scaling.server_of(autoscaler, stack), scaling.scaled(autoscaler, stack)
    assert deployment is not None
    return arguments(
        autoscaler,
        deployment=deployment.model_dump(),
        cluster=stack.cluster.name,
        monitored=server is not None and server.pod_monitoring,
        tpu_containers=scaling.tpu_containers(autoscaler, stack),
    )


def queue_arguments(stack: Settings, kubeconfig: pulumi.Output[str]) -> Any:
    """Arguments of the `KueueStack`: the queues, with derived quotas and node labels of flavors."""
    queues = stack.queues or Queues()
    return {
        "kubeconfig": kubeconfig,
        "namespaces": plan.namespaces(stack),
        "jobset": bool(plan.multislices(stack) or stack.tenants),  # a tenant may submit JobSets
        "quota_metrics": stack.monitoring is not None,
        "flavors": [
            {
                "name": flavor.name,
                "node_labels": plan.flavor_labels(flavor, stack),
                "queued_resource": plan.queued_resource(flavor, stack),
            }
            for flavor in queues.flavors
        ],
        "cluster_queues": [
            arguments(
                queue,
                flavors=[arguments(one, quota=plan.quota(one, stack)) for one in queue.flavors],
            )
            for queue in queues.cluster_queues
        ],
        "priority_classes": [arguments(one) for one in queues.priority_classes],
        "manager_replicas": queues.manager_replicas,
        "pods_ready_timeout_seconds": plan.pods_ready_timeout(stack),
        **({"kueue_version": queues.kueue_version} if queues.kueue_version else {}),
        **({"jobset_version": queues.jobset_version} if queues.jobset_version else {}),
    }


def token_arguments(
    stack: Settings, project: str, token: pulumi.Output[str] | None, workload_pool: pulumi.Output[str]
) -> dict[str, Any]:
    """How a namespace gets the token: from this program, or directly from Secret Manager."""
    named = stack.hf_token_secret
    if named is None:
        return {"token": token}
    secret = named if "/" in named else f"projects/{project}/secrets/{named}"
    return {"token_from": {"secret": secret, "project": project, "workload_pool": workload_pool}}


def namespace_arguments(name: str, stack: Settings, token: dict[str, Any]) -> Any:
    """Arguments of a `WorkloadNamespace`: what its workloads need. `token` is from `token_arguments`."""
    inside = [one for one in plan.workloads(stack) if one.namespace == name]
    local_queues = stack.queues.local_queues if stack.queues else []
    tenant = tenancy.tenant_of(name, stack)
    # A tenant creates its own.
    made = {"default", *((tenant.service_account, tenant.deployer) if tenant else ())}
    return {
        "name": name,
        **({"labels": pod_security(tenant)} if tenant else {}),
        **token,
        "token_secrets": [secret.model_dump() for one in inside if (secret := plan.token_secret_of(one))],
        "service_accounts": sorted({one.service_account for one in inside} - made),
        "local_queues": [
            {"name": one.name, "cluster_queue": one.cluster_queue} for one in local_queues if one.namespace == name
        ],
    }


def pod_security(tenant: Tenant) -> dict[str, str]:
    """Labels that make the API server refuse pods below the level, and warn about their Jobs and Deployments.

    https://kubernetes.io/docs/concepts/security/pod-security-admission/
    """
    return {f"pod-security.kubernetes.io/{mode}": tenant.pod_security for mode in ("enforce", "warn", "audit")}


def tenant_arguments(tenant: Tenant, stack: Settings) -> Any:
    """Arguments of a `Tenant`: its section, and the queues, grants and workloads of its namespace."""
    return arguments(
        tenant,
        priority_classes=tenancy.priority_classes(tenant, stack),
        buckets=tenancy.buckets(tenant, stack),
        local_queues=tenancy.queues(tenant, stack),
        service_accounts=tenancy.service_accounts(tenant, stack),
    )


def monitoring_arguments(stack: Settings, project: str) -> Any:
    """Arguments of a `SystemMonitoring`: its section, and the parts of the stack to monitor."""
    assert stack.monitoring is not None
    return arguments(
        stack.monitoring,
        project=project,
        cluster=stack.cluster.name,
        queues=bool(stack.queues and stack.queues.cluster_queues),
        servers=[
            {"namespace": one.namespace, "name": one.name, **({"engine": one.engine} if one.engine else {})}
            for one in monitoring_targets.servers(stack)
        ],
        job_namespaces=monitoring_targets.job_namespaces(stack),
        jobsets=bool(plan.multislices(stack)),
        accelerators=monitoring_targets.accelerators(stack),
        tpus=monitoring_targets.tpus(stack),
    )
