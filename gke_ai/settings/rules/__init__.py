"""Rules that keys must meet together. A rule is a function from settings to problems.

Rules run on all parsed sections. The first rules find an unknown location, impossible pools and unknown slices.
`check` sets these aside as unresolved, so that later rules neither fail on them nor report references to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from gke_ai.settings.model import Cluster, GpuPool, Pool, Settings, TpuPool, Unresolved
from gke_ai.settings.problems import Problem
from gke_ai.settings.resolved import ResolvedStack
from gke_ai.settings.rules import (
    autoscaling,
    buckets,
    budgets,
    cluster,
    cohorts,
    compute_classes,
    existing_kueue,
    fabric,
    fit,
    gateway,
    maintenance,
    model_memory,
    monitoring,
    network,
    nvlink,
    pools,
    queues,
    runs,
    secrets,
    serving,
    sharing,
    sleeping,
    tenants,
    topology,
    tpu_pools,
    weights,
    workloads,
)
from gke_ai.settings.rules.common import Rule

# In the order in which their problems are found. `check` sorts them by section.
MODULES = (
    *(secrets, cluster, maintenance, network, buckets),
    *(pools, nvlink, tpu_pools, queues, existing_kueue, cohorts, sharing, compute_classes),
    *(workloads, runs, topology, fabric),
    *(serving, weights, fit, model_memory, autoscaling, sleeping, gateway, tenants, budgets, monitoring),
)
RULES = [rule for module in MODULES for rule in vars(module).values() if isinstance(rule, Rule)]


# What makes the nodes of a pool impossible, by the kind of pool. By default: an unknown machine type.
MACHINE_RULES: Mapping[type[Pool], Callable[[Any], Iterator[Problem]]] = {
    GpuPool: pools.machine_has_the_gpus,
    TpuPool: tpu_pools.slice_of_pool_exists,
}


def check(stack: ResolvedStack) -> list[Problem]:
    """All problems of the stack, in the order of the rules."""
    problems = list(cluster.location_exists(stack.cluster, stack.unresolved))
    if problems:
        with_default = stack.cluster.model_copy(update={"location": Cluster().location})
        stack = _set_aside(stack, {"gke-ai:cluster.location"}, set(), cluster=with_default)
    for pool in stack.pools:
        machine_exists = MACHINE_RULES.get(type(pool), pools.machine_is_known)
        zones = pools.zones_are_of_the_region(pool, stack.cluster, stack.unresolved)
        if impossible := [*machine_exists(pool), *zones]:
            problems += impossible
            stack = _set_aside(stack, {pool.at("machineType")}, {pool.name}, **_lists_without(pool, stack.settings))
    problems += tpu_pools.workloads_have_a_slice(stack)
    stack = _without_unknown_slices(stack)
    for rule in RULES:
        problems += rule.check(stack)
    return problems


def _lists_without(pool: Pool, settings: Settings) -> dict[str, list[object]]:
    """The list of the settings with the pool, by its key, without the pool."""
    lists = {key: value for key, value in settings if isinstance(value, list)}
    return {
        key: [other for other in items if other is not pool]
        for key, items in lists.items()
        if any(item is pool for item in items)
    }


def _without_unknown_slices(stack: ResolvedStack) -> ResolvedStack:
    """The stack without workloads and flavors whose TPU slice is unknown: their nodes cannot be described."""
    without_slice = [placed.section for placed in stack.tpu_workloads if not placed.has_slice]
    for section in ("serving", "training", "batch"):
        items = getattr(stack.settings, section)
        unknown = [item for item in items if item in without_slice]
        if unknown:
            left = [item for item in items if item not in unknown]
            paths, names = {item.at("tpu") for item in unknown}, {item.name for item in unknown}
            stack = _set_aside(stack, paths, names, **{section: left})
    queues = stack.settings.queues
    flavors = queues.flavors if queues else []
    unknown_flavors = [
        flavor for flavor in flavors if flavor.tpu is not None and any(tpu_pools.slice_exists(flavor, flavor.tpu))
    ]
    if queues and unknown_flavors:
        reduced = queues.model_copy(update={"flavors": [flavor for flavor in flavors if flavor not in unknown_flavors]})
        paths, names = {flavor.at("tpu") for flavor in unknown_flavors}, {flavor.name for flavor in unknown_flavors}
        stack = _set_aside(stack, paths, names, queues=reduced)
    return stack


def _set_aside(stack: ResolvedStack, paths: set[str], names: set[str], **left: object) -> ResolvedStack:
    unresolved = Unresolved(stack.unresolved.paths | paths, stack.unresolved.names | names)
    return replace(stack, settings=stack.settings.model_copy(update=left), unresolved=unresolved)
