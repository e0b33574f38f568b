"""The components of an AI system on GKE, one per file, in a folder for each part of it.

`gke_ai.program` composes them; so can any other program.

A component takes its name, and its arguments as keywords: the keys of the section of the configuration that describes
it, with their defaults and checks in `gke_ai.settings.model`, other components, and outputs.

The children of a component wait for its `depends_on` too, at creation and at deletion: the engine creates a child after
its parent, and deletes a dependency of the parent after the parent's children.

The modules here do not use `from __future__ import annotations`: the Pulumi package, which serves them to programs in
other languages, reads the types of arguments and outputs and cannot read a string. Other annotations that name a type
of an SDK are strings: it loads a module at its first use, and core/v1 takes a fifth of a second of the CPU.
"""

from gke_ai.catalog.engines.dashboards import MonitoredServer
from gke_ai.components.base import Component
from gke_ai.components.bucket import ModelBucket
from gke_ai.components.cluster.apis import ProjectApis
from gke_ai.components.cluster.cluster import GkeCluster
from gke_ai.components.cluster.connection import ClusterConnection
from gke_ai.components.cluster.network import ClusterNetwork
from gke_ai.components.cluster.node_account import NodeAccount
from gke_ai.components.gateway.inference_gateway import GatewayRoute, InferenceGateway, Route
from gke_ai.components.gateway.inference_pool import InferencePool
from gke_ai.components.gateway.model_router import ModelRouter
from gke_ai.components.monitoring import SystemMonitoring
from gke_ai.components.pools.compute_class import ComputeClass
from gke_ai.components.pools.gpu_pool import GpuNodePool
from gke_ai.components.pools.gpudirect import GpuDirectNetworks
from gke_ai.components.pools.nvlink import NvlinkDriver
from gke_ai.components.pools.tpu_pool import FlexStartTpuPool, TpuNodePool
from gke_ai.components.queues.kueue import ClusterQueue, KueueStack
from gke_ai.components.queues.ledger import Ledger
from gke_ai.components.queues.namespace import SecretManager, WorkloadNamespace
from gke_ai.components.queues.tenant import Tenant
from gke_ai.components.runs.finetune import FinetuneJob
from gke_ai.components.runs.multislice import MultisliceJob
from gke_ai.components.runs.tpu_batch import TpuBatchJob
from gke_ai.components.runs.training_job import TrainingJob
from gke_ai.components.serving.jetstream import JetStreamServer
from gke_ai.components.serving.metrics_adapter import MetricsAdapter
from gke_ai.components.serving.model_download import ModelDownload
from gke_ai.components.serving.server_autoscaling import JetStreamAutoscaling, ServerAutoscaling
from gke_ai.components.serving.tgi import TgiServer
from gke_ai.components.serving.vllm import VllmServer
from gke_ai.components.serving.vllm_tpu import VllmTpuServer
from gke_ai.components.stated import MachineShape, Region
from gke_ai.components.workloads.arguments import PodParts, SecretKey
from gke_ai.manifests.cluster_queue import NodeFlavor
from gke_ai.settings.resolved.gateway import ModelRule


def every_component() -> list[type[Component]]:
    """The components that this package exports, by name."""
    members = [member for _, member in sorted(globals().items()) if member is not Component]
    return [member for member in members if isinstance(member, type) and issubclass(member, Component)]
