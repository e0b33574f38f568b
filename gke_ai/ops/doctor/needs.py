"""Requirements of a stack before a first `up`: quota, machine types, GKE features, permissions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gke_ai.catalog.machines import features
from gke_ai.catalog.machines.capacity import MODES
from gke_ai.catalog.machines.types import machine
from gke_ai.catalog.machines.zones import node_zones
from gke_ai.catalog.nodes import project_quotas
from gke_ai.settings import ResolvedStack
from gke_ai.settings.model import TpuSlice
from gke_ai.settings.resolved.needs import has_rdma, makes_accounts

# A few permissions of each role, enough to tell whether the role is granted.
# https://cloud.google.com/iam/docs/roles-permissions
CLUSTERS = (
    *("container.clusters.create", "container.clusters.get", "container.clusters.update", "container.clusters.delete"),
    *("container.operations.get", "container.clusterRoleBindings.create", "container.secrets.create"),
)
IN_CLUSTER = ("container.clusters.get", "container.clusterRoleBindings.create", "container.secrets.create")
ROLES: Mapping[str, tuple[str, ...]] = {
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


@dataclass(frozen=True)
class QuotaNeed:
    """The maximum number of accelerators in a region. `metric` is None if the quota is one of the machine family."""

    region: str
    metric: str | None
    count: int
    of: str


@dataclass(frozen=True)
class MachineNeed:
    """A machine type that all of the zones must offer, or one of them with `any_zone`.

    `path` is the key of the zones, or with `any_zone` of the machine type. `stated` is whether the key is set.
    """

    machine_type: str
    zones: tuple[str, ...]
    of: str
    path: str
    stated: bool = True
    any_zone: bool = False


def quotas(stack: ResolvedStack) -> list[QuotaNeed]:
    """Returns the accelerators of pools at maximum size, and of workloads on nodes that GKE creates, by quota."""
    quota_needs: dict[tuple[str, str | None], QuotaNeed] = {}
    for accelerator, capacity, count, user in _accelerators(stack):
        metric = project_quotas.metric(accelerator, capacity)
        before = quota_needs.get((accelerator, metric))
        of = f"{before.of}, {user}" if before else f"{accelerator} of {user}"
        total = count + (before.count if before else 0)
        quota_needs[accelerator, metric] = QuotaNeed(stack.cluster.region, metric, total, of)
    return list(quota_needs.values())


def class_quotas(stack: ResolvedStack) -> list[QuotaNeed]:
    """Returns the accelerators of the workloads of each compute class, by priority. One priority with enough quota
    suffices."""
    quota_needs = []
    for compute_class in stack.settings.compute_classes:
        users = [user for user in stack.gpu_workloads if user.section.compute_class == compute_class.name]
        count = sum(user.accelerators * user.max_pods for user in users)
        for index, priority in enumerate(compute_class.priorities):
            accelerator, mode = machine(priority.machine_type).gpu, priority.capacity.mode
            if accelerator is None or not count or mode == "reservation":
                continue
            metric, path = project_quotas.metric(accelerator, mode), compute_class.at(f"priorities[{index}]")
            quota_needs.append(QuotaNeed(stack.cluster.region, metric, count, path))
    return quota_needs


def gpus_everywhere(stack: ResolvedStack) -> int:
    """Returns the GPUs of the stack at maximum size, of all types together."""
    return sum(count for accelerator, _, count, _ in _accelerators(stack) if accelerator.startswith("nvidia-"))


def _accelerators(stack: ResolvedStack) -> Iterator[tuple[str, str, int, str]]:
    """Yields (GPU type or TPU version, capacity mode, maximum accelerators, user). Reserved capacity is left out."""
    for pool, nodes in ((pool.section, pool.max_nodes) for pool in stack.node_pools):
        if pool.capacity.mode == "reservation" or not nodes * pool.accelerators_per_node:
            continue
        # GKE upgrades a multi-host slice in place: https://cloud.google.com/kubernetes-engine/docs/how-to/node-upgrades-quota
        extra = 0 if pool.is_one_slice else MODES[pool.capacity.mode].surge
        user = f"pool {pool.name}" + (" (one more node in upgrades)" if extra else "")
        yield pool.accelerator_type, pool.capacity.mode, (nodes + extra) * pool.accelerators_per_node, user
    for placed in stack.placed:
        if not placed.pools and placed.section.provisioned_capacity is not None:
            accelerator, mode = placed.section.provisioned_capacity
            yield accelerator, mode, placed.accelerators * placed.max_pods, placed.section.name


def machines(stack: ResolvedStack) -> list[MachineNeed]:
    """Returns the machine types of pools in their zones, and those of compute classes in any zone of the cluster."""
    cluster = stack.cluster
    machine_needs = []
    if cluster.mode == "standard":
        pool, path = cluster.system_pool, "gke-ai:cluster.systemPool.zones"
        zones = tuple(pool.zones or node_zones(cluster.location))
        machine_needs.append(MachineNeed(pool.machine_type, zones, f"pool {pool.name}", path, bool(pool.zones)))
    for own, zones in ((pool.section, pool.zones) for pool in stack.node_pools):
        path, stated = own.at("zones"), bool(own.zones)
        machine_needs.append(MachineNeed(own.node_machine_type, zones, f"pool {own.name}", path, stated))
    for compute_class in stack.settings.compute_classes:
        zones, user = node_zones(cluster.location), f"compute class {compute_class.name}"
        for index, priority in enumerate(compute_class.priorities):
            path = compute_class.at(f"priorities[{index}].machineType")
            machine_needs.append(MachineNeed(priority.machine_type, zones, user, path, any_zone=True))
    return machine_needs


def gke_features(stack: ResolvedStack) -> list[str]:
    """Returns the features of the stack that not every version of GKE has."""
    classes = stack.settings.compute_classes
    priorities = [priority for compute_class in classes for priority in compute_class.priorities]
    autopilot, tpu7x = stack.cluster.is_autopilot, "tpu7x" in _tpu_versions(stack)
    wanted = {
        features.FLEX_START: any(pool.elastic for pool in stack.settings.gpu_pools),
        features.FLEX_START_TPU: any(pool.elastic for pool in stack.settings.tpu_pools)
        or any(tpu.capacity == "flexStart" for tpu in _tpu_slices(stack)),
        features.COMPUTE_CLASS: bool(classes),
        features.COMPUTE_CLASS_FLEX_START: any(priority.capacity.mode == "flexStart" for priority in priorities),
        features.COMPUTE_CLASS_POOLS: any(compute_class.auto_create_pools for compute_class in classes),
        features.TPU7X: tpu7x and not autopilot,
        features.TPU7X_AUTOPILOT: tpu7x and autopilot,
        **dict.fromkeys(features.of_machines(_machine_types(stack)), True),
        features.NETWORK_PROFILE: has_rdma(stack) and not autopilot,
        features.NETWORK_PROFILE_AUTOPILOT: has_rdma(stack) and autopilot,
        features.SECRET_SYNC: stack.settings.hf_token_secret is not None,
        features.SCALE_TO_ZERO: any(autoscaler.sleeps for autoscaler in stack.settings.autoscaling),
        features.INFERENCE_POOL: stack.settings.gateway is not None,
        features.JOBSET_METRICS: stack.settings.monitoring is not None and bool(stack.jobsets),
    }
    return [feature for feature, needed in wanted.items() if needed]


def _machine_types(stack: ResolvedStack) -> list[str]:
    """Returns the machine types that the stack's pools and compute classes name, and those of accelerators."""
    named = [pool.node_machine_type for pool in stack.pools]
    named += [priority.machine_type for of_class in stack.settings.compute_classes for priority in of_class.priorities]
    return [*named, *(machine.name for placed in stack.gpu_workloads for machine in placed.machines)]


def _tpu_slices(stack: ResolvedStack) -> list[TpuSlice]:
    """Returns the slices of workloads on nodes that GKE creates."""
    return [placed.section.tpu for placed in stack.tpu_workloads if placed.section.tpu is not None]


def _tpu_versions(stack: ResolvedStack) -> set[str]:
    """Returns the TPU versions of pools, and of workloads on nodes that GKE creates."""
    return {pool.version for pool in stack.settings.tpu_pools} | {tpu.version for tpu in _tpu_slices(stack)}


def permissions(stack: ResolvedStack) -> dict[str, tuple[str, ...]]:
    """Returns the permissions that the deploying account needs, by a role that has them."""
    makes_nodes = stack.cluster.mode != "existing" or bool(stack.settings.pools)
    accounts = makes_accounts(stack)
    wanted = {
        "roles/browser": True,
        "roles/iam.serviceAccountUser": makes_nodes,
        "roles/storage.admin": bool(stack.settings.buckets),
        "roles/compute.networkAdmin": stack.cluster.vpc is not None,
        "roles/iam.serviceAccountAdmin": accounts,
        "roles/resourcemanager.projectIamAdmin": accounts,
        "roles/serviceusage.serviceUsageAdmin": stack.settings.enable_apis,
        "roles/monitoring.editor": stack.settings.monitoring is not None,
        "roles/secretmanager.admin": stack.settings.hf_token_secret is not None,
    }
    of_cluster = {"roles/container.admin": CLUSTERS if makes_nodes else IN_CLUSTER}
    return of_cluster | {role: ROLES[role] for role, needed in wanted.items() if needed}
