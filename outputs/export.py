"""The outputs of a stack, as this program writes them; what each key is stands in `outputs.model`.

Pure, but for values that only the cloud knows, which pass through.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from catalog.nodes import GPU_TAINT, TPU_TAINT, node_taints
from catalog.workload_identity import principal
from outputs.model import VERSION
from settings import Settings, plan, scaling, tenancy
from settings.model import Flavor, FlavorQuota, Multislice

# What GKE itself calls Compute Engine's default account.
DEFAULT_NODE_ACCOUNT = "default"


@dataclass(frozen=True)
class ComponentOutputs:
    """Outputs of the components; lists are in the order of the settings."""

    cluster_name: pulumi.Input[str]
    cluster_location: pulumi.Input[str]
    cluster_endpoint: pulumi.Input[str]
    kubeconfig: pulumi.Input[str]
    workload_pool: pulumi.Input[str]
    namespaces: Sequence[pulumi.Input[str]]
    node_service_account: str | None = None
    project_number: str | None = None
    """None if the stack grants nothing: it then never looks the number up."""
    server_urls: Sequence[pulumi.Input[str]] = ()
    job_names: Sequence[pulumi.Input[str]] = ()
    buckets: Sequence[tuple[pulumi.Input[str], pulumi.Input[str]]] = ()
    """Name and address of each."""
    dashboards: pulumi.Input[Sequence[str]] = ()


def outputs(stack: Settings, project: str, components: ComponentOutputs) -> dict[str, Any]:
    """Every output of the stack by its name: the keys of `outputs.model.Contract`."""
    return {
        "version": VERSION,
        "project": project,
        "clusterName": components.cluster_name,
        "clusterLocation": components.cluster_location,
        "clusterMode": "autopilot" if plan.is_autopilot(stack.cluster) else "standard",
        "clusterEndpoint": components.cluster_endpoint,
        "kubeconfig": components.kubeconfig,
        "workloadPool": components.workload_pool,
        "nodeServiceAccount": components.node_service_account or DEFAULT_NODE_ACCOUNT,
        "namespaces": list(components.namespaces),
        "queues": queues(stack),
        "priorityClasses": [
            {"name": priority.name, "value": priority.value}
            for priority in (stack.queues.priority_classes if stack.queues else [])
        ],
        "servers": [
            {
                "name": server.name,
                "namespace": server.namespace,
                "service": plan.service_name(server),
                "port": server.port,
                "url": url,
                "engine": server.engine,
                "model": server.model,
            }
            for server, url in zip(stack.serving, components.server_urls, strict=True)
        ],
        "jobs": [
            {"name": name, "namespace": run.namespace, "kind": "JobSet" if isinstance(run, Multislice) else "Job"}
            for run, name in zip([*stack.training, *stack.batch], components.job_names, strict=True)
        ],
        "buckets": [
            {"name": name, "url": url, "onDestroy": bucket.on_destroy}
            for bucket, (name, url) in zip(stack.buckets, components.buckets, strict=True)
        ],
        "identities": identities(stack, project, components.project_number),
        "tenants": tenants(stack),
        "computeClasses": [compute_class.name for compute_class in stack.compute_classes],
        "autoscalers": autoscalers(stack),
        "dashboards": components.dashboards,
    }


def queues(stack: Settings) -> list[dict[str, Any]]:
    """Each local queue, and what its cluster queue grants."""
    if stack.queues is None:
        return []
    behind = {queue.name: queue for queue in stack.queues.cluster_queues}
    flavors = {flavor.name: flavor for flavor in stack.queues.flavors}
    return [
        {
            "localQueue": local_queue.name,
            "namespace": local_queue.namespace,
            "clusterQueue": local_queue.cluster_queue,
            "cohort": behind[local_queue.cluster_queue].cohort or "",
            "quota": [grant(own, flavors[own.flavor], stack) for own in behind[local_queue.cluster_queue].flavors],
        }
        for local_queue in stack.queues.local_queues
    ]


def grant(own: FlavorQuota, flavor: Flavor, stack: Settings) -> dict[str, Any]:
    """What a cluster queue grants of a flavor, and how a pod gets onto its nodes."""
    resources = plan.quota(own, stack)
    return {
        "flavor": own.flavor,
        "resources": resources,
        "borrowingLimit": dict(own.borrowing_limit),
        "nodeSelector": plan.flavor_labels(flavor, stack),
        "tolerations": tolerations(flavor, resources, stack),
    }


def tolerations(flavor: Flavor, resources: Mapping[str, str], stack: Settings) -> list[dict[str, str]]:
    """For every taint of the flavor's nodes: those of its pools, else those that GKE puts on what has the resources."""
    zones = {pool.name: plan.pool_zones(pool, stack.cluster)[0] for pool in plan.flavor_pools(flavor, stack)}
    own = [node_taints(plan.shape(pool, zones[pool.name])) for pool in plan.flavor_pools(flavor, stack)]
    usual = [taint for taint in (GPU_TAINT, TPU_TAINT) if taint.key in resources]
    return [
        {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}
        for taint in dict.fromkeys(taint for taints in own or [usual] for taint in taints)
    ]


def grants(stack: Settings) -> dict[tuple[str, str], list[str]]:
    """Buckets by the namespace and the service account that have a role on them."""
    bucket_names: dict[tuple[str, str], list[str]] = {}
    for bucket in stack.buckets:
        for grantee in tenancy.grants(bucket, stack):
            bucket_names.setdefault((grantee.namespace, grantee.service_account), []).append(bucket.name)
    return {account: list(dict.fromkeys(names)) for account, names in bucket_names.items()}


def identities(stack: Settings, project: str, project_number: str | None) -> list[dict[str, Any]]:
    """Every service account that a workload or a tenant of the stack runs as."""
    granted = grants(stack)
    accounts = [
        *((workload.namespace, workload.service_account) for workload in plan.workloads(stack)),
        *((tenant.name, tenant.service_account) for tenant in stack.tenants),
        *granted,
    ]
    return [
        {
            "namespace": namespace,
            "serviceAccount": account,
            "principal": principal(project_number, project, namespace, account) if project_number else "",
            "buckets": granted.get((namespace, account), []),
        }
        for namespace, account in dict.fromkeys(accounts)
    ]


def tenants(stack: Settings) -> list[dict[str, Any]]:
    """Each team's namespace, and what it may use there."""
    return [
        {
            "namespace": tenant.name,
            "serviceAccount": tenant.service_account,
            "deployer": tenant.deployer,
            "queues": tenancy.queues(tenant, stack),
            "priorityClasses": tenancy.priority_classes(tenant, stack),
            "buckets": list(tenant.buckets),
            "quota": dict(tenant.quota),
            "podSecurity": tenant.pod_security,
        }
        for tenant in stack.tenants
    ]


def autoscalers(stack: Settings) -> list[dict[str, Any]]:
    """Each autoscaler: the Deployment that it scales, by what, and between which bounds."""
    return [
        {
            "name": autoscaler.name,
            "namespace": deployment.namespace,
            "server": deployment.name,
            "metrics": [metric.metric for metric in autoscaler.metrics],
            "minReplicas": autoscaler.min_replicas,
            "maxReplicas": autoscaler.max_replicas,
        }
        for autoscaler in stack.autoscaling
        if (deployment := scaling.scaled(autoscaler, stack))
    ]
