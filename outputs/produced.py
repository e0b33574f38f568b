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
class Made:
    """What only the components know; lists are in the order of the settings."""

    cluster_name: pulumi.Input[str]
    cluster_location: pulumi.Input[str]
    cluster_endpoint: pulumi.Input[str]
    kubeconfig: pulumi.Input[str]
    workload_pool: pulumi.Input[str]
    namespaces: Sequence[pulumi.Input[str]]
    node_service_account: str | None = None
    project_number: str | None = None
    """None where the stack grants nothing, and so never asks for it."""
    server_urls: Sequence[pulumi.Input[str]] = ()
    job_names: Sequence[pulumi.Input[str]] = ()
    buckets: Sequence[tuple[pulumi.Input[str], pulumi.Input[str]]] = ()
    """Name and address of each."""
    dashboards: pulumi.Input[Sequence[str]] = ()


def outputs(stack: Settings, project: str, made: Made) -> dict[str, Any]:
    """Every output of the stack by its name: the keys of `outputs.model.Contract`."""
    return {
        "version": VERSION,
        "project": project,
        "clusterName": made.cluster_name,
        "clusterLocation": made.cluster_location,
        "clusterMode": "autopilot" if plan.is_autopilot(stack.cluster) else "standard",
        "clusterEndpoint": made.cluster_endpoint,
        "kubeconfig": made.kubeconfig,
        "workloadPool": made.workload_pool,
        "nodeServiceAccount": made.node_service_account or DEFAULT_NODE_ACCOUNT,
        "namespaces": list(made.namespaces),
        "queues": queues(stack),
        "priorityClasses": [
            {"name": one.name, "value": one.value} for one in (stack.queues.priority_classes if stack.queues else [])
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
            for server, url in zip(stack.serving, made.server_urls, strict=True)
        ],
        "jobs": [
            {"name": name, "namespace": run.namespace, "kind": "JobSet" if isinstance(run, Multislice) else "Job"}
            for run, name in zip([*stack.training, *stack.batch], made.job_names, strict=True)
        ],
        "buckets": [
            {"name": name, "url": url, "onDestroy": bucket.on_destroy}
            for bucket, (name, url) in zip(stack.buckets, made.buckets, strict=True)
        ],
        "identities": identities(stack, project, made.project_number),
        "tenants": tenants(stack),
        "computeClasses": [one.name for one in stack.compute_classes],
        "autoscalers": autoscalers(stack),
        "dashboards": made.dashboards,
    }


def queues(stack: Settings) -> list[dict[str, Any]]:
    """Each local queue, and what its cluster queue grants."""
    if stack.queues is None:
        return []
    behind = {queue.name: queue for queue in stack.queues.cluster_queues}
    flavors = {flavor.name: flavor for flavor in stack.queues.flavors}
    return [
        {
            "localQueue": one.name,
            "namespace": one.namespace,
            "clusterQueue": one.cluster_queue,
            "cohort": behind[one.cluster_queue].cohort or "",
            "quota": [grant(own, flavors[own.flavor], stack) for own in behind[one.cluster_queue].flavors],
        }
        for one in stack.queues.local_queues
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
    found: dict[tuple[str, str], list[str]] = {}
    for bucket in stack.buckets:
        for one in tenancy.grants(bucket, stack):
            found.setdefault((one.namespace, one.service_account), []).append(bucket.name)
    return {account: list(dict.fromkeys(names)) for account, names in found.items()}


def identities(stack: Settings, project: str, project_number: str | None) -> list[dict[str, Any]]:
    """Every service account that a workload or a tenant of the stack runs as."""
    granted = grants(stack)
    accounts = [
        *((one.namespace, one.service_account) for one in plan.workloads(stack)),
        *((one.name, one.service_account) for one in stack.tenants),
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
            "namespace": one.name,
            "serviceAccount": one.service_account,
            "deployer": one.deployer,
            "queues": tenancy.queues(one, stack),
            "priorityClasses": tenancy.priority_classes(one, stack),
            "buckets": list(one.buckets),
            "quota": dict(one.quota),
            "podSecurity": one.pod_security,
        }
        for one in stack.tenants
    ]


def autoscalers(stack: Settings) -> list[dict[str, Any]]:
    """Each autoscaler: the Deployment that it scales, by what, and between which bounds."""
    return [
        {
            "name": one.name,
            "namespace": deployment.namespace,
            "server": deployment.name,
            "metrics": [metric.metric for metric in one.metrics],
            "minReplicas": one.min_replicas,
            "maxReplicas": one.max_replicas,
        }
        for one in stack.autoscaling
        if (deployment := scaling.scaled(one, stack))
    ]
