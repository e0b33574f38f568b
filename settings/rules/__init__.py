"""Rules that keys must meet together. A rule is a function from settings to problems.

Rules run on all parsed sections. The first rules find an unknown location, impossible pools and unknown slices.
`check` sets these aside as unparsed, so that later rules neither fail on them nor report references to them.
"""

from __future__ import annotations

from settings.model import Cluster, Settings, Unparsed
from settings.plan import tpu_workloads as tpu_workloads_of
from settings.problems import Problem
from settings.rules import (
    autoscaling,
    buckets,
    cluster,
    cohorts,
    compute_classes,
    fit,
    flavors,
    gpu_workloads,
    model_memory,
    monitoring,
    network,
    pools,
    queues,
    serving,
    tenants,
    token,
    tpu_pools,
    tpu_workloads,
    versions,
    workloads,
)

RULES = (
    *token.RULES,
    *cluster.RULES,
    *network.RULES,
    *buckets.RULES,
    *pools.RULES,
    *tpu_pools.RULES,
    *flavors.RULES,
    *queues.RULES,
    *cohorts.RULES,
    *versions.RULES,
    *compute_classes.RULES,
    *workloads.RULES,
    *gpu_workloads.RULES,
    *tpu_workloads.RULES,
    *serving.RULES,
    *fit.RULES,
    *model_memory.RULES,
    *autoscaling.RULES,
    *tenants.RULES,
    *monitoring.RULES,
)


def check(settings: Settings) -> list[Problem]:
    """All problems of the settings, in the order of the rules."""
    wrong_location = list(cluster.location_exists(settings))
    if wrong_location:
        with_default = settings.cluster.model_copy(update={"location": Cluster().location})
        settings = _set_aside(settings, {"gke-ai:cluster.location"}, set(), cluster=with_default)
    problems = list(wrong_location)
    for pool in settings.gpu_pools:
        impossible = [*pools.machine_has_the_gpus(pool), *pools.zones_are_of_the_region(pool, settings)]
        if impossible:
            problems += impossible
            left = [other for other in settings.gpu_pools if other is not pool]
            settings = _set_aside(settings, {pool.at("machineType")}, {pool.name}, gpu_pools=left)
    for tpu_pool in settings.tpu_pools:
        impossible = [*tpu_pools.slice_exists(tpu_pool, tpu_pool), *pools.zones_are_of_the_region(tpu_pool, settings)]
        if impossible:
            problems += impossible
            others = [other for other in settings.tpu_pools if other is not tpu_pool]
            settings = _set_aside(settings, {tpu_pool.at("version")}, {tpu_pool.name}, tpu_pools=others)
    problems += tpu_pools.workloads_have_a_slice(settings)
    settings = _without_unknown_slices(settings)
    for rule in RULES:
        problems += rule(settings)
    return problems


def _without_unknown_slices(settings: Settings) -> Settings:
    """Settings without workloads and flavors whose TPU slice is unknown: their nodes cannot be described."""
    without_slice = [
        workload for workload in tpu_workloads_of(settings) if not tpu_pools.has_a_slice(workload, settings)
    ]
    for section in ("serving", "training", "batch"):
        items = getattr(settings, section)
        unknown = [item for item in items if item in without_slice]
        if unknown:
            left = [item for item in items if item not in unknown]
            paths, names = {item.at("tpu") for item in unknown}, {item.name for item in unknown}
            settings = _set_aside(settings, paths, names, **{section: left})
    flavors = settings.queues.flavors if settings.queues else []
    unknown_flavors = [
        flavor for flavor in flavors if flavor.tpu is not None and any(tpu_pools.slice_exists(flavor, flavor.tpu))
    ]
    if settings.queues and unknown_flavors:
        reduced = settings.queues.model_copy(
            update={"flavors": [flavor for flavor in flavors if flavor not in unknown_flavors]}
        )
        paths, names = {flavor.at("tpu") for flavor in unknown_flavors}, {flavor.name for flavor in unknown_flavors}
        settings = _set_aside(settings, paths, names, queues=reduced)
    return settings


def _set_aside(settings: Settings, paths: set[str], names: set[str], **left: object) -> Settings:
    reduced = settings.model_copy(update=left)
    reduced._unparsed = Unparsed(settings.unparsed.paths | paths, settings.unparsed.names | names)
    return reduced
