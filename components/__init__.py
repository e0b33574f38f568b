"""The components of an AI system on GKE, one per file. `__main__` composes them; so can any other program.

A component takes the section of the configuration that describes it, and as keyword arguments what the cloud and other
sections decide. `settings.model` declares the defaults and checks of a section's keys.

The children of a component wait for its `depends_on` too, at creation and at deletion: the engine creates a child after
its parent, and deletes a dependency of the parent after the parent's children.

The modules here do not use `from __future__ import annotations`: the Pulumi package, which serves them to programs in
other languages, reads the types of arguments and outputs and cannot read a string. Other annotations that name a type
of pulumi_kubernetes are strings: the SDK loads a module at its first use, which takes up to a fifth of a second.
"""

from components.apis import ProjectApis
from components.base import Component
from components.bucket import ModelBucket
from components.cluster import GkeCluster
from components.cluster_queue import NodeFlavor
from components.compute_class import ComputeClass
from components.finetune import FinetuneJob
from components.gpu_pool import GpuNodePool
from components.inference_gateway import GatewayRoute, InferenceGateway
from components.inference_pool import InferencePool
from components.jetstream import JetStreamServer
from components.kueue import KueueStack
from components.metrics_adapter import MetricsAdapter
from components.model_download import ModelDownload
from components.model_router import ModelRouter
from components.monitoring import SystemMonitoring
from components.multislice import MultisliceJob
from components.namespace import NamespaceQueue, SecretManager, WorkloadNamespace
from components.network import ClusterNetwork
from components.node_account import NodeAccount
from components.server_autoscaling import JetStreamAutoscaling, ServerAutoscaling
from components.tenant import Tenant
from components.tgi import TgiServer
from components.tpu_batch import TpuBatchJob
from components.tpu_pool import FlexStartTpuPool, TpuNodePool
from components.training_job import TrainingJob
from components.vllm import VllmServer
from components.vllm_tpu import VllmTpuServer

__all__ = [
    "ClusterNetwork",
    "ComputeClass",
    "FinetuneJob",
    "FlexStartTpuPool",
    "GatewayRoute",
    "GkeCluster",
    "GpuNodePool",
    "InferenceGateway",
    "InferencePool",
    "JetStreamAutoscaling",
    "JetStreamServer",
    "KueueStack",
    "MetricsAdapter",
    "ModelBucket",
    "ModelDownload",
    "ModelRouter",
    "MultisliceJob",
    "NamespaceQueue",
    "NodeAccount",
    "NodeFlavor",
    "ProjectApis",
    "SecretManager",
    "ServerAutoscaling",
    "SystemMonitoring",
    "Tenant",
    "TgiServer",
    "TpuBatchJob",
    "TpuNodePool",
    "TrainingJob",
    "VllmServer",
    "VllmTpuServer",
    "WorkloadNamespace",
]


def every_component() -> list[type[Component]]:
    """The components that this package exports."""
    members = (globals()[name] for name in __all__)
    return [member for member in members if isinstance(member, type) and issubclass(member, Component)]
