"""What all servers and runs have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field, PrivateAttr

from gke_ai.catalog.machines.capacity import MODES
from gke_ai.catalog.machines.tpus import GOOGLE_TPU, Slice
from gke_ai.catalog.machines.types import MACHINES, machines_with
from gke_ai.catalog.nodes.quota import QUEUE_LABEL
from gke_ai.catalog.nodes.shape import COMPUTE_CLASS, GKE_ACCELERATOR, NVIDIA_GPU
from gke_ai.settings.model.base import DnsLabel, Labels, Request, Section
from gke_ai.settings.model.buckets import BucketMount, FuseVolume
from gke_ai.settings.model.compute_classes import ComputeClass
from gke_ai.settings.model.nodes import Nodes
from gke_ai.settings.model.pools import Pool
from gke_ai.settings.model.slices import TpuSlice, slice_labels
from gke_ai.settings.model.topology import Topology


class Resources(Section):
    """Resource requests of one pod; its limits equal them."""

    noun: ClassVar[str] = "the resources of a pod"

    cpu: Request | None = None
    """CPU cores."""
    memory: Request | None = None
    """Memory, in bytes."""
    ephemeral_storage: Request | None = None
    """Local storage of the node, in bytes."""

    @property
    def stated(self) -> dict[str, str]:
        """The requests that are stated, by resource."""
        requests = {"cpu": self.cpu, "memory": self.memory, "ephemeral-storage": self.ephemeral_storage}
        return {resource: text for resource, text in requests.items() if text is not None}


class TokenSecret(Section):
    """The Kubernetes Secret with the Hugging Face token, in the namespace of the workload."""

    noun: ClassVar[str] = "a token secret"

    name: DnsLabel = "hf-secret"
    """Name of the Secret."""
    key: str = "hf_api_token"
    """Key in the Secret."""


# An accelerator with room for a pod: its name, the parts that a GPU is divided into, and the words that name the
# compute class, if there is one.
AcceleratorPlace = tuple[str, int, str]


class Workload(Section):
    """Base of all servers and runs: their namespace, queue and pods."""

    # Nouns in messages: of the workload without an article, and of one of its pods.
    short_noun: ClassVar[str] = "training"
    pod_noun: ClassVar[str] = "a pod of the Job"
    # Kind of its Kubernetes object.
    object_kind: ClassVar[str] = "Job"
    # Whether its pods run until they are done. Otherwise they run until they are deleted.
    ends: ClassVar[bool] = True
    # Whether the program waits for its deletion, and not only for that of its namespace.
    deletion_is_awaited: ClassVar[bool] = False
    # Whether it writes checkpoints to its bucket. Other workloads may only read.
    writes_checkpoints: ClassVar[bool] = False
    # Whether Kueue counts the FUSE sidecar: it is in the pods of a server, and not in the template of a Job.
    queue_counts_sidecar: ClassVar[bool] = False
    # Whether each of its slices has a pool of its own.
    has_pool_per_slice: ClassVar[bool] = False
    # Name of the accelerator as a Kubernetes resource.
    accelerator_resource: ClassVar[str]
    # Keys of the section that set the accelerators of a pod, the pods, and the pools.
    accelerators_key: ClassVar[str] = "pool"
    pods_key: ClassVar[str] = "pool"
    pools_key: ClassVar[str] = "pool"

    if TYPE_CHECKING:  # a key of its kinds, each with a default of its own
        image: str | None

    name: DnsLabel
    """Name of the workload."""
    namespace: DnsLabel = "llm"
    """Namespace of the workload."""
    queue: str | None = None
    """Local queue of the same namespace. Default: Kueue does not manage the workload."""
    priority_class: str | None = None
    """PriorityClass of the pods. Default: the global default class, or else priority 0."""
    service_account: DnsLabel = "default"
    """Kubernetes service account of the pods."""
    resources: Resources = Resources()
    """Resource requests of one pod."""
    labels: Labels = Field(default={})
    """Additional labels of the pods."""
    env: dict[str, str] = Field(default={}, examples=[{"LOG_LEVEL": "info"}])
    """Additional environment variables of the container."""

    # What a program in Python adds to the content of a run.
    _further: str = PrivateAttr(default="")

    @property
    def further(self) -> str:
        """What else is part of its content than its keys."""
        return self._further

    @property
    def suffix(self) -> str:
        """What follows the name in the names of its objects: a hash of the content of a run without a fixed name."""
        return ""

    @property
    def object_name(self) -> str:
        """Name of its Deployment, Job or JobSet."""
        return self.name + self.suffix

    @property
    def token(self) -> TokenSecret | None:
        """The Secret with the Hugging Face token, if the workload reads one."""
        return None

    @property
    def bucket_volume(self) -> FuseVolume | None:
        """The bucket that the workload mounts, if any."""
        return None

    @property
    def bucket_mounts(self) -> list[BucketMount]:
        """The buckets that the pods mount."""
        volume = self.bucket_volume
        if volume is None:
            return []
        return [BucketMount(volume.bucket, volume.mount_path, "volume", self.writes_checkpoints)]

    @property
    def sidecar(self) -> Resources | None:
        """Resources of the FUSE sidecar that the configuration states, if the pods mount a bucket."""
        volume = self.bucket_volume
        return None if volume is None else Resources(cpu=volume.sidecar_cpu, memory=volume.sidecar_memory_limit)

    @property
    def images(self) -> list[str]:
        """Container images of the pods."""
        return [self.image] if self.image else []

    @property
    def further_request(self) -> Mapping[str, str]:
        """Requests of further containers of a pod, each only if `resources` has the resource too."""
        return {}

    @property
    def max_seconds(self) -> int | None:
        """Maximum duration on queued nodes that the section sets, in seconds."""
        return None

    @property
    def has_named_service(self) -> bool:
        """Whether it has a Service whose name the section sets, by `service` or `name`."""
        return True

    @property
    def service_name(self) -> str:
        """Name of the workload's Service."""
        return self.name

    @property
    def is_privileged(self) -> bool:
        """Whether its containers are privileged."""
        return False

    @property
    def uses_host_network(self) -> bool:
        """Whether its pods run on the node's network."""
        return False

    @property
    def set_variables(self) -> Mapping[str, str]:
        """Environment variables that the program sets, with the key that each comes from."""
        return {}

    @property
    def set_labels(self) -> Mapping[str, str]:
        """Labels of the pods that the program sets, with the key that each comes from."""
        return {QUEUE_LABEL: "queue"}

    @property
    def hub_ids(self) -> Mapping[str, str]:
        """Ids of models and datasets on Hugging Face, by key."""
        return {}

    @property
    def named_pools(self) -> dict[str, str]:
        """Names of the pools that the workload names, by their path in the configuration."""
        return {}

    @property
    def hardware(self) -> object:
        """The accelerators that the workload names without naming a pool, compared with `Pool.hardware`."""
        return None

    @property
    def provisioned_capacity(self) -> tuple[str, str] | None:
        """Accelerator and capacity mode of nodes that Google creates for the workload, if it names them."""
        return None

    @property
    def named_class(self) -> str | None:
        """The compute class that provides the nodes, if any."""
        return None

    @property
    def placement(self) -> Topology | None:
        """How close to each other its pods are, if the section states it."""
        return None

    def nodes_among(self, pools: Sequence[Pool], classes: Sequence[ComputeClass]) -> Nodes:
        """The nodes of the workload: of pools that it names, or of all with its accelerators, or of its class."""
        same = [pool for pool in pools if pool.accelerator_resource == self.accelerator_resource]
        names = self.named_pools.values()
        own = tuple(pool for pool in same if (pool.name in names if names else pool.hardware == self.hardware))
        others = tuple(pool for pool in same if pool not in own)
        return Nodes(own, others, next((item for item in classes if item.name == self.named_class), None))

    @abstractmethod
    def hardware_labels(self, nodes: Nodes) -> dict[str, str]:
        """Labels of the nodes with the accelerators of the workload."""

    def capacity_labels(self, nodes: Nodes) -> dict[str, str]:
        """Labels of the nodes' capacity mode that the workload selects."""
        return {}

    def hardware_names(self, nodes: Nodes) -> set[str]:
        """The accelerators that the workload can run on, as `Pool.hardware_name` has them."""
        return {pool.hardware_name for pool in nodes.pools}

    def selector_on(self, nodes: Nodes) -> dict[str, str]:
        """Node labels that the workload selects: its accelerator, and its pool if several pools have that."""
        labels = self.hardware_labels(nodes)
        selector = {**labels, **self.capacity_labels(nodes)}
        return {**selector, **nodes.pools[0].selector} if len(nodes.pools) == 1 and nodes.alike(labels) else selector

    def pool_of_slice(self, nodes: Nodes) -> list[str]:
        """The pool of each slice, for a workload of several slices that chooses their pools."""
        return []

    @property
    def is_bound_to_pools(self) -> bool:
        """Whether its pods can run only on its pools of this stack."""
        return bool(self.named_pools)

    @abstractmethod
    def accelerators_per_pod(self, nodes: Nodes) -> int:
        """Accelerators that each pod requests."""

    @abstractmethod
    def pods_at_once(self, nodes: Nodes) -> int:
        """Pods that must run at the same time: all pods of a Job, one pod of a server."""

    def max_pods(self, nodes: Nodes, max_replicas: int | None) -> int:
        """Maximum number of pods. `max_replicas` is the limit of the workload's autoscaler, if it has one."""
        return self.pods_at_once(nodes)

    def accelerator_places(self, nodes: Nodes) -> Iterator[AcceleratorPlace]:
        """Accelerators with room for a pod."""
        yield from ()


class GpuWorkload(Workload):
    """A workload on GPUs: of a pool, of a compute class, or of a GPU type where Google manages the nodes."""

    accelerator_resource: ClassVar[str] = NVIDIA_GPU

    pool: str | None = None
    """GPU pool of this stack that the workload runs on."""
    accelerator: str | None = None
    """GPU type, if the stack has no GPU pool: on Autopilot or an existing cluster."""
    compute_class: str | None = None
    """Compute class of this stack that provides the nodes."""
    token_secret: TokenSecret | None = TokenSecret()
    """Secret with the Hugging Face token."""

    @property
    def token(self) -> TokenSecret | None:
        return self.token_secret

    @property
    def named_pools(self) -> dict[str, str]:
        return {} if self.pool is None else {self.at("pool"): self.pool}

    @property
    def hardware(self) -> object:
        return self.accelerator

    @property
    def provisioned_capacity(self) -> tuple[str, str] | None:
        return (self.accelerator, "onDemand") if self.accelerator is not None and self.compute_class is None else None

    @property
    def named_class(self) -> str | None:
        return self.compute_class

    def hardware_labels(self, nodes: Nodes) -> dict[str, str]:
        if self.compute_class is not None:
            return {COMPUTE_CLASS: self.compute_class}
        if self.pool is None:
            return {GKE_ACCELERATOR: self.accelerator} if self.accelerator else {}
        (pool,) = nodes.pools
        return pool.accelerator_labels

    def hardware_names(self, nodes: Nodes) -> set[str]:
        return super().hardware_names(nodes) | ({self.accelerator} if self.accelerator is not None else set())

    def accelerator_places(self, nodes: Nodes) -> Iterator[AcceleratorPlace]:
        count = self.accelerators_per_pod(nodes)
        if self.compute_class is not None:
            for priority in nodes.compute_class.priorities if nodes.compute_class else ():
                machine_type = MACHINES.get(priority.machine_type)
                if machine_type is not None and machine_type.gpu is not None and machine_type.gpus >= count:
                    yield machine_type.gpu, machine_type.gpu_parts, f" of compute class {self.compute_class}"
        elif nodes.pools:
            for pool in nodes.pools:
                if pool.accelerators_per_node >= count:
                    yield pool.accelerator_type, MACHINES[pool.node_machine_type].gpu_parts, ""
        elif self.accelerator is not None and any(m.gpus >= count for m in machines_with(self.accelerator)):
            yield self.accelerator, 1, ""


class TpuWorkload(Workload):
    """A workload on TPUs: on pools of this stack, or on slices where Google manages the nodes."""

    accelerator_resource: ClassVar[str] = GOOGLE_TPU

    tpu: TpuSlice | None = None
    """TPU slice, if the stack has no TPU pool: on Autopilot or an existing cluster."""

    @property
    def hardware(self) -> object:
        return None if self.tpu is None else self.tpu.slice

    @property
    def provisioned_capacity(self) -> tuple[str, str] | None:
        return None if self.tpu is None else (self.tpu.version, self.tpu.capacity)

    def slice_on(self, nodes: Nodes) -> Slice:
        """The slice of the workload, or each of its equal slices. Raises LookupError if it names none."""
        if self.tpu is not None:
            return self.tpu.slice
        if nodes.slice is not None:
            return nodes.slice
        raise LookupError(f"{self.name} names no TPU slice")

    def hardware_labels(self, nodes: Nodes) -> dict[str, str]:
        return slice_labels(self.slice_on(nodes))

    def capacity_labels(self, nodes: Nodes) -> dict[str, str]:
        modes = {pool.capacity.mode for pool in nodes.pools} or ({self.tpu.capacity} if self.tpu else set())
        return dict(MODES[modes.pop()].labels) if len(modes) == 1 else {}

    def hardware_names(self, nodes: Nodes) -> set[str]:
        return super().hardware_names(nodes) | {" ".join(self.hardware_labels(nodes).values())}

    def accelerators_per_pod(self, nodes: Nodes) -> int:
        return self.slice_on(nodes).chips_per_host

    def accelerator_places(self, nodes: Nodes) -> Iterator[AcceleratorPlace]:
        yield self.slice_on(nodes).accelerator, 1, ""


class SingleSliceWorkload(TpuWorkload):
    """A workload on one TPU slice."""

    pool: str | None = None
    """TPU pool of this stack that the workload runs on."""

    @property
    def named_pools(self) -> dict[str, str]:
        return {} if self.pool is None else {self.at("pool"): self.pool}
