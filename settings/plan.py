"""What follows from the settings of a stack alone: which pool serves a workload, which labels and quotas that gives.

Pure functions over validated settings; components turn their results into resources.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import PurePosixPath

from catalog import apis as google
from catalog import quota as quotas
from catalog.capacity import MODES
from catalog.engines import ENGINES, JETSTREAM_HTTP_REQUEST
from catalog.machines import machine
from catalog.nodes import (
    COMPUTE_CLASS,
    GKE_ACCELERATOR,
    GKE_NODEPOOL,
    GKE_TPU_ACCELERATOR,
    GKE_TPU_TOPOLOGY,
    NVIDIA_GPU,
    POOL,
    NodeShape,
)
from catalog.quantities import parse_quantity
from catalog.registries import is_googles, registry_of
from catalog.tpus import GOOGLE_TPU, Slice, slice_of
from catalog.versions import JETSTREAM_HTTP_IMAGE
from catalog.zones import node_zones
from settings.model import (
    Autoscaler,
    Cluster,
    ClusterQueue,
    FineTune,
    Flavor,
    FlavorQuota,
    FuseVolume,
    GpuPool,
    GpuServer,
    GpuWorkload,
    JetStream,
    LocalQueue,
    Multislice,
    QueuedFlexStart,
    Server,
    Settings,
    TokenSecret,
    TpuBatch,
    TpuPool,
    TpuSlice,
    Workload,
)
from settings.run_names import hash_of

# Every cluster has this namespace. The stack creates all others, except those of the system.
DEFAULT_NAMESPACE = "default"


def max_stack_nodes(settings: Settings) -> int:
    """Nodes of the stack with every pool at its maximum, without nodes that GKE creates itself."""
    system, cluster = settings.cluster.system_pool, settings.cluster
    zones = len(system.zones or node_zones(cluster.location)) if cluster.mode == "standard" else 0
    return system.nodes_per_zone * zones + sum(max_nodes(pool, cluster) for pool in pools(settings))


def is_autopilot(cluster: Cluster) -> bool:
    """Whether GKE manages the nodes: a new or an existing Autopilot cluster."""
    return cluster.mode == "autopilot" or (cluster.mode == "existing" and cluster.existing_mode == "autopilot")


def network_policy(settings: Settings) -> str | None:
    """How the stack's cluster enforces NetworkPolicies: `dataplaneV2`, `calico`, `existing`, or not at all.

    Dataplane V2 can only be set when a cluster is created, so a cluster with its own VPC gets it at once. Other clusters
    may get their first tenant later and must not be replaced for it: they use Calico, which can be turned on. Autopilot
    always has Dataplane V2. An existing cluster with tenants must already enforce NetworkPolicies.
    """
    if is_autopilot(settings.cluster):
        return None
    if settings.cluster.mode == "existing":
        return "existing" if settings.tenants else None
    if settings.cluster.vpc is not None:
        return "dataplaneV2"
    return "calico" if settings.tenants else None


def apis(settings: Settings) -> list[str]:
    """Google Cloud APIs that the stack enables, in the order of `catalog.apis`."""
    needed = {
        google.STORAGE: bool(settings.buckets),
        google.IAM: makes_accounts(settings),
        google.SECRET_MANAGER: settings.hf_token_secret is not None,
    }
    return [api for api in google.REASONS if needed.get(api, True)]


def makes_accounts(settings: Settings) -> bool:
    """Whether the stack creates Google service accounts, or grants them roles on the project."""
    account = settings.cluster.node_service_account
    return bool(settings.autoscaling) or (account is not None and "@" not in account)


def uses_workload_identity(settings: Settings) -> bool:
    """Whether the stack's pods or pools use Workload Identity Federation."""
    granted = any(bucket.grants for bucket in settings.buckets)
    stackdriver = any(autoscaler.adapter == "stackdriver" for autoscaler in settings.autoscaling)
    return granted or stackdriver or bool(pools(settings)) or settings.hf_token_secret is not None


def images(workload: Workload) -> list[str]:
    """The container images of the workload's pods."""
    stated: str | None = getattr(workload, "image", None)
    first = stated or (ENGINES[workload.engine].image if isinstance(workload, Server) else None)
    front = (workload.http_image or JETSTREAM_HTTP_IMAGE) if isinstance(workload, JetStream) else None
    return [image for image in (first, front) if image is not None]


def internet(settings: Settings) -> dict[str, str]:
    """External hosts that pods download from, each with the first workload that needs it.

    Google's registries are not among them: nodes without external IP addresses reach them by Private Google Access.
    """
    managers = ["Kueue"] if settings.queues else ["JobSet"] if multislices(settings) else []
    adapters = (
        ["metrics adapter"] if any(autoscaler.adapter == "prometheus" for autoscaler in settings.autoscaling) else []
    )
    downloads = [("registry.k8s.io", user) for user in (*managers, *adapters)]
    for workload in workloads(settings):
        downloads += [(host, workload.name) for host in map(registry_of, images(workload)) if not is_googles(host)]
        if token_secret_of(workload) is not None:
            downloads.append(("huggingface.co", workload.name))
    first_users: dict[str, str] = {}
    for host, user in downloads:
        first_users.setdefault(host, user)
    return first_users


def reads_registry(settings: Settings, project: str) -> bool:
    """Whether an image of the stack is in the project's own Artifact Registry, which may not be public."""
    # https://cloud.google.com/artifact-registry/docs/docker/names
    own = re.compile(rf"([a-z0-9-]+-docker\.pkg\.dev|([a-z]+\.)?gcr\.io)/{re.escape(project)}/.+")
    return any(own.fullmatch(image) for workload in workloads(settings) for image in images(workload))


def workloads(settings: Settings) -> list[Workload]:
    """All servers, training runs and batch Jobs, in the order of the configuration."""
    return [*settings.serving, *settings.training, *settings.batch]


def gpu_workloads(settings: Settings) -> list[GpuServer | FineTune]:
    """Workloads that run on GPUs."""
    return [workload for workload in workloads(settings) if isinstance(workload, GpuServer | FineTune)]


def token_secret_of(workload: Workload) -> TokenSecret | None:
    """The Secret with the Hugging Face token of the workload, if it reads one."""
    return workload.token_secret if isinstance(workload, GpuServer | FineTune | Multislice | TpuBatch) else None


def token_workloads(settings: Settings) -> list[Workload]:
    """Workloads that read the Hugging Face token."""
    return [workload for workload in workloads(settings) if token_secret_of(workload) is not None]


def fine_tunes(settings: Settings) -> list[FineTune]:
    """Fine-tuning runs, in the order of the configuration."""
    return [run for run in settings.training if isinstance(run, FineTune)]


def volume_of(workload: Workload) -> FuseVolume | None:
    """The bucket volume of the workload, if it has one."""
    return workload.volume if isinstance(workload, FineTune | Multislice | TpuBatch) else None


def bucket_runs(settings: Settings) -> list[FineTune | Multislice | TpuBatch]:
    """Runs that mount a bucket, in the order of the configuration."""
    return [run for run in runs(settings) if run.volume is not None]


def multislices(settings: Settings) -> list[Multislice]:
    """Multislice runs, which are JobSets, in the order of the configuration."""
    return [run for run in settings.training if isinstance(run, Multislice)]


def namespaces(settings: Settings) -> list[str]:
    """All namespaces of workloads, local queues and tenants, in the order of first use."""
    queues = settings.queues.local_queues if settings.queues else []
    used: list[Workload | LocalQueue] = [*workloads(settings), *queues]
    return list(dict.fromkeys([*(user.namespace for user in used), *(tenant.name for tenant in settings.tenants)]))


def gpus(pool: GpuPool) -> tuple[str, int]:
    """GPU type and number of GPUs per node: those of the pool's section, else those of its machine type.

    Raises ValueError if neither has GPUs; `settings.rules` refuses such a pool.
    """
    machine_type = machine(pool.machine_type)
    accelerator, count = pool.accelerator or machine_type.gpu, pool.gpus_per_node or machine_type.gpus
    if accelerator is None or not count:
        raise ValueError(f"pool {pool.name} has no GPU")
    return accelerator, count


def pool_zones(pool: GpuPool | TpuPool, cluster: Cluster) -> tuple[str, ...]:
    """Zones of the pool: its own, else those of the cluster's nodes."""
    return tuple(pool.zones or cluster.system_pool.zones or node_zones(cluster.location))


def pool_slice(pool: TpuPool | TpuSlice) -> Slice:
    """The slice of a TPU pool. Raises NoSuchSlice; `settings.rules` refuses such a pool."""
    return slice_of(pool.version, pool.topology, pool.machine_type)


def shape(pool: GpuPool | TpuPool, zone: str) -> NodeShape:
    """Shape of the pool's nodes in that zone."""
    accelerator, count = gpus(pool) if isinstance(pool, GpuPool) else (None, 0)
    return NodeShape(
        pool=pool.name,
        machine_type=pool.machine_type if isinstance(pool, GpuPool) else pool_slice(pool).machine_type,
        gpu=accelerator,
        gpus=count,
        driver=pool.driver if isinstance(pool, GpuPool) else "default",
        capacity=pool.capacity.mode,
        zone=zone,
        disk_gb=pool.disk_size_gb,
        labels=labels_of(pool),
        workload_identity=True,
        topology=pool.topology if isinstance(pool, TpuPool) else None,
    )


def labels_of(pool: GpuPool | TpuPool) -> dict[str, str]:
    """Node labels that the pool sets, without GKE's own."""
    return {**pool.labels, POOL: pool.name} if isinstance(pool, GpuPool) and pool.create_before_delete else pool.labels


def of_pool(pool: GpuPool | TpuPool) -> dict[str, str]:
    """The label that selects the pool's nodes, including those of its replacement."""
    return {POOL if POOL in labels_of(pool) else GKE_NODEPOOL: pool.name}


def grows(pool: TpuPool) -> bool:
    """Whether the cluster autoscaler sizes the pool."""
    return pool.autoscaling is not None or MODES[pool.capacity.mode].elastic


def bounds(pool: TpuPool) -> tuple[int, int]:
    """Minimum and maximum nodes of an autoscaled TPU pool. Default: zero to one slice."""
    if pool.autoscaling is not None:
        return pool.autoscaling.min_nodes, pool.autoscaling.max_nodes
    return 0, pool_slice(pool).hosts


def max_nodes(pool: GpuPool | TpuPool, cluster: Cluster) -> int:
    """Maximum number of nodes of the pool, in all zones together."""
    if isinstance(pool, TpuPool):
        if pool_slice(pool).multi_host:
            return pool_slice(pool).hosts
        if grows(pool):
            return bounds(pool)[1]
    if pool.autoscaling is not None:
        return pool.autoscaling.max_nodes
    return (pool.nodes_per_zone or 0) * len(pool_zones(pool, cluster))


def pools(settings: Settings) -> list[GpuPool | TpuPool]:
    """All GPU pools, then all TPU pools of the stack."""
    return [*settings.gpu_pools, *settings.tpu_pools]


def pools_of(workload: Workload, settings: Settings) -> list[GpuPool | TpuPool]:
    """Pools of this stack that the workload can run on: those it names, or all with its accelerator."""
    if isinstance(workload, Multislice) and workload.pools:
        return [pool for pool in settings.tpu_pools if pool.name in workload.pools]
    if isinstance(workload, GpuWorkload):
        if workload.pool is not None:
            return [pool for pool in settings.gpu_pools if pool.name == workload.pool]
        return [pool for pool in settings.gpu_pools if gpus(pool)[0] == workload.accelerator]
    if isinstance(workload, JetStream | TpuBatch) and workload.pool is not None:
        return [pool for pool in settings.tpu_pools if pool.name == workload.pool]
    if isinstance(workload, JetStream | TpuBatch | Multislice) and workload.tpu is not None:
        wanted = pool_slice(workload.tpu)
        return [pool for pool in settings.tpu_pools if pool_slice(pool) == wanted]
    return []


def workload_slice(workload: JetStream | TpuBatch | Multislice, settings: Settings) -> Slice:
    """The slice of the workload, or each of its equal slices. Raises LookupError if it names none."""
    if workload.tpu is not None:
        return pool_slice(workload.tpu)
    for pool in pools_of(workload, settings):
        assert isinstance(pool, TpuPool)
        return pool_slice(pool)
    raise LookupError(f"{workload.name} names no TPU slice")


def node_selector(workload: Workload, settings: Settings) -> dict[str, str]:
    """Node labels that the workload selects: its accelerator, and its pool if several pools have that."""
    if isinstance(workload, JetStream | TpuBatch | Multislice):
        return _tpu_selector(workload, settings)
    assert isinstance(workload, GpuWorkload)
    if workload.compute_class is not None:
        return {COMPUTE_CLASS: workload.compute_class}
    if workload.pool is None:
        return {GKE_ACCELERATOR: workload.accelerator} if workload.accelerator else {}
    (pool,) = pools_of(workload, settings)
    assert isinstance(pool, GpuPool)
    accelerator = gpus(pool)[0]
    selector = {GKE_ACCELERATOR: accelerator}
    if sum(gpus(other)[0] == accelerator for other in settings.gpu_pools) > 1:
        selector |= of_pool(pool)
    return selector


def _tpu_selector(workload: JetStream | TpuBatch | Multislice, settings: Settings) -> dict[str, str]:
    tpu_slice = workload_slice(workload, settings)
    own = pools_of(workload, settings)
    modes = {pool.capacity.mode for pool in own} or ({workload.tpu.capacity} if workload.tpu else set())
    selector = {GKE_TPU_ACCELERATOR: tpu_slice.accelerator, GKE_TPU_TOPOLOGY: tpu_slice.topology}
    for mode in modes if len(modes) == 1 else ():
        selector |= MODES[mode].labels
    if len(own) == 1 and _alike(tpu_slice, settings) != own:
        selector |= of_pool(own[0])
    return selector


def _alike(tpu_slice: Slice, settings: Settings) -> list[TpuPool]:
    """Pools whose nodes have the same accelerator and topology labels; their machine types may differ."""
    return [
        pool
        for pool in settings.tpu_pools
        if (pool_slice(pool).accelerator, pool.topology) == (tpu_slice.accelerator, tpu_slice.topology)
    ]


def only_pools(workload: TpuBatch | Multislice, settings: Settings) -> list[str]:
    """Names of the pools that the workload must be restricted to, as other pools have the same labels."""
    own = pools_of(workload, settings)
    others = [pool for pool in _alike(workload_slice(workload, settings), settings) if pool not in own]
    named = isinstance(workload, Multislice) and pool_of_slice(workload, settings)
    return [pool.name for pool in own] if len(own) > 1 and others and not named else []


def pool_of_slice(run: Multislice, settings: Settings) -> list[str]:
    """The pool of each slice of a run, if its pools grow. Otherwise JobSet finds free pools."""
    own = [pool for pool in pools_of(run, settings) if isinstance(pool, TpuPool)]
    return [pool.name for pool in own[: run.slices]] if any(grows(pool) for pool in own) else []


def queued_seconds(run: FineTune | Multislice | TpuBatch, settings: Settings) -> int | None:
    """Maximum duration in seconds of a run with queued provisioning; None on other nodes.

    It is the run's own, else the shortest of its pools.
    """
    modes = [pool.capacity for pool in pools_of(run, settings)]
    allowed = [mode.max_run_duration_seconds for mode in modes if isinstance(mode, QueuedFlexStart)]
    if not allowed or len(allowed) < len(modes):
        return None
    stated = run.max_run_duration_seconds if isinstance(run, TpuBatch) else None
    return stated or min(allowed)


def flavor_pools(flavor: Flavor, settings: Settings) -> list[GpuPool | TpuPool]:
    """Pools of the flavor, in its order."""
    by_name = {pool.name: pool for pool in pools(settings)}
    return [by_name[name] for name in flavor.pools if name in by_name]


def flavor_labels(flavor: Flavor, settings: Settings) -> dict[str, str]:
    """Node labels of the flavor: its accelerator, and its pool if it has only one; empty for any node.

    Kueue compares a workload's node selector only with labels that the flavor has. A flavor with only the pool's label
    would match workloads for any accelerator.
    """
    if flavor.accelerator is not None:
        return {GKE_ACCELERATOR: flavor.accelerator}
    own = flavor_pools(flavor, settings)
    pool = of_pool(own[0]) if len(own) == 1 else {}
    if flavor.tpu is not None or (own and isinstance(own[0], TpuPool)):
        tpu_slice = pool_slice(flavor.tpu or own[0])  # type: ignore[arg-type]
        return {GKE_TPU_ACCELERATOR: tpu_slice.accelerator, GKE_TPU_TOPOLOGY: tpu_slice.topology, **pool}
    return {GKE_ACCELERATOR: gpus(own[0])[0], **pool} if own and isinstance(own[0], GpuPool) else {}


def queued_resource(flavor: Flavor, settings: Settings) -> str | None:
    """The accelerator resource of a flavor with queued provisioning; None for other flavors."""
    own = flavor_pools(flavor, settings)
    if not own or not all(isinstance(pool.capacity, QueuedFlexStart) for pool in own):
        return None
    return GOOGLE_TPU if isinstance(own[0], TpuPool) else NVIDIA_GPU


def quota(flavor_quota: FlavorQuota, settings: Settings) -> dict[str, str]:
    """Nominal quota by resource: as configured, or derived from the flavor's pools at their maximum size."""
    if not isinstance(flavor_quota.quota, str):
        return dict(flavor_quota.quota)
    flavors = settings.queues.flavors if settings.queues else []
    pools = [p for flavor in flavors if flavor.name == flavor_quota.flavor for p in flavor_pools(flavor, settings)]
    # Nodes of different zones differ only in a label, so one shape represents the whole pool.
    return quotas.derive(
        ((shape(pool, pool_zones(pool, settings.cluster)[0]), max_nodes(pool, settings.cluster)) for pool in pools),
        settings.measured.room,
    )


def cluster_queue_of(workload: Workload, settings: Settings) -> ClusterQueue | None:
    """The cluster queue of the workload's local queue; None if Kueue does not manage the workload."""
    if workload.queue is None or settings.queues is None:
        return None
    for local in settings.queues.local_queues:
        if (local.name, local.namespace) == (workload.queue, workload.namespace):
            for cluster_queue in settings.queues.cluster_queues:
                if cluster_queue.name == local.cluster_queue:
                    return cluster_queue
    return None


def runs(settings: Settings) -> list[FineTune | Multislice | TpuBatch]:
    """All training runs and batch Jobs, in the order in which they are created."""
    return [*settings.training, *settings.batch]


def is_last_in_queue(run: FineTune | Multislice | TpuBatch, settings: Settings) -> bool:
    """Whether this run is the last one created in its cluster queue."""
    queue = cluster_queue_of(run, settings)
    same = [run for run in runs(settings) if queue is not None and cluster_queue_of(run, settings) is queue]
    return bool(same) and same[-1] is run


# Classes that every cluster has: https://kubernetes.io/docs/tasks/administer-cluster/guaranteed-scheduling-critical-addon-pods/
BUILT_IN_PRIORITIES = {"system-cluster-critical": 2000000000, "system-node-critical": 2000001000}


def priority(workload: Workload, settings: Settings) -> int:
    """Priority of the workload's pods: that of its class, else of the global default, else 0 as in Kubernetes."""
    if workload.priority_class in BUILT_IN_PRIORITIES:
        return BUILT_IN_PRIORITIES[workload.priority_class]
    for priority_class in settings.queues.priority_classes if settings.queues else []:
        if priority_class.name == workload.priority_class or (
            workload.priority_class is None and priority_class.global_default
        ):
            return priority_class.value
    return 0


def service_name(workload: Workload) -> str:
    """Name of the workload's Service. Default: the workload's name."""
    service: str | None = getattr(workload, "service", None)
    return service or workload.name


def run_name(run: FineTune | Multislice | TpuBatch) -> str:
    """Name of the Job: `name`, followed by a hash of six hex digits unless the name is fixed.

    The same configuration always has the same name, independent of this version's defaults. A changed configuration has
    another name, so that the changed run is created beside the old one.
    """
    if run.fixed_name:
        return run.name
    return f"{run.name}-{hash_of(run)}"


# Failures per pod that a Job of several pods tolerates.
_FAILURES_PER_POD = 4


def ignores_disruptions(run: FineTune | Multislice | TpuBatch) -> bool:
    """Whether disruptions do not count as failures. A Job with a fixed name keeps its original behavior."""
    return not run.fixed_name if run.ignore_disruptions is None else run.ignore_disruptions


def backoff_limit(run: FineTune | TpuBatch, pods: int) -> int | None:
    """Number of failed pods after which the Job fails; None for the default of Kubernetes."""
    if run.backoff_limit is not None:
        return run.backoff_limit
    if isinstance(run, TpuBatch) and pods == 1:
        return None
    if run.fixed_name:
        return 4 if isinstance(run, FineTune) else 0
    return _FAILURES_PER_POD * pods


def grace_period(run: FineTune | Multislice | TpuBatch) -> int | None:
    """Grace period of the run's pods in seconds; None for the default of Kubernetes."""
    stated = run.termination_grace_period_seconds
    return 60 if stated is None and not run.fixed_name else stated


# Folder of the checkpoints of a run with a fixed name, below the mount path, as in its source document.
_FIXED_FOLDER = "model-gemma2/experiment"


def model_path(run: FineTune) -> str:
    """The folder of the run's checkpoints. Default: one of its own."""
    return run.model_path or str(
        PurePosixPath(run.volume.mount_path) / (_FIXED_FOLDER if run.fixed_name else run_name(run))
    )


def removes_incomplete_checkpoints(run: FineTune) -> bool:
    """Whether the run deletes incomplete checkpoints at its start. A Job with a fixed name keeps its behavior."""
    return not run.fixed_name if run.remove_incomplete_checkpoints is None else run.remove_incomplete_checkpoints


# Default requests of the sidecar, set by the webhook of the FUSE driver:
# https://cloud.google.com/kubernetes-engine/docs/how-to/cloud-storage-fuse-csi-driver-sidecar
SIDECAR_DEFAULTS = {"cpu": "250m", "memory": "256Mi", "ephemeral-storage": "5Gi"}


def accelerators(workload: Workload, settings: Settings) -> tuple[str, int]:
    """Accelerator resource of one pod of the workload, and its number."""
    match workload:
        case GpuServer():
            return NVIDIA_GPU, workload.gpus
        case FineTune():
            return NVIDIA_GPU, workload.gpus_per_pod
        case JetStream() | TpuBatch() | Multislice():
            return GOOGLE_TPU, workload_slice(workload, settings).chips_per_host
    raise TypeError(type(workload).__name__)


def pod_request(workload: Workload, settings: Settings) -> dict[str, Fraction]:
    """Requests of one pod's containers by resource, which Kueue counts."""
    stated = {
        "cpu": workload.resources.cpu,
        "memory": workload.resources.memory,
        "ephemeral-storage": workload.resources.ephemeral_storage,
    }
    request = {resource: parse_quantity(text) for resource, text in stated.items() if text is not None}
    if isinstance(workload, JetStream):  # plus the container that translates HTTP to gRPC
        for resource in request.keys() & JETSTREAM_HTTP_REQUEST.keys():
            request[resource] += parse_quantity(JETSTREAM_HTTP_REQUEST[resource])
    resource, count = accelerators(workload, settings)
    request[resource] = Fraction(count)
    return request


def node_request(workload: Workload, settings: Settings) -> dict[str, Fraction]:
    """Requests of one pod on its node: those of its containers, and of the FUSE sidecar if it has a volume."""
    request = pod_request(workload, settings)
    if (volume := volume_of(workload)) is not None:
        sidecar = dict(SIDECAR_DEFAULTS)
        sidecar["cpu"] = volume.sidecar_cpu or sidecar["cpu"]
        sidecar["memory"] = volume.sidecar_memory_limit or sidecar["memory"]
        for resource, text in sidecar.items():
            request[resource] = request.get(resource, Fraction(0)) + parse_quantity(text)
    return request


def pods_at_once(workload: Workload, settings: Settings) -> int:
    """Pods that must run at the same time: all pods of a Job, one pod of a server."""
    match workload:
        case FineTune():
            return workload.pods
        case TpuBatch():
            return workload_slice(workload, settings).hosts
        case Multislice():
            return workload_slice(workload, settings).hosts * workload.slices
        case Server():
            return min(workload.replicas, 1)
    raise TypeError(type(workload).__name__)


def autoscaler_of(server: Server, settings: Settings) -> Autoscaler | None:
    """The autoscaler of the server, if it has one."""
    return next((autoscaler for autoscaler in settings.autoscaling if autoscaler.server == server.name), None)


def limits(cluster_queue: ClusterQueue, settings: Settings) -> Iterator[tuple[str, dict[str, Fraction]]]:
    """Maximum use of each flavor of the queue: its quota, plus what it may borrow from its cohort."""
    for own in cluster_queue.flavors:
        total = {}
        for resource, text in quota(own, settings).items():
            lent = sum(
                (lendable(lender, resource, settings) for lender in lenders(cluster_queue, own, settings)), Fraction(0)
            )
            if resource in own.borrowing_limit:
                lent = min(lent, parse_quantity(own.borrowing_limit[resource]))
            total[resource] = parse_quantity(text) + lent
        yield own.flavor, total


# Minimum time for pods to be ready, by default: a node needs minutes, a large model longer.
_PODS_READY_SECONDS = 3600


def pods_ready_timeout(settings: Settings) -> int:
    """Seconds in which the pods of any admitted workload must be ready; 0 for no limit."""
    stated = settings.queues.pods_ready_timeout_seconds if settings.queues else 0
    if stated is not None:
        return stated
    if any(waits_for_flex_start(settings)):
        return 0
    return max([_PODS_READY_SECONDS, *(server.ready_timeout_seconds for server in settings.serving if server.queue)])


def waits_for_flex_start(settings: Settings) -> Iterator[str]:
    """Flavors, pools and compute classes whose flex-start nodes may start days after Kueue admits their pods.

    With queued provisioning the nodes exist before Kueue admits the workload.
    """
    for flavor in settings.queues.flavors if settings.queues else []:
        if flavor.tpu is not None and flavor.tpu.capacity == "flexStart":
            yield f"flavor {flavor.name}"
        yield from (f"pool {pool.name}" for pool in flavor_pools(flavor, settings) if pool.capacity.mode == "flexStart")
    for workload in workloads(settings):
        if workload.queue is None:
            continue
        yield from (f"pool {pool.name}" for pool in pools_of(workload, settings) if pool.capacity.mode == "flexStart")
        for compute_class in settings.compute_classes if isinstance(workload, GpuWorkload) else []:
            modes = [priority.capacity.mode for priority in compute_class.priorities]
            if compute_class.name == getattr(workload, "compute_class", None) and "flexStart" in modes:
                yield f"compute class {compute_class.name}"


def lenders(borrower: ClusterQueue, own: FlavorQuota, settings: Settings) -> list[FlavorQuota]:
    """Quotas of the same flavor in the other cluster queues of the borrower's cohort."""
    queues = settings.queues.cluster_queues if settings.queues and borrower.cohort else []
    others = [
        cluster_queue
        for cluster_queue in queues
        if cluster_queue is not borrower and cluster_queue.cohort == borrower.cohort
    ]
    return [flavor_quota for queue in others for flavor_quota in queue.flavors if flavor_quota.flavor == own.flavor]


def lendable(lender: FlavorQuota, resource: str, settings: Settings) -> Fraction:
    """Maximum amount of a resource that a quota lends to its cohort: the lending limit, else the whole quota."""
    nominal = parse_quantity(quota(lender, settings).get(resource, "0"))
    limit = lender.lending_limit.get(resource)
    return nominal if limit is None else min(nominal, parse_quantity(limit))
