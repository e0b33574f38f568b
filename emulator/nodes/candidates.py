"""Pools that can give a pod a node: existing pools, and pools that Autopilot or a compute class would create."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

from emulator.cloud.records import ClusterRecord, PoolRecord
from emulator.nodes import fit
from gke_ai.catalog.fabric.rdma import DRIVER_LABEL
from gke_ai.catalog.machines.capacity import MODES, mode_of_priority
from gke_ai.catalog.machines.tpus import GOOGLE_TPU, VERSIONS, Slice, slices
from gke_ai.catalog.machines.types import MACHINES
from gke_ai.catalog.nodes import shape
from gke_ai.catalog.nodes.shape import DEFAULT_GB, autopilot_disk
from gke_ai.workspace.emulation import ALONE

Object = dict[str, Any]

CREATED_POOL_PREFIX = "nap-"
MAX_CREATED_NODES = 1000  # in each zone


class Candidate(NamedTuple):
    """A pool that may give a pod a node.

    Attributes:
        pool: The pool.
        title: Name of the candidate in messages.
        created: Whether GKE creates the pool for the pod.
    """

    pool: PoolRecord
    title: str
    created: bool


def candidates(
    cluster: ClusterRecord, pools: Iterable[PoolRecord], classes: Mapping[str, Object], pod: Object
) -> Iterable[Candidate]:
    """Returns the pools that may give the pod a node, best first.

    Raises LookupError with the reason if none may.
    """
    autopilot = cluster.mode == "autopilot"
    name = pod["spec"].get("nodeSelector", {}).get(shape.COMPUTE_CLASS)
    if name is not None:
        if name not in classes:
            raise LookupError(f"compute class {name} doesn't exist")
        spec = classes[name]["spec"]
        if autopilot or spec.get("nodePoolAutoCreation", {}).get("enabled"):
            return _class_candidates(cluster, list(pools), name, spec, pod)
    if autopilot:
        pool = _autopilot_pool(cluster, pod)
        return [Candidate(pool, pool.name, created=True)]
    return [Candidate(pool, pool.name, created=False) for pool in pools]


def _class_candidates(
    cluster: ClusterRecord, pools: list[PoolRecord], name: str, spec: Object, pod: Object
) -> list[Candidate]:
    """The class's pools and those that GKE creates, by priority. Raises LookupError if no priority has any.

    https://cloud.google.com/kubernetes-engine/docs/concepts/about-custom-compute-classes
    """
    result: list[Candidate] = []
    created: list[PoolRecord] = []
    unknown: list[str] = []
    of_class = [pool for pool in pools if pool.labels.get(shape.COMPUTE_CLASS) == name and pool.autoscaled]
    for number, priority in enumerate(spec.get("priorities", []), 1):
        own = [pool for pool in of_class if _has_priority(pool, priority)]
        result += [Candidate(pool, f"priority {number} of {name} ({pool.name})", created=False) for pool in own]
        if "nodepools" in priority:
            continue  # it creates no pool
        try:
            pool = _class_pool(cluster, name, number, priority)
            if spec.get("nodePoolConfig", {}).get("dra", {}).get("networking", {}).get("enabled"):
                pool = replace(pool, labels={DRIVER_LABEL: "true"})
            if cluster.mode == "autopilot" or spec.get("autopilot", {}).get("enabled"):
                pool = _with_disk_for(pod, pool)
        except LookupError as reason:
            unknown.append(str(reason))
        else:
            created.append(pool)
            title = f"priority {number} of {name} ({pool.capacity} {pool.machine_type})"
            result.append(Candidate(pool, title, created=True))
    if spec.get("whenUnsatisfiable") == "ScaleUpAnyway":
        pool = _autopilot_pool(cluster, pod, gpu=next((pool.gpu for pool in created if pool.gpu), None))
        pool = replace(pool, name=f"{pool.name}-{_hash(name)}", compute_class=name)
        result.append(Candidate(pool, f"any machine for {name} ({pool.machine_type})", created=True))
    if not result:
        raise LookupError("; ".join(unknown) or f"no pool of the cluster belongs to compute class {name}")
    return result


def _has_priority(pool: PoolRecord, priority: Object) -> bool:
    """Whether an existing pool of a class has everything that a priority states.

    https://github.com/GoogleCloudPlatform/cluster-autoscaler/tree/7d250507339b/pkg/computeclass/rules
    """
    if "nodepools" in priority:
        return pool.name in priority["nodepools"]
    gpu, zones = priority.get("gpu", {}), priority.get("location", {}).get("zones")
    mode = mode_of_priority(priority)
    return (
        priority.get("machineType", pool.machine_type) == pool.machine_type
        # A priority that doesn't ask for flex-start also has flex-start pools.
        and (pool.capacity == mode or (mode == "onDemand" and pool.capacity == "flexStart"))
        and (gpu.get("type", pool.gpu), gpu.get("count", pool.gpus)) == (pool.gpu, pool.gpus)
        and (zones is None or set(zones) == set(pool.zones))
        and priority.get("acceleratorNetworkProfile", pool.network_profile) == pool.network_profile
    )


def _class_pool(cluster: ClusterRecord, name: str, number: int, priority: Object) -> PoolRecord:
    """The pool that GKE creates for a priority. Raises LookupError if the emulator doesn't know its machine."""
    machine = MACHINES.get(priority.get("machineType", ""))
    if machine is None:
        message = f"priority {number} of compute class {name} has no machineType that the emulator knows"
        raise LookupError(message)
    capacity = mode_of_priority(priority)
    gpu_settings = priority.get("gpu", {})
    gpu, gpus = gpu_settings.get("type", machine.gpu), gpu_settings.get("count", machine.gpus)
    accelerators = f"-gpu{gpus}" if gpus else ""
    return PoolRecord(
        # As in nap-g2-standard-24-spot-gpu2-1gbdlbxz.
        name=f"{CREATED_POOL_PREFIX}{machine.name}-{MODES[capacity].provisioning}{accelerators}-{_hash(name)}",
        machine_type=machine.name,
        gpu=gpu,
        gpus=gpus,
        driver=gpu_settings.get("driverVersion", "default"),
        capacity=capacity,
        zones=(zones := priority.get("location", {}).get("zones", cluster.zones)),
        max_nodes=MAX_CREATED_NODES * len(zones),
        topology=priority.get("tpu", {}).get("topology"),
        compute_class=name,
        network_profile=priority.get("acceleratorNetworkProfile", ""),
    )


def _autopilot_pool(cluster: ClusterRecord, pod: Object, gpu: str | None = None) -> PoolRecord:
    """Returns the pool that Autopilot creates for a pod.

    Raises LookupError with the reason if it creates none.

    `gpu` is the GPU type if the pod doesn't select one.
    """
    selector = pod["spec"].get("nodeSelector", {})
    requests = fit.requests(pod)
    # A pod selects a capacity mode by the labels of its nodes, such as gke-spot=true.
    selected = (name for name, mode in MODES.items() if mode.labels and mode.labels.items() <= selector.items())
    capacity = next(selected, "onDemand")
    if requests.get(GOOGLE_TPU):
        tpu = _selected_slice(selector, int(requests[GOOGLE_TPU]))
        machine, topology = MACHINES[tpu.machine_type], tpu.topology
        # Each multi-host slice has a pool of its own, named after the first pod.
        suffix = f"-{_hash(pod['metadata']['uid'])}" if tpu.multi_host else ""
    else:
        gpus = int(requests.get(shape.NVIDIA_GPU, 0))
        gpu = selector.get(shape.GKE_ACCELERATOR, gpu if gpus else None)
        if gpus and gpu is None:
            raise LookupError(
                f"the pod requests {shape.NVIDIA_GPU} but has no node selector {shape.GKE_ACCELERATOR} for the GPU type"
            )
        cpu, memory = requests.get("cpu", Fraction(0)), requests.get("memory", Fraction(0))
        machine, topology, suffix = shape.autopilot_machine(gpu, gpus, cpu, memory, capacity), None, ""
    alone = {"key": ALONE, "value": str(machine.gpus), "effect": "NoSchedule"}
    pool = PoolRecord(
        name=f"{CREATED_POOL_PREFIX}{machine.name}-{MODES[capacity].provisioning}{suffix}",
        machine_type=machine.name,
        gpu=machine.gpu,
        gpus=machine.gpus,
        driver=selector.get(shape.GKE_GPU_DRIVER_VERSION, "default"),
        capacity=capacity,
        zones=cluster.zones,
        max_nodes=MAX_CREATED_NODES * len(cluster.zones),
        topology=topology,
        # A pod from before the policy in autopilot.yaml tolerates no taint.
        taints=[alone] if machine.gpus and fit.tolerates(pod, alone) else [],
    )
    return _with_disk_for(pod, pool)


def _with_disk_for(pod: Object, pool: PoolRecord) -> PoolRecord:
    """The pool with a boot disk that has room for the pod. With a larger disk it is another pool."""
    storage = fit.requests(pod).get("ephemeral-storage", Fraction(0))
    disk_gb = autopilot_disk(pool.shape(pool.zones[0]), storage)
    return pool if disk_gb == DEFAULT_GB else replace(pool, name=f"{pool.name}-disk{disk_gb}", disk_gb=disk_gb)


def _selected_slice(selector: Mapping[str, str], chips: int) -> Slice:
    """Returns the TPU slice that a pod selects by its node selectors and its number of chips."""
    accelerator, topology = selector.get(shape.GKE_TPU_ACCELERATOR), selector.get(shape.GKE_TPU_TOPOLOGY)
    if accelerator is None or topology is None:
        selectors = f"{shape.GKE_TPU_ACCELERATOR} and {shape.GKE_TPU_TOPOLOGY}"
        raise LookupError(f"the pod requests {GOOGLE_TPU} but lacks one of the node selectors {selectors}")
    versions = [version.name for version in VERSIONS.values() if version.accelerator == accelerator]
    for tpu in (tpu for version in versions for tpu in slices(version)):
        if (tpu.topology, tpu.chips_per_host) == (topology, chips):
            return tpu
    raise LookupError(f"no {topology} slice of {accelerator} has machines of {chips} chips, which the pod requests")


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
