"""The keys of a stack's configuration: one class per section, one field per key, one module per subject.

Keys are camelCase in YAML (`gpuPools[0].machineType`) and snake_case here. A section holds what the user wants.
`catalog` holds what Google Cloud offers, and `settings.rules` checks that keys match each other.
"""

from settings.model.autoscaling import Autoscaler, ExistingDeployment, ScaledMetric
from settings.model.base import Cidr, DnsLabel, GkeName, Labels, Quantity, Request, Section, Version
from settings.model.buckets import Bucket, BucketMount, FuseVolume, Grant
from settings.model.capacity import Capacity, FlexStart, OnDemand, QueuedFlexStart, Reservation, Spot
from settings.model.cluster import (
    Cluster,
    Maintenance,
    MaintenanceExclusion,
    MaintenanceWindow,
    Moment,
    SystemPool,
    Vpc,
)
from settings.model.compute_classes import ClassCapacity, ClassFlexStart, ComputeClass, Priority
from settings.model.gateway import Gateway, Route, RoutedServer
from settings.model.lora import LoraAdapter
from settings.model.model_cache import ModelCache
from settings.model.model_shape import ModelShape
from settings.model.nodes import Nodes
from settings.model.pools import Autoscaling, GpuPool, Pool, TpuPool, TpuSlice
from settings.model.queues import ClusterQueue, Flavor, FlavorQuota, LocalQueue, Preemption, PriorityClass, Queues
from settings.model.runs import Dataset, FineTune, Multislice, Run, TpuBatch, TpuRun
from settings.model.server import ScratchVolume, Server
from settings.model.serving import AnyServer, GpuServer, JetStream, Tgi, TpuServer, Vllm, VllmTpu
from settings.model.stack import Monitoring, Settings, Tenant, Unresolved, Waiver
from settings.model.training import BucketVolume, RunCheckpoints, TrainingRun
from settings.model.workloads import GpuWorkload, Resources, SingleSliceWorkload, TokenSecret, TpuWorkload, Workload

__all__ = [
    "AnyServer",
    "Autoscaler",
    "Autoscaling",
    "Bucket",
    "BucketMount",
    "BucketVolume",
    "Capacity",
    "Cidr",
    "ClassCapacity",
    "ClassFlexStart",
    "Cluster",
    "ClusterQueue",
    "ComputeClass",
    "Dataset",
    "DnsLabel",
    "ExistingDeployment",
    "FineTune",
    "Flavor",
    "FlavorQuota",
    "FlexStart",
    "FuseVolume",
    "Gateway",
    "GkeName",
    "GpuPool",
    "GpuServer",
    "GpuWorkload",
    "Grant",
    "JetStream",
    "Labels",
    "LocalQueue",
    "LoraAdapter",
    "Maintenance",
    "MaintenanceExclusion",
    "MaintenanceWindow",
    "ModelCache",
    "ModelShape",
    "Moment",
    "Monitoring",
    "Multislice",
    "Nodes",
    "OnDemand",
    "Pool",
    "Preemption",
    "Priority",
    "PriorityClass",
    "Quantity",
    "QueuedFlexStart",
    "Queues",
    "Request",
    "Reservation",
    "Resources",
    "Route",
    "RoutedServer",
    "Run",
    "RunCheckpoints",
    "ScaledMetric",
    "ScratchVolume",
    "Section",
    "Server",
    "Settings",
    "SingleSliceWorkload",
    "Spot",
    "SystemPool",
    "Tenant",
    "Tgi",
    "TokenSecret",
    "TpuBatch",
    "TpuPool",
    "TpuRun",
    "TpuServer",
    "TpuSlice",
    "TpuWorkload",
    "TrainingRun",
    "Unresolved",
    "Version",
    "Vllm",
    "VllmTpu",
    "Vpc",
    "Waiver",
    "Workload",
]
