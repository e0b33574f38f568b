"""Minimum and maximum number of accelerators of a stack, by capacity mode, and their cost per hour.

If the stack has a pool for the accelerators, the bounds of the pool count, whatever runs on it. If GKE creates the
nodes for pods (Autopilot, compute classes), or the cluster exists already, the requests of the workloads count: for a
server its replicas or the bounds of its autoscaler; for a run 0 as minimum, because it waits in a queue and ends, and
all its accelerators as maximum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from math import ceil
from typing import Any

from gke_ai.catalog.machines.capacity import MODES, moment
from gke_ai.catalog.machines.types import MACHINES, Machine
from gke_ai.catalog.machines.zones import region_of
from gke_ai.catalog.nodes.shape import COMPUTE_CLASS, GKE_ACCELERATOR, GKE_TPU_ACCELERATOR, NVIDIA_GPU
from gke_ai.kube.pods import accelerators as requested_accelerators
from gke_ai.kube.values import value
from gke_ai.registered.pools import accelerators, capacity_mode, node_bounds, until
from gke_ai.registered.types import CLUSTER, DEPLOYMENT, HORIZONTAL_POD_AUTOSCALER, JOB, NODE_POOL
from gke_ai.registered.workloads import class_choice, replica_bounds
from gke_ai.review.report.changes import UNKNOWN, PlannedUpdate, Resource
from gke_ai.settings.calibration import Calibration
from gke_ai.workspace.prices import Prices

# GKE uses the first capacity mode that is available.
ELSE = ", else "
# Capacity mode of nodes that this stack neither creates nor requests.
THEIRS = "chosen by their owner"

Key = tuple[str, str]


@dataclass(frozen=True)
class Supply:
    """Accelerators of one type from one pool or workload: `min_count` to `max_count` of them.

    `choices` are the machine types and capacity modes that can provide them. Without a machine type, GKE chooses it.
    `region` is that of the pool, else of the stack's own cluster; empty if neither is known.
    """

    accelerator: str
    capacity: str
    place: str
    min_count: int
    max_count: int
    choices: tuple[tuple[str | None, str], ...]
    region: str = ""

    @property
    def key(self) -> Key:
        """Capacity mode and accelerator, by which the report sums."""
        return self.capacity, self.accelerator

    @property
    def priced(self) -> tuple[tuple[str, str], ...]:
        """Regions and keys of the prices that its cost needs: none without accelerators."""
        names = [(machine or self.accelerator, mode) for machine, mode in self.choices]
        return tuple((self.region, f"{name}/{mode}") for name, mode in names) if self.max_count else ()

    def cost(self, prices: Prices) -> tuple[Decimal, Decimal] | None:
        """Returns the minimum and maximum cost per hour; None if a choice has no price."""
        if self.max_count == 0:
            return Decimal(0), Decimal(0)
        hours = [cost for machine, mode in self.choices for cost in [self._cost(prices, machine, mode)]]
        known = [cost for cost in hours if cost is not None]
        if len(known) < len(hours) or not known:
            return None
        return min(cost for cost, _ in known), max(cost for _, cost in known)

    def _cost(self, prices: Prices, machine: str | None, mode: str) -> tuple[Decimal, Decimal] | None:
        price = prices.of(machine or self.accelerator, mode, self.region)
        count = accelerators_of(MACHINES[machine]) if machine else 1
        return None if price is None else (ceil(self.min_count / count) * price, ceil(self.max_count / count) * price)


def supplies(resources: Mapping[str, Resource], default: str = "") -> list[Supply]:
    """Returns the accelerators of each pool and workload of a stack. `default`: its region if none is registered."""
    all_supplies = [supply for pool in resources.values() if pool.type == NODE_POOL for supply in of_pool(pool)]
    region = next((region for own in resources.values() if own.type == CLUSTER and (region := region_at(own))), default)
    for workload in resources.values():
        if not pools_of(workload, resources):
            all_supplies += of_workload(workload, resources)
    all_supplies = [replace(supply, region=supply.region or region) for supply in all_supplies]
    return sorted(all_supplies, key=lambda supply: (supply.key, supply.place))


def pools_of(workload: Resource, resources: Mapping[str, Resource]) -> list[Resource]:
    """Returns the pools that a workload uses: those that it, or its component, depends on."""
    waits = workload.dependencies
    if parent := resources.get(workload.parent):
        waits |= parent.dependencies
    pools = (resources[urn] for urn in sorted(waits) if urn in resources and resources[urn].type == NODE_POOL)
    return [pool for pool in pools if accelerated(pool)]


def accelerated(pool: Resource) -> bool:
    """Whether the nodes of a pool have accelerators."""
    return any(True for _ in of_pool(pool))


def of_pool(pool: Resource) -> Iterator[Supply]:
    """Yields the accelerators of a node pool by its bounds, if it has any."""
    found, machine_type = accelerators(pool.inputs), value(pool.inputs, "nodeConfig", "machineType")
    if found is None or machine_type not in MACHINES:
        return
    bounds, capacity = node_bounds(pool.inputs), capacity_mode(pool.inputs)
    count = found.per_node
    choices = ((machine_type, capacity),)
    least, most = count * bounds.minimum, count * bounds.maximum
    yield Supply(found.name, capacity, pool.title, least, most, choices, region_at(pool))


def region_at(resource: Resource) -> str:
    """Returns the region of a cluster or a pool; empty if it is not known yet."""
    location = value(resource.inputs, "location")
    return region_of(location) if isinstance(location, str) and location != UNKNOWN else ""


def of_workload(workload: Resource, resources: Mapping[str, Resource]) -> Iterator[Supply]:
    """Yields the accelerators that a workload without a pool of the stack requests."""
    for min_count, max_count, pod in pods_of(workload, resources):
        for resource, count in requested_accelerators(pod).items():
            selector = pod.get("nodeSelector") or {}
            choices = choices_of(selector, resources)
            label = GKE_ACCELERATOR if resource == NVIDIA_GPU else GKE_TPU_ACCELERATOR
            accelerator = selector.get(label) or next((of for name, _ in choices if (of := type_of(name))), resource)
            modes = ELSE.join(dict.fromkeys(mode for _, mode in choices))
            yield Supply(accelerator, modes, workload.title, min_count * count, max_count * count, choices)


def pods_of(workload: Resource, resources: Mapping[str, Resource]) -> Iterator[tuple[int, int, Mapping[str, Any]]]:
    """Yields the minimum and maximum number of a workload's pods, and their spec."""
    spec = workload.inputs.get("spec") or {}
    if workload.type == DEPLOYMENT:
        yield *replicas(workload, resources), pod_of(spec)
    elif workload.type == JOB:
        yield 0, int(spec.get("parallelism") or 1), pod_of(spec)
    elif workload.type.endswith(":JobSet"):
        for replicated_job in spec.get("replicatedJobs") or []:
            job = (replicated_job.get("template") or {}).get("spec") or {}
            yield 0, int(replicated_job.get("replicas") or 1) * int(job.get("parallelism") or 1), pod_of(job)


def replicas(deployment: Resource, resources: Mapping[str, Resource]) -> tuple[int, int]:
    """Returns the minimum and maximum replicas of a Deployment, from its autoscaler if it has one."""
    scalers = [scaler.inputs for scaler in resources.values() if scaler.type == HORIZONTAL_POD_AUTOSCALER]
    return replica_bounds(deployment.inputs, scalers)


def pod_of(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the pod spec in the spec of a controller."""
    pod_spec: Mapping[str, Any] = (spec.get("template") or {}).get("spec") or {}
    return pod_spec


def choices_of(selector: Mapping[str, str], resources: Mapping[str, Resource]) -> tuple[tuple[str | None, str], ...]:
    """Returns machine types and capacity modes for pods with a node selector, by preference."""
    if name := selector.get(COMPUTE_CLASS):
        for resource in resources.values():
            if resource.type.endswith(":ComputeClass") and not resource.is_component and resource.name == name:
                return tuple(class_choice(priority) for priority in resource.inputs["spec"]["priorities"])
        return ((None, THEIRS),)
    for mode in ("spot", "flexStart"):
        if MODES[mode].labels.items() <= selector.items():
            return ((None, mode),)
    own = [resource.inputs for resource in resources.values() if resource.type == CLUSTER]
    return ((None, "onDemand" if any(cluster.get("enableAutopilot") for cluster in own) else THEIRS),)


def accelerators_of(machine_type: Machine) -> int:
    """Returns the GPUs or chips of a machine type; 1 if GPUs are attached to it."""
    return machine_type.gpus or machine_type.chips or 1


def type_of(machine: str | None) -> str | None:
    """Returns the accelerator of a machine type."""
    machine_type = MACHINES.get(machine or "")
    return (machine_type.gpu or machine_type.tpu) if machine_type else None


@dataclass(frozen=True)
class Total:
    """Accelerators and their cost per hour, as minimum and maximum.

    `unpriced` has the regions and keys of prices that are missing, so that the cost lacks all accelerators with them.
    """

    min_count: int = 0
    max_count: int = 0
    cost: tuple[Decimal, Decimal] = (Decimal(0), Decimal(0))
    unpriced: tuple[tuple[str, str], ...] = ()


def total(supplies: Iterable[Supply], prices: Prices | None) -> Total:
    """Sums up supplies."""
    sum_ = Total()
    for supply in supplies:
        cost = supply.cost(prices) if prices else None
        missing = [(region, key) for region, key in supply.priced if prices and prices.at(key, region) is None]
        min_cost, max_cost = cost or (Decimal(0), Decimal(0))
        sum_ = Total(
            sum_.min_count + supply.min_count,
            sum_.max_count + supply.max_count,
            (sum_.cost[0] + min_cost, sum_.cost[1] + max_cost),
            tuple(dict.fromkeys([*sum_.unpriced, *missing])),
        )
    return sum_


def before_and_after(plan: PlannedUpdate) -> tuple[list[Supply], list[Supply]]:
    """Returns the supplies of accelerators before and after a plan."""
    return supplies(plan.before), supplies(plan.after)


def ends(resources: Mapping[str, Resource]) -> list[str]:
    """Returns the ends of the reservations of a stack's pools."""
    pools = sorted((pool.title, until(pool.inputs)) for pool in resources.values() if pool.type == NODE_POOL)
    return [
        f"The reservation of {title} ends at {moment(end)}. Google then deletes it with its machines, also under pods."
        for title, end in pools
        if end
    ]


def remarks(resources: Mapping[str, Resource], measured: Calibration) -> list[str]:
    """Returns what Google said of the machines, in their capacity modes, that a stack can use."""
    choices = {choice for supply in supplies(resources) for choice in supply.choices}
    return [remark for machine, mode in sorted(choices, key=str) for remark in measured.remarks(machine or "", mode)]
