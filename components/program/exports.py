"""The outputs of the stack."""

from __future__ import annotations

import pulumi

from gke_ai.components import GkeCluster, InferenceGateway, ModelBucket, SystemMonitoring, WorkloadNamespace
from gke_ai.components.identity import project_number
from gke_ai.components.program.outputs import ComponentOutputs, outputs
from gke_ai.components.runs.job import RunComponent
from gke_ai.components.serving.server import ModelServer
from gke_ai.settings import ResolvedStack, model


def export(
    stack: ResolvedStack,
    project: str,
    cluster: GkeCluster,
    buckets: dict[str, ModelBucket],
    namespaces: dict[str, WorkloadNamespace],
    servers: list[ModelServer[model.Server]],
    runs: list[tuple[model.Run, RunComponent]],
    gateway: InferenceGateway | None,
    monitoring: SystemMonitoring | None,
) -> None:
    """Export the outputs of the components under the keys of the contract."""
    has_grants = any(bucket.grants for bucket in stack.granted_buckets)
    number = project_number(project, "The identities among the outputs need", cluster) if has_grants else None
    component_outputs = ComponentOutputs(
        cluster_name=cluster.cluster_name,
        cluster_location=cluster.location,
        cluster_endpoint=cluster.endpoint,
        kubeconfig=cluster.kubeconfig,
        workload_pool=cluster.workload_pool,
        node_service_account=cluster.node_service_account,
        project_number=number,
        namespaces=[namespace.namespace_name for namespace in namespaces.values()],
        servers=[(server.server, server.url) for server in servers],
        jobs=[(run, component.job_name) for run, component in runs],
        buckets=[
            (bucket, buckets[bucket.name].bucket_name, buckets[bucket.name].url) for bucket in stack.settings.buckets
        ],
        dashboards=monitoring.dashboard_ids if monitoring else [],
        gateway_address=gateway.address if gateway else "",
        gateway_url=gateway.url if gateway else "",
    )
    for name, value in outputs(stack, project, component_outputs).items():
        pulumi.export(name, value)
