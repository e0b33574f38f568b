"""The parts of an AI system on GKE, one component a file; `__main__` composes them, and so may any other program.

Each takes its arguments as a typed dictionary whose keys are those of its section in the configuration, in snake_case,
and a few values that the cloud decides. Defaults and checks of the former stand in `settings.model`, once.

A component that waits for others (`depends_on`) makes its children wait with it, at creation and at deletion: the
engine neither creates a child before its parent nor deletes what a parent depends on before the parent's children.

The modules here do without `from __future__ import annotations`: Pulumi's component host, which serves them to programs
in other languages, reads argument types from `__init__` as they stand, and text is no type. Annotations elsewhere that
name a type of pulumi_kubernetes are text: the SDK loads a module when it is first named, in up to a fifth of a second.
"""

from components.apis import ProjectApis, ProjectApisArgs
from components.bucket import ModelBucket, ModelBucketArgs
from components.cluster import GkeCluster, GkeClusterArgs
from components.compute_class import ComputeClass, ComputeClassArgs
from components.finetune import FinetuneJob, FinetuneJobArgs
from components.gpu_pool import GpuNodePool, GpuNodePoolArgs
from components.jetstream import JetStreamServer, JetStreamServerArgs
from components.jetstream_autoscaling import JetStreamAutoscaling, JetStreamAutoscalingArgs
from components.kueue import KueueStack, KueueStackArgs
from components.metrics_adapter import MetricsAdapter, MetricsAdapterArgs
from components.monitoring import SystemMonitoring, SystemMonitoringArgs
from components.multislice import MultisliceJob, MultisliceJobArgs
from components.namespace import WorkloadNamespace, WorkloadNamespaceArgs
from components.network import ClusterNetwork, ClusterNetworkArgs
from components.node_account import NodeAccount, NodeAccountArgs
from components.tenant import Tenant, TenantArgs
from components.tgi import TgiServer, TgiServerArgs
from components.tpu_batch import TpuBatchJob, TpuBatchJobArgs
from components.tpu_pool import FlexStartTpuPool, TpuNodePool, TpuPoolArgs
from components.vllm import VllmServer, VllmServerArgs

__all__ = [
    "ClusterNetwork",
    "ClusterNetworkArgs",
    "ComputeClass",
    "ComputeClassArgs",
    "FinetuneJob",
    "FinetuneJobArgs",
    "FlexStartTpuPool",
    "GkeCluster",
    "GkeClusterArgs",
    "GpuNodePool",
    "GpuNodePoolArgs",
    "JetStreamAutoscaling",
    "JetStreamAutoscalingArgs",
    "JetStreamServer",
    "JetStreamServerArgs",
    "KueueStack",
    "KueueStackArgs",
    "MetricsAdapter",
    "MetricsAdapterArgs",
    "ModelBucket",
    "ModelBucketArgs",
    "MultisliceJob",
    "MultisliceJobArgs",
    "NodeAccount",
    "NodeAccountArgs",
    "ProjectApis",
    "ProjectApisArgs",
    "SystemMonitoring",
    "SystemMonitoringArgs",
    "Tenant",
    "TenantArgs",
    "TgiServer",
    "TgiServerArgs",
    "TpuBatchJob",
    "TpuBatchJobArgs",
    "TpuNodePool",
    "TpuPoolArgs",
    "VllmServer",
    "VllmServerArgs",
    "WorkloadNamespace",
    "WorkloadNamespaceArgs",
]
