"""The keys of a stack's configuration: one class per section, one field per key, one module per subject.

Keys are camelCase in YAML (`gpuPools[0].machineType`) and snake_case here. A section holds what the user wants.
`gke_ai.catalog` holds what Google Cloud offers, and `gke_ai.settings.rules` checks that keys match each other.
"""

from gke_ai.settings.model.autoscaling import Autoscaler, ExistingDeployment, ScaledMetric
from gke_ai.settings.model.base import (
    Cidr,
    DnsLabel,
    GkeName,
    Labels,
    Moment,
    Quantity,
    Request,
    Section,
    Version,
    descriptions,
)
from gke_ai.settings.model.buckets import Bucket, BucketMount, FolderGrant, FuseVolume, Grant
from gke_ai.settings.model.budgets import Budget, Hours
from gke_ai.settings.model.capacity import (
    Autoscaling,
    Capacity,
    FlexStart,
    OnDemand,
    PoolReservation,
    QueuedFlexStart,
    Reservation,
    Spot,
)
from gke_ai.settings.model.cluster import Cluster, Maintenance, MaintenanceExclusion, MaintenanceWindow, SystemPool, Vpc
from gke_ai.settings.model.compute_classes import ClassCapacity, ClassFlexStart, ComputeClass, Priority
from gke_ai.settings.model.gateway import Gateway, Route, RoutedServer
from gke_ai.settings.model.lora import LoraAdapter
from gke_ai.settings.model.model_cache import ModelCache
from gke_ai.settings.model.model_shape import ModelShape
from gke_ai.settings.model.nodes import Nodes
from gke_ai.settings.model.pools import GpuPool, Pool, TpuPool
from gke_ai.settings.model.queues import (
    ClusterQueue,
    Flavor,
    FlavorQuota,
    LocalQueue,
    Preemption,
    PriorityClass,
    Queues,
)
from gke_ai.settings.model.runs import Dataset, FineTune, Multislice, Run, TpuBatch, TpuRun
from gke_ai.settings.model.server import HeldRequests, ScratchVolume, Server
from gke_ai.settings.model.serving import AnyServer, GpuServer, JetStream, Tgi, TpuServer, Vllm, VllmTpu
from gke_ai.settings.model.settings import Monitoring, Settings, Tenant, Unresolved, Waiver
from gke_ai.settings.model.sharing import (
    AdmissionFairSharing,
    BorrowWithinCohort,
    Cohort,
    CohortQuota,
    FairSharing,
    FlavorFungibility,
    Weight,
)
from gke_ai.settings.model.slices import TpuSlice
from gke_ai.settings.model.topology import Topology, TopologyGroups
from gke_ai.settings.model.training import BucketVolume, GpuRun, RunCheckpoints, TrainingRun
from gke_ai.settings.model.workloads import (
    GpuWorkload,
    Resources,
    SingleSliceWorkload,
    TokenSecret,
    TpuWorkload,
    Workload,
)
