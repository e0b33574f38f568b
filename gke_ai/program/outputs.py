"""The outputs that this program exports. `gke_ai_outputs.model` describes each key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pulumi

from gke_ai.catalog.nodes.shape import GPU_TAINT, TPU_TAINT, node_taints
from gke_ai.catalog.project.identities import DEFAULT_ACCOUNT, principal
from gke_ai.catalog.versions import OUTPUTS_VERSION
from gke_ai.components import GkeCluster, InferenceGateway, ModelBucket, SystemMonitoring, WorkloadNamespace
from gke_ai.components.arguments import on
from gke_ai.components.runs.job import RunComponent
from gke_ai.components.serving.server import ModelServer
from gke_ai.components.support.identity import project_number
from gke_ai.settings import ResolvedStack, model
from gke_ai.settings.estimates import cold_start
from gke_ai.settings.resolved import BucketGrants, Quota, ResourceFlavor, ScaledServer, Space


def export(
    stack: ResolvedStack,
    project: str,
    cluster: GkeCluster,
    buckets: dict[str, ModelBucket],
    namespaces: dict[str, WorkloadNamespace],
    servers: dict[str, ModelServer[model.Server]],
    runs: list[tuple[model.Run, RunComponent[model.Run]]],
    gateway: InferenceGateway | None,
    monitoring: SystemMonitoring | None,
) -> None:
    """Export all outputs of the stack by name: the keys of `gke_ai_outputs.model.Contract`."""
    # A stack that grants nothing never looks up the number.
    has_grants = any(bucket.grants for bucket in stack.granted_buckets)
    number = project_number(project, "The identities among the outputs need", cluster) if has_grants else None
    cold_starts = {
        estimate.server: estimate.seconds for estimate in cold_start.estimates(stack.servers, stack.measured)
    }
    outputs = {
        "version": OUTPUTS_VERSION,
        "project": project,
        "clusterName": cluster.cluster_name,
        "clusterIdentifier": cluster.cluster_identifier,
        "clusterLocation": cluster.location,
        "clusterMode": "autopilot" if stack.cluster.is_autopilot else "standard",
        "clusterEndpoint": cluster.endpoint,
        "kubeconfig": cluster.kubeconfig,
        "workloadPool": cluster.workload_pool,
        "nodeServiceAccount": cluster.node_service_account or DEFAULT_ACCOUNT,
        "namespaces": [namespace.namespace_name for namespace in namespaces.values()],
        "queues": queues(stack),
        "priorityClasses": [
            {"name": priority.name, "value": priority.value} for priority in stack.queues.priority_classes
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
                "adapters": [adapter.name for adapter in server.adapters],
            }
            for server, url in ((component.server, component.url) for component in servers.values())
        ],
        "jobs": [
            {
                "name": component.job_name,
                "namespace": run.namespace,
                "kind": run.object_kind,
                "runKind": run.run_kind,
                "checkpoints": checkpoints_url(run),
            }
            for run, component in runs
        ],
        "buckets": [
            {"name": buckets[bucket.name].bucket_name, "url": buckets[bucket.name].url, "onDestroy": bucket.on_destroy}
            for bucket in stack.settings.buckets
        ],
        "identities": identities(stack, project, number),
        "tenants": tenants(stack.spaces),
        "computeClasses": [compute_class.name for compute_class in stack.settings.compute_classes],
        "autoscalers": autoscalers(stack.scaled),
        "gateways": gateways(stack, gateway),
        "dashboards": monitoring.dashboard_ids if monitoring else [],
    }
    for name, value in outputs.items():
        pulumi.export(name, value)


def checkpoints_url(run: model.Run) -> str:
    """The directory of a run's checkpoints in Cloud Storage, or an empty text."""
    folder = run.checkpoint_folder
    return "/".join([f"gs://{folder[0]}", *folder[1].parts]) if folder else ""


def queues(stack: ResolvedStack) -> list[dict[str, Any]]:
    """Each local queue with the quota of its cluster queue; without quota if that is not of the stack."""
    cluster_queues = {queue.section.name: queue for queue in stack.cluster_queues}
    led = [(queue, cluster_queues.get(queue.cluster_queue)) for queue in stack.queues.local_queues]
    return [
        {
            "localQueue": local_queue.name,
            "namespace": local_queue.namespace,
            "clusterQueue": local_queue.cluster_queue,
            "cohort": (queue.section.cohort if queue else None) or "",
            "quota": [grant(quota) for quota in queue.quotas] if queue else [],
        }
        for local_queue, queue in led
    ]


def grant(quota: Quota) -> dict[str, Any]:
    """Quota of a cluster queue for a flavor, and how a pod selects its nodes."""
    assert quota.flavor is not None
    return {
        "flavor": quota.section.flavor,
        "resources": quota.texts,
        "borrowingLimit": dict(quota.section.borrowing_limit),
        "nodeSelector": quota.flavor.labels,
        "tolerations": tolerations(quota.flavor, quota.texts),
    }


def tolerations(flavor: ResourceFlavor, resources: Mapping[str, str]) -> list[dict[str, str]]:
    """Tolerations for the taints of the flavor's pools, or for GKE's taints if it has no pools."""
    own = [node_taints(pool.shape) for pool in flavor.pools]
    usual = [taint for taint in (GPU_TAINT, TPU_TAINT) if taint.key in resources]
    return [
        {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}
        for taint in dict.fromkeys(taint for taints in own or [usual] for taint in taints)
    ]


def grants(granted_buckets: Sequence[BucketGrants]) -> dict[tuple[str, str], list[str]]:
    """Buckets by namespace and service account with a role on them."""
    bucket_names: dict[tuple[str, str], list[str]] = {}
    for bucket in granted_buckets:
        for grantee in bucket.grants:
            bucket_names.setdefault((grantee.namespace, grantee.service_account), []).append(bucket.section.name)
    return {account: list(dict.fromkeys(names)) for account, names in bucket_names.items()}


def identities(stack: ResolvedStack, project: str, number: pulumi.Input[str] | None) -> list[dict[str, Any]]:
    """Every service account that a workload or a tenant of the stack runs as."""
    granted = grants(stack.granted_buckets)
    accounts = [
        *((workload.namespace, workload.service_account) for workload in stack.workloads),
        *((tenant.name, tenant.service_account) for tenant in stack.settings.tenants),
        *granted,
    ]
    return [
        {
            "namespace": namespace,
            "serviceAccount": account,
            "principal": on(
                number, partial(principal, project_id=project, namespace=namespace, service_account=account)
            )
            if number
            else "",
            "buckets": granted.get((namespace, account), []),
        }
        for namespace, account in dict.fromkeys(accounts)
    ]


def tenants(spaces: Sequence[Space]) -> list[dict[str, Any]]:
    """Each team's namespace and what the team may use in it."""
    return [
        {
            "namespace": space.section.name,
            "serviceAccount": space.section.service_account,
            "deployer": space.section.deployer,
            "queues": list(space.queues),
            "priorityClasses": list(space.priority_classes),
            "buckets": list(space.section.buckets),
            "quota": dict(space.section.quota),
            "podSecurity": space.section.pod_security,
        }
        for space in spaces
    ]


def autoscalers(scaled: Sequence[ScaledServer]) -> list[dict[str, Any]]:
    """Each autoscaler with its Deployment, metrics and limits."""
    return [
        {
            "name": scaler.section.name,
            "namespace": scaler.target.namespace,
            "server": scaler.target.name,
            "metrics": [metric.metric for metric in scaler.section.metrics],
            "minReplicas": scaler.section.min_replicas,
            "maxReplicas": scaler.section.max_replicas,
        }
        for scaler in scaled
        if scaler.target
    ]


def gateways(stack: ResolvedStack, component: InferenceGateway | None) -> list[dict[str, Any]]:
    """The gateway with its routes, if the stack has one."""
    gateway = stack.settings.gateway
    if gateway is None:
        return []
    return [
        {
            "name": gateway.name,
            "namespace": stack.gateway_namespace,
            "address": component.address if component else "",
            "url": component.url if component else "",
            "public": gateway.public,
            "apiKey": gateway.api_key,
            "routes": [
                {
                    "name": route.section.name,
                    "namespace": route.namespace,
                    "host": route.section.host or "",
                    "model": route.servers[0].served_model,
                    "models": route.models,
                    "servers": [{"server": routed.server, "weight": routed.weight} for routed in route.section.servers],
                }
                for route in stack.routes
            ],
        }
    ]
