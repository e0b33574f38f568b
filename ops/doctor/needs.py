"""What a stack needs of its project before a first `up`: quota, machines, a GKE version, permissions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from catalog import features, project_quotas
from catalog.capacity import MODES
from catalog.machines import machine
from catalog.zones import node_zones, region_of
from settings import plan
from settings.model import (
    GpuPool,
    GpuWorkload,
    JetStream,
    Multislice,
    Server,
    Settings,
    TpuBatch,
    TpuPool,
    TpuWorkload,
    Workload,
)

# Permissions by the role that has them and that a person would grant; a few of each that tell whether it is there.
# https://cloud.google.com/iam/docs/roles-permissions
CLUSTERS = (
    *("container.clusters.create", "container.clusters.get", "container.clusters.update", "container.clusters.delete"),
    *("container.operations.get", "container.clusterRoleBindings.create", "container.secrets.create"),
)
IN_CLUSTER = ("container.clusters.get", "container.clusterRoleBindings.create", "container.secrets.create")
ROLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "roles/browser": ("resourcemanager.projects.get",),
        "roles/iam.serviceAccountUser": ("iam.serviceAccounts.actAs",),
        "roles/storage.admin": (
            *("storage.buckets.create", "storage.buckets.get", "storage.buckets.update", "storage.buckets.delete"),
            *("storage.buckets.getIamPolicy", "storage.buckets.setIamPolicy"),
        ),
        "roles/compute.networkAdmin": (
            *("compute.networks.create", "compute.networks.delete", "compute.subnetworks.create"),
            *("compute.routers.create", "compute.routers.update"),
        ),
        "roles/iam.serviceAccountAdmin": (
            *("iam.serviceAccounts.create", "iam.serviceAccounts.delete"),
            *("iam.serviceAccounts.getIamPolicy", "iam.serviceAccounts.setIamPolicy"),
        ),
        "roles/resourcemanager.projectIamAdmin": (
            "resourcemanager.projects.getIamPolicy",
            "resourcemanager.projects.setIamPolicy",
        ),
        "roles/serviceusage.serviceUsageAdmin": ("serviceusage.services.enable", "serviceusage.services.get"),
        "roles/monitoring.editor": (
            *("monitoring.dashboards.create", "monitoring.dashboards.update", "monitoring.dashboards.delete"),
            *("monitoring.alertPolicies.create", "monitoring.alertPolicies.update", "monitoring.alertPolicies.delete"),
        ),
        "roles/secretmanager.admin": ("secretmanager.secrets.get", "secretmanager.secrets.setIamPolicy"),
    }
)


@dataclass(frozen=True)
class QuotaNeed:
    """So many accelerators in a region at the most; `metric` is none where the quota is one of the whole family."""

    region: str
    metric: str | None
    count: int
    of: str


@dataclass(frozen=True)
class MachineNeed:
    """A machine type that each of the zones must have, or, where `any_zone`, one of them.

    `path` is where the configuration says the zones (or, where any will do, the machine type), if they are `stated`.
    """

    machine_type: str
    zones: tuple[str, ...]
    of: str
    path: str
    stated: bool = True
    any_zone: bool = False


def region(settings: Settings) -> str:
    """The region of the cluster."""
    return region_of(settings.cluster.location)


def quotas(settings: Settings) -> list[QuotaNeed]:
    """Accelerators of the pools at their largest, and of workloads on nodes that Google makes, by what they draw on."""
    found: dict[tuple[str, str, str | None], QuotaNeed] = {}
    for accelerator, capacity, count, user in _accelerators(settings):
        where, metric = region(settings), project_quotas.metric(accelerator, capacity)
        key = (where, accelerator, metric)
        before = found.get(key)
        of = f"{before.of}, {user}" if before else f"{accelerator} of {user}"
        found[key] = QuotaNeed(where, metric, count + (before.count if before else 0), of)
    return list(found.values())


def class_quotas(settings: Settings) -> list[QuotaNeed]:
    """Accelerators of the workloads of a compute class, by choice: one choice with enough quota will do."""
    found = []
    for one in settings.compute_classes:
        users = [workload for workload in plan.gpu_workloads(settings) if workload.compute_class == one.name]
        count = sum(plan.accelerators(user, settings)[1] * _pods(user, settings) for user in users)
        for index, priority in enumerate(one.priorities):
            accelerator, mode = machine(priority.machine_type).gpu, priority.capacity.mode
            if accelerator is None or not count or mode == "reservation":
                continue
            metric = project_quotas.metric(accelerator, mode)
            found.append(QuotaNeed(region(settings), metric, count, one.at(f"priorities[{index}]")))
    return found


def gpus_everywhere(settings: Settings) -> int:
    """GPUs of the stack at its largest, whatever kind they are."""
    return sum(count for accelerator, _, count, _ in _accelerators(settings) if accelerator.startswith("nvidia-"))


def _accelerators(settings: Settings) -> Iterator[tuple[str, str, int, str]]:
    """(GPU type or TPU version, capacity mode, accelerators at the most, who), those of a reservation left out."""
    for pool in plan.pools(settings):
        nodes = plan.max_nodes(pool, settings.cluster)
        if pool.capacity.mode == "reservation" or not nodes:
            continue
        if isinstance(pool, GpuPool):
            accelerator, each = plan.gpus(pool)
        else:
            accelerator, each = pool.version, plan.pool_slice(pool).chips_per_host
        surge = MODES[pool.capacity.mode].surge
        whole = isinstance(pool, TpuPool) and plan.pool_slice(pool).multi_host
        # https://cloud.google.com/kubernetes-engine/docs/how-to/node-upgrades-quota; a slice is upgraded in its place.
        further = 0 if whole else surge
        user = f"pool {pool.name}" + (" (one more node in upgrades)" if further else "")
        yield accelerator, pool.capacity.mode, (nodes + further) * each, user
    for workload in plan.workloads(settings):
        if plan.pools_of(workload, settings) or getattr(workload, "compute_class", None) is not None:
            continue
        each = plan.accelerators(workload, settings)[1] * _pods(workload, settings)
        if isinstance(workload, JetStream | TpuBatch | Multislice):
            if workload.tpu is not None:
                yield workload.tpu.version, workload.tpu.capacity, each, workload.name
        elif isinstance(workload, GpuWorkload) and workload.accelerator is not None:
            yield workload.accelerator, "onDemand", each, workload.name


def _pods(workload: Workload, settings: Settings) -> int:
    if not isinstance(workload, Server):
        return plan.pods_at_once(workload, settings)
    autoscaler = plan.autoscaler_of(workload, settings)
    return autoscaler.max_replicas if autoscaler else workload.replicas


def machines(settings: Settings) -> list[MachineNeed]:
    """Machine types of the pools, where they are to be, and those of compute classes, which may be anywhere near."""
    cluster = settings.cluster
    found = []
    if cluster.mode == "standard":
        pool, path = cluster.system_pool, "gke-ai:cluster.systemPool.zones"
        zones = tuple(pool.zones or node_zones(cluster.location))
        found.append(MachineNeed(pool.machine_type, zones, f"pool {pool.name}", path, bool(pool.zones)))
    for own in plan.pools(settings):
        machine_type = own.machine_type if isinstance(own, GpuPool) else plan.pool_slice(own).machine_type
        assert machine_type is not None
        zones = plan.pool_zones(own, cluster)
        found.append(MachineNeed(machine_type, zones, f"pool {own.name}", own.at("zones"), bool(own.zones)))
    for one in settings.compute_classes:
        for index, priority in enumerate(one.priorities):
            zones, path = node_zones(cluster.location), one.at(f"priorities[{index}].machineType")
            found.append(MachineNeed(priority.machine_type, zones, f"compute class {one.name}", path, any_zone=True))
    return found


def gke_features(settings: Settings) -> list[str]:
    """Features of the stack that not every version of GKE has."""
    classes = [priority for one in settings.compute_classes for priority in one.priorities]
    wanted = {
        features.FLEX_START: any(MODES[pool.capacity.mode].elastic for pool in settings.gpu_pools),
        features.FLEX_START_TPU: any(MODES[pool.capacity.mode].elastic for pool in settings.tpu_pools)
        or any(_slice_mode(one) == "flexStart" for one in plan.workloads(settings)),
        features.COMPUTE_CLASS: bool(settings.compute_classes),
        features.COMPUTE_CLASS_FLEX_START: any(one.capacity.mode == "flexStart" for one in classes),
        features.COMPUTE_CLASS_POOLS: any(one.auto_create_pools for one in settings.compute_classes),
        features.TPU7X: "tpu7x" in _tpu_versions(settings) and not plan.is_autopilot(settings.cluster),
        features.TPU7X_AUTOPILOT: "tpu7x" in _tpu_versions(settings) and plan.is_autopilot(settings.cluster),
        features.SECRET_SYNC: settings.hf_token_secret is not None,
        features.JOBSET_METRICS: settings.monitoring is not None and bool(plan.jobsets(settings)),
    }
    return [feature for feature, needed in wanted.items() if needed]


def _tpu_versions(settings: Settings) -> set[str]:
    """TPU versions of the pools, and of workloads on nodes that Google makes."""
    slices = [workload.tpu for workload in plan.workloads(settings) if isinstance(workload, TpuWorkload)]
    return {one.version for one in (*settings.tpu_pools, *slices) if one is not None}


def _slice_mode(workload: Workload) -> str | None:
    tpu = getattr(workload, "tpu", None)
    return tpu.capacity if tpu is not None else None


def permissions(settings: Settings) -> dict[str, tuple[str, ...]]:
    """What whoever deploys must be allowed to do, by a role that allows it."""
    makes_nodes = settings.cluster.mode != "existing" or bool(plan.pools(settings))
    makes_accounts = plan.makes_accounts(settings)
    wanted = {
        "roles/browser": True,
        "roles/iam.serviceAccountUser": makes_nodes,
        "roles/storage.admin": bool(settings.buckets),
        "roles/compute.networkAdmin": settings.cluster.vpc is not None,
        "roles/iam.serviceAccountAdmin": makes_accounts,
        "roles/resourcemanager.projectIamAdmin": makes_accounts,
        "roles/serviceusage.serviceUsageAdmin": settings.enable_apis,
        "roles/monitoring.editor": settings.monitoring is not None,
        "roles/secretmanager.admin": settings.hf_token_secret is not None,
    }
    of_cluster = {"roles/container.admin": CLUSTERS if makes_nodes else IN_CLUSTER}
    return of_cluster | {role: ROLES[role] for role, needed in wanted.items() if needed}
