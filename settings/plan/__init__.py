"""What follows from the settings of a stack: pools of a workload, node labels, quotas, names and requests.

Pure functions over validated settings, one module per subject. Components turn the results into resources.
"""

from __future__ import annotations

from settings.plan.cluster import apis, is_autopilot, makes_accounts, network_policy, uses_workload_identity
from settings.plan.downloads import internet, reads_registry
from settings.plan.job_settings import (
    backoff_limit,
    grace_period,
    ignores_disruptions,
    model_path,
    removes_incomplete_checkpoints,
    run_name,
)
from settings.plan.node_pools import max_stack_nodes
from settings.plan.placement import node_selector, only_pools, pool_of_slice, pools_of, queued_seconds, workload_slice
from settings.plan.queues import (
    BUILT_IN_PRIORITIES,
    cluster_queue_of,
    flavor_labels,
    flavor_pools,
    lendable,
    lenders,
    limits,
    pods_ready_timeout,
    priority,
    queued_resource,
    quota,
    waits_for_flex_start,
)
from settings.plan.requests import accelerators, max_pods, node_request, pod_request, pods_at_once
from settings.plan.workload_lists import (
    DEFAULT_NAMESPACE,
    autoscaler_of,
    bucket_mounts,
    fine_tunes,
    gpu_workloads,
    jetstreams,
    multislices,
    namespaces,
    runs,
    service_name,
    token_workloads,
    tpu_runs,
    tpu_workloads,
    workloads,
)

__all__ = [
    "BUILT_IN_PRIORITIES",
    "DEFAULT_NAMESPACE",
    "accelerators",
    "apis",
    "autoscaler_of",
    "backoff_limit",
    "bucket_mounts",
    "cluster_queue_of",
    "fine_tunes",
    "flavor_labels",
    "flavor_pools",
    "gpu_workloads",
    "grace_period",
    "ignores_disruptions",
    "internet",
    "is_autopilot",
    "jetstreams",
    "lendable",
    "lenders",
    "limits",
    "makes_accounts",
    "max_pods",
    "max_stack_nodes",
    "model_path",
    "multislices",
    "namespaces",
    "network_policy",
    "node_request",
    "node_selector",
    "only_pools",
    "pod_request",
    "pods_at_once",
    "pods_ready_timeout",
    "pool_of_slice",
    "pools_of",
    "priority",
    "queued_resource",
    "queued_seconds",
    "quota",
    "reads_registry",
    "removes_incomplete_checkpoints",
    "run_name",
    "runs",
    "service_name",
    "token_workloads",
    "tpu_runs",
    "tpu_workloads",
    "uses_workload_identity",
    "waits_for_flex_start",
    "workload_slice",
    "workloads",
]
