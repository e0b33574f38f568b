"""The outputs that this program exports. `gke_ai_outputs.model` describes each key.

Pure, except that values from the cloud pass through.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from catalog.identities import DEFAULT_ACCOUNT
from catalog.nodes import GPU_TAINT, TPU_TAINT, node_taints
from catalog.workload_identity import principal
from gke_ai_outputs.version import VERSION
from settings import Settings, cold_start, plan, scaling, tenancy
from settings.model import Bucket, Flavor, FlavorQuota, Run, Server


@dataclass(frozen=True)
class ComponentOutputs:
    """Outputs of the components, each with the section of its component."""

    cluster_name: pulumi.Input[str]
    cluster_location: pulumi.Input[str]
    cluster_endpoint: pulumi.Input[str]
    kubeconfig: pulumi.Input[str]
    workload_pool: pulumi.Input[str]
    namespaces: Sequence[pulumi.Input[str]]
    node_service_account: str | None = None
    project_number: str | None = None
    """None if the stack grants nothing. It then never looks up the number."""
    servers: Sequence[tuple[Server, pulumi.Input[str]]] = ()
    """Each server with its URL."""
    jobs: Sequence[tuple[Run, pulumi.Input[str]]] = ()
    """Each run with the name of its Job or JobSet."""
    buckets: Sequence[tuple[Bucket, pulumi.Input[str], pulumi.Input[str]]] = ()
    """Each bucket with its name and URL."""
    dashboards: pulumi.Input[Sequence[str]] = ()
    gateway_address: pulumi.Input[str] = ""
    gateway_url: pulumi.Input[str] = ""


def outputs(stack: Settings, project: str, components: ComponentOutputs) -> dict[str, Any]:
    """All outputs of the stack by name: the keys of `gke_ai_outputs.model.Contract`."""
    cold_starts = {estimate.server: estimate.seconds for estimate in cold_start.estimates(stack)}
    return {
        "version": VERSION,
        "project": project,
        "clusterName": components.cluster_name,
        "clusterLocation": components.cluster_location,
        "clusterMode": "autopilot" if plan.is_autopilot(stack.cluster) else "standard",
        "clusterEndpoint": components.cluster_endpoint,
        "kubeconfig": components.kubeconfig,
        "workloadPool": components.workload_pool,
        "nodeServiceAccount": components.node_service_account or DEFAULT_ACCOUNT,
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
                "service": server.service_name,
                "port": server.port,
                "url": url,
                "engine": server.engine,
                "model": server.model,
                "coldStartSeconds": round(cold_starts.get(f"{server.namespace}/{server.name}", 0)),
            }
            for server, url in components.servers
        ],
        "jobs": [
            {
                "name": name,
                "namespace": run.namespace,
                "kind": run.object_kind,
                "runKind": run.run_kind,
                "checkpoints": checkpoints_url(run),
            }
            for run, name in components.jobs
        ],
        "buckets": [
            {"name": name, "url": url, "onDestroy": bucket.on_destroy} for bucket, name, url in components.buckets
        ],
        "identities": identities(stack, project, components.project_number),
        "tenants": tenants(stack),
        "computeClasses": [compute_class.name for compute_class in stack.compute_classes],
        "autoscalers": autoscalers(stack),
        "gateways": gateways(stack, components),
        "dashboards": components.dashboards,
    }


def checkpoints_url(run: Run) -> str:
    """The directory of a run's checkpoints in Cloud Storage, or an empty text."""
    folder = plan.checkpoint_folder(run)
    return "/".join([f"gs://{folder[0]}", *folder[1].parts]) if folder else ""


def queues(stack: Settings) -> list[dict[str, Any]]:
    """Each local queue with the quota of its cluster queue."""
    if stack.queues is None:
        return []
    cluster_queues = {queue.name: queue for queue in stack.queues.cluster_queues}
    flavors = {flavor.name: flavor for flavor in stack.queues.flavors}
    return [
        {
            "localQueue": local_queue.name,
            "namespace": local_queue.namespace,
            "clusterQueue": local_queue.cluster_queue,
            "cohort": cluster_queues[local_queue.cluster_queue].cohort or "",
            "quota": [
                grant(quota, flavors[quota.flavor], stack)
                for quota in cluster_queues[local_queue.cluster_queue].flavors
            ],
        }
        for local_queue in stack.queues.local_queues
    ]


def grant(quota: FlavorQuota, flavor: Flavor, stack: Settings) -> dict[str, Any]:
    """Quota of a cluster queue for a flavor, and how a pod selects its nodes."""
    resources = plan.quota(quota, stack)
    return {
        "flavor": quota.flavor,
        "resources": resources,
        "borrowingLimit": dict(quota.borrowing_limit),
        "nodeSelector": plan.flavor_labels(flavor, stack),
        "tolerations": tolerations(flavor, resources, stack),
    }


def tolerations(flavor: Flavor, resources: Mapping[str, str], stack: Settings) -> list[dict[str, str]]:
    """Tolerations for the taints of the flavor's pools, or for GKE's taints if it has no pools."""
    own = [node_taints(pool.shape(pool.zones_in(stack.cluster)[0])) for pool in plan.flavor_pools(flavor, stack)]
    usual = [taint for taint in (GPU_TAINT, TPU_TAINT) if taint.key in resources]
    return [
        {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}
        for taint in dict.fromkeys(taint for taints in own or [usual] for taint in taints)
    ]


def grants(stack: Settings) -> dict[tuple[str, str], list[str]]:
    """Buckets by namespace and service account with a role on them."""
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
    """Each team's namespace and what the team may use in it."""
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
    """Each autoscaler with its Deployment, metrics and limits."""
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


def gateways(stack: Settings, components: ComponentOutputs) -> list[dict[str, Any]]:
    """The gateway with its routes, if the stack has one."""
    gateway = stack.gateway
    if gateway is None:
        return []
    return [
        {
            "name": gateway.name,
            "namespace": plan.gateway_namespace(stack),
            "address": components.gateway_address,
            "url": components.gateway_url,
            "public": gateway.public,
            "apiKey": gateway.api_key,
            "routes": [
                {
                    "name": route.name,
                    "namespace": plan.route_namespace(route, stack),
                    "host": route.host or "",
                    "model": plan.route_servers(route, stack)[0].served_model,
                    "servers": [{"server": routed.server, "weight": routed.weight} for routed in route.servers],
                }
                for route in gateway.routes
            ],
        }
    ]
