"""What must fit together in a stack. Each rule is a function from settings to problems, and reads on its own.

Rules run on what could be read. First those that decide whether the cluster and the pools can be described at all; what
can't is set aside as unparsed, so that the others neither stumble over it nor blame what refers to it.
"""

from __future__ import annotations

from settings.model import Cluster, Settings, Unparsed
from settings.problems import Problem
from settings.rules import (
    autoscaling,
    buckets,
    cluster,
    compute_classes,
    fit,
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
    *queues.RULES,
    *versions.RULES,
    *compute_classes.RULES,
    *workloads.RULES,
    *tpu_workloads.RULES,
    *serving.RULES,
    *fit.RULES,
    *model_memory.RULES,
    *autoscaling.RULES,
    *tenants.RULES,
    *monitoring.RULES,
)


def check(settings: Settings) -> list[Problem]:
    """Every problem of the settings, in the order of the rules."""
    nowhere = list(cluster.location_exists(settings))
    if nowhere:
        somewhere = settings.cluster.model_copy(update={"location": Cluster().location})
        settings = _set_aside(settings, {"gke-ai:cluster.location"}, set(), cluster=somewhere)
    problems = list(nowhere)
    for pool in settings.gpu_pools:
        impossible = [*pools.machine_has_the_gpus(pool), *pools.zones_are_of_the_region(pool, settings)]
        if impossible:
            problems += impossible
            left = [one for one in settings.gpu_pools if one is not pool]
            settings = _set_aside(settings, {pool.at("machineType")}, {pool.name}, gpu_pools=left)
    for tpus in settings.tpu_pools:
        impossible = [*tpu_pools.slice_exists(tpus, tpus), *pools.zones_are_of_the_region(tpus, settings)]
        if impossible:
            problems += impossible
            others = [one for one in settings.tpu_pools if one is not tpus]
            settings = _set_aside(settings, {tpus.at("version")}, {tpus.name}, tpu_pools=others)
    problems += tpu_pools.slices_are_told(settings)
    settings = _without_unknown_slices(settings)
    for rule in RULES:
        problems += rule(settings)
    return problems


def _without_unknown_slices(settings: Settings) -> Settings:
    """Without what wants TPUs of a slice that can't be told: neither its nodes nor its size can be described."""
    lost = [one for one in tpu_pools.slice_workloads(settings) if not tpu_pools.has_a_slice(one, settings)]
    for section in ("serving", "training", "batch"):
        every = getattr(settings, section)
        here = [one for one in every if one in lost]
        if here:
            left = [one for one in every if one not in here]
            lost_at, names = {one.at("tpu") for one in here}, {one.name for one in here}
            settings = _set_aside(settings, lost_at, names, **{section: left})
    flavors = settings.queues.flavors if settings.queues else []
    nowhere = [one for one in flavors if one.tpu is not None and any(tpu_pools.slice_exists(one, one.tpu))]
    if settings.queues and nowhere:
        reduced = settings.queues.model_copy(update={"flavors": [one for one in flavors if one not in nowhere]})
        lost_at, names = {one.at("tpu") for one in nowhere}, {one.name for one in nowhere}
        settings = _set_aside(settings, lost_at, names, queues=reduced)
    return settings


def _set_aside(settings: Settings, paths: set[str], names: set[str], **left: object) -> Settings:
    reduced = settings.model_copy(update=left)
    reduced._unparsed = Unparsed(settings.unparsed.paths | paths, settings.unparsed.names | names)
    return reduced
