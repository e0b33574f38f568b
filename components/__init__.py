"""The components of an AI system on GKE, one per file. `__main__` composes them; so can any other program.

A component takes its arguments as a typed dictionary: the keys of its section of the configuration in snake_case, and a
few values that the cloud decides. `settings.model` declares the defaults and checks of a section's keys.

The children of a component wait for its `depends_on` too, at creation and at deletion: the engine creates a child after
its parent, and deletes a dependency of the parent after the parent's children.

The modules here do not use `from __future__ import annotations`: Pulumi's component host, which serves them to programs
in other languages, reads the argument types of `__init__` and cannot read a string. Other annotations that name a type
of pulumi_kubernetes are strings: the SDK loads a module at its first use, which takes up to a fifth of a second.
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
from components.training_job import TrainingJob
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
    "TrainingJob",
    "VllmServer",
    "VllmServerArgs",
    "WorkloadNamespace",
    "WorkloadNamespaceArgs",
]
