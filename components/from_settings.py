"""The arguments of each component of a stack: its section of the settings, and what follows from the others.

Pure but for the values that only the cloud knows, which pass through.
"""

from typing import Any

import pulumi

from components.base import arguments
from settings import Settings, plan, scaling
from settings.model import Autoscaler, FineTune, Multislice, Queues, Server, TpuBatch, TpuWorkload


def server_arguments(server: Server, stack: Settings, kubeconfig: pulumi.Output[str]) -> Any:
    """Arguments of a server's component: its section, and what follows from the rest of the stack."""
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
    if not isinstance(run, FineTune):
        kind = plan.workload_slice(run, stack)
        further |= {"hosts": kind.hosts, "chips_per_host": kind.chips_per_host}
        further["only_pools"] = plan.only_pools(run, stack)
    if isinstance(run, Multislice):
        further["pool_of_slice"] = plan.pool_of_slice(run, stack)
    return arguments(run, **further)


def adapter_arguments(stack: Settings, project: str, workload_pool: pulumi.Output[str]) -> Any:
    """Arguments of the cluster's one `MetricsAdapter`: every autoscaler goes through the same."""
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


def queue_arguments(stack: Settings) -> Any:
    """Arguments of `KueueStack`: queues as configured, with quotas derived and flavors described by node labels."""
    queues = stack.queues or Queues()
    return {
        "namespaces": plan.namespaces(stack),
        "jobset": bool(plan.multislices(stack)),
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
    }


def namespace_arguments(name: str, stack: Settings, token: pulumi.Output[str] | None) -> Any:
    """Arguments of a `WorkloadNamespace`: what the workloads in it need."""
    inside = [one for one in plan.workloads(stack) if one.namespace == name]
    local_queues = stack.queues.local_queues if stack.queues else []
    return {
        "name": name,
        "token": token,
        "token_secrets": [one.token_secret.model_dump() for one in plan.gpu_workloads(stack) if one.namespace == name],
        "service_accounts": sorted({one.service_account for one in inside} - {"default"}),
        "local_queues": [
            {"name": one.name, "cluster_queue": one.cluster_queue} for one in local_queues if one.namespace == name
        ],
    }
